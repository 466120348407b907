"""What no caller waits for is sent at once, or else in the background for 30 seconds at most; failures are warnings."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from itertools import pairwise
from typing import Any

import anyio
import httpx
import pytest

from mcp_host import SamplingRequest
from mcp_host.concurrency.asking import is_unattended
from mcp_host.errors import AuthError, ConnectFailed, ConnectionClosed, RequestTimeout, SessionLost, Unauthorized
from mcp_host.protocol.jsonrpc import Failure, Notification, Request, Success
from mcp_host.session.sender import BackgroundSender
from mcp_host.transports.base import Headers, Receive, RequestHandle
from tests.client.sites import Site, handshake, streamed
from tests.client.support import EMPTY, QUESTION, sampling
from tests.client.test_session_lost import URL, Forgetful, session_with
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


async def counted(channel: FullChannel, *, soon: bool, warnings: list[str] | None = None) -> Counter[str]:
    """What is counted when an answer is sent over *channel*: by the task of a handler, or *soon*, by the sender's."""
    counters: Counter[str] = Counter()
    warnings = [] if warnings is None else warnings
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            sender = BackgroundSender(channel, tasks, 64, counters, lambda: None, warnings.append)
            if soon:
                sender.send_soon(ANSWER, None)
            else:
                await sender.send(ANSWER, None)
    return counters


@pytest.mark.fake_clock
@pytest.mark.parametrize("soon", [False, True], ids=["the handler's task sends it", "the sender's task sends it"])
async def test_an_answer_that_is_not_taken_in_30_seconds_is_counted_and_a_warning(soon: bool) -> None:
    before, warnings = anyio.current_time(), list[str]()
    counters = await counted(FullChannel(), soon=soon, warnings=warnings)

    assert anyio.current_time() - before == pytest.approx(30)
    assert counters == {"undelivered messages": 1}
    assert warnings == ["an answer was not delivered: it took longer than 30 seconds"]


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

    channel, warnings = Broken(), list[str]()
    assert await counted(channel, soon=True, warnings=warnings) == {"undelivered messages": 1}
    assert channel.asked == warnings == []  # that the connection has ended is told elsewhere


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
    assert client.warnings == [
        f"http://server.test/mcp: an answer was not delivered{count}: ValueError: a defect of the host's"
        for count in ("", " (2 messages so far)")
    ]


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
        await BackgroundSender(channel, tasks, 64, Counter(), lambda: None, print).send(message, None)

    assert channel.asked == ["send_now", str(attended)]


# The call that waits for an answer


class Refuses(httpx.Auth):
    """Raises *error* for answers, if there is one."""

    requires_request_body = True

    def __init__(self, error: Exception | None) -> None:
        self.error = error

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        if self.error is not None and b'"method"' not in request.content and request.method == "POST":
            raise self.error
        yield request


def asks(method: str = "sampling/createMessage") -> Callable[[dict[str, Any]], httpx.Response]:
    """A tool that asks something, and never ends."""
    return lambda call: streamed({"id": "ask-1", "method": method, "params": QUESTION}, anyio.Event())


def fails(how: int | Exception) -> Callable[[dict[str, Any]], httpx.Response]:
    def answer(message: dict[str, Any]) -> httpx.Response:
        if isinstance(how, Exception):
            raise how
        return httpx.Response(how)

    return answer


UNDELIVERED: dict[str, tuple[Exception | None, int | Exception, type[Exception], str]] = {
    "an Auth of the host that fails": (ValueError("a defect"), 202, ValueError, "a defect"),
    "an Auth without a token": (AuthError("no token"), 202, AuthError, "no token"),
    "401": (None, 401, Unauthorized, f"HTTP 401 Unauthorized from {URL}"),
    "a session that is lost": (None, 404, SessionLost, f"{URL}: the session is lost: HTTP 404 Not Found from {URL}"),
    "no connection": (None, httpx.ConnectError("refused"), ConnectFailed, f"{URL}: refused"),
}


@pytest.mark.fake_clock
@pytest.mark.parametrize("how", UNDELIVERED)
@pytest.mark.parametrize("method", ["sampling/createMessage", "roots/list"], ids=["an answer", "a refusal"])
async def test_a_call_whose_server_certainly_does_not_get_its_answer_ends_with_that_error_and_is_cancelled(
    how: str, method: str
) -> None:
    error, response, kind, why = UNDELIVERED[how]
    server = Forgetful()
    server.instead |= {"tools/call": asks(method), "response": fails(response)}
    async with session_with(server, auth=Refuses(error), sampling=sampling()) as client:
        with pytest.raises(kind) as raised:
            await client.call_tool("x", timeout=math.inf, idle_timeout=math.inf)
        await anyio.wait_all_tasks_blocked()
        methods = server.methods(since=2)
        del server.instead["tools/call"]
        assert (await client.call_tool("x")).content == []

    assert type(raised.value) is kind
    told = f"the answer to {method} was not delivered: "
    assert str(raised.value).startswith(why if kind is ValueError else f"tools/call: {told}{why}")
    assert getattr(raised.value, "may_have_run", True)
    [warning] = client.warnings
    assert warning.startswith(f"{URL}: an answer was not delivered: ")
    assert why in warning
    assert (methods.count("tools/call"), methods.count("notifications/cancelled")) == (1, 1)


async def test_an_answer_to_what_was_asked_outside_of_calls_ends_none() -> None:
    server = Forgetful()
    server.streams.append(streamed({"id": "ask-1", "method": "roots/list"}, anyio.Event()))
    server.instead["response"] = fails(401)
    async with session_with(server) as client:
        assert (await client.call_tool("x")).content == []
        await anyio.wait_all_tasks_blocked()

    assert client.warnings == [f"{URL}: an answer was not delivered: HTTP 401 Unauthorized from {URL}"]


@pytest.mark.fake_clock
@pytest.mark.parametrize("status", [400, 500])
async def test_a_call_whose_server_may_have_its_answer_goes_on_and_says_so_if_it_times_out(status: int) -> None:
    server = Forgetful()
    server.instead |= {"tools/call": asks(), "response": fails(status)}
    async with session_with(server, sampling=sampling()) as client:
        with pytest.raises(RequestTimeout) as raised:
            await client.call_tool("x", idle_timeout=20)

    text = f"not delivered: HTTP {status} "
    assert f"silent for 20 s (idle_timeout); the answer to sampling/createMessage was {text}" in str(raised.value)
    assert [text in warning for warning in client.warnings] == [True]


@pytest.mark.fake_clock
async def test_a_cancellation_and_the_progress_of_a_handler_that_are_not_delivered_are_warnings() -> None:
    async def model(request: SamplingRequest) -> str:
        await request.report_progress(1, 2)
        await anyio.sleep_forever()
        raise AssertionError

    params = {**QUESTION, "_meta": {"progressToken": "p"}}
    question = {"id": "ask-1", "method": "sampling/createMessage", "params": params}
    server = Forgetful()
    server.instead |= {"tools/call": lambda call: streamed(question, anyio.Event())}
    server.instead |= dict.fromkeys(["notifications/progress", "notifications/cancelled"], fails(503))
    async with session_with(server, sampling=sampling(basic=model)) as client:
        with anyio.move_on_after(5):
            await client.call_tool("x")
        await anyio.wait_all_tasks_blocked()

    assert [warning.partition(" was not delivered")[0] for warning in client.warnings] == [
        f"{URL}: notifications/progress",
        f"{URL}: notifications/cancelled",
    ]
