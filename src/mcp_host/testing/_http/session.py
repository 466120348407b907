"""One client's session over Streamable HTTP: the stream that each message is sent on."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from secrets import token_urlsafe

from anyio import Event, create_task_group

from mcp_host.concurrency import OwnedContext
from mcp_host.protocol.jsonrpc import Failure, Id, Incoming, Message, Request, Success, encode
from mcp_host.testing._http.asgi import HttpError
from mcp_host.testing._http.streams import EventStream, split_event_id
from mcp_host.testing._server.catalog import Catalog
from mcp_host.testing._server.session import Session
from mcp_host.testing.context import RemoteClient

RETAINED = 64  # streams that have ended and can still be resumed


class PendingPost:
    """The unanswered requests of one POST, and the stream for all messages that belong to them."""

    def __init__(self, key: int, requests: Sequence[Request]) -> None:
        self.requests = requests
        self.stream = EventStream(str(key))
        self.responses: list[bytes] = []
        self.done = Event()
        self._pending = {request.id for request in requests}

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
        self._post_count = 0

    @property
    def client(self) -> RemoteClient | None:
        return self._session.client

    async def open(self) -> None:
        """Begin the session, in a task that lasts until `aclose`."""
        self._session = await self._owner.enter()

    async def aclose(self) -> None:
        self._owner.cancel()
        await self._owner.leave()

    def post(self, messages: Sequence[Incoming]) -> PendingPost:
        """Take the messages of one POST.

        Raises:
            HttpError: The id of a request is in use.
        """
        requests = [message for message in messages if isinstance(message, Request)]
        if in_use := [request.id for request in requests if request.id in self._posts]:
            raise HttpError(400, f"the request id {in_use[0]} is in use")
        self._post_count += 1
        post = PendingPost(self._post_count, requests)
        if self.client is not None and self.client.writer.primes_streams and not self._json_response:
            post.stream.append(b"")
        self._posts |= dict.fromkeys((request.id for request in requests), post)
        for message in messages:
            self._session.receive(message)
        return post

    def find(self, event_id: str) -> tuple[EventStream, int]:
        """The stream of that event, and the position after it.

        Raises:
            HttpError: The event is unknown, or no longer kept.
        """
        key, position = split_event_id(event_id) or ("", 0)
        for stream in self._streams():
            if stream.key == key and position <= len(stream):
                return stream, position
        raise HttpError(400, "there is no such event")

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
