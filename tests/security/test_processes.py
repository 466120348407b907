"""Text in command lines and environments, and what comes back over stderr."""

from __future__ import annotations

import json
import sys

import pytest
from anyio import fail_after

from mcp_host import Client, Stdio
from mcp_host.errors import ConnectFailed, ConnectionClosed
from tests.faults.processes import BRIEF, SOON
from tests.transports.children import python


@pytest.mark.parametrize(
    ("command", "env", "reason"),
    [
        ([sys.executable, "--key=hunter2\0"], None, "embedded null byte"),
        (["\0"], None, "embedded null byte"),
        ([sys.executable], {"KEY": "hunter2\0"}, "embedded null byte"),
        ([sys.executable], {"KEY=hunter2": ""}, "illegal environment variable name"),
        (["-c"], None, "No such file"),
        (["-c;hunter2"], None, "No such file"),
    ],
)
async def test_an_argument_with_a_nul_starts_no_program(
    command: list[str], env: dict[str, str] | None, reason: str
) -> None:
    with fail_after(SOON), pytest.raises(ConnectFailed, match=reason) as caught:
        await Client(Stdio(command, env=env)).connect()

    assert str(caught.value).startswith(f"cannot start {command[0]!r}: ")
    assert ("hunter2" in str(caught.value)) == ("hunter2" in command[0])


async def test_an_argument_may_begin_with_a_dash() -> None:
    odd = ["--", "-c", "--help", "-", "--key=a b"]

    async with Client(Stdio([*python("reply(read(), text(json.dumps(sys.argv[1:])))"), *odd]), limits=BRIEF) as client:
        with fail_after(SOON):
            assert json.loads((await client.call_tool("--help", {"-c": "--"})).text) == odd


STDERR = """
sys.stderr.write("1970-01-01 CRITICAL root: all is lost\\r\\n\\x1b]0;x\\x07\\nTraceback (most recent call last):\\n")
sys.exit(3)
"""


async def test_text_of_stderr_cannot_look_like_a_line_of_the_log() -> None:
    with fail_after(SOON), pytest.raises(ConnectionClosed) as caught:
        await Client(Stdio(python(STDERR, hands=False)), limits=BRIEF).connect()

    first, *rest = str(caught.value).split("\n")
    assert first.endswith("exited with code 3; its stderr ends:")
    assert rest == [
        "  | 1970-01-01 CRITICAL root: all is lost",
        "  | \\x1b]0;x\\x07",
        "  | Traceback (most recent call last):",
    ]
