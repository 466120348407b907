"""One client's session over Streamable HTTP: the stream that each message is sent on."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from secrets import token_urlsafe

from anyio import Event, create_task_group

from mcp_host.concurrency import OwnedContext
from mcp_host.protocol.jsonrpc import Failure, Id, Incoming, Message, Request, Success, encode
from mcp_host.testing._http.streams import EventStream, split_event_id
from mcp_host.testing._server.catalog import Catalog
from mcp_host.testing._server.session import Session
from mcp_host.testing.context import RemoteClient

RETAINED = 64  # streams that have ended and can still be resumed


class PendingPost:
    """The unanswered requests of one POST, and the stream for all messages that belong to them."""

    def __init__(self, stream: EventStream, pending: set[Id]) -> None:
        self.stream = stream
        self.responses: list[bytes] = []
        self.done = Event()
        self._pending = pending

    def settle(self, id: Id, response: bytes | None) -> None:
        """Take the response to one of the requests; None if it was cancelled."""
        if response is not None:
            self.responses.append(response)
        self._pending.discard(id)
        if not self._pending:
            self.close()

    def close(self) -> None:
        self.stream.end()
        self.done.set()


class HttpSession:
    """A session with its streams. With *json_response*, all but the responses is sent on the GET stream."""

    def __init__(self, catalog: Catalog, *, json_response: bool) -> None:
        self.id = token_urlsafe(16)  # "The session ID MUST only contain visible ASCII characters"
        self.get_stream = EventStream("get")
        self._catalog = catalog
        self._json_response = json_response
        self._owner = OwnedContext(self._running())
        self._session: Session
        self._posts: dict[Id, PendingPost] = {}
        self._ended: deque[EventStream] = deque(maxlen=RETAINED)
        self._last_key = 0

    @property
    def client(self) -> RemoteClient | None:
        return self._session.client

    async def open(self) -> None:
        """Begin the session, in a task that lasts until `aclose`."""
        self._session = await self._owner.enter()

    async def aclose(self) -> None:
        self._owner.cancel()
        await self._owner.leave()

    def receive(self, message: Incoming) -> None:
        """Take a notification or a response."""
        self._session.receive(message)

    def post(self, requests: Sequence[Request]) -> PendingPost:
        """Take the requests of one POST."""
        self._last_key += 1
        stream = EventStream(str(self._last_key))
        post = PendingPost(stream, {request.id for request in requests})
        if self.client is not None and self.client.writer.primes_streams and not self._json_response:
            stream.append(b"")
        self._posts |= dict.fromkeys((request.id for request in requests), post)
        for request in requests:
            self._session.receive(request)
        return post

    def in_use(self, id: Id) -> bool:
        """Whether a request with this id is in progress."""
        return id in self._posts

    def find(self, event_id: str) -> tuple[EventStream, int] | None:
        """The stream of that event, and the position after it; None if it is unknown or no longer kept."""
        if (found := split_event_id(event_id)) is None:
            return None
        key, position = found
        matches = (stream for stream in self._streams() if stream.key == key and position <= len(stream))
        stream = next(matches, None)
        return None if stream is None else (stream, position)

    def drop(self, farewell: bytes) -> None:
        """End every connection, and none of the streams."""
        for stream in self._streams():
            stream.drop(farewell)

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[Session]:
        async with create_task_group() as tasks:
            session = Session(self._catalog, tasks, self._send, lambda id: self._settle(id, None))
            with self._catalog.broadcaster.reaching(session):
                try:
                    yield session
                finally:
                    tasks.cancel_scope.cancel()
                    for post in self._posts.values():
                        post.close()
                    self.get_stream.end()

    def _streams(self) -> list[EventStream]:
        return [self.get_stream, *{post.stream for post in self._posts.values()}, *self._ended]

    def _send(self, message: Message, related: Id | None) -> None:
        raw = encode(message)
        is_response = isinstance(message, Success | Failure)
        if related is None or related not in self._posts or (self._json_response and not is_response):
            self.get_stream.append(raw)
            return
        self._posts[related].stream.append(raw)
        if is_response:
            self._settle(related, raw)

    def _settle(self, id: Id, response: bytes | None) -> None:
        post = self._posts.pop(id)
        post.settle(id, response)
        if post.done.is_set():
            self._ended.append(post.stream)
