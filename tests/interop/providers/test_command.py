"""The command with models of providers, by their SDKs, and local servers of their APIs."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interop.providers.scripted import Called, Failed, Said
from tests.interop.providers.serve import Serve
from tests.interop.providers.servers.anthropic import AnthropicServer
from tests.interop.providers.servers.openai_chat import OpenAIChatServer

ROOT = Path(__file__).parents[3]
IN_TIME = 60.0  # seconds for programs that import everything, on a busy machine
MODEL = "anthropic:claude-sonnet-5"
KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "OPENAI_BASE_URL", "GEMINI_API_KEY")
DESK = ["-e", f"PYTHONPATH={ROOT}", "--", sys.executable, "-c", "from tests.cli.desk import server; server.run_stdio()"]
ADD = Called("add", {"a": 1, "b": 2})


def environment(**variables: str) -> dict[str, str]:
    """That of this process, with these variables and no other keys of providers."""
    return {name: value for name, value in os.environ.items() if name not in KEYS} | variables


def chat(*argv: str, **variables: str) -> tuple[int, str, str]:
    """The exit code, stdout and stderr of `mcp-host chat`, with one prompt."""
    command = [sys.executable, "-m", "mcp_host", "chat", *argv, *DESK]
    env = environment(**variables)
    done = subprocess.run(
        command, input="Add.", capture_output=True, text=True, cwd=ROOT, env=env, timeout=IN_TIME, check=False
    )
    return done.returncode, done.stdout, done.stderr


def of(api: AnthropicServer) -> dict[str, str]:
    return {"ANTHROPIC_BASE_URL": api.url, "ANTHROPIC_API_KEY": api.key}


def test_a_model_of_a_provider_calls_a_tool_and_answers(serve: Serve) -> None:
    api = serve(AnthropicServer, Said(text="I add.", calls=[ADD]), Said(text="It is 3."))

    code, out, err = chat("--model", MODEL, "--yes", "--system", "Be brief.", "--max-tokens", "99", **of(api))

    assert (code, out) == (0, "I add.\nIt is 3.\n")
    assert err.endswith("    result        add: 3\n(22 tokens in, 14 out)\n")
    assert (api.last["system"], api.last["max_tokens"], api.last["stream"]) == ("Be brief.", 99, True)


def test_a_provider_is_asked_once_more_if_it_says_when_and_not_by_its_sdk(serve: Serve) -> None:
    api = serve(AnthropicServer, *[Failed(status=429, retry_after="0.001")] * 2, Said(text="Here I am."))

    code, out, err = chat("--model", MODEL, **of(api))

    assert (code, out, len(api.heard)) == (9, "", 2)
    assert err.splitlines()[-1].startswith("mcp-host: anthropic: RateLimitError (HTTP 429), rate_limit_error")


def test_verbose_shows_what_the_provider_says_of_a_failure_without_the_key(serve: Serve) -> None:
    said = json.dumps({"error": {"message": f"Your credit balance is too low, {AnthropicServer.key}."}})
    api = serve(AnthropicServer, Failed(status=400, body=said))

    code, _, err = chat("--model", MODEL, "--verbose", **of(api))

    assert code == 9
    assert "anthropic: BadRequestError: Error code: 400 - {" in err
    assert "'Your credit balance is too low, <redacted>.'" in " ".join(err.split())


def test_a_model_without_a_key_is_an_error_of_usage() -> None:
    problem = "the SDK anthropic finds no key: set the environment variable ANTHROPIC_API_KEY"

    code, out, err = chat("--model", MODEL)

    assert (code, out) == (2, "")
    assert err.startswith(f"mcp-host: {problem}")


def test_the_key_is_in_a_file(serve: Serve, tmp_path: Path) -> None:
    api = serve(AnthropicServer, Said(text="Here I am."))
    file = tmp_path / "key"
    file.touch(0o600)
    file.write_text(f"{api.key}\n")

    code, out, _ = chat("--model", MODEL, "--api-key-file", str(file), ANTHROPIC_BASE_URL=api.url)

    assert (code, out) == (0, "Here I am.\n")


def test_the_key_is_in_the_keyring_where_its_own_command_has_stored_it(serve: Serve, tmp_path: Path) -> None:
    api = serve(AnthropicServer, Said(text="Here I am."))
    ring = {
        "PYTHON_KEYRING_BACKEND": "tests.auth.file_keyring.FileKeyring",
        "KEYRING_PROPERTY_FOLDER": str(tmp_path),
        "PYTHONPATH": str(ROOT),
    }
    subprocess.run(
        [sys.executable, "-m", "keyring", "set", "mcp-host", "ANTHROPIC_API_KEY"],
        input=f"{api.key}\n",
        text=True,
        env=environment(**ring),
        timeout=IN_TIME,
        check=True,
    )

    code, out, _ = chat("--model", MODEL, ANTHROPIC_BASE_URL=api.url, **ring)

    assert (code, out) == (0, "Here I am.\n")


def test_a_local_server_needs_no_key(serve: Serve) -> None:
    class KeylessServer(OpenAIChatServer):
        key = "none"

    api = serve(KeylessServer, Said(calls=[ADD]), Said(text="3"))

    code, out, _ = chat("--model", "openai-chat:local", "--yes", OPENAI_BASE_URL=f"{api.url}/v1")

    assert (code, out, len(api.heard)) == (0, "3\n", 2)


@pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are POSIX's")
def test_the_example_of_a_real_model(serve: Serve) -> None:
    add, multiply = Called("add", {"a": 3, "b": 4}), Called("multiply", {"a": 7, "b": 6})
    api = serve(AnthropicServer, Said(calls=[add]), Said(calls=[multiply]), Said(text="It is 42."))
    command = [sys.executable, str(ROOT / "examples" / "real_model.py")]
    ours, theirs = os.openpty()
    seen = b""
    env = environment(NO_COLOR="1", **of(api))

    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=env, start_new_session=True
    ) as process:
        os.close(theirs)
        for asked in range(1, 4):
            while seen.count(b"[y/a/s/v/N] ") < asked:
                assert select.select([ours], [], [], IN_TIME)[0], f"silence after {seen!r}"
                seen += os.read(ours, 4096)
            os.write(ours, b"y\n")
        process.wait(IN_TIME)
        seen += os.read(ours, 4096)
    os.close(ours)

    assert process.returncode == 0
    assert b"| What is (3 + 4) * 6?\r\n" in seen
    assert b"calls add {" in seen
    assert b"It is 42." in seen
    results = [message["content"] for message in api.last["messages"] if message["role"] == "user"][1:]
    assert [result["content"] for (result,) in results] == [
        [{"type": "text", "text": "7.0"}],
        [{"type": "text", "text": "42.0"}],
    ]
