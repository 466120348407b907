"""What the error after a crash tells you to do: the remedy where there is one, and nothing where it would be wrong."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import pytest

from mcp_host import Client, InProcess, Stdio
from mcp_host.cli import main
from mcp_host.errors import ConnectFailed, ConnectionClosed
from mcp_host.testing import ScriptedPeer
from mcp_host.transports.base import Transport
from tests.client.support import connected
from tests.extent import on_both
from tests.transports.children import python

PYTHON = Path(sys.executable).name
DIES = 'read()\nprint("boom", file=sys.stderr)\nsys.exit(3)'
DISCOVERED = 'reply(read(), {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {}})\n'
STDERR = "; its stderr ends:\n  | boom"
REMEDY = "; to start it again, pass Stdio(..., restart=True), or await client.connect()"


async def in_flight_and_later(client: Client) -> list[tuple[str, bool, int | None, str]]:
    """The errors of a call over which the server dies, and of the next one."""
    errors = []
    for _ in range(2):
        with pytest.raises(ConnectionClosed) as raised:
            await client.call_tool("x")
        errors.append((str(raised.value), raised.value.may_have_run, raised.value.exit_code, raised.value.stderr))
    return errors


@pytest.mark.parametrize(
    ("body", "restart", "remedy"),
    [(DIES, None, REMEDY), (DIES, False, ""), (f"{DISCOVERED}{DIES}", False, "")],
    ids=["handshake", "handshake, never by choice", "stateless, never by choice"],
)
async def test_after_a_crash_both_errors_name_what_starts_the_server_again(
    body: str, restart: bool | None, remedy: str
) -> None:
    """With restart=False the application has decided that, so there is nothing to tell it."""
    server = Stdio(python(body, hands=DISCOVERED not in body), restart=restart)
    async with connected(server) as client:
        errors = await in_flight_and_later(client)

    text = f"{PYTHON} exited with code 3{remedy}{STDERR}"
    assert errors == [(text, True, 3, "boom"), (text, False, 3, "boom")]


@pytest.mark.parametrize(
    ("end", "says"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "was ended by signal 9"),
        ("os.close(1)\nsys.stdin.read()", "has closed its end of the connection"),
    ],
    ids=["killed", "closes its output"],
)
async def test_however_a_handshake_server_ends_the_remedy_is_named(end: str, says: str) -> None:
    async with connected(Stdio(python(f"read()\n{end}"))) as client:
        errors = await in_flight_and_later(client)

    assert [text for text, *_ in errors] == [f"{PYTHON} {says}{REMEDY}"] * 2


@pytest.mark.parametrize("body", [DIES, f"{DISCOVERED}{DIES}"], ids=["handshake, restart=True", "stateless"])
async def test_a_server_that_the_next_call_starts_again_needs_no_remedy(body: str) -> None:
    server = Stdio(python(body, hands=DISCOVERED not in body), restart=True if body is DIES else None)
    async with connected(server) as client:
        errors = await in_flight_and_later(client)

    assert errors == [(f"{PYTHON} exited with code 3{STDERR}", True, 3, "boom")] * 2


async def test_connecting_names_no_remedy() -> None:
    """There is no connection yet that `restart` could be about."""
    with anyio.fail_after(20), pytest.raises(ConnectFailed) as raised:
        await Client(python(DIES, hands=False)).connect()

    assert str(raised.value) == f"{PYTHON} exited with code 3{STDERR}"


async def test_a_server_that_ends_right_after_the_handshake_names_the_remedy_to_the_first_call() -> None:
    async with connected(Stdio(python("sys.exit(4)"))) as client:
        with pytest.raises(ConnectionClosed) as raised:
            await client.call_tool("x")

    assert str(raised.value) == f"{PYTHON} exited with code 4{REMEDY}"


@on_both
async def test_closing_names_no_remedy() -> None:
    async def call() -> None:
        with pytest.raises(ConnectionClosed) as raised:
            await client.call_tool("x")
        assert str(raised.value) == "the client was closed"

    async with connected(Stdio(python("read()\nread()"))) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        await anyio.wait_all_tasks_blocked()
        await client.aclose()


async def failing(peer: ScriptedPeer) -> None:
    await peer.answer_initialize(capabilities={"tools": {}})
    await peer.receive("tools/call")
    raise RuntimeError("boom")


@pytest.mark.parametrize(
    "server", [ScriptedPeer(failing, name="peer"), InProcess(ScriptedPeer(failing)._serve, name="peer")]
)
async def test_a_server_in_this_process_names_no_remedy(server: Transport) -> None:
    """Its end is a fault in the same program, which starting it again would not mend."""
    async with connected(server) as client:
        errors = await in_flight_and_later(client)

    assert [text for text, *_ in errors] == ["peer failed: RuntimeError: boom"] * 2


def test_the_command_names_no_argument_of_the_library(capsys: pytest.CaptureFixture[str]) -> None:
    """A command makes its calls once: a server that ends is not started again, in any revision."""
    assert main(["call", "x", "--", *python(DIES)]) == 3
    assert main(["call", "x", "--", *python(f"{DISCOVERED}{DIES}", hands=False)]) == 3

    assert capsys.readouterr() == ("", 2 * f"mcp-host: {PYTHON} exited with code 3{STDERR}\n")
