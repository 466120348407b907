"""The command `mcp-host` with `@modelcontextprotocol/server-everything`: arguments, listings, resources and prompts."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.interop.processes import HttpServer, everything_command

IN_TIME = 60.0  # seconds for two programs that start, on a busy machine
COMMAND = [sys.executable, "-m", "mcp_host"]


def run(mark: str, *argv: str) -> tuple[int, str, str]:
    """The exit code, stdout and stderr of the command for a server over stdio."""
    command = [*COMMAND, *argv, "--", *everything_command("stdio", mark)]
    done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=IN_TIME, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.mark.parametrize(
    ("operands", "text"),
    [
        (["echo", "message=3"], "Echo: 3\n"),
        (["get-sum", "a=2", "b=3.5"], "The sum of 2 and 3.5 is 5.5.\n"),
        (["get-sum", '{"a": 2}', "b:=3"], "The sum of 2 and 3 is 5.\n"),
        (["get-annotated-message", "messageType=error", "includeImage=false"], "Error: Operation failed\n"),
        (
            ["trigger-long-running-operation", "duration=0.2", "steps=2"],
            "Long running operation completed. Duration: 0.2 seconds, Steps: 2.\n",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_arguments_have_the_types_of_the_tool(operands: list[str], text: str, mark: str) -> None:
    assert run(mark, "call", *operands) == (0, text, "")


@pytest.mark.parametrize(
    ("operands", "sentence"),
    [
        (["ecko", "message=hi"], "the server has no tool 'ecko'; did you mean 'echo'?"),
        (["echo", "mesage=hi"], "'echo' takes no argument 'mesage'; did you mean 'message'?"),
        (["get-sum", "a=2"], "'get-sum' needs 'b'"),
        (["get-sum", "a=2", "b=two"], "b: 'two' is not of type 'number'"),
        (["get-annotated-message", "messageType=err"], "messageType: 'err' is not one of 'error', 'success', 'debug'"),
        (["get-resource-links", "count=11"], "count: 11 is greater than the maximum of 10"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_wrong_arguments_are_named_before_anything_is_sent(operands: list[str], sentence: str, mark: str) -> None:
    code, out, err = run(mark, "call", *operands)

    assert (code, out, err.splitlines()[0]) == (2, "", f"mcp-host: {sentence}")


def test_the_listing_has_enums_defaults_bounds_and_descriptions(mark: str) -> None:
    code, out, err = run(mark, "tools")

    assert (code, err) == (0, "")
    assert (
        """\
get-annotated-message(messageType: "error" | "success" | "debug", includeImage:
        boolean = false)
    Get Annotated Message Tool
    Demonstrates how annotations can be used to provide metadata about content.
    messageType: Type of message to demonstrate different annotation patterns
    includeImage: Whether to include an example image
"""
        in out
    )
    assert "    count: Number of resource links to return (1-10) (at least 1, at most 10)\n" in out


def test_resources_are_read_by_uri_and_by_template(mark: str) -> None:
    code, document, _ = run(mark, "read", "demo://resource/static/document/features.md")
    assert (code, document.startswith("# Everything Server ")) == (0, True)

    code, text, _ = run(mark, "read", "demo://resource/dynamic/text/{resourceId}", "resourceId=3")
    assert (code, text.partition(" created")[0]) == (0, "Resource 3: This is a plaintext resource")

    code, blob, _ = run(mark, "read", "demo://resource/dynamic/blob/3")
    assert (code, blob.partition(" created")[0]) == (0, "Resource 3: This is a base64 blob")


def test_prompts_are_checked_filled_in_and_completed(mark: str) -> None:
    filled = run(mark, "prompt", "args-prompt", "city=Oslo", "state=Norway")
    assert filled == (0, "    user          What's weather in Oslo, Norway?\n", "")

    code, _, err = run(mark, "prompt", "args-prompt", "state=Norway")
    assert (code, err.splitlines()[0]) == (2, "mcp-host: 'args-prompt' needs 'city'")

    completed = run(mark, "complete", "completable-prompt", "name=", "department=Sales")
    assert completed == (0, "David\nEve\nFrank\n", "")


def test_over_http_the_document_of_a_call_is_the_servers(everything_http: HttpServer) -> None:
    done = subprocess.run(
        [*COMMAND, "call", everything_http.url, "echo", "message=hi", "--json"],
        capture_output=True,
        timeout=IN_TIME,
        check=True,
    )

    assert json.loads(done.stdout) == {"content": [{"type": "text", "text": "Echo: hi"}]}
