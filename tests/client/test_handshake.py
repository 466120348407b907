"""Saying that we are initialized, to a server that makes little of it."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
import pytest
from anyio.lowlevel import checkpoint

from mcp_host import Client, StreamableHttp
from mcp_host.errors import RequestTimeout
from mcp_host.limits import Limits
from tests.client.sites import response, streamed
from tests.client.support import EMPTY, INITIALIZED, TOOLS, connected
from tests.extent import on_both

pytestmark = [on_both, pytest.mark.fake_clock]

URL = "http://server.test/mcp"


class Streaming:
    """A server over HTTP that may open a GET stream, and records when it receives what."""

    def __init__(self, stream: str = "refused", initialized_takes: float = 0.0, capabilities: object = TOOLS) -> None:
        self.heard: list[tuple[str, float]] = []
        self.initialized = anyio.Event()
        self._stream = stream
        self._welcome = {**INITIALIZED, "capabilities": capabilities}
        self._initialized_takes = initialized_takes
        self._begun = anyio.current_time()

    @asynccontextmanager
    async def connected(self, within: float = 60, **options: Any) -> AsyncIterator[Client]:
        http = httpx.AsyncClient(transport=httpx.MockTransport(self._serve))
        async with connected(StreamableHttp(URL, client=http), era="legacy", within=within, **options) as client:
            yield client

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
            self.initialized.set()
            return httpx.Response(202)
        return response(message, self._welcome if message["method"] == "initialize" else EMPTY)

    async def _get(self) -> httpx.Response:
        if self._stream == "held back":
            await anyio.sleep_forever()
        if self._stream == "refused":
            return httpx.Response(405)
        return streamed(anyio.Event())


@pytest.mark.fault("H36")
@pytest.mark.parametrize(("connect_timeout", "waits"), [(5, "1"), (0.6, "0.2")])
async def test_a_server_that_does_not_answer_the_end_of_the_handshake_is_waited_for_a_little(
    connect_timeout: float, waits: str
) -> None:
    """And what it was sent is not cut off: a slow server still gets it."""
    server = Streaming(initialized_takes=3)
    async with server.connected(limits=Limits(connect_timeout=connect_timeout), within=4) as client:
        await client.call_tool("x")
        assert not server.initialized.is_set()
        await server.initialized.wait()

    words = f"did not answer notifications/initialized within {waits} s: calls do not wait for that"
    assert client.warnings == [f"{URL} {words}"]


@pytest.mark.parametrize("capabilities", [{}, [], {"logging": {}, "tools": None}], ids=["none", "of PHP", "others"])
async def test_a_server_that_advertises_nothing_to_list_leaves_one_warning(capabilities: object) -> None:
    """Otherwise a loop or a group has none of its tools, and says nothing. Servers written by hand forget to advertise."""
    async with Streaming(capabilities=capabilities).connected() as client:
        await client.aclose()
        await client.connect()
        assert client.warnings == [f"{URL} advertises no tools, prompts or resources, so it is asked for none"]


@pytest.mark.parametrize(("stream", "waits"), [("held back", 1), ("opened", 0), ("refused", 0)])
async def test_a_stream_without_headers_delays_only_the_first_call_by_a_second(stream: str, waits: int) -> None:
    """A proxy may keep them until there is an event. The notification was answered all the same."""
    server = Streaming(stream)
    async with server.connected() as client:
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


async def test_a_call_that_times_out_before_the_stream_is_there_was_not_sent_and_is_not_cancelled() -> None:
    server = Streaming("held back")
    async with server.connected() as client:
        with pytest.raises(RequestTimeout) as caught:
            await client.call_tool("x", timeout=0.5)
        await client.call_tool("x")

    assert caught.value.may_have_run is False
    assert server.heard == [("initialize", 0), ("notifications/initialized", 0), ("tools/call", 1)]


async def test_no_call_waits_for_a_stream_that_another_call_has_opened() -> None:
    """The first one did not wait for an end of the handshake that took too long."""
    server = Streaming("held back", initialized_takes=5)
    async with server.connected() as client:
        await client.call_tool("x")
        await anyio.sleep(4.5)
        await client.call_tool("x")

    assert server.heard == [("initialize", 0), ("notifications/initialized", 0), ("tools/call", 1), ("tools/call", 5.5)]


async def test_closing_does_not_wait_for_an_answer_that_never_comes() -> None:
    server = Streaming(initialized_takes=math.inf)
    async with server.connected(within=4):
        pass

    assert not server.initialized.is_set()
