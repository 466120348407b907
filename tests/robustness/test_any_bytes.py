"""A server that sends any bytes at all: every call ends in time, the client closes, and nothing is left behind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from anyio import fail_after
from anyio.lowlevel import checkpoint
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from mcp_host import Client, Limits, Stdio, StreamableHttp
from mcp_host.errors import McpError
from mcp_host.transports.base import Transport
from tests.extent import THOROUGH
from tests.faults.fault import leaving_nothing
from tests.faults.measure import peak
from tests.transports.http_peers import Wire, serving

MiB = 1024 * 1024
# What a process or a socket leaves open ends by these, in real time: nothing tells that no more will come.
HASTY = Limits(connect_timeout=0.2, idle_timeout=0.05, timeout=0.2, close_timeout=1, max_message=64 * 1024)
BOUND = 250.0  # seconds, for what hangs: a flood takes four, and twenty and more on a busy machine
PATIENT = replace(HASTY, connect_timeout=BOUND, max_outbox=MiB, max_answers=64)
"""For a child that ends by itself, however late it starts."""

few = settings(
    max_examples=400 if THOROUGH else 15,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    deadline=None,  # what has to end in time has its own clock
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)

INITIALIZED = b'{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"0"}}}'
MESSAGES = [
    INITIALIZED,
    b'{"jsonrpc":"2.0","id":2,"result":{"content":[]}}',
    b'{"jsonrpc":"2.0","id":2,"result":{"content":5}}',
    b'{"jsonrpc":"2.0","id":2,"error":{"code":-1,"message":"\\u001b[2J"}}',
    b'{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"m"}}',
    b'{"jsonrpc":"2.0","id":"2","result":[]}',
    b'{"jsonrpc":"2.0","id":9,"method":"sampling/createMessage","params":{}}',
    b'{"jsonrpc":"2.0","id":9,"method":"ping"}',
    b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":2,"progress":1e308}}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}',
    b"[]",
    b"[[[[",
    b'{"id":2,"result":{',
]
"""What a server may say, more or less: pieces of these are more of a trial than noise."""

FIELDS = [
    b"data:",
    b"data: ",
    b"event: message\n",
    b"id: 1\n",
    b"retry: 0\n",
    b"retry: 1e9\n",
    b":\n",
    b"\n",
    b"\n\n",
    b"\r",
    b"\xef\xbb\xbf",
]

anything = st.lists(
    st.one_of(
        st.sampled_from(MESSAGES),
        st.sampled_from(FIELDS),
        st.sampled_from([b"\n", b"\r\n", b""]),
        st.binary(max_size=40),
    ),
    max_size=10,
)
"""Bytes in pieces, which is how they arrive."""


async def attempt(transport: Transport, limits: Limits = HASTY) -> None:
    """The client connects, calls and closes, or says in time why it cannot."""
    client = Client(transport, era="legacy", limits=limits)
    with fail_after(BOUND):
        try:
            await client.connect()
            await client.call_tool("x")
        except McpError:
            pass
        finally:
            await client.aclose()
    assert not client.connected


async def check(transport: Transport, limits: Limits = HASTY) -> None:
    async with leaving_nothing():
        await attempt(transport, limits)


@given(said=anything, welcome=st.booleans(), stays=st.booleans())
@few
async def test_a_child_may_write_anything(tmp_path: Path, said: list[bytes], welcome: bool, stays: bool) -> None:
    """Before the handshake or after it, and end there or stay."""
    whole = tmp_path / "said"
    whole.write_bytes((INITIALIZED + b"\n" if welcome else b"") + b"".join(said))
    wait = "cat > /dev/null" if stays else ":"

    await check(Stdio(["sh", "-c", f'read line; cat "$0"; {wait}', str(whole)]), HASTY if stays else PATIENT)


class Pieces(httpx.AsyncByteStream):
    """A body that arrives in these pieces."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = iter(pieces)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        await checkpoint()  # as at a socket
        for piece in self._pieces:
            return piece
        raise StopAsyncIteration


@given(
    said=anything,
    kind=st.sampled_from(["application/json", "text/event-stream", "text/html"]),
    coding=st.sampled_from(["identity", "identity", "gzip", "deflate"]),
    welcome=st.booleans(),
)
@few
async def test_a_body_may_hold_anything(said: list[bytes], kind: str, coding: str, welcome: bool) -> None:
    """As JSON or as events, split anywhere, compressed or claiming to be."""

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method != "POST":
            return httpx.Response(405)
        if welcome and b'"initialize"' in request.content:
            return httpx.Response(200, headers={"content-type": "application/json"}, content=INITIALIZED)
        return httpx.Response(200, headers={"content-type": kind, "content-encoding": coding}, stream=Pieces(said))

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
        await check(StreamableHttp("http://server.test/mcp", client=http))


HEADS = [
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.0 200 OK\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /mcp\r\n\r\n",
    b"content-type: application/json\r\n",
    b"content-type: text/event-stream\r\n",
    b"content-length: 20\r\n",
    b"content-length: -1\r\n",
    b"transfer-encoding: chunked\r\n",
    b"connection: close\r\n",
    b"\r\n",
    b"ffffffffffffffff\r\n",
    b"5\r\n",
    b"0\r\n\r\n",
    b"SSH-2.0-OpenSSH_9.6\r\n",
]


@given(said=st.lists(st.one_of(st.sampled_from(HEADS), st.sampled_from(MESSAGES), st.binary(max_size=40)), max_size=10))
@few
async def test_a_socket_may_send_anything(said: list[bytes]) -> None:
    """Whether or not it is HTTP."""

    async def script(wire: Wire) -> None:
        await wire.hear()
        for piece in said:
            await wire.say(piece)
        await wire.end()

    async with leaving_nothing(), serving(script) as peer:
        await attempt(StreamableHttp(peer.url))


ENDLESS = 12 * MiB
PIECE = 64 * 1024  # what is read at once
LINES = {
    "one line": (b"x" * PIECE, ENDLESS),
    "many lines": (b'{"jsonrpc":"2.0","id":7,"method":"ping"}\n' * (PIECE // 40), 4 * MiB),
}
BODIES = {
    "one event": (b"x" * PIECE, "text/event-stream"),
    "one event of many lines": (b"data: x\n" * (PIECE // 8), "text/event-stream"),
    "comments": (b": x\n" * (PIECE // 4), "text/event-stream"),
    "one body": (b"[" * PIECE, "application/json"),
}


@pytest.mark.parametrize("flood", LINES)
async def test_a_child_that_floods_its_output_costs_no_memory(tmp_path: Path, flood: str) -> None:
    """And not a word for us: what is kept is bounded by the limits, and not by the flood, of which a line would be kept in 400 bytes."""
    piece, size = LINES[flood]
    chunk = tmp_path / "chunk"
    chunk.write_bytes(piece * 16)
    again = f'read line; for i in $(seq {size // PIECE // 16}); do cat "$0"; done'

    with peak() as most:
        await check(Stdio(["sh", "-c", again, str(chunk)]), PATIENT)

    assert most() < 4 * MiB


@pytest.mark.parametrize("flood", BODIES)
async def test_a_server_that_floods_a_body_costs_no_memory(flood: str) -> None:
    chunk, kind = BODIES[flood]

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-type": kind}, stream=Pieces([chunk] * (ENDLESS // PIECE)))

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
        with peak() as most:
            await check(StreamableHttp("http://server.test/mcp", client=http))

    assert most() < 4 * MiB
