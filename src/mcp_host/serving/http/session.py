"""A session over Streamable HTTP: its requests, each with a stream of its messages, and the stream of all others."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from secrets import token_urlsafe

from anyio import CancelScope, current_time

from mcp_host.concurrency.tasks import spawn_in_scope
from mcp_host.protocol.jsonrpc import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    UNSUPPORTED_PROTOCOL_VERSION,
    Failure,
    Id,
    Incoming,
    Message,
    Request,
    Response,
    Success,
)
from mcp_host.serving.http.asgi import HttpError, HttpResponse, Principal
from mcp_host.serving.http.event_stream import EventStream
from mcp_host.serving.remote_client import RemoteClient
from mcp_host.serving.service import Service
from mcp_host.serving.session import Session

RETAINED = 64  # streams that have ended and can still be resumed
RETAINED_SIZE = 16 * 1024 * 1024  # bytes of all of them, beyond the last

STATUS = {
    METHOD_NOT_FOUND: 404,
    HEADER_MISMATCH: 400,
    MISSING_REQUIRED_CLIENT_CAPABILITY: 400,
    UNSUPPORTED_PROTOCOL_VERSION: 400,
}
"""The errors of stateless requests for which the specification names a status."""


class Post:
    """One request, the stream of the messages that belong to it, and its response.

    With a *key* it is part of a session, and its stream can be resumed.
    """

    def __init__(self, request: Request, key: str = "", *, json_response: bool) -> None:
        self.request = request
        self.json_response = json_response
        self.stream = EventStream(key)
        self.scope = CancelScope()
        self._answer: Response | None = None

    def send(self, message: Message, related: Id | None = None) -> None:
        if self._answer is not None or (self.json_response and not isinstance(message, Success | Failure)):
            return
        self.stream.add(message)
        if isinstance(message, Success | Failure):
            self._answer = message
            self.stream.end()

    def fail(self, reason: str) -> None:
        """Answer with an error. Nothing is sent after that."""
        self.send(Failure(self.request.id, INTERNAL_ERROR, reason))

    def response(self, headers: Mapping[str, str]) -> HttpResponse | None:
        """The response if it is no event stream: JSON, or an error before any other message that has a status."""
        if self._answer is None:
            return None
        status = 200
        if isinstance(self._answer, Failure) and not self.stream.key and len(self.stream) == 1:
            status = STATUS.get(self._answer.code, 200)
        return HttpResponse.json(self._answer, status, headers) if self.json_response or status != 200 else None


class HttpSession:
    """A session of *principal* with its streams. With *json_response*, all but the responses is sent on the GET stream."""

    def __init__(self, service: Service, principal: Principal, *, json_response: bool) -> None:
        self.principal = principal
        self.id = token_urlsafe(16)  # "The session ID MUST only contain visible ASCII characters"
        self.get_stream = EventStream("get")
        self._json_response = json_response
        self._session = Session(service, spawn_in_scope, self._send, self._settle, principal)
        self._posts: dict[Id, Post] = {}
        self._ended: list[EventStream] = []
        self._count = 0  # of requests
        self._connections = 0
        self._used = current_time()

    @property
    def idle_since(self) -> float:
        """Since when the client is not connected; infinite while it is. A request of it may still be under way."""
        return math.inf if self._connections else self._used

    @contextmanager
    def connected(self) -> Iterator[None]:
        """While a response is sent to the client."""
        self._connections += 1
        try:
            yield
        finally:
            self._connections -= 1
            self._used = current_time()

    @property
    def client(self) -> RemoteClient | None:
        return self._session.client

    def close(self, reason: str | None = "the session has ended") -> None:
        """Cancel everything, and end the streams: those of requests with an error, if there is a *reason*."""
        self._session.close()
        self.get_stream.end()
        for post in self._posts.values():
            if reason is not None:
                post.fail(reason)
            post.stream.end()

    def receive(self, message: Incoming) -> Post | None:
        """Take a message; return the `Post` for the response to a request.

        Raises:
            HttpError: The id of the request is in use.
        """
        post, self._used = None, current_time()
        if isinstance(message, Request):
            if message.id in self._posts:
                raise HttpError(400, f"the request id {message.id} is in use")
            self._count += 1
            post = self._posts[message.id] = Post(message, str(self._count), json_response=self._json_response)
            if self.client is not None and self.client.primes_streams and not self._json_response:
                post.stream.append(b"")
        self._session.receive(message)
        return post

    def find(self, event_id: str) -> tuple[EventStream, int]:
        """The stream of that event, and the position after it.

        Raises:
            HttpError: The event is unknown, or no longer kept.
        """
        key, _, position = event_id.rpartition("/")
        for stream in self.streams():
            if stream.key == key and position in map(str, stream.resumable):
                return stream, int(position) + 1
        raise HttpError(400, "there is no such event")

    def streams(self) -> list[EventStream]:
        return [self.get_stream, *[post.stream for post in self._posts.values()], *self._ended]

    def _send(self, message: Message, related: Id | None) -> None:
        post = None if related is None else self._posts.get(related)
        is_response = isinstance(message, Success | Failure)
        if post is None or (self._json_response and not is_response):
            self.get_stream.add(message)
            return
        post.send(message)
        if is_response:
            self._settle(post.request.id)

    def _settle(self, id: Id) -> None:
        """A request has been answered or cancelled."""
        post = self._posts.pop(id)
        post.stream.end()
        self._ended.append(post.stream)
        del self._ended[:-RETAINED]
        while len(self._ended) > 1 and sum(stream.size for stream in self._ended) > RETAINED_SIZE:
            del self._ended[0]
