"""Hearing of changes from a stateless server (2026-07-28, basic/patterns/subscriptions)."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import httpx
import pytest
from anyio.lowlevel import checkpoint

from mcp_host import Change
from mcp_host.errors import CallerError, ConnectionClosed, McpError, RequestTimeout, ServerError
from mcp_host.limits import Limits
from mcp_host.testing import ScriptedPeer
from mcp_host.types import LoggingMessageNotificationParams, ResourceUpdatedNotification, ToolListChangedNotification
from tests.client.sites import Site, refused, streamed
from tests.client.support import EMPTY, connected, ended_by_closing, ignore, methods, open_listening
from tests.extent import on_both
from tests.transports.http_peers import NoLogin

CHANGING = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
}
ALL_LISTS = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}
LISTEN = "subscriptions/listen"


pytestmark = [on_both, pytest.mark.fake_clock]  # a stream that broke is opened again after a wait


class Heard:
    """An *on_change* that can be waited for."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self._news = anyio.Event()

    async def __call__(self, change: Change) -> None:
        self.changes.append(change)
        self._news.set()

    async def count(self, number: int) -> list[Change]:
        while len(self.changes) < number:
            self._news = anyio.Event()
            await self._news.wait()
        return self.changes


def filters(peer: ScriptedPeer) -> list[dict[str, Any]]:
    return [message["params"]["notifications"] for message in peer.received if message["method"] == LISTEN]


async def test_with_on_change_the_client_subscribes_to_the_lists_that_the_server_announces() -> None:
    """A change has its metadata without the id of the subscription."""

    async def script(peer: ScriptedPeer) -> None:
        listen = await open_listening(peer, {"tools": {"listChanged": True}, "prompts": {}, "resources": {}})
        await peer.notify_subscription(listen, "notifications/tools/list_changed")
        await first.wait()
        meta = {"io.modelcontextprotocol/subscriptionId": listen["id"], "example.com/cause": "a deploy"}
        await peer.notify("notifications/tools/list_changed", {"_meta": meta})

    peer, heard, first = ScriptedPeer(script), Heard(), anyio.Event()
    async with connected(peer, on_change=heard):
        await heard.count(1)
        first.set()
        plain, deployed = await heard.count(2)

    assert plain == ToolListChangedNotification()
    assert deployed.to_wire() == {
        "jsonrpc": "2.0",
        "method": "notifications/tools/list_changed",
        "params": {"_meta": {"example.com/cause": "a deploy"}},
    }
    assert filters(peer) == [{"toolsListChanged": True}]


async def test_the_subscription_has_only_what_the_server_can_announce() -> None:
    async def filters_for(capabilities: dict[str, Any], on_change: Heard | None) -> list[dict[str, Any]]:
        async def script(peer: ScriptedPeer) -> None:
            await peer.answer_discover(capabilities=capabilities)
            request = await peer.receive()
            if request["method"] == LISTEN:
                await peer.acknowledge(request)
                request = await peer.receive()
            await peer.reply(request, EMPTY)

        peer = ScriptedPeer(script)
        async with connected(peer, on_change=on_change) as client:
            await client.call_tool("x")
        return filters(peer)

    assert await filters_for({}, Heard()) == [ALL_LISTS]
    assert await filters_for(CHANGING, Heard()) == [ALL_LISTS]
    assert await filters_for({"tools": {}}, Heard()) == []
    assert await filters_for(CHANGING, None) == []


async def test_a_resource_is_subscribed_to_when_the_server_agrees() -> None:
    """The next one moves to a new stream before the last stream is closed."""
    left = anyio.Event()

    async def script(peer: ScriptedPeer) -> None:
        first = await open_listening(peer, CHANGING)
        second = await peer.receive(LISTEN)
        await peer.acknowledge(second)
        cancelled = await peer.receive("notifications/cancelled")
        assert cancelled["params"] == {"requestId": first["id"]}
        await peer.notify_subscription(second, "notifications/resources/updated", {"uri": "a:1"})
        await peer.notify_subscription(
            first, "notifications/resources/updated", {"uri": "a:2"}
        )  # to a stream that was left
        third = await peer.receive(LISTEN)
        left.set()
        await peer.acknowledge(third)

    peer, heard = ScriptedPeer(script), Heard()
    async with connected(peer, on_change=heard) as client:
        await client.subscribe_resource("a:1")
        changes = await heard.count(1)
        await client.unsubscribe_resource("a:1")
        assert left.is_set()
        assert changes == [ResourceUpdatedNotification.from_wire(updated("a:1"))]
        assert client.counters["notifications for nothing"] == 1

    assert filters(peer) == [ALL_LISTS, ALL_LISTS | {"resourceSubscriptions": ["a:1"]}, ALL_LISTS]


async def test_a_resource_that_was_unsubscribed_is_not_asked_for_with_the_next() -> None:
    """To unsubscribe from another changes nothing."""

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover(capabilities=CHANGING)
        for _ in range(2):
            await peer.acknowledge(await peer.receive(LISTEN))

    peer = ScriptedPeer(script)
    async with connected(peer) as client:
        await client.subscribe_resource("a:1")
        await client.unsubscribe_resource("a:2")
        await anyio.wait_all_tasks_blocked()
        assert methods(peer) == ["server/discover", LISTEN]
        await client.unsubscribe_resource("a:1")
        await client.subscribe_resource("a:2")

    assert filters(peer) == [{"resourceSubscriptions": ["a:1"]}, {"resourceSubscriptions": ["a:2"]}]


async def test_a_stream_that_was_never_acknowledged_is_closed_when_the_next_is_opened() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover(capabilities=CHANGING)
        await peer.receive(LISTEN)
        await peer.acknowledge(await peer.receive(LISTEN))

    peer = ScriptedPeer(script)
    async with connected(peer, on_change=Heard()) as client:
        await client.subscribe_resource("a:1")
        await anyio.wait_all_tasks_blocked()

    ids = [message["id"] for message in peer.received if message["method"] == LISTEN]
    cancelled = [message for message in peer.received if message["method"] == "notifications/cancelled"]
    assert [message["params"] for message in cancelled] == [{"requestId": ids[0]}]
    assert filters(peer) == [ALL_LISTS, ALL_LISTS | {"resourceSubscriptions": ["a:1"]}]


async def test_a_resource_can_be_unsubscribed_when_the_server_has_refused_to_go_on() -> None:
    refused = anyio.Event()

    async def script(peer: ScriptedPeer) -> None:
        listen = await open_listening(peer, CHANGING)
        await peer.reply(listen, {"resultType": "complete"})
        await peer.reply_error(await peer.receive(LISTEN), -32601, "no more")
        refused.set()
        await peer.acknowledge(await peer.receive(LISTEN))

    peer = ScriptedPeer(script)
    async with connected(peer, within=60) as client:
        await client.subscribe_resource("a:1")
        await refused.wait()
        await anyio.wait_all_tasks_blocked()  # until the client knows
        await client.unsubscribe_resource("a:1")
        await client.subscribe_resource("a:2")

    a1 = {"resourceSubscriptions": ["a:1"]}
    assert filters(peer) == [a1, a1, {"resourceSubscriptions": ["a:2"]}]


async def test_a_subscription_that_fails_because_the_server_ends_is_not_restored_by_the_next_connection() -> None:
    """The server acknowledges it and ends. Which of the two the client learns first may differ."""

    async def ends(peer: ScriptedPeer) -> None:
        await open_listening(peer, CHANGING)
        await peer.aclose()

    async def stays(peer: ScriptedPeer) -> None:
        await peer.answer_discover(capabilities=CHANGING)
        while True:
            await peer.acknowledge(await peer.receive(LISTEN))

    async def script(peer: ScriptedPeer) -> None:
        await lives.pop(0)(peer)

    for _ in range(20):
        lives = [ends, stays]
        peer = ScriptedPeer(script)
        async with connected(peer) as client:
            try:
                await client.subscribe_resource("a:1")
                kept = ["a:1"]
            except ConnectionClosed:
                kept = []
            await anyio.wait_all_tasks_blocked()
            await client.connect()
            await client.subscribe_resource("a:2")

        assert filters(peer)[-1] == {"resourceSubscriptions": [*kept, "a:2"]}


async def test_a_change_on_a_stream_that_was_just_replaced_is_not_reported() -> None:
    """The new stream reports it, too."""

    async def script(peer: ScriptedPeer) -> None:
        first = await open_listening(peer, CHANGING)
        second = await peer.receive(LISTEN)
        meta, old = ({"io.modelcontextprotocol/subscriptionId": listen["id"]} for listen in (second, first))
        granted = {"notifications": second["params"]["notifications"], "_meta": meta}
        changed = {
            "jsonrpc": "2.0",
            "method": "notifications/resources/updated",
            "params": {"uri": "a:1", "_meta": old},
        }
        acknowledged = {"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": granted}
        await peer.send_raw(json.dumps([acknowledged, changed]).encode())
        await peer.notify_subscription(second, "notifications/resources/updated", {"uri": "a:2"})

    heard = Heard()
    async with connected(ScriptedPeer(script), on_change=heard) as client:
        await client.subscribe_resource("a:1")
        assert await heard.count(1) == [ResourceUpdatedNotification.from_wire(updated("a:2"))]


async def test_a_stream_that_fails_by_http_for_now_is_opened_again() -> None:
    opened = anyio.Event()
    answers = [httpx.Response(503), httpx.Response(503)]

    def listen(message: dict[str, Any]) -> httpx.Response:
        if answers:
            return answers.pop()
        opened.set()
        return refused(200, -32601)(message)

    site = Site(subscriptions_listen=listen)
    async with site.connected(on_change=Heard(), within=60):
        await opened.wait()

    assert site.methods() == ["server/discover", LISTEN, LISTEN, LISTEN]


def listens(*answers: int) -> Callable[[dict[str, Any]], httpx.Response]:
    """A server that answers `subscriptions/listen` with these statuses in turn; 200 is a stream that ends."""
    left = list(answers)

    def listen(message: dict[str, Any]) -> httpx.Response:
        status = left.pop(0) if len(left) > 1 else left[0]
        if status != 200:
            return httpx.Response(status)
        meta = {"io.modelcontextprotocol/subscriptionId": message["id"]}
        params = {"_meta": meta, "notifications": {"toolsListChanged": True}}
        return streamed({"method": "notifications/subscriptions/acknowledged", "params": params})

    return listen


SITE = "http://server.test/mcp"
UNAUTHORIZED = [
    (401, None, f"HTTP 401 Unauthorized from {SITE}"),
    (403, None, f"HTTP 403 Forbidden from {SITE}"),
    (401, NoLogin(), "a login is needed"),
]


async def test_a_stream_that_a_client_may_no_longer_have_is_opened_again_when_a_request_succeeds(
    subtests: pytest.Subtests,
) -> None:
    for status, auth, why in UNAUTHORIZED:
        with subtests.test(why):
            calls = [httpx.Response(status)]
            site = Site(
                subscriptions_listen=listens(200, status, 200, 404),
                tools_call=lambda message, calls=calls: calls.pop() if calls else EMPTY,
            )
            async with site.connected(on_change=Heard(), auth=auth, within=6000) as client:
                await anyio.sleep(200)
                assert client.warnings == [f"{SITE}: changes are missed until a request succeeds: {why}"]
                with pytest.raises(McpError):
                    await client.call_tool("x")
                await anyio.sleep(200)
                assert site.methods().count(LISTEN) == 2
                await client.call_tool("x")
                await anyio.sleep(200)

            assert site.methods().count(LISTEN) == 4


async def test_a_stream_that_a_client_may_not_have_is_not_asked_for_again(subtests: pytest.Subtests) -> None:
    for status, auth, why in UNAUTHORIZED:
        with subtests.test(why):
            site = Site(subscriptions_listen=listens(status), tools_call=EMPTY)
            async with site.connected(on_change=Heard(), auth=auth, within=6000) as client:
                await client.call_tool("x")
                await anyio.sleep(200)

            assert site.methods() == ["server/discover", LISTEN, "tools/call"]
            assert client.warnings == [f"{SITE} refuses the subscription to changes: {why}"]


async def test_a_resource_that_a_client_may_not_subscribe_to_is_an_error(subtests: pytest.Subtests) -> None:
    for status, auth, why in UNAUTHORIZED:
        with subtests.test(why):
            site = Site(subscriptions_listen=listens(status))
            async with site.connected(auth=auth, within=6000) as client:
                with pytest.raises(McpError, match=why):
                    await client.subscribe_resource("a:1")

            assert site.methods() == ["server/discover", LISTEN]


async def test_a_server_without_subscriptions_can_be_called() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover(capabilities=CHANGING)
        await peer.reply_error(await peer.receive(LISTEN), -32601, "Method not found")
        await peer.reply(await peer.receive("tools/call"), EMPTY)

    async with connected(ScriptedPeer(script, name="quiet"), on_change=Heard()) as client:
        await client.call_tool("x")
        assert client.warnings == ["quiet refuses the subscription to changes: Method not found (-32601)"]


async def test_a_subscription_that_is_not_acknowledged_holds_up_the_first_call_for_a_second() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover(capabilities=CHANGING)
        await peer.reply(await peer.receive("tools/call"), EMPTY)

    began = anyio.current_time()
    async with connected(ScriptedPeer(script), on_change=Heard(), within=100) as client:
        await client.call_tool("x")
        assert anyio.current_time() - began == pytest.approx(1)


async def test_a_stream_that_a_client_may_no_longer_have_is_given_up_in_the_end(subtests: pytest.Subtests) -> None:
    for status, auth, why in UNAUTHORIZED:
        with subtests.test(why):
            site = Site(subscriptions_listen=listens(200, status), tools_call=EMPTY)
            async with site.connected(on_change=Heard(), auth=auth, within=6000) as client:
                for _ in range(20):
                    await anyio.sleep(200)
                    await client.call_tool("x")

            assert site.methods().count(LISTEN) == 11
            assert client.warnings[-1] == f"{SITE} refuses the subscription to changes: {why}"


def updated(uri: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": uri}}


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (lambda peer, listen: peer.acknowledge(listen, {"toolsListChanged": True}), ServerError),
        (lambda peer, listen: peer.reply_error(listen, -32601, "no subscriptions here"), ServerError),
        (lambda peer, listen: checkpoint(), RequestTimeout),
    ],
    ids=["not granted", "refused", "silence"],
)
async def test_a_subscription_that_the_server_does_not_grant_is_an_error(
    answer: Callable[[ScriptedPeer, dict[str, Any]], Awaitable[None]], error: type[Exception]
) -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover(capabilities=CHANGING)
        await answer(peer, await peer.receive(LISTEN))
        await peer.reply(await peer.receive("tools/call"), EMPTY)

    async with connected(ScriptedPeer(script)) as client:
        with pytest.raises(error):
            await client.subscribe_resource("a:1", timeout=0.1)
        await client.call_tool("x")


@pytest.mark.parametrize(
    "end",
    [
        lambda peer, listen: peer.reply(listen, {"resultType": "complete"}),
        lambda peer, listen: peer.notify("notifications/cancelled", {"requestId": listen["id"]}),
        lambda peer, listen: peer.notify("notifications/cancelled", {"requestId": float(listen["id"])}),
    ],
    ids=["a result", "cancelled by the server", "as a float"],
)
async def test_a_stream_that_the_server_ends_is_opened_again(
    end: Callable[[ScriptedPeer, dict[str, Any]], Awaitable[None]],
) -> None:
    async def script(peer: ScriptedPeer) -> None:
        listen = await open_listening(peer, CHANGING)
        await end(peer, listen)
        listen = await peer.receive(LISTEN)
        await peer.acknowledge(listen)
        await peer.notify_subscription(listen, "notifications/tools/list_changed")

    peer, heard = ScriptedPeer(script), Heard()
    async with connected(peer, on_change=heard):
        await heard.count(1)

    assert filters(peer) == [ALL_LISTS, ALL_LISTS]


async def test_a_server_that_sends_no_requests_cancels_no_call_of_ours_either() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover(capabilities=CHANGING)
        call = await peer.receive("tools/call")
        for id in (call["id"], 99, None):
            await peer.notify("notifications/cancelled", {"requestId": id})
        await peer.reply(call, EMPTY)

    async with connected(ScriptedPeer(script)) as client:
        assert (await client.call_tool("x")).to_wire() == EMPTY


async def test_a_stream_that_fails_ten_times_in_a_row_is_one_warning_and_opened_again() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover(capabilities=CHANGING)
        for number in range(1, 13):
            listen = await peer.receive(LISTEN)
            await peer.acknowledge(listen)
            if number == 10:
                tenth.set()
                await looked.wait()
            await peer.reply(listen, {"resultType": "complete"})
        await peer.receive(LISTEN)
        thirteenth.set()

    tenth, looked, thirteenth = anyio.Event(), anyio.Event(), anyio.Event()
    async with connected(ScriptedPeer(script, name="moody"), on_change=Heard(), within=300) as client:
        await tenth.wait()
        after_nine = client.warnings
        looked.set()
        await thirteenth.wait()

    assert after_nine == []
    assert client.warnings == ["moody: the stream of changes keeps failing: changes are missed"]


async def test_the_clock_of_a_subscription_never_runs_out() -> None:
    """It is silent as long as nothing changes, so the timeouts of calls do not apply."""

    async def script(peer: ScriptedPeer) -> None:
        await open_listening(peer, CHANGING)

    peer = ScriptedPeer(script)
    async with connected(peer, on_change=Heard(), limits=Limits(idle_timeout=0.05, timeout=0.05)) as client:
        with pytest.raises(RequestTimeout):
            await client.list_tools()

    assert len(filters(peer)) == 1


# Logs and what else left with this revision


async def test_with_on_log_every_request_has_the_log_level() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover()
        for _ in range(2):
            call = await peer.receive("tools/call")
            await peer.notify("notifications/message", {"level": "error", "data": "oh"})
            await peer.reply(call, EMPTY)

    async def levels(on_log: Callable[[LoggingMessageNotificationParams], Awaitable[None]] | None) -> list[object]:
        peer = ScriptedPeer(script)
        async with connected(peer, on_log=on_log) as client:
            await client.call_tool("x")
            await client.set_log_level("warning")
            await client.call_tool("x")
            await anyio.wait_all_tasks_blocked()
        metas = [message["params"]["_meta"] for message in peer.received[1:]]
        return [meta.get("io.modelcontextprotocol/logLevel") for meta in metas]

    async def on_log(entry: LoggingMessageNotificationParams) -> None:
        logs.append(entry.data)

    logs: list[object] = []
    assert await levels(on_log) == ["info", "warning"]
    assert logs == ["oh", "oh"]
    assert await levels(None) == [None, "warning"]


async def test_notifications_that_a_revision_does_not_have_are_not_sent() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover()
        call = await peer.receive("tools/call")
        await peer.reply(call, {"resultType": "input_required", "inputRequests": {"r": {"method": "roots/list"}}})
        await peer.reply(await peer.receive("tools/call"), EMPTY)

    peer = ScriptedPeer(script)
    async with connected(peer, roots=[]) as client:
        with pytest.raises(CallerError, match="2026-07-28 has no ping"):
            await client.ping()
        await client.set_roots(["/srv"])
        await client.set_log_level("error")
        await client.call_tool("x")

    assert methods(peer) == ["server/discover", "tools/call", "tools/call"]
    assert peer.received[-1]["params"]["inputResponses"] == {"r": {"roots": [{"uri": "file:///srv"}]}}


async def test_a_feature_that_was_not_advertised_is_requested_from_a_modern_server() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover(capabilities={})
        await peer.reply(await peer.receive("prompts/list"), {"prompts": []})

    async with connected(ScriptedPeer(script)) as client:
        assert await client.list_prompts() == []


async def test_an_abandoned_call_without_its_own_stream_sends_a_cancelled_notification() -> None:
    cancelled = anyio.Event()

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover()
        call = await peer.receive("tools/call")
        assert (await peer.receive("notifications/cancelled"))["params"] == {"requestId": call["id"]}
        cancelled.set()

    async with connected(ScriptedPeer(script)) as client:
        with pytest.raises(RequestTimeout):
            await client.call_tool("x", timeout=0.05)
        await cancelled.wait()


async def test_subscriptions_that_are_never_acknowledged_do_not_pile_up() -> None:
    open_streams: set[object] = set()

    async def script(peer: ScriptedPeer) -> None:
        first = await open_listening(peer, CHANGING)
        open_streams.add(first["id"])
        while True:
            message = await peer.receive()
            if message["method"] == LISTEN:
                open_streams.add(message["id"])
            elif message["method"] == "notifications/cancelled":
                open_streams.discard(message["params"]["requestId"])
            else:
                await peer.reply(message, EMPTY)

    async with connected(ScriptedPeer(script), on_change=ignore, within=10) as client:
        for number in range(10):
            with pytest.raises(RequestTimeout):
                await client.subscribe_resource(f"a:{number}", timeout=0.02)
            with anyio.move_on_after(0.02):
                await client.subscribe_resource(f"b:{number}")
        await client.call_tool("x")
        await anyio.wait_all_tasks_blocked()

        assert open_streams == {2}  # the one that was acknowledged: it goes on


async def test_a_subscription_waits_for_another_no_longer_than_it_may_take() -> None:
    async def never_acknowledge(peer: ScriptedPeer) -> None:
        await peer.answer_discover(capabilities=CHANGING)

    async with connected(ScriptedPeer(never_acknowledge)) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(client.subscribe_resource, "a:1")
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(RequestTimeout):
            await client.subscribe_resource("a:2", timeout=0.05)
        tasks.cancel_scope.cancel()


async def test_lists_that_the_server_does_not_agree_to_are_named_in_a_warning() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover(capabilities={"tools": {"listChanged": True}, "prompts": {"listChanged": True}})
        await peer.acknowledge(await peer.receive(LISTEN), {"toolsListChanged": True})

    async with connected(ScriptedPeer(script, name="half"), on_change=ignore) as client:
        assert client.warnings == ["half does not agree to promptsListChanged: such changes are not reported"]


async def test_a_change_that_belongs_to_no_subscription_is_not_believed() -> None:
    heard = Heard()

    async def script(peer: ScriptedPeer) -> None:
        await open_listening(peer, CHANGING)
        await peer.notify("notifications/tools/list_changed")
        await peer.reply(await peer.receive("tools/call"), EMPTY)

    async with connected(ScriptedPeer(script), on_change=heard) as client:
        await client.call_tool("x")
        await anyio.wait_all_tasks_blocked()
        assert client.counters["notifications for nothing"] == 1

    assert heard.changes == []


async def test_an_error_without_an_id_fails_the_only_call_besides_a_subscription() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await open_listening(peer, CHANGING)
        await peer.receive("tools/call")
        await peer.send({"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "cannot read that"}})

    async with connected(ScriptedPeer(script), on_change=ignore) as client:
        with pytest.raises(ServerError, match="cannot read that"):
            await client.call_tool("x")


async def test_closing_while_a_subscription_ends_raises_nothing() -> None:
    unsubscribing = anyio.Event()

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover(capabilities=CHANGING)
        for _ in range(2):
            await peer.acknowledge(await peer.receive(LISTEN))
        await peer.receive(LISTEN)
        unsubscribing.set()

    async with connected(ScriptedPeer(script), on_change=ignore) as client:
        await client.subscribe_resource("a:1")
        [ended] = await ended_by_closing(client, lambda: client.unsubscribe_resource("a:1"), begun=unsubscribing)
    assert "was closed" in str(ended)


@pytest.mark.backends("trio")  # asyncio itself stops for a task that exits
async def test_a_callback_whose_own_tasks_exit_ends_no_host() -> None:
    asked = anyio.Event()

    async def exits(change: object) -> None:
        asked.set()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(leave)

    async def leave() -> None:
        raise SystemExit(3)

    async def script(peer: ScriptedPeer) -> None:
        listen = await open_listening(peer, CHANGING)
        await peer.notify_subscription(listen, "notifications/tools/list_changed")
        await asked.wait()
        await peer.reply(await peer.receive("tools/call"), EMPTY)

    async with connected(ScriptedPeer(script), on_change=exits) as client:
        assert (await client.call_tool("x")).to_wire() == EMPTY
