"""Saying that we are initialized, to a server that makes little of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import anyio
import httpx
import pytest
from anyio.lowlevel import checkpoint

from mcp_host import StreamableHttp
from mcp_host.errors import RequestTimeout
from mcp_host.limits import Limits
from tests.client.sites import handshake
from tests.client.support import connected
from tests.extent import on_both


class Slow:
    """A server over HTTP that answers `notifications/initialized` only when it is told to."""

    def __init__(self) -> None:
        self.released, self.answered = anyio.Event(), anyio.Event()

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method != "POST":
            return httpx.Response(405)
        message = json.loads(request.content)
        if message["method"] == "notifications/initialized":
            await self.released.wait()
            self.answered.set()
            return httpx.Response(202)
        if message["method"] == "initialize":
            return handshake(message)
        return httpx.Response(200, json={"jsonrpc": "2.0", "id": message["id"], "result": {"content": []}})

    def reached(self) -> StreamableHttp:
        return StreamableHttp("http://server.test/mcp", client=httpx.AsyncClient(transport=httpx.MockTransport(self)))


@on_both
@pytest.mark.parametrize(("connect_timeout", "waits"), [(5, "1"), (0.6, "0.2")])
@pytest.mark.fake_clock
async def test_a_server_that_does_not_answer_the_end_of_the_handshake_is_waited_for_a_little(
    connect_timeout: float, waits: str
) -> None:
    """And what it was sent is not cut off: a slow server still gets it."""
    server = Slow()
    async with connected(
        server.reached(), era="legacy", limits=Limits(connect_timeout=connect_timeout), within=4
    ) as client:
        assert (await client.call_tool("x")).content == []
        server.released.set()
        await server.answered.wait()
        warnings = client.warnings

    words = f"did not answer notifications/initialized within {waits} s: calls do not wait for that"
    assert warnings == [f"http://server.test/mcp {words}"]


class Streaming:
    """A server over HTTP that may open a GET stream, and records when it receives what."""

    def __init__(self, stream: str, initialized_takes: float = 0.0) -> None:
        self.heard: list[tuple[str, float]] = []
        self._stream = stream
        self._initialized_takes = initialized_takes
        self._begun = anyio.current_time()

    def reached(self) -> StreamableHttp:
        client = httpx.AsyncClient(transport=httpx.MockTransport(self._serve))
        return StreamableHttp("http://server.test/mcp", client=client)

    async def _serve(self, request: httpx.Request) -> httpx.Response:
        await checkpoint()  # as on any network, others run meanwhile
        if request.method == "GET":
            return await self._get()
        if request.method == "DELETE":
            return httpx.Response(405)
        message = json.loads(request.content)
        self.heard.append((message["method"], round(anyio.current_time() - self._begun, 3)))
        if message["method"] == "notifications/initialized":
            await anyio.sleep(self._initialized_takes)
            return httpx.Response(202)
        if message["method"] == "initialize":
            return handshake(message)
        return httpx.Response(200, json={"jsonrpc": "2.0", "id": message["id"], "result": {"content": []}})

    async def _get(self) -> httpx.Response:
        if self._stream == "held back":
            await anyio.sleep_forever()
        if self._stream == "refused":
            return httpx.Response(405)
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=self._silence())

    async def _silence(self) -> AsyncIterator[bytes]:
        await anyio.sleep_forever()
        yield b""


@on_both
@pytest.mark.fake_clock
@pytest.mark.parametrize(("stream", "waits"), [("held back", 1), ("opened", 0), ("refused", 0)])
async def test_a_stream_without_headers_delays_only_the_first_call_by_a_second(stream: str, waits: int) -> None:
    """A proxy may keep them until there is an event. The notification was answered all the same."""
    server = Streaming(stream)
    async with connected(server.reached(), era="legacy", within=60) as client:
        await client.call_tool("x")
        await client.call_tool("x")
        warnings = client.warnings

    assert warnings == []
    assert server.heard == [
        ("initialize", 0),
        ("notifications/initialized", 0),
        ("tools/call", waits),
        ("tools/call", waits),
    ]


@on_both
@pytest.mark.fake_clock
async def test_a_call_that_times_out_before_the_stream_is_there_was_not_sent_and_is_not_cancelled() -> None:
    server = Streaming("held back")
    async with connected(server.reached(), era="legacy", within=60) as client:
        with pytest.raises(RequestTimeout) as caught:
            await client.call_tool("x", timeout=0.5)
        await client.call_tool("x")

    assert caught.value.may_have_run is False
    assert server.heard == [("initialize", 0), ("notifications/initialized", 0), ("tools/call", 1)]


@on_both
@pytest.mark.fake_clock
async def test_no_call_waits_for_a_stream_that_another_call_has_opened() -> None:
    """The first one did not wait for an end of the handshake that took too long."""
    server = Streaming("held back", initialized_takes=5)
    async with connected(server.reached(), era="legacy", within=60) as client:
        await client.call_tool("x")
        await anyio.sleep(4.5)
        await client.call_tool("x")

    assert server.heard == [("initialize", 0), ("notifications/initialized", 0), ("tools/call", 1), ("tools/call", 5.5)]


@on_both
@pytest.mark.fake_clock
async def test_closing_does_not_wait_for_an_answer_that_never_comes() -> None:
    server = Slow()
    async with connected(server.reached(), era="legacy", within=4):
        pass

    assert not server.answered.is_set()
