"""A server process that has died is started again, by the revision's rule or by choice; if not, the error tells you how."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcp_host import Client, InProcess, Limits, Stdio
from mcp_host.cli import main
from mcp_host.errors import ConnectFailed, ConnectionClosed
from mcp_host.middleware import AnyRequest, CallNext, ClientRequest
from mcp_host.testing import ScriptedPeer
from mcp_host.transports._process.child import GRACE
from mcp_host.transports.base import Channel, Transport
from tests.client.support import connected, ended_by_closing
from tests.clock import advance
from tests.extent import on_both
from tests.faults.processes import ended
from tests.transports.children import TimedStdio, counted, python

LIVES_FOR_ONE_CALL = "discovered()\nreply(read(), text(str(start)))\nsys.exit(1)"


async def until_dead(client: Client) -> None:
    connection = client._lifetime.connection
    assert connection is not None
    await connection.dispatcher.idle()


@on_both
async def test_a_stateless_server_that_died_is_restarted_by_the_next_call(tmp_path: Path) -> None:
    async with connected(counted(tmp_path / "starts", LIVES_FOR_ONE_CALL)) as client:
        texts = []
        for _ in range(3):
            texts.append((await client.call_tool("x")).text)
            await until_dead(client)

    assert texts == ["1", "2", "3"]


HANDSHAKE = """
request = read()
if request["method"] == "server/discover":
    say({"id": request["id"], "error": {"code": -32601, "message": "Method not found"}})
    request = read()
reply(request, {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}, "logging": {}, "resources": {"subscribe": True}},
    "serverInfo": {"name": "s", "version": "0"}})
read()
heard = []
while True:
    request = read()
    heard.append(request["method"])
    if request["method"] == "tools/call":
        reply(request, text(" ".join(heard)))
        sys.exit(1)
    reply(request, {})
"""


@pytest.mark.fault("C23")
@on_both
async def test_with_restart_true_a_handshake_server_is_restarted_with_its_subscriptions() -> None:
    async with connected(Stdio(python(HANDSHAKE, hands=False), restart=True)) as client:
        await client.subscribe_resource("a:1")
        await client.set_log_level("error")
        first = await client.call_tool("x")
        await until_dead(client)
        second = await client.call_tool("x")

    assert first.text == second.text == "resources/subscribe logging/setLevel tools/call"


@on_both
@pytest.mark.adjustable_clock
async def test_a_process_that_answers_no_ping_is_ended_and_another_is_started(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    script = f"""
from pathlib import Path
starts = Path({str(starts)!r})
first = not starts.exists()
starts.write_text(str(os.getpid()))
shake_hands()
while True:
    request = read()
    if request["method"] == "ping" and first:
        time.sleep(1000)
    reply(request, text("again") if request["method"] == "tools/call" else {{}})
"""
    pinged = anyio.Event()

    async def note_ping(request: AnyRequest, call_next: CallNext) -> dict[str, Any]:
        if isinstance(request, ClientRequest) and request.method == "ping":
            pinged.set()
        return await call_next(request)

    server = TimedStdio(python(script, hands=False), restart=True, grace=0.05)
    async with connected(server, ping_interval=60, era="legacy", middleware=[note_ping], within=1000) as client:
        await anyio.wait_all_tasks_blocked()
        advance(60)
        await pinged.wait()
        await anyio.wait_all_tasks_blocked()
        advance(120)
        await until_dead(client)
        await ended(int(starts.read_text()))

        assert (await client.call_tool("x")).text == "again"


# What the error tells you to do: the remedy where there is one, and nothing where it would be wrong


PYTHON = Path(sys.executable).name
DIES = 'read()\nprint("boom", file=sys.stderr)\nsys.exit(3)'
DISCOVERED = 'reply(read(), {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {}})\n'
STDERR = "; its stderr:\n  | boom"
REMEDY = "; to start it again, pass Stdio(..., restart=True), or await client.connect()"


async def in_flight_and_later(client: Client) -> list[ConnectionClosed]:
    """The errors of a call over which the server dies, and of the next one."""
    errors = []
    for _ in range(2):
        with pytest.raises(ConnectionClosed) as raised:
            await client.call_tool("x")
        errors.append(raised.value)
    return errors


CLOSES = "read()\nos.close(1)\nsys.stdin.read()"
STATELESS_DIES = f"{DISCOVERED}{DIES}"
DIED = f"exited with code 3{STDERR}"
CRASHES: dict[str, tuple[str, bool | None, str, int | None, bool]] = {
    "handshake": (DIES, None, f"exited with code 3{REMEDY}{STDERR}", 3, False),
    "handshake, never by choice": (DIES, False, DIED, 3, False),
    "handshake, restart=True": (DIES, True, DIED, 3, True),
    "stateless": (STATELESS_DIES, None, DIED, 3, True),
    "stateless, never by choice": (STATELESS_DIES, False, DIED, 3, False),
    "killed": ("read()\nos.kill(os.getpid(), signal.SIGKILL)", None, f"was ended by signal 9{REMEDY}", -9, False),
    "closes its output": (CLOSES, None, f"has closed its end of the connection{REMEDY}", None, False),
}


async def test_after_a_crash_both_errors_name_what_starts_the_server_again_unless_the_next_call_does(
    subtests: pytest.Subtests,
) -> None:
    """With restart=False the application has decided that, so there is nothing to tell it."""
    for name, (body, restart, says, exit_code, runs_again) in CRASHES.items():
        with subtests.test(name):
            grace = 0.05 if body == CLOSES else GRACE
            server = TimedStdio(python(body, hands=DISCOVERED not in body), restart=restart, grace=grace)
            async with connected(server) as client:
                errors = await in_flight_and_later(client)

            assert [str(error).replace("TimedStdio", "Stdio") for error in errors] == [f"{PYTHON} {says}"] * 2
            assert [error.may_have_run for error in errors] == [True, runs_again]
            stderr = "boom" if STDERR in says else ""
            assert [(error.exit_code, error.stderr) for error in errors] == [(exit_code, stderr)] * 2


async def test_connecting_names_no_remedy() -> None:
    """There is no connection yet that `restart` could be about."""
    with anyio.fail_after(25), pytest.raises(ConnectFailed) as raised:
        await Client(python(DIES, hands=False)).connect()

    assert str(raised.value) == f"{PYTHON} exited with code 3{STDERR}"


async def test_a_server_that_ends_right_after_the_handshake_names_the_remedy_to_the_first_call() -> None:
    async with connected(Stdio(python("sys.exit(4)"))) as client:
        with pytest.raises(ConnectionClosed) as raised:
            await client.call_tool("x")

    assert str(raised.value) == f"{PYTHON} exited with code 4{REMEDY}"


@on_both
async def test_closing_names_no_remedy() -> None:
    async with connected(Stdio(python("read()\nread()"))) as client:
        [error] = await ended_by_closing(client, lambda: client.call_tool("x"))

    assert str(error) == "the client was closed"


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

    assert [str(error) for error in errors] == ["peer failed: RuntimeError: boom"] * 2


def test_the_command_names_no_argument_of_the_library(capsys: pytest.CaptureFixture[str]) -> None:
    """A command makes its calls once: a server that ends is not started again, in any revision."""
    assert main(["call", "x", "--", *python(DIES)]) == 3
    assert main(["call", "x", "--", *python(f"{DISCOVERED}{DIES}", hands=False)]) == 3

    assert capsys.readouterr() == ("", 2 * f"mcp-host: {PYTHON} exited with code 3{STDERR}\n")


@on_both
async def test_a_client_that_is_closed_while_its_dead_server_is_let_go_stays_closed() -> None:
    let_go = anyio.Event()
    opened = 0

    class Lingering(ScriptedPeer):
        restart = True

        @asynccontextmanager
        async def open(self, limits: Limits) -> AsyncIterator[Channel]:
            nonlocal opened
            opened += 1
            try:
                async with super().open(limits) as channel:
                    yield channel
            finally:
                with anyio.CancelScope(shield=True):
                    await let_go.wait()

    async def call() -> None:
        with pytest.raises(ConnectionClosed, match=r"^the client was closed$"):
            await client.call_tool("x")

    client = Client(Lingering(failing))
    with anyio.fail_after(25):
        await client.connect()
        with pytest.raises(ConnectionClosed, match="boom"):
            await client.call_tool("x")
        async with anyio.create_task_group() as tasks:
            for task in (call, client.aclose):  # the call opens another connection, as soon as this one is closed
                tasks.start_soon(task)
                await anyio.wait_all_tasks_blocked()
            let_go.set()

    assert not client.connected
    assert opened == 1
