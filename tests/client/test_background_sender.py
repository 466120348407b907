"""What no caller waits for is sent at once, or else in the background for 30 seconds at most; failures are counted."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncGenerator
from itertools import pairwise
from typing import Any

import anyio
import httpx
import pytest

from mcp_host.concurrency.asking import is_unattended
from mcp_host.errors import ConnectionClosed, SessionLost
from mcp_host.protocol.jsonrpc import Failure, Notification, Request, Success
from mcp_host.session.sender import BackgroundSender
from mcp_host.transports.base import Headers, Receive, RequestHandle
from tests.client.sites import Site, handshake, streamed
from tests.client.support import EMPTY
from tests.extent import on_both

pytestmark = on_both

ANSWER = Success(1, {"roots": []})


class FullChannel:
    """A channel over which nothing can be sent without waiting. It lets each message through when *room* is set, or fails."""

    keeps_cache = True
    other_output = ""

    def __init__(self, failure: Exception | None = None, *, stream_per_request: bool = False) -> None:
        self.asked: list[str] = []
        self.sent_at: list[float] = []
        self.room = anyio.Event()
        self.stream_per_request = stream_per_request
        self._failure = failure

    async def wait_until_started(self) -> None:
        raise AssertionError

    async def request(self, request: Request, headers: Headers, handle: RequestHandle) -> None:
        raise AssertionError

    async def send(self, message: Notification | Success | Failure, headers: Headers) -> None:
        self.asked.append("send")
        self.sent_at.append(anyio.current_time())
        if self._failure is not None:
            raise self._failure
        await self.room.wait()

    def send_now(self, message: Notification | Success | Failure) -> bool:
        self.asked.append("send_now")
        return False

    async def listen(self, receive: Receive) -> None:
        raise AssertionError


async def counted(channel: FullChannel, *, soon: bool) -> Counter[str]:
    """What is counted when an answer is sent over *channel*: by the task of a handler, or *soon*, by the sender's."""
    counters: Counter[str] = Counter()
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            sender = BackgroundSender(channel, tasks, 64, counters, lambda: None)
            if soon:
                sender.send_soon(ANSWER, None)
            else:
                await sender.send(ANSWER, None)
    return counters


@pytest.mark.fake_clock
@pytest.mark.parametrize("soon", [False, True], ids=["the handler's task sends it", "the sender's task sends it"])
async def test_an_answer_that_is_not_taken_in_30_seconds_is_counted_and_logged(
    soon: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "mcp_host")
    before = anyio.current_time()
    counters = await counted(FullChannel(), soon=soon)

    assert anyio.current_time() - before == pytest.approx(30)
    assert counters == {"undelivered messages": 1}
    assert "not delivered: it took longer than 30 seconds" in caplog.text


@pytest.mark.parametrize("soon", [False, True], ids=["the handler's task sends it", "the sender's task sends it"])
async def test_an_answer_that_an_auth_fails_for_is_counted_and_logged(
    soon: bool, caplog: pytest.LogCaptureFixture
) -> None:
    channel = FullChannel(ValueError("a defect of the host's"))

    assert await counted(channel, soon=soon) == {"undelivered messages": 1}
    assert "a message could not be sent" in caplog.text


async def test_an_answer_over_a_connection_that_has_broken_is_counted_and_not_tried_again() -> None:
    class Broken(FullChannel):
        def send_now(self, message: Notification | Success | Failure) -> bool:
            raise ConnectionClosed("reset")

    channel = Broken()
    assert await counted(channel, soon=True) == {"undelivered messages": 1}
    assert channel.asked == []


async def test_an_answer_for_a_session_that_is_lost_is_not_sent_again() -> None:
    channel = FullChannel(SessionLost("HTTP 404"), stream_per_request=True)

    assert await counted(channel, soon=True) == {"undelivered messages": 1}
    assert channel.asked == ["send_now", "send"]


@pytest.mark.fake_clock
async def test_an_answer_over_http_that_may_be_lost_is_sent_again_after_longer_and_longer_pauses() -> None:
    channel = FullChannel(ConnectionClosed("reset"), stream_per_request=True)

    assert await counted(channel, soon=True) == {"undelivered messages": 1}
    assert [later - earlier for earlier, later in pairwise(channel.sent_at)] == pytest.approx([0.1, 0.5, 2.0])


async def test_a_message_that_has_to_wait_is_given_to_the_channel_once_more_and_not_twice() -> None:
    """The channel encodes it each time."""
    channel = FullChannel()
    channel.room.set()

    assert await counted(channel, soon=True) == {}
    assert channel.asked == ["send_now", "send"]


class Defective(httpx.Auth):
    """Raises what is no error of ours, for the answer to a ping."""

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        if b'"ping-1"' in request.content:
            raise ValueError("a defect of the host's")
        yield request


async def test_an_auth_that_fails_for_an_answer_does_not_end_the_connection() -> None:
    def ping(message: dict[str, Any]) -> httpx.Response:
        return streamed({"id": "ping-1", "method": "ping"}, {"id": message["id"], "result": EMPTY})

    site = Site(initialize=handshake, notifications_initialized=lambda message: httpx.Response(202), tools_call=ping)
    async with site.connected(auth=Defective(), era="legacy") as client:
        for _ in range(3):
            await client.call_tool("x")
            await anyio.wait_all_tasks_blocked()

    assert client.counters == {"undelivered messages": 3}


@pytest.mark.parametrize(
    ("message", "attended"),
    [(ANSWER, True), (Failure(1, -1, "no"), True), (Notification("notifications/cancelled", {"requestId": 1}), False)],
)
async def test_a_person_may_be_asked_to_log_in_for_an_answer_that_a_call_waits_for(
    message: Success | Failure | Notification, attended: bool
) -> None:
    class Asking(FullChannel):
        async def send(self, message: Notification | Success | Failure, headers: Headers) -> None:
            self.asked.append(str(not is_unattended()))

    channel = Asking()
    async with anyio.create_task_group() as tasks:
        await BackgroundSender(channel, tasks, 64, Counter(), lambda: None).send(message, None)

    assert channel.asked == ["send_now", str(attended)]
