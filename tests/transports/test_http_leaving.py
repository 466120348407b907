"""Leaving a response before its end, keeping connections, and clients with a will of their own."""

from __future__ import annotations

import gc
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
import pytest

from mcp_host.errors import ConnectFailed, ConnectionClosed, McpError
from mcp_host.transports._http.channel import HttpChannel
from tests.transports.http_contract import by_httpx, callers_own, libraries  # noqa: F401  # an autouse fixture
from tests.transports.http_peers import (
    CALL,
    CHUNKED,
    DONE,
    DONE_JSON,
    DONE_RESPONSE,
    EVENTS,
    JSON,
    LENGTH,
    NOTE,
    NOTE_JSON,
    VERSION,
    Halting,
    RecordedHandle,
    Wire,
    ask,
    chunk,
    event,
    head,
    mocked,
    opened,
    response,
    saying,
    saying_once,
    serving,
)

STREAMED = head(200, {**EVENTS, "connection": "close"})


@pytest.mark.fault("E26")
@pytest.mark.parametrize(
    "beginning",
    [
        pytest.param(b"", id="before the headers"),
        pytest.param(head(200, {**JSON, **LENGTH}), id="before a body"),
        pytest.param(head(200, {**JSON, **LENGTH}) + b"{", id="inside a body"),
        pytest.param(head(200, EVENTS), id="before an event"),
        pytest.param(head(200, EVENTS) + event(NOTE_JSON) + b"data:", id="inside an event"),
    ],
)
async def test_a_cancelled_request_hangs_up_and_leaves_nothing_behind(beginning: bytes) -> None:
    server = Halting(beginning)
    async with serving(server) as peer, opened(peer.url) as channel:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, channel)
            await server.heard.wait()
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        await server.hung_up.wait()
        gc.collect()  # an async generator that was left half-way would be a warning, which is an error


async def test_a_request_that_is_cancelled_inside_a_callback_hangs_up() -> None:
    server = Halting(STREAMED + event(NOTE_JSON) * 100)
    inside = anyio.Event()

    async def on_progress() -> None:
        inside.set()
        await anyio.sleep_forever()

    async with serving(server) as peer, opened(peer.url) as channel:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(channel.request, CALL, VERSION, RecordedHandle(on_progress=on_progress))
            await inside.wait()
            tasks.cancel_scope.cancel()
        await server.hung_up.wait()
        gc.collect()


@pytest.mark.fault("E26")
async def test_a_stream_that_stays_open_after_the_response_is_closed_without_being_waited_for() -> None:
    server = Halting(STREAMED + event(DONE_JSON))
    async with serving(server) as peer, opened(peer.url) as channel:
        assert await ask(channel) == [DONE]
        assert not server.hung_up.is_set()
        await server.hung_up.wait()
        gc.collect()


@pytest.mark.fault("E26")
async def test_a_stream_that_babbles_after_the_response_is_closed() -> None:
    hung_up = anyio.Event()

    async def script(wire: Wire) -> None:
        await wire.hear()
        await wire.events(event(DONE_JSON))
        try:
            while True:
                await wire.say(b": and another thing\n" * 1000)
        finally:
            hung_up.set()

    async with serving(script) as peer, opened(peer.url) as channel:
        assert await ask(channel) == [DONE]
        await hung_up.wait()
        gc.collect()


async def test_a_stream_that_breaks_after_the_response_raises_nothing() -> None:
    broken = head(200, {**EVENTS, **CHUNKED}) + chunk(event(DONE_JSON)) + b"zz\r\n"
    async with serving(saying_once(broken)) as peer, opened(peer.url) as channel:
        assert await ask(channel) == [DONE]
        await anyio.wait_all_tasks_blocked()


async def test_a_stream_under_way_is_closed_with_the_channel() -> None:
    async with serving(Halting(STREAMED + event(DONE_JSON))) as peer:
        async with opened(peer.url, drain_time=60.0) as channel:  # its rest is not read to the end
            assert await ask(channel) == [DONE]
        gc.collect()


@callers_own
@libraries
async def test_a_request_that_ends_after_the_channel_closes_its_own_connection(library: Any) -> None:
    server = Halting(STREAMED + event(DONE_JSON))
    closed = anyio.Event()
    in_callback = anyio.Event()

    async def linger() -> None:
        in_callback.set()
        await closed.wait()

    async with library.AsyncClient() as client, serving(server) as peer, anyio.create_task_group() as tasks:
        async with opened(peer.url, client=client) as channel:
            tasks.start_soon(channel.request, CALL, VERSION, RecordedHandle(on_progress=linger))
            await in_callback.wait()
        closed.set()
        with anyio.fail_after(25):
            await server.hung_up.wait()
    gc.collect()


async def test_requests_follow_each_other_on_kept_connections_after_bodies_streams_and_202s() -> None:
    async def script(wire: Wire) -> None:
        while True:
            if (await wire.hear()).rpc.get("id") == 7:
                await wire.say(head(200, {**EVENTS, **CHUNKED}) + chunk(event(DONE_JSON)) + chunk(b""))
            else:
                await wire.say(head(202, CHUNKED) + chunk(b"ok") + chunk(b""))

    async with serving(script) as peer, opened(peer.url) as channel:
        for _ in range(20):
            await ask(channel)
            await ask(channel)
            await channel.send(NOTE, VERSION)

    assert len(peer.heard) == 60
    assert peer.connections <= 2


async def test_without_a_bound_more_streams_than_any_pool_holds_stay_open_at_once() -> None:
    waiting = 0
    all_there = anyio.Event()

    async def script(wire: Wire) -> None:
        nonlocal waiting
        await wire.hear()
        waiting += 1
        if waiting == 150:
            all_there.set()
        await all_there.wait()
        await wire.events(event(DONE_JSON))

    async with (
        serving(script) as peer,
        opened(peer.url, max_connections=None) as channel,
        anyio.create_task_group() as tasks,
    ):
        for _ in range(150):
            tasks.start_soon(ask, channel)

    assert peer.connections == 150


@asynccontextmanager
async def hooked(library: Any, hook: Callable[[Any], Awaitable[None]], raw: bytes) -> AsyncIterator[HttpChannel]:
    """A channel by a client of the caller's, which calls *hook* with each response of a server that says *raw*."""
    async with (
        library.AsyncClient(event_hooks={"response": [hook]}) as client,
        serving(saying(raw)) as peer,
        opened(peer.url, client=client) as channel,
    ):
        yield channel


@callers_own
@libraries
async def test_a_client_that_reads_bodies_itself_is_understood(library: Any) -> None:
    async def read(response: Any) -> None:
        await response.aread()

    zipped = response(200, {**JSON, "content-encoding": "gzip"}, gzip.compress(DONE_JSON))
    async with hooked(library, read, zipped) as channel:
        assert await ask(channel) == [DONE]


@callers_own
@libraries
async def test_a_client_that_throws_bodies_away_fails_the_request_alone(library: Any) -> None:
    async def waste(response: Any) -> None:
        async for _ in response.aiter_raw():
            pass

    async with hooked(library, waste, DONE_RESPONSE) as channel:
        with pytest.raises(ConnectionClosed):
            await ask(channel)


class Endless(httpx.AsyncByteStream):
    """A stand-in for a network, in which nothing ever waits."""

    def __init__(self) -> None:
        self._first = [b"", event(DONE_JSON)]

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        return self._first.pop(0) if self._first else b": x"


@callers_own
async def test_an_endless_response_that_never_waits_is_left_after_the_reply() -> None:
    async with mocked(lambda request: httpx.Response(200, headers=EVENTS, stream=Endless())) as channel:
        assert await ask(channel) == [DONE]


class Breaking(httpx.AsyncBaseTransport):
    """A connection that breaks while the body of the request is written."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        assert isinstance(request.stream, httpx.AsyncByteStream)
        async for _ in request.stream:
            raise httpx.WriteError("broken", request=request)
        raise AssertionError("a request without a body")


@callers_own
async def test_a_request_that_breaks_off_in_its_body_leaves_no_generator_behind() -> None:
    """trio would warn of one."""
    async with (
        httpx.AsyncClient(transport=Breaking()) as client,
        opened("http://server.test/", client=client) as channel,
    ):
        with pytest.raises(ConnectionClosed, match="broken"):
            await ask(channel)


@callers_own
@libraries
async def test_an_error_of_the_callers_own_hook_comes_out_as_it_is(library: Any) -> None:
    async def fail(response: Any) -> None:
        raise ZeroDivisionError

    async with hooked(library, fail, DONE_RESPONSE) as channel:
        with pytest.raises(ZeroDivisionError):
            await ask(channel)


@callers_own
@libraries
async def test_no_exception_of_the_http_library_gets_out(library: Any) -> None:
    """Every error that httpx documents, wherever it strikes."""
    kinds = [
        library.ConnectError, library.ConnectTimeout, library.PoolTimeout, library.ProxyError, library.UnsupportedProtocol,
        library.ReadError, library.ReadTimeout, library.WriteError, library.WriteTimeout, library.CloseError,
        library.RemoteProtocolError, library.LocalProtocolError, library.DecodingError, library.TooManyRedirects,
    ]  # fmt: skip
    left = list(kinds)

    def answer(request: Any) -> Any:
        raise left.pop(0)("boo\x1b[2J", request=request)

    outcomes: list[tuple[type[McpError], bool]] = []
    complaint = r"http://server.test/mcp: (the proxy of the client: )?(boo\\x1b\[2J|LocalProtocolError)"
    async with mocked(answer, library=library) as channel:
        while left:
            with pytest.raises(ConnectionClosed, match=complaint) as caught:
                await ask(channel)
            outcomes.append((type(caught.value), caught.value.may_have_run))

    assert outcomes == [(ConnectFailed, False)] * 5 + [(ConnectionClosed, True)] * 9
