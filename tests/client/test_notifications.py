"""What a server announces, and the callbacks that hear of it."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import anyio
import pytest
from pydantic_core import to_json

from mcp_host import Change, Client, Elicitation, Notification
from mcp_host.concurrency.tasks import HandlerTasks
from mcp_host.errors import ProtocolError
from mcp_host.limits import Limits
from mcp_host.session.notifications import NotificationQueue
from mcp_host.testing import ScriptedPeer
from mcp_host.types import (
    LoggingMessageNotificationParams,
    PromptListChangedNotification,
    ResourceListChangedNotification,
    ResourceUpdatedNotification,
    ResourceUpdatedNotificationParams,
    ToolListChangedNotification,
)
from tests.client.support import EMPTY, HANDSHAKE, Era, Recorder, connected, open_listening, silent
from tests.extent import on_both


def telling(era: Era, *notifications: tuple[str, dict[str, Any]]) -> ScriptedPeer:
    """A peer that says all this at once, and then answers calls."""

    async def script(peer: ScriptedPeer) -> None:
        await era.open(peer)
        for method, params in notifications:
            await peer.notify(method, params)
        while True:
            await peer.reply(await peer.receive("tools/call"), EMPTY)

    return ScriptedPeer(script)


def log(number: int) -> tuple[str, dict[str, Any]]:
    return ("notifications/message", {"level": "info", "data": number})


@pytest.mark.fault("F20")
@on_both
async def test_changes_come_typed_and_in_order_and_one_that_waits_already_is_not_repeated() -> None:
    said = [
        ("notifications/tools/list_changed", {}),
        ("notifications/resources/updated", {"uri": "a:b"}),
        ("notifications/tools/list_changed", {}),
        ("notifications/resources/updated", {"uri": "a:b"}),
        ("notifications/tools/list_changed", {}),
        ("notifications/prompts/list_changed", {}),
        ("notifications/resources/list_changed", {}),
    ]
    peer = telling(HANDSHAKE, *said)
    seen: list[Change] = []

    async def on_change(change: Change) -> None:
        await all_said.wait()
        seen.append(change)

    all_said = anyio.Event()
    async with connected(peer, era="legacy", on_change=on_change) as client:
        await anyio.wait_all_tasks_blocked()
        all_said.set()
        await anyio.wait_all_tasks_blocked()

    # The tools changed once more while the first change was in the callback's hands.
    assert [type(change) for change in seen] == [
        ToolListChangedNotification,
        ResourceUpdatedNotification,
        ToolListChangedNotification,
        PromptListChangedNotification,
        ResourceListChangedNotification,
    ]
    assert seen[0] == ToolListChangedNotification()
    assert isinstance(seen[1], ResourceUpdatedNotification)
    assert seen[1].params == ResourceUpdatedNotificationParams(uri="a:b")
    assert client.counters == {"coalesced notifications": 2}


async def test_log_messages_come_in_order_and_malformed_ones_are_skipped(
    era: Era, caplog: pytest.LogCaptureFixture
) -> None:
    """Of those, the first, the second, the fourth and so on are in the log."""
    caplog.set_level(logging.DEBUG, "mcp_host.session.notifications")
    peer = telling(era, log(1), *[("notifications/message", {"level": 5})] * 9, log(2))
    seen = Recorder()
    async with connected(peer, on_log=seen) as client:
        await anyio.wait_all_tasks_blocked()

    assert [message.data for message in seen] == [1, 2]
    assert client.counters == {"malformed notifications": 9}
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        f"ignored a malformed notification ({count} so far)" for count in (1, 2, 4, 8)
    ]


@on_both
async def test_callbacks_may_be_plain_functions(era: Era) -> None:
    def on_log(message: LoggingMessageNotificationParams) -> None:
        heard.append(message.data)
        if len(heard) == 2:
            anyio.from_thread.run_sync(all_heard.set)

    heard: list[object] = []
    all_heard = anyio.Event()
    async with connected(telling(era, log(1), log(2)), on_log=on_log, within=30):
        await all_heard.wait()

    assert heard == [1, 2]


@pytest.mark.fault("C12")
@on_both
async def test_a_callback_may_call_the_client() -> None:
    async def on_change(change: Change) -> None:
        results.append((await client.call_tool("x")).content)

    results: list[object] = []
    peer = telling(HANDSHAKE, ("notifications/tools/list_changed", {}))
    async with connected(peer, era="legacy", on_change=on_change) as client:
        await anyio.wait_all_tasks_blocked()

    assert results == [[]]


@pytest.mark.fault("C11")
async def test_a_callback_that_fails_is_logged_and_the_next_message_comes(
    era: Era, caplog: pytest.LogCaptureFixture
) -> None:
    problems: list[Exception] = [RuntimeError("bug"), ProtocolError("from a call of mine")]

    async def on_log(message: LoggingMessageNotificationParams) -> None:
        seen.append(message.data)
        raise problems[len(seen) - 1]

    async def on_notification(notification: Notification) -> None:
        custom.append(notification.method)
        raise LookupError("no")

    seen, custom = list[object](), list[str]()
    peer = telling(era, log(1), ("acme/one", {}), log(2), ("acme/two", {}), ("acme/three", {}))
    async with connected(peer, on_log=on_log, on_notification=on_notification) as client:
        await anyio.wait_all_tasks_blocked()
        await client.call_tool("x")

    assert (seen, custom) == ([1, 2], ["acme/one", "acme/two", "acme/three"])
    assert client.counters == {}
    failed = [(record.getMessage(), record.exc_info) for record in caplog.records if record.levelname == "ERROR"]
    assert [text for text, _ in failed] == [
        "the callback for notifications/message failed",
        "on_notification failed",
    ] * 2, "the third is no more worth logging"
    assert [exc_info[1] for _, exc_info in failed[::2] if exc_info] == problems


@on_both
async def test_past_the_bound_the_oldest_log_message_or_unknown_notification_gives_way_and_no_change_is_lost() -> None:
    said: list[tuple[str, dict[str, Any]]] = [("notifications/tools/list_changed", {})]
    said += [log(n) if n % 2 else ("acme/flood", {"data": n}) for n in range(10)]
    seen: list[object] = []

    async def on_log(message: LoggingMessageNotificationParams) -> None:
        seen.append(message.data)

    async def on_notification(notification: Notification) -> None:
        seen.append(notification.params)

    async def on_change(change: Change) -> None:
        await all_said.wait()
        seen.append(change.method)

    all_said = anyio.Event()
    peer, limits = telling(HANDSHAKE, *said), Limits(max_notifications=3)
    async with connected(
        peer, on_log=on_log, on_notification=on_notification, on_change=on_change, limits=limits
    ) as client:
        await anyio.wait_all_tasks_blocked()
        all_said.set()
        await anyio.wait_all_tasks_blocked()

    assert seen == ["notifications/tools/list_changed", 7, {"data": 8}, 9]
    assert client.counters == {"dropped notifications": 7}


async def test_of_more_changes_than_may_wait_the_newest_are_kept() -> None:
    updated = {"jsonrpc": "2.0", "method": "notifications/resources/updated"}

    async def script(peer: ScriptedPeer) -> None:
        await HANDSHAKE.open(peer)
        await peer.send_raw(to_json([{**updated, "params": {"uri": f"a:{n}"}} for n in range(5)]))

    seen = Recorder()
    async with connected(ScriptedPeer(script), on_change=seen, limits=Limits(max_notifications=2)) as client:
        await anyio.wait_all_tasks_blocked()

    assert [change.params.uri for change in seen] == ["a:3", "a:4"]
    assert client.counters == {"dropped notifications": 3}


async def test_a_completed_url_elicitation_is_announced() -> None:
    seen = Recorder()
    peer = telling(HANDSHAKE, ("notifications/elicitation/complete", {"elicitationId": "e1"}))
    async with connected(peer, era="legacy", elicitation=Elicitation(url=None, form=_decline, on_complete=seen)):
        await anyio.wait_all_tasks_blocked()

    assert seen == ["e1"]


async def _decline(request: Any) -> Any:
    return request.decline()


async def test_notifications_without_a_callback_are_ignored(era: Era) -> None:
    async with connected(
        telling(era, log(1), ("notifications/unheard/of", {"x": 1}), ("notifications/cancelled", {}))
    ) as client:
        assert (await client.call_tool("x")).content == []

    assert client.counters == {}


@pytest.mark.backends("asyncio")
async def test_a_callback_that_awaits_a_cancelled_task_ends_nothing_else(
    era: Era, caplog: pytest.LogCaptureFixture
) -> None:
    """On asyncio, where tasks can await others, that looks just like our own cancellation."""

    async def on_log(message: LoggingMessageNotificationParams) -> None:
        seen.append(message.data)
        doomed = asyncio.ensure_future(asyncio.sleep(60))
        doomed.cancel()
        await doomed

    seen: list[object] = []
    async with connected(telling(era, log(1), log(2)), on_log=on_log) as client:
        await anyio.wait_all_tasks_blocked()
        assert client.connected

    assert seen == [1, 2]
    assert "the callback for notifications/message failed" in caplog.text


async def test_what_comes_after_the_callbacks_were_cancelled_is_not_delivered_and_not_waited_for() -> None:
    """Over HTTP, a caller that reads its own stream may still hear of something as the client is closed."""
    seen = Recorder()
    client = Client(ScriptedPeer(silent), on_log=seen)
    async with HandlerTasks.open() as handlers:
        notifications = NotificationQueue(client._state, handlers)
    method, params = log(1)
    notifications.offer(Notification(method, params))
    with anyio.fail_after(25):
        await notifications.delivered()

    assert seen == []


# Those that the client does not know


async def test_notifications_that_the_client_does_not_know_come_in_order(era: Era) -> None:
    seen = Recorder()
    peer = telling(
        era,
        ("notifications/acme/one", {"x": 1}),
        ("notifications/message", {"level": "info", "data": "a log message"}),
        ("notifications/tools/list_changed", {}),
        ("notifications/elicitation/complete", {"elicitationId": "e"}),
        ("notifications/progress", {"progressToken": 5, "progress": 1}),
        ("notifications/cancelled", {"requestId": 5}),
        ("acme/two", {}),
    )
    async with connected(peer, on_notification=seen):
        await anyio.wait_all_tasks_blocked()

    assert seen == [Notification("notifications/acme/one", {"x": 1}), Notification("acme/two", {})]


async def test_a_custom_notification_on_the_stream_of_a_subscription_arrives_without_its_id() -> None:
    async def script(peer: ScriptedPeer) -> None:
        listen = await open_listening(peer, {"tools": {"listChanged": True}})
        await peer.notify_subscription(listen, "notifications/acme/one", {"x": 1})

    seen = Recorder()
    async with connected(ScriptedPeer(script), on_notification=seen, on_change=seen):
        await anyio.wait_all_tasks_blocked()

    assert seen == [Notification("notifications/acme/one", {"x": 1})]
