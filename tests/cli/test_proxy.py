"""`mcp-host proxy` as hosts start it: a child process in front of a child process of its own."""

from __future__ import annotations

import gc
import logging
import os
import re
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from anyio import Event, fail_after

from mcp_host import Change, Client, Limits, Stdio, StreamableHttp, ToolPins, always
from mcp_host.auth import LoginFailed, OnDevice
from mcp_host.cli.arguments import parse
from mcp_host.cli.authorization import login_of
from mcp_host.cli.commands import proxy
from mcp_host.cli.console import Console
from mcp_host.cli.group import prepared
from mcp_host.cli.output import ConsentMissing, UsageError
from mcp_host.errors import ServerError
from mcp_host.proxy import Proxy, ask_host
from mcp_host.proxy.proxy import LIMITS
from mcp_host.sampling.terminal import ask_in_terminal
from tests.cli.bounded import IN_TIME
from tests.cli.conftest import Run
from tests.cli.terminals import ROOT
from tests.group.files import written
from tests.proxy.servers import text_of

CALCULATOR = ["--", sys.executable, str(ROOT / "examples" / "calculator_server.py")]


def proxied(*options: str) -> Stdio:
    return Stdio([sys.executable, "-m", "mcp_host", "proxy", *options], env=os.environ)  # coverage needs a part of it


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_server_of_a_host_without_a_model_gets_one(era: str) -> None:
    with fail_after(IN_TIME):
        async with Client(proxied("--model", "arithmetic", *CALCULATOR), era=era) as client:
            assert text_of(await client.call_tool("solve", {"problem": "2 * (3 + 4)"})) == "2 * (3 + 4) = 14"


async def test_a_server_that_cannot_be_started_is_named_to_the_host_and_in_the_log(tmp_path: Path) -> None:
    stderr: list[str] = []
    transport = replace(proxied("--log-file", str(tmp_path / "log"), "--", "/no/such/program"), on_stderr=stderr.append)
    with fail_after(IN_TIME), pytest.raises(ServerError, match="/no/such/program"):
        async with Client(transport, era="legacy"):
            pass
    [line] = (tmp_path / "log").read_text().splitlines()
    assert "WARNING mcp_host.proxy.relay: program: cannot start '/no/such/program'" in line
    assert line in stderr


# What a shell runs in the background ignores Ctrl-C, and so does all that it starts: perhaps these tests.
HTTP_PROXY = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from mcp_host.cli import main
sys.exit(main(["proxy", "--http", "0", "--token-env", "A_TOKEN", "--state-key-env", "A_TOKEN", "--", sys.executable, "-c", sys.argv[1]]))
"""

NUMBERED = """
import os
from mcp_host.testing import Server
server = Server("numbered")

@server.tool
def number() -> str:
    return str(os.getpid())

server.run_stdio()
"""


async def number_at(url: str) -> int:
    with fail_after(IN_TIME):
        async with Client(
            StreamableHttp(url, headers={"authorization": "Bearer " + "s3cret" * 6}), era="modern"
        ) as client:
            return int(text_of(await client.call_tool("number")))


@pytest.mark.skipif(sys.platform == "win32", reason="these signals are POSIX's")
@pytest.mark.parametrize(("ending", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_over_http_the_url_comes_first_and_a_signal_ends_the_proxy_and_its_server(
    ending: signal.Signals, code: int
) -> None:
    command = [sys.executable, "-c", HTTP_PROXY, NUMBERED]
    env = {**os.environ, "A_TOKEN": "s3cret" * 6}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            pid = anyio.run(number_at, url)
            os.kill(pid, 0)  # it stays for the next host
            process.send_signal(ending)
            out, err = process.communicate(timeout=IN_TIME)
        finally:
            process.kill()  # which means nothing to one that has ended
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)

    assert (process.returncode, out, err) == (code, "", "")


def test_what_prevents_serving_over_http_is_named(subtests: pytest.Subtests, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWO_WORDS", "not one")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for at, options, sentence in (
            (port, [], r"--http: \[Errno \d+\] Address already in use"),
            (0, ["--http", "0", "--token-env", "TWO_WORDS"], "--http: a bearer token has only letters, digits"),
            (
                0,
                ["--http", "0", "--token-env", "NO_TOKEN"],
                "no environment variable NO_TOKEN, which is to have the bearer token",
            ),
        ):
            with subtests.test(sentence), pytest.raises(UsageError, match=sentence):
                proxy.run_http(Proxy(["x"]), "127.0.0.1", at, parse(["proxy", *options, *CALCULATOR]))
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "mcp_host.serving.http.uvicorn_server", raising=False)
    with pytest.raises(UsageError, match=r"--http: serving over HTTP needs uvicorn: pip install 'mcp-host\[testing\]'"):
        proxy.run_http(Proxy(["x"]), "127.0.0.1", 0, parse(["proxy", *CALCULATOR]))


ADDRESSES = [
    ("8000", ("127.0.0.1", 8000)),
    ("0.0.0.0:0", ("0.0.0.0", 0)),
    ("my-host.example:65535", ("my-host.example", 65535)),
    ("[::1]:80", ("::1", 80)),
]
NO_ADDRESSES = ["", ":80", "::1:80", "65536", "http://localhost:80", "host:", "[::1]", "٣"]


def test_an_address_to_serve_at_is_a_port_perhaps_with_a_host(subtests: pytest.Subtests) -> None:
    for text, address in ADDRESSES:
        with subtests.test(text):
            assert parse(["proxy", "--http", text, *CALCULATOR]).http == address
    for text in NO_ADDRESSES:
        with subtests.test(text), pytest.raises(UsageError, match=r"--http: '.*' is not of the form \[HOST:\]PORT"):
            parse(["proxy", f"--http={text}", *CALCULATOR])


APPROVERS = [
    (["--model", "anthropic:x"], ask_host),
    (["--model", "anthropic:x", "--approve", "terminal"], ask_in_terminal),
    (["--model", "anthropic:x", "--approve", "always"], always),
    (["--model", "arithmetic"], always),
]


def test_who_is_asked_before_the_model_answers(subtests: pytest.Subtests) -> None:
    for words, approver in APPROVERS:
        with subtests.test(" ".join(words)):
            assert proxy.approver(parse(["proxy", *words, *CALCULATOR])) is approver


def test_a_timeout_is_for_connecting_and_for_calls_and_the_server_ends_before_the_host_is_impatient() -> None:
    assert proxy.limits(parse(["proxy", *CALCULATOR])) is None
    limits = proxy.limits(parse(["proxy", "--timeout", "7", *CALCULATOR]))
    assert limits == Limits(connect_timeout=7, timeout=7, idle_timeout=7, close_timeout=3)


async def test_a_server_that_never_answers_is_an_error_after_the_timeout() -> None:
    transport = proxied("--timeout", "0.2", "--", sys.executable, "-c", "import sys; sys.stdin.read()")
    with fail_after(IN_TIME), pytest.raises(ServerError, match=r"was not ready within 0\.2 s"):
        async with Client(transport, era="legacy"):
            pass


async def test_the_revisions_towards_the_server_can_be_restricted() -> None:
    """And what a server writes to stderr, here what it has received, is in the error."""
    server = "import sys; print(sys.stdin.readline()[:120], file=sys.stderr)"
    transport = proxied("--era", "2025-06-18", "--", sys.executable, "-c", server)
    says = r'exited with code 0; its stderr:.*"method":"initialize","params":\{"protocolVersion":"2025-06-18"'
    with fail_after(IN_TIME), pytest.raises(ServerError, match=says):
        async with Client(transport, era="legacy"):
            pass


@pytest.mark.parametrize(("only", "listed"), [("sol*", ["solve"]), ("plan_*", [])])
async def test_without_a_model_the_host_sees_only_some_tools_which_are_pinned(
    only: str, listed: list[str], tmp_path: Path
) -> None:
    pins = str(tmp_path / "pins.json")
    with fail_after(IN_TIME):
        async with Client(proxied("-v", "--only", only, "--pins", pins, *CALCULATOR), era="legacy") as client:
            assert [tool.name for tool in await client.list_tools()] == listed
            for name in listed:
                with pytest.raises(ServerError, match="the client did not declare sampling"):
                    await client.call_tool(name, {"problem": "1 + 1"})
    [pinned] = ToolPins(file=pins).servers().values()
    assert list(pinned) == listed


def test_a_host_whose_server_needs_a_login_is_told_the_command() -> None:
    options = parse(["proxy", "--no-login", "https://mcp.example/mcp"])
    login = login_of(options, Console())
    assert not isinstance(login, OnDevice)
    with pytest.raises(LoginFailed, match=r"--no-login was given: run mcp-host login https://mcp\.example/mcp"):
        login.open(None)


def test_what_stays_as_long_as_the_process_is_not_collected_while_calls_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen: list[int] = []
    monkeypatch.setattr(Proxy, "run_stdio", lambda self: frozen.append(gc.get_freeze_count()))
    try:
        proxy.run(parse(["proxy", *CALCULATOR]))
    finally:
        gc.unfreeze()

    assert frozen[0] > len(gc.get_objects()) / 2


SERVER = """
import sys
from mcp_host.testing import Context, Server
server = Server("server")

@server.tool
async def write(context: Context) -> str:
    print("writing", file=sys.stderr, flush=True)
    return (await context.sample_loop("2 + 3", tools=[add])).text

def add(a: float, b: float) -> float:
    return a + b

server.run_stdio()
"""


async def test_the_servers_of_a_file_are_one_for_the_host(home: Path) -> None:
    """A child process starts them. One that nobody has agreed to is not started: there is no terminal to ask in."""
    entry = {"command": sys.executable, "args": ["-c", SERVER], "env": {"PYTHONPATH": str(ROOT)}}
    (home / ".config/mcp-host").mkdir(parents=True)
    own = written(home / ".config/mcp-host/mcp.json", {"a": entry, "b": entry, "dead": {"command": "/no/such"}})
    stderr: list[str] = []
    transport = replace(
        proxied("--model", "arithmetic", "--only", "*__write", "--config", str(own), "b", "a", "dead"),
        on_stderr=stderr.append,
    )
    changed = Event()

    async def on_change(change: Change) -> None:
        changed.set()

    with fail_after(IN_TIME):
        async with Client(transport, era="legacy", on_change=on_change) as client:
            if len(await client.list_tools()) < 2:  # on a busy machine: a server that is not there in time is announced
                await changed.wait()
            assert [tool.name for tool in await client.list_tools()] == ["a__write", "b__write"]
            assert text_of(await client.call_tool("b__write")) == "2 + 3 = 5"
    assert "  b | writing" in stderr
    assert [line for line in stderr if "dead" in line and "cannot start '/no/such'" in line]


NOT_AGREED = (
    "the server 'a' has not been agreed to: there is no terminal to ask in: run mcp-host tools --config FILE in one,"
    " or add --approve-servers, which agrees to all servers of this file"
)
NO_SERVER: list[tuple[dict[str, object], list[str], type[Exception], str]] = [
    ({"a": {"command": "x"}}, ["c"], UsageError, "there is no server 'c' in"),
    ({"a": {"command": "x"}, "abc": {"command": "x"}}, ["abcd"], UsageError, "did you mean 'abc'?"),
    ({"a": {"command": "x"}}, [], ConsentMissing, NOT_AGREED),
    ({"a": {"command": "x", "disabled": True}, "b": {"command": "x"}}, ["a"], UsageError, "the server 'a' is disabled"),
    ({}, [], UsageError, "there are no servers in"),
]


async def test_a_file_without_a_server_that_can_be_used(home: Path, subtests: pytest.Subtests) -> None:
    for servers, names, error, says in NO_SERVER:
        file = written(home / ".mcp.json", servers)
        with subtests.test(says), pytest.raises(error, match=re.escape(says)):
            await prepared(parse(["proxy", "--config", str(file), *names]), Console(), LIMITS)


async def test_the_options_of_several_servers(home: Path) -> None:
    file = str(written(home / ".mcp.json", {"a": {"command": "x"}, "b": {"url": "https://example.com/mcp"}}))
    options = parse(["proxy", "--config", file, "--approve-servers", "--pins", str(home / "pins.json")])
    servers = await prepared(options, Console(), LIMITS)
    assert {name: server.limits for name, server in servers.items()} == {"a": LIMITS, "b": LIMITS}
    assert isinstance(servers["a"].server, Stdio)
    assert servers["a"].server.on_stderr is not None
    assert isinstance(servers["b"].server, StreamableHttp)


def test_options_that_are_wrong_are_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    code, _, err = run("proxy", "--approve", "nobody", *CALCULATOR)
    assert code == 2
    assert "argument --approve: invalid choice: 'nobody'" in err
    code, _, err = run("proxy", "--log-file", "/no/such/folder/log", *CALCULATOR)
    assert code == 2
    assert "--log-file: [Errno 2]" in err
    code, _, err = run("proxy", "--token-env", "A_TOKEN", *CALCULATOR)
    assert (code, "--token-env is for --http" in err) == (2, True)
    for given, problem in (
        (["--token-issuer", "https://auth.example"], "--token-issuer is for --http"),
        (["--http", "0", "--resource", "https://mcp.example"], "--resource is for --token-issuer"),
        (["--http", "0", "--token-scope", "a"], "--token-scope is for --token-issuer"),
        (["--http", "0", "--token-issuer", "auth.example"], "--http: the issuer is an https URL"),
        (
            ["--http", "0", "--token-issuer", "https://auth.example", "--token-scope", "a b"],
            "--http: 'a b' is no scope",
        ),
        (
            ["--http", "0", "--token-env", "A", "--token-issuer", "B"],
            "--token-env and --token-issuer contradict each other",
        ),
    ):
        code, _, err = run("proxy", *given, *CALCULATOR)
        assert (code, problem in err) == (2, True)
    code, _, err = run("proxy", "--state-key-env", "A_KEY", *CALCULATOR)
    assert (code, "--state-key-env is for --http" in err) == (2, True)
    code, _, err = run("proxy", "--http", "0", "--state-key-env", "A_KEY", *CALCULATOR)
    assert (code, "no environment variable A_KEY, which is to have the key of request states" in err) == (2, True)
    monkeypatch.setenv("A_KEY", "k" * 31)
    code, _, err = run("proxy", "--http", "0", "--state-key-env", "A_KEY", *CALCULATOR)
    assert (code, "--state-key-env: the key has 31 bytes, and needs 32 at least" in err) == (2, True)
    code, _, err = run("proxy", "planner", *CALCULATOR)
    assert (code, "unexpected argument 'planner': names are for the servers of --config" in err) == (2, True)
    assert run("proxy").code == 2
    assert logging.getLogger("mcp_host").level == logging.NOTSET, "a command that has ended leaves its log"
