"""The server over HTTP, a bare asyncio protocol: ``python -S -m benchmarks.servers.http``, which prints its port.

The path chooses the response: JSON at ``/json/TOOLS``, an event stream at ``/stream/TOOLS``. A call that sends
sampling requests always gets an event stream. At ``/stateless/json/TOOLS`` and ``/stateless/stream/TOOLS`` the server
speaks revision 2026-07-28, and at ``/protected/json/TOOLS`` it wants a token.
``GET /connections`` returns how many connections have been opened to it, at all of its ten addresses.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from itertools import count
from typing import Any

from benchmarks.job import ADDRESSES
from benchmarks.servers.oauth import TOKEN, metadata, token
from benchmarks.servers.replies import SamplingCalls, answer
from benchmarks.servers.stateless import answer_stateless

JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n%bContent-Length: %d\r\n\r\n%b"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n%bTransfer-Encoding: chunked\r\n\r\n"
SESSION = b"Mcp-Session-Id: session-%d\r\n"
ACCEPTED = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"
DELETED = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
NO_TOKEN = b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\nContent-Length: 0\r\n\r\n"
NO_STREAM = b"HTTP/1.1 405 Method Not Allowed\r\nAllow: POST, DELETE\r\nContent-Length: 0\r\n\r\n"
LAST = b"0\r\n\r\n"

sessions = count(1)
calls = SamplingCalls()
streams: dict[int, Connection] = {}
"""The connections of the calls that send sampling requests, by the identity of the call."""


class Connection(asyncio.Protocol):
    """A kept-alive connection: one request after another."""

    opened = 0  # by all clients
    origin = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        Connection.opened += 1
        self.write = transport.write
        self._unread = bytearray()

    def data_received(self, data: bytes) -> None:
        self._unread += data
        while (end := self._unread.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._unread[:end])
            whole = end + 4 + content_length(head)
            if len(self._unread) < whole:
                return
            body = bytes(self._unread[end + 4 : whole])
            del self._unread[:whole]
            method, path, _ = head.decode().split(" ", 2)
            if path == TOKEN:
                self._send(b"", token(body), streamed=False)
            elif path.startswith("/protected/") and b"\r\nauthorization: bearer " not in head.lower():
                self.write(NO_TOKEN)
            elif method == "POST":
                self._post(path, json.loads(body))
            elif path == "/connections":
                self._send(b"", b"%d" % Connection.opened, streamed=False)
            elif (document := metadata(path, Connection.origin)) is not None:
                self._send(b"", document, streamed=False)
            else:
                self.write(DELETED if method == "DELETE" else NO_STREAM)

    def _post(self, path: str, message: dict[str, Any]) -> None:
        *_, era, transport, tools = path.split("/")
        streamed = transport == "stream"
        if "id" not in message:
            self.write(ACCEPTED)
        elif era == "stateless":
            self._send(b"", answer_stateless(message, int(tools)), streamed=streamed)
        elif "method" not in message:
            self.write(ACCEPTED)
            call, reply, last = calls.receive(message)
            stream = streams.pop(id(call)) if last else streams[id(call)]
            stream.write(event(reply) + (LAST if last else b""))
        elif message["method"] == "tools/call" and message["params"]["name"] == "ask":
            streams[id(message)] = self
            self.write(STREAM % b"" + event(calls.request(message)))
        else:
            session = SESSION % next(sessions) if message["method"] == "initialize" else b""
            self._send(session, answer(message, int(tools)), streamed=streamed)

    def _send(self, session: bytes, body: bytes, *, streamed: bool) -> None:
        self.write(STREAM % session + event(body) + LAST if streamed else JSON % (session, len(body), body))


def event(message: bytes) -> bytes:
    """One event, as a chunk of the body."""
    data = b"event: message\ndata: %b\n\n" % message
    return b"%x\r\n%b\r\n" % (len(data), data)


def content_length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line[15:])
    return 0


async def main() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Connection, ADDRESSES[0], 0, backlog=2048)
    port = server.sockets[0].getsockname()[1]
    others = [await loop.create_server(Connection, address, port) for address in ADDRESSES[1:]]
    Connection.origin = f"http://{ADDRESSES[0]}:{port}"
    print(port, flush=True)
    async with AsyncExitStack() as stack:
        for other in others:
            await stack.enter_async_context(other)
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
