"""What no caller waits for is sent at once, or else in the background for 30 seconds at most; failures are counted."""

from __future__ import annotations

import logging
from collections import Counter

import anyio
import pytest

from mcp_host.protocol.jsonrpc import Failure, Notification, Request, Success
from mcp_host.session.sender import BackgroundSender
from mcp_host.transports.base import Headers, Receive, RequestHandle

ANSWER = Success(1, {"roots": []})


class FullChannel:
    """A channel over which nothing can be sent without waiting. It lets each message through when *room* is set."""

    stream_per_request = False
    keeps_cache = True
    other_output = ""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.room = anyio.Event()

    async def wait_until_started(self) -> None:
        raise AssertionError

    async def request(self, request: Request, headers: Headers, handle: RequestHandle) -> None:
        raise AssertionError

    async def send(self, message: Notification | Success | Failure, headers: Headers) -> None:
        self.asked.append("send")
        await self.room.wait()

    def send_now(self, message: Notification | Success | Failure) -> bool:
        self.asked.append("send_now")
        return False

    async def listen(self, receive: Receive) -> None:
        raise AssertionError


@pytest.mark.fake_clock
@pytest.mark.parametrize("soon", [False, True], ids=["the handler's task sends it", "the sender's task sends it"])
async def test_an_answer_that_is_not_taken_in_30_seconds_is_counted_and_logged(
    soon: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "mcp_host")
    counters: Counter[str] = Counter()
    before = anyio.current_time()
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            sender = BackgroundSender(FullChannel(), tasks, 64, counters, lambda: None)
            if soon:
                sender.send_soon(ANSWER, None)
            else:
                await sender.send(ANSWER, None)

    assert anyio.current_time() - before == pytest.approx(30)
    assert counters == {"undelivered messages": 1}
    assert "not delivered: it took longer than 30 seconds" in caplog.text


async def test_a_message_that_has_to_wait_is_given_to_the_channel_once_more_and_not_twice() -> None:
    """The channel encodes it each time."""
    channel = FullChannel()
    counters: Counter[str] = Counter()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            BackgroundSender(channel, tasks, 64, counters, lambda: None).send_soon(ANSWER, None)
            channel.room.set()

    assert channel.asked == ["send_now", "send"]
    assert counters == {}
