"""An HTTP client that checks nothing, with one connection per request.

Leaving an httpx response before its end strands async generators under trio;
here, leaving is closing a socket.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import h11
from anyio import connect_tcp, fail_after
from anyio.abc import SocketStream
from pydantic_core import from_json, to_json

from mcp_host.testing import Server
from tests.testing.raw import INITIALIZE, INITIALIZED, MODERN, Wire, check, request

IN_TIME = 25.0  # seconds for a server that starts, does what a test wants of it, and stops
ACCEPT = "application/json, text/event-stream"


@dataclass(frozen=True)
class Response:
    """A whole response."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return from_json(self.body)


class Stream:
    """A response whose body is still coming, event by event."""

    def __init__(self, socket: SocketStream, connection: h11.Connection) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.last_id = ""
        self.retry = ""
        self._socket = socket
        self._connection = connection
        self._unread = b""

    async def head(self) -> None:
        response = await self._event()
        assert isinstance(response, h11.Response)
        self.status = response.status_code
        self.headers = {name.decode(): value.decode() for name, value in response.headers}

    async def body(self) -> bytes:
        parts = [self._unread]
        while part := await self._part():
            parts.append(part)
        return b"".join(parts)

    async def next(self) -> Wire | None:
        """The next message, passing over events without one; None at the end of the response."""
        while (block := await self.block()) is not None:
            fields = dict(line.split(": ", 1) for line in block.decode().splitlines() if not line.startswith(":"))
            self.last_id = fields.get("id", self.last_id)
            self.retry = fields.get("retry", self.retry)
            if data := fields.get("data"):
                message: Wire = from_json(data)
                return message
        return None

    async def block(self) -> bytes | None:
        """Everything up to the next blank line; None at the end of the response."""
        while b"\n\n" not in self._unread:
            if not (part := await self._part()):
                return None
            self._unread += part
        block, _, self._unread = self._unread.partition(b"\n\n")
        return block

    async def message(self) -> Wire:
        """The next message, which has to come."""
        message = await self.next()
        assert message is not None, "the stream has ended"
        return message

    async def rest(self) -> list[Wire]:
        messages = []
        while (message := await self.next()) is not None:
            messages.append(message)
        return messages

    async def _part(self) -> bytes:
        match await self._event():
            case h11.Data(data=data):
                return bytes(data)
        return b""

    async def _event(self) -> object:
        while (event := self._connection.next_event()) is h11.NEED_DATA:
            self._connection.receive_data(await self._socket.receive())
        return event


class Peer:
    """One session over HTTP; without *headers*, none yet."""

    def __init__(self, url: str, headers: dict[str, str] | None = None) -> None:
        self.url = url
        self.headers = headers or {}

    @asynccontextmanager
    async def open(self, method: str, content: bytes = b"", **headers: str) -> AsyncIterator[Stream]:
        """Send one request and open its response. Leaving disconnects."""
        address = urlsplit(self.url)
        assert address.hostname is not None
        assert address.port is not None
        given = {
            "host": address.netloc,
            "accept": ACCEPT,
            "content-type": "application/json",
            "content-length": str(len(content)),
            "connection": "close",
            **self.headers,
            **headers,
        }
        connection = h11.Connection(h11.CLIENT)
        request = h11.Request(method=method, target=address.path, headers=list(given.items()))
        raw = b"".join(connection.send(part) or b"" for part in (request, h11.Data(data=content), h11.EndOfMessage()))
        async with await connect_tcp(address.hostname, address.port) as socket:
            await socket.send(raw)
            stream = Stream(socket, connection)
            await stream.head()
            yield stream

    @asynccontextmanager
    async def stream(self, body: object = None, **headers: str) -> AsyncIterator[Stream]:
        """The event stream of a POST of *body*, or of a GET."""
        method, content = ("GET", b"") if body is None else ("POST", to_json(body))
        async with self.open(method, content, **headers) as stream:
            assert stream.status == 200, await stream.body()
            yield stream

    async def send(self, method: str, content: bytes = b"", **headers: str) -> Response:
        async with self.open(method, content, **headers) as stream:
            return Response(stream.status, stream.headers, await stream.body())

    async def post(self, body: object, **headers: str) -> Response:
        return await self.send("POST", to_json(body), **headers)

    async def ask(self, body: Wire) -> list[Wire]:
        """All messages on the stream of a POST."""
        async with self.stream(body) as stream:
            return await stream.rest()

    async def initialize(self, version: str = "2025-11-25") -> Peer:
        """A new session."""
        response = await self.post(request(0, "initialize", {**INITIALIZE, "protocolVersion": version}))
        session = Peer(
            self.url, {"mcp-session-id": response.headers["mcp-session-id"], "mcp-protocol-version": version}
        )
        accepted = await session.post(INITIALIZED)
        assert (accepted.status, accepted.body) == (202, b"")
        return session


class Modern(Peer):
    """A client of revision 2026-07-28: the headers repeat the body, unless a test changes them ("" for none)."""

    @asynccontextmanager
    async def open(self, method: str, content: bytes = b"", **headers: str) -> AsyncIterator[Stream]:
        body = from_json(content) if content else None
        merged = {**(repeated(body) if isinstance(body, dict) else {}), **headers}
        async with super().open(method, content, **{name: value for name, value in merged.items() if value}) as stream:
            yield stream

    async def ask(self, body: Wire, **headers: str) -> list[Wire]:
        """All messages on the stream of a POST, validated against the schema."""
        async with self.stream(body, **headers) as stream:
            messages = await stream.rest()
        for message in messages:
            check(message, MODERN, {body["id"]: body["method"]})
        return messages


def repeated(body: Wire) -> dict[str, str]:
    """The headers that repeat the body; the names in these tests need no encoding."""
    params = body.get("params", {})
    headers = {"mcp-protocol-version": MODERN, "mcp-method": body.get("method", "")}
    return headers | {"mcp-name": params.get("uri", params.get("name", ""))}


@asynccontextmanager
async def served(server: Server, *, json_response: bool = False) -> AsyncIterator[Peer]:
    """The server under uvicorn, and a client without a session. It fails if it lasts longer than `IN_TIME`."""
    with fail_after(IN_TIME):
        async with server.http(json_response=json_response) as url:
            yield Peer(url)


@asynccontextmanager
async def session(server: Server, *, json_response: bool = False) -> AsyncIterator[Peer]:
    """The server under uvicorn, and a client after the handshake."""
    async with served(server, json_response=json_response) as anonymous:
        yield await anonymous.initialize()


@asynccontextmanager
async def modern(server: Server, *, json_response: bool = False) -> AsyncIterator[Modern]:
    """The server under uvicorn, and a client of revision 2026-07-28."""
    async with served(server, json_response=json_response) as peer:
        yield Modern(peer.url)
