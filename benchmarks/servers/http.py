"""The server over HTTP, a bare asyncio protocol: ``python -S -m benchmarks.servers.http``, which prints its port.

Its path says how it answers: ``/json/TOOLS`` with JSON, ``/stream/TOOLS`` with an event
stream. A call that asks the model is answered by an event stream in any case.
Under ``/stateless/json/TOOLS`` and ``/stateless/stream/TOOLS`` it speaks revision 2026-07-28.
"""

from __future__ import annotations

import asyncio
import json
from itertools import count
from typing import Any

from benchmarks.servers.replies import Questions, answer
from benchmarks.servers.stateless import answer_alone

JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n%bContent-Length: %d\r\n\r\n%b"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n%bTransfer-Encoding: chunked\r\n\r\n"
SESSION = b"Mcp-Session-Id: session-%d\r\n"
ACCEPTED = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"
LEFT = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
NO_STREAM = b"HTTP/1.1 405 Method Not Allowed\r\nAllow: POST, DELETE\r\nContent-Length: 0\r\n\r\n"
LAST = b"0\r\n\r\n"

sessions = count(1)
questions = Questions()
asking: dict[int, Connection] = {}
"""The connections of the calls that have the model asked, by the identity of the call."""


class Connection(asyncio.Protocol):
    """One connection that is kept alive: one request after another."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.write = transport.write
        self._unread = bytearray()

    def data_received(self, data: bytes) -> None:
        self._unread += data
        while (end := self._unread.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._unread[:end])
            whole = end + 4 + length(head)
            if len(self._unread) < whole:
                return
            body = bytes(self._unread[end + 4 : whole])
            del self._unread[:whole]
            method, path, _ = head.split(b" ", 2)
            self._request(method, path.decode(), body)

    def _request(self, method: bytes, path: str, body: bytes) -> None:
        if method != b"POST":
            self.write(LEFT if method == b"DELETE" else NO_STREAM)
            return
        *_, era, way, tools = path.split("/")
        message = json.loads(body)
        if era == "stateless":
            self._send(b"", answer_alone(message, int(tools)), streamed=way == "stream")
        elif "method" not in message:
            self.write(ACCEPTED)
            call, answered, last = questions.hear(message)
            connection = asking.pop(id(call)) if last else asking[id(call)]
            connection.write(event(answered) + (LAST if last else b""))
        elif "id" not in message:
            self.write(ACCEPTED)
        else:
            self._answer(message, int(tools), streamed=way == "stream")

    def _answer(self, message: dict[str, Any], tools: int, *, streamed: bool) -> None:
        if message["method"] == "tools/call" and message["params"]["name"] == "ask":
            asking[id(message)] = self
            self.write(STREAM % b"" + event(questions.ask(message)))
            return
        session = SESSION % next(sessions) if message["method"] == "initialize" else b""
        self._send(session, answer(message, tools), streamed=streamed)

    def _send(self, session: bytes, body: bytes, *, streamed: bool) -> None:
        self.write(STREAM % session + event(body) + LAST if streamed else JSON % (session, len(body), body))


def event(message: bytes) -> bytes:
    """One event, as a chunk of the body."""
    data = b"event: message\ndata: %b\n\n" % message
    return b"%x\r\n%b\r\n" % (len(data), data)


def length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line[15:])
    return 0


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
