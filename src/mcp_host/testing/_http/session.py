"""One client's conversation over Streamable HTTP: which stream each message travels on."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from secrets import token_urlsafe

from anyio import Event, create_task_group

from mcp_host.protocol.jsonrpc import Failure, Id, Message, Request, Success, encode
from mcp_host.testing._http.streams import EventStream, split_event_id
from mcp_host.testing._server.broadcaster import Serve
from mcp_host.testing._server.session import Session

STANDALONE = "get"
RETAINED = 64  # streams that have ended and can still be resumed


class Exchange:
    """The requests of one POST, and the stream of what they cause."""

    def __init__(self, stream: EventStream, pending: set[Id]) -> None:
        self.stream = stream
        self.responses: list[bytes] = []
        self.done = Event()
        self._pending = pending

    def settle(self, id: Id, response: bytes | None) -> None:
        """One of the requests has its response, or will never have one."""
        if response is not None:
            self.responses.append(response)
        self._pending.discard(id)
        if not self._pending:
            self.close()

    def close(self) -> None:
        self.stream.end()
        self.done.set()


class HttpSession:
    """A session with its streams. *answers_only*: POSTs are answered in JSON, so all else goes to the GET stream."""

    def __init__(self, *, answers_only: bool) -> None:
        self.id = token_urlsafe(16)  # "The session ID MUST only contain visible ASCII characters"
        self.standalone = EventStream(STANDALONE)
        self.session: Session
        self._answers_only = answers_only
        self._exchanges: dict[Id, Exchange] = {}
        self._ended: deque[EventStream] = deque(maxlen=RETAINED)
        self._last_key = 0

    @classmethod
    @asynccontextmanager
    async def open(cls, converse: Serve, *, answers_only: bool) -> AsyncIterator[HttpSession]:
        """A new session, which lasts until this is left."""
        http = cls(answers_only=answers_only)
        async with create_task_group() as tasks:
            with converse(lambda catalog: Session(catalog, tasks, http._send, http._given_up)) as http.session:
                try:
                    yield http
                finally:
                    tasks.cancel_scope.cancel()
                    http._close()

    def begin(self, requests: Sequence[Request]) -> Exchange:
        """Take the requests of one POST. What they cause is on the exchange's stream."""
        self._last_key += 1
        stream = EventStream(str(self._last_key))
        exchange = Exchange(stream, {request.id for request in requests})
        client = self.session.client
        if client is not None and client.dialect.primes_streams and not self._answers_only:
            stream.append(b"")
        for request in requests:
            self._exchanges[request.id] = exchange
        for request in requests:
            self.session.receive(request)
        return exchange

    def in_use(self, id: Id) -> bool:
        """Whether a request under that id is under way."""
        return id in self._exchanges

    def find(self, event_id: str) -> tuple[EventStream, int] | None:
        """The stream that event was on, and where to go on reading; None if it is not known (any more)."""
        place = split_event_id(event_id)
        if place is None:
            return None
        key, position = place
        found = [stream for stream in self._streams() if stream.key == key and position <= len(stream)]
        return (found[0], position) if found else None

    def drop(self, farewell: bytes) -> None:
        """End every connection that is being read, and none of the streams."""
        for stream in self._streams():
            stream.drop(farewell)

    def _streams(self) -> list[EventStream]:
        running = {exchange.stream.key: exchange.stream for exchange in self._exchanges.values()}
        return [self.standalone, *running.values(), *self._ended]

    def _send(self, message: Message, origin: Id | None) -> None:
        raw = encode(message)
        exchange = None if origin is None else self._exchanges.get(origin)
        if exchange is None:
            self.standalone.append(raw)
            return
        is_response = isinstance(message, Success | Failure)
        if self._answers_only and not is_response:
            self.standalone.append(raw)
            return
        exchange.stream.append(raw)
        if is_response and origin is not None:
            self._settle(origin, raw)

    def _given_up(self, id: Id) -> None:
        self._settle(id, None)

    def _settle(self, id: Id, response: bytes | None) -> None:
        exchange = self._exchanges.pop(id)
        exchange.settle(id, response)
        if exchange.done.is_set():
            self._ended.append(exchange.stream)

    def _close(self) -> None:
        for exchange in self._exchanges.values():
            exchange.close()
        self.standalone.end()
