"""A server process that has died is started again, by the revision's rule or by choice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from mcp_host import Client, Limits, Stdio
from mcp_host.errors import ConnectionClosed
from mcp_host.middleware import AnyRequest, CallNext, ClientRequest
from tests.client.support import connected
from tests.clock import advance
from tests.extent import on_both
from tests.transports.children import counted, python

pytestmark = on_both

LIVES_FOR_ONE_CALL = "discovered()\nreply(read(), text(str(start)))\nsys.exit(1)"


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


async def test_with_restart_true_a_handshake_server_is_restarted_with_its_subscriptions() -> None:
    async with connected(Stdio(python(HANDSHAKE, hands=False), restart=True)) as client:
        await client.subscribe_resource("a:1")
        await client.set_log_level("error")
        first = await client.call_tool("x")
        await until_dead(client)
        second = await client.call_tool("x")

    assert first.text == second.text == "resources/subscribe logging/setLevel tools/call"


async def test_a_handshake_server_is_not_restarted_by_default() -> None:
    async with connected(Stdio(python(HANDSHAKE, hands=False))) as client:
        await client.call_tool("x")
        await until_dead(client)
        with pytest.raises(ConnectionClosed):
            await client.call_tool("x")


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

    server, limits = Stdio(python(script), restart=True), Limits(close_timeout=0.1)
    async with connected(
        server, ping_interval=60, era="legacy", middleware=[note_ping], limits=limits, within=1000
    ) as client:
        await anyio.wait_all_tasks_blocked()
        advance(60)
        await pinged.wait()
        await anyio.wait_all_tasks_blocked()
        advance(120)
        await until_dead(client)

        assert (await client.call_tool("x")).text == "again"
