"""`ScriptedPeer`: a server that follows a script."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from anyio import Event, create_task_group, fail_after, sleep_forever, wait_all_tasks_blocked

from mcp_host import Change
from mcp_host.errors import ConnectionClosed, ServerError
from mcp_host.limits import Limits
from mcp_host.protocol.jsonrpc import Notification, Request
from mcp_host.testing import ScriptedPeer
from mcp_host.types import CallToolResult, Implementation
from tests.client.support import HANDSHAKE, SHAKING_HANDS, connected, methods
from tests.extent import on_both
from tests.transports.http_peers import RecordedHandle

pytestmark = [on_both, pytest.mark.fake_clock]  # all in memory: no deadline passes while anything can run

INFO = Implementation(name="c", version="1")


async def test_a_peer_sends_what_its_script_sends_and_records_what_it_receives() -> None:
    async def script(peer: ScriptedPeer) -> None:
        request = await peer.answer_initialize(capabilities={"tools": {}}, version="2025-06-18", instructions="Hm.")
        assert request["params"]["protocolVersion"] == "2025-11-25"
        call = await peer.receive("tools/call")
        await peer.reply(call, {"content": []})
        await peer.reply_error(await peer.receive("tools/call"), -5, "no", {"k": 1})

    peer = ScriptedPeer(script, name="the peer")
    async with connected(peer, client_info=INFO) as client:
        assert (client.protocol_version, client.instructions) == ("2025-06-18", "Hm.")
        assert client.server_info.name == "the peer"
        assert await client.call_tool("t", {"a": 1}) == CallToolResult(content=[])
        with pytest.raises(ServerError) as refused:
            await client.call_tool("t")

    assert (refused.value.code, refused.value.message, refused.value.data) == (-5, "no", {"k": 1})
    assert methods(peer) == [*HANDSHAKE.opening, "tools/call", "tools/call"]
    assert peer.received[3]["params"] == {"name": "t", "arguments": {"a": 1}}


async def test_a_peer_sends_requests_and_notifications_and_receives_the_answer() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"tools": {}})
        call = await peer.receive("tools/call")
        await peer.notify("notifications/made_up")
        await peer.notify("notifications/cancelled", {"requestId": 99})
        ping, pong = await peer.request("ping"), await peer.request("ping")
        assert ping["id"] == "peer-1"
        unknown = await peer.request("made/up", {"x": 1})
        await peer.reply(call, {"content": [], "structuredContent": {"pong": pong, "code": unknown["error"]["code"]}})

    async with connected(ScriptedPeer(script)) as client:
        result = await client.call_tool("t")

    assert result.structured_content == {"pong": {"jsonrpc": "2.0", "id": "peer-2", "result": {}}, "code": -32601}


async def test_a_peer_can_break_every_rule_but_that_what_is_raw_is_bytes() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"tools": {}})
        call = await peer.receive("tools/call")
        await peer.send_raw(b"\xff not JSON")
        await peer.send({"id": "unknown", "result": 1})
        text: Any = "{}"
        with pytest.raises(TypeError, match=r"^send_raw takes bytes, not str; send\(\) takes a message$"):
            await peer.send_raw(text)
        await peer.reply(call, {"content": []})

    async with connected(ScriptedPeer(script)) as client:
        assert await client.call_tool("t") == CallToolResult(content=[])


async def test_a_peer_ends_the_connection() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"tools": {}})
        await peer.receive("tools/call")
        await peer.aclose()

    async with connected(ScriptedPeer(script)) as client:
        with pytest.raises(ConnectionClosed, match="the scripted peer has ended"):
            await client.call_tool("t")


async def test_an_exception_in_the_script_is_named_in_the_clients_error() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"tools": {}})
        call = await peer.receive("tools/call")
        assert call["params"]["name"] == "other", "the client called something else"

    async with connected(ScriptedPeer(script)) as client:
        with pytest.raises(ConnectionClosed, match="the client called something else"):
            await client.call_tool("t")


async def test_the_script_runs_again_on_every_connection() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize()

    peer = ScriptedPeer(script)
    for _ in range(2):
        async with connected(peer, era="legacy"):
            pass

    assert methods(peer) == [*SHAKING_HANDS, *SHAKING_HANDS]


async def test_a_peer_goes_on_receiving_after_its_script() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"tools": {}})

    peer = ScriptedPeer(script)
    async with connected(peer, era="legacy") as client:
        with pytest.raises(TimeoutError):
            await client.call_tool("t", timeout=0.01)
        await client.aclose()

    assert methods(peer)[2:] == ["tools/call", "notifications/cancelled"]


async def test_messages_in_between_are_recorded_and_skipped() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"tools": {}})
        first = await peer.receive("tools/call")
        await wait_all_tasks_blocked()  # the second call is here, and comes before the answer to our ping
        await peer.request("ping")
        second = peer.received[-2]
        await peer.reply(second, {"content": []})
        await peer.reply(first, {"content": []})

    peer = ScriptedPeer(script)
    async with connected(peer, era="legacy", roots=[]) as client, create_task_group() as tasks:
        await client.set_roots(["file:///a"])
        tasks.start_soon(client.call_tool, "t")
        tasks.start_soon(client.call_tool, "t")

    assert [message.get("method") for message in peer.received[2:]] == [
        "notifications/roots/list_changed",
        "tools/call",
        "tools/call",
        None,
    ]


class Recorded(ScriptedPeer):
    """A peer that also records what it sends."""

    said: list[Mapping[str, Any]]

    async def send(self, message: Mapping[str, Any]) -> None:
        self.said.append(message)
        await super().send(message)


async def test_answer_discover_takes_a_list_of_versions() -> None:
    async def script(peer: ScriptedPeer) -> None:
        with pytest.raises(TypeError, match=r"^versions has to be a list of texts, such as \['2026-07-28'\], not one"):
            await peer.answer_discover(versions="2026-07-28")
        await peer.answer_discover()

    async with connected(ScriptedPeer(script)) as client:
        assert client.protocol_version == "2026-07-28"


async def test_answer_discover_sends_a_complete_discovery() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover(capabilities={"tools": {"listChanged": True}}, instructions="Ask.")
        listen = await peer.receive("subscriptions/listen")
        await peer.acknowledge(listen)
        await peer.notify_subscription(listen, "notifications/tools/list_changed")

    async def on_change(change: Change) -> None:
        heard.set()

    heard = Event()
    peer = Recorded(script, name="p")
    peer.said = []
    async with connected(peer, on_change=on_change):
        await heard.wait()

    discovered, acknowledged, announced = peer.said
    meta = {"io.modelcontextprotocol/subscriptionId": peer.received[1]["id"]}
    assert discovered["result"] == {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {"listChanged": True}},
        "instructions": "Ask.",
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "p", "version": "0"}},
    }
    assert acknowledged == {
        "jsonrpc": "2.0",
        "method": "notifications/subscriptions/acknowledged",
        "params": {"notifications": {"toolsListChanged": True}, "_meta": meta},
    }
    assert announced == {"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {"_meta": meta}}


async def test_a_peer_that_answers_initialize_records_what_comes_before_it() -> None:
    class Waiting(RecordedHandle):
        async def wait(self) -> None:
            await sleep_forever()

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize()

    peer = ScriptedPeer(script)
    with fail_after(5):
        async with peer.open(Limits()) as channel, create_task_group() as tasks:
            assert channel.send_now(Notification("notifications/cancelled", {"requestId": 1}))
            tasks.start_soon(channel.request, Request(2, "initialize", {}), {}, Waiting())
            await wait_all_tasks_blocked()
            assert channel.send_now(Notification("notifications/initialized", {}))
            await wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()

    assert methods(peer) == ["notifications/cancelled", *SHAKING_HANDS]
