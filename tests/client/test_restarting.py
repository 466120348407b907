"""A server process that has died is started again, by the revision's rule or by choice."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import anyio
import pytest

from mcp_host import Change, Client, Stdio
from mcp_host.client import lifetime
from mcp_host.errors import ConnectFailed, ConnectionClosed, McpError, RequestTimeout
from mcp_host.middleware import AnyRequest, CallNext, ClientRequest
from mcp_host.protocol import backoff
from tests.client.support import connected
from tests.clock import advance
from tests.transports.children import counted, python

LIVES_FOR_ONE_CALL = "discovered()\nreply(read(), text(str(start)))\nsys.exit(1)"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restarts in a row come without the waits between them."""
    monkeypatch.setattr(lifetime, "RESTART_PAUSE", 0.0)
    monkeypatch.setattr(backoff, "RETRY_FLOOR", 0.001)


async def until_dead(client: Client) -> None:
    connection = client._lifetime.connection
    assert connection is not None
    await connection.dispatcher.idle()


async def test_a_stateless_server_that_died_is_restarted_by_the_next_call(tmp_path: Path) -> None:
    async with connected(counted(tmp_path / "starts", LIVES_FOR_ONE_CALL)) as client:
        texts = []
        for _ in range(3):
            texts.append((await client.call_tool("x")).text)
            await until_dead(client)

    assert texts == ["1", "2", "3"]


async def test_many_calls_at_once_start_one_counted(tmp_path: Path) -> None:
    body = """
    discovered()
    if start == 1:
        reply(read(), text("1"))
        sys.exit(1)
    while True:
        reply(read(), text(str(start)))
    """
    texts: list[str] = []
    async with connected(counted(tmp_path / "starts", body)) as client:

        async def call() -> None:
            texts.append((await client.call_tool("x")).text)

        await call()
        await until_dead(client)
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(call)

    assert texts == ["1"] + 5 * ["2"]


@pytest.mark.parametrize("restart", [False], ids=["never"])
async def test_with_restart_false_a_dead_server_is_not_restarted(tmp_path: Path, restart: bool) -> None:
    async with connected(counted(tmp_path / "starts", LIVES_FOR_ONE_CALL, restart=restart)) as client:
        await client.call_tool("x")
        await until_dead(client)
        with pytest.raises(ConnectionClosed, match="exited with code 1") as raised:
            await client.call_tool("x")
        assert not raised.value.may_have_run

    assert (tmp_path / "starts").read_text() == "x"


HANDSHAKE = """
starts = open(STARTS, "a+")
starts.write("x")
starts.flush()
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


async def test_with_restart_true_a_handshake_server_is_restarted_with_its_subscriptions(tmp_path: Path) -> None:
    command = python(HANDSHAKE.replace("STARTS", repr(str(tmp_path / "starts"))), hands=False)

    async with connected(Stdio(command, restart=True)) as client:
        await client.subscribe_resource("a:1")
        await client.set_log_level("error")
        first = await client.call_tool("x")
        await until_dead(client)
        second = await client.call_tool("x")

    assert first.text == second.text == "resources/subscribe logging/setLevel tools/call"


async def test_a_handshake_server_is_not_restarted_by_default(tmp_path: Path) -> None:
    command = python(HANDSHAKE.replace("STARTS", repr(str(tmp_path / "starts"))), hands=False)

    async with connected(Stdio(command)) as client:
        await client.call_tool("x")
        await until_dead(client)
        with pytest.raises(ConnectionClosed):
            await client.call_tool("x")

    assert (tmp_path / "starts").read_text() == "x"


async def test_a_server_that_keeps_failing_is_not_restarted_until_connect(tmp_path: Path) -> None:
    body = "discovered()\nread()\nsys.exit(1)"
    errors: list[McpError] = []

    async with connected(counted(tmp_path / "starts", body), within=60) as client:
        for _ in range(12):
            with pytest.raises(ConnectionClosed) as raised:
                await client.call_tool("x")
            errors.append(raised.value)
            await until_dead(client)
        starts = len((tmp_path / "starts").read_text())
        await client.connect()
        assert len((tmp_path / "starts").read_text()) == starts + 1

    assert starts == 1 + backoff.restart_backoff().max_failures


async def test_a_server_that_cannot_be_started_again_fails_the_call_and_may_come_back(tmp_path: Path) -> None:
    body = """
    if start == 2:
        sys.exit("out of order")
    discovered()
    reply(read(), text(str(start)))
    sys.exit(1)
    """
    async with connected(counted(tmp_path / "starts", body), era="modern") as client:
        await client.call_tool("x")
        await until_dead(client)
        with pytest.raises(ConnectFailed, match="out of order"):
            await client.call_tool("x")
        assert (await client.call_tool("x")).text == "3"


async def test_a_call_waits_for_a_restart_up_to_its_timeout_and_the_restart_continues(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    body = f"""
    import pathlib
    while start == 2 and not pathlib.Path({str(gate)!r}).exists():
        time.sleep(0.01)
    discovered()
    reply(read(), text(str(start)))
    sys.exit(1)
    """
    async with connected(counted(tmp_path / "starts", body)) as client:
        await client.call_tool("x")
        await until_dead(client)
        with pytest.raises(RequestTimeout, match=r"starting \S+ again"):
            await client.call_tool("x", timeout=0.2)
        gate.touch()
        assert (await client.call_tool("x")).text == "2"


async def test_closing_while_a_server_is_started_again_leaves_nothing(tmp_path: Path) -> None:
    body = """
    if start == 2:
        time.sleep(60)
    discovered()
    reply(read(), text(str(start)))
    sys.exit(1)
    """
    client = Client(counted(tmp_path / "starts", body))
    with anyio.fail_after(20):
        await client.connect()
        await client.call_tool("x")
        await until_dead(client)
        with pytest.raises(RequestTimeout):
            await client.call_tool("x", timeout=0.2)
        await client.aclose()

    assert not client.connected


LISTENED_TO = """
    discovered()
    listen = read()
    if start in dies_of_it:
        sys.exit(1)
    subscription = {"io.modelcontextprotocol/subscriptionId": listen["id"]}
    wanted = listen["params"]["notifications"]
    say({"method": "notifications/subscriptions/acknowledged", "params": {"notifications": wanted, "_meta": subscription}})
    if start == 1:
        reply(read(), text("last words"))
        sys.exit(1)
    say({"method": "notifications/resources/updated", "params": {"uri": wanted["resourceSubscriptions"][0], "_meta": subscription}})
    read()
    """


@pytest.mark.parametrize("dies_of_it", [[], [2]], ids=["and stands", "and dies of it once"])
async def test_subscriptions_are_restored_with_the_server_without_a_call(tmp_path: Path, dies_of_it: list[int]) -> None:
    body = f"dies_of_it = {dies_of_it}\n" + dedent(LISTENED_TO)
    changed = anyio.Event()

    async def on_change(change: Change) -> None:
        changed.set()

    async with connected(counted(tmp_path / "starts", body), on_change=on_change) as client:
        await client.subscribe_resource("a:1")
        await client.call_tool("x")
        await changed.wait()

    assert len((tmp_path / "starts").read_text()) == 2 + len(dies_of_it)


@pytest.mark.adjustable_clock
async def test_a_process_that_answers_no_ping_is_ended_and_another_is_started(tmp_path: Path) -> None:
    script = f"""
from pathlib import Path
starts = Path({str(tmp_path / "starts")!r})
with starts.open("a") as file:
    file.write("x")
while True:
    request = read()
    if request["method"] == "ping" and starts.stat().st_size == 1:
        time.sleep(1000)
    reply(request, text("again") if request["method"] == "tools/call" else {{}})
"""
    pinged = anyio.Event()

    async def note_ping(request: AnyRequest, call_next: CallNext) -> dict[str, Any]:
        if isinstance(request, ClientRequest) and request.method == "ping":
            pinged.set()
        return await call_next(request)

    server = Stdio(python(script), restart=True)
    async with connected(server, ping_interval=60, era="legacy", middleware=[note_ping], within=1000) as client:
        await anyio.wait_all_tasks_blocked()
        advance(60)
        await pinged.wait()
        await anyio.wait_all_tasks_blocked()
        advance(120)
        await until_dead(client)

        assert (await client.call_tool("x")).text == "again"
