"""How long the client waits for what may never come, on a clock that takes no time."""

from __future__ import annotations

import anyio
import pytest
from anyio import current_time
from pydantic_core import to_json

from mcp_host import Change
from mcp_host.limits import Limits
from mcp_host.testing import ScriptedPeer
from tests.client.rounds import DONE, answering, wants
from tests.client.support import EMPTY, INFO, TOOLS, connected
from tests.extent import on_both

pytestmark = [on_both, pytest.mark.fake_clock]

CHANGING = {"tools": {"listChanged": True}}


async def ignore(change: Change) -> None:
    pass


@pytest.mark.parametrize(
    ("connect_timeout", "silence"),
    [(30.0, 2.0), (6.0, 2.0), (3.0, 1.0), (0.6, 0.2)],
    ids=["default", "6 s", "3 s", "0.6 s"],
)
async def test_a_silent_server_is_shaken_hands_with_after_two_seconds_or_a_third_of_the_time(
    connect_timeout: float, silence: float
) -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.receive("server/discover")
        begun = current_time()
        request = await peer.receive("initialize")
        waited.append(current_time() - begun)
        await peer.reply(request, {"protocolVersion": "2025-11-25", "capabilities": TOOLS, "serverInfo": INFO})

    waited: list[float] = []
    async with connected(ScriptedPeer(script), limits=Limits(connect_timeout=connect_timeout), within=100) as client:
        assert client.protocol_version == "2025-11-25"

    assert waited == [pytest.approx(silence)]


async def test_a_subscription_that_is_not_acknowledged_holds_up_the_first_call_for_a_second() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover(capabilities=CHANGING)
        begun = current_time()
        call = await peer.receive("tools/call")
        waited.append(current_time() - begun)
        await peer.reply(call, EMPTY)

    waited: list[float] = []
    async with connected(ScriptedPeer(script), on_change=ignore, within=100) as client:
        await client.call_tool("x")

    assert waited == [pytest.approx(1.0)]


async def test_idle_rounds_never_wait_for_longer_than_ten_seconds() -> None:
    """The pauses are 0.1, 0.2, 0.4, 0.8, 1.6, 3.2 and 6.4 seconds, and then 10 each."""
    peer = answering(*[wants("s")] * 9, DONE)
    async with connected(peer, limits=Limits(max_idle_rounds=9), within=100) as client:
        begun = current_time()
        await client.call_tool("x")
        took = current_time() - begun

    assert took == pytest.approx(12.7 + 10 + 10)


@pytest.mark.parametrize(("seconds", "delivered"), [(29, 1025), (31, 1024)])
async def test_an_answer_that_cannot_be_delivered_is_dropped_after_thirty_seconds(seconds: int, delivered: int) -> None:
    """The transport takes 1,024 messages that the server does not read; the next waits for room."""

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize()
        pings = [{"jsonrpc": "2.0", "id": number, "method": "ping"} for number in range(1025)]
        await peer.send_raw(to_json(pings))
        await anyio.sleep(seconds)
        reads_again.set()

    reads_again = anyio.Event()
    peer = ScriptedPeer(script)
    async with connected(peer, era="legacy", within=100):
        await reads_again.wait()
        await anyio.wait_all_tasks_blocked()

    assert len([message for message in peer.received if "result" in message]) == delivered


async def test_after_a_hundred_warnings_only_each_power_of_two_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    tools = [{"name": f"t{number}"} for number in range(110)]  # without what a tool takes

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities=TOOLS)
        await peer.reply(await peer.receive("tools/list"), {"tools": tools})

    async with connected(ScriptedPeer(script), era="legacy") as client:
        assert await client.list_tools() == []

    logged = [record.getMessage() for record in caplog.records if record.name == "mcp_host.session.state"]
    assert len(client.warnings) == 100
    assert client.counters["further warnings"] == 10
    assert [text.rpartition(" (")[2] for text in logged[100:]] == [
        "warning 101)",
        "warning 102)",
        "warning 104)",
        "warning 108)",
    ]
