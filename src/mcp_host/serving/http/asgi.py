"""One HTTP request and its response, in ASGI."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias

from anyio import CancelScope, Event, create_task_group, move_on_after
from anyio.abc import TaskGroup

from mcp_host.protocol.jsonrpc import INVALID_REQUEST, Failure, Message, Notification, encode

JSON = "application/json"
EVENTS = "text/event-stream"

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """One complete HTTP response."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class HttpError(Exception):
    """A refusal: "the HTTP response body MAY comprise a JSON-RPC error response that has no id".

    *headers* are named with underscores for hyphens.
    """

    def __init__(self, status: int, message: str, code: int = INVALID_REQUEST, **headers: str) -> None:
        super().__init__(message)
        body = encode(Failure(None, code, message))
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.response = HttpResponse(status, body, {"content-type": JSON, **named})


@dataclass(slots=True)
class HttpExchange:
    """A request, and the means to respond to it: all at once, or event by event."""

    method: str
    path: str
    headers: Mapping[str, str]
    """Names are in lower case."""
    _receive: Receive
    _send: Send
    body: bytes = b""
    """What `read_body` has read."""
    _started: bool = False

    @classmethod
    def of(cls, scope: Scope, receive: Receive, send: Send) -> Self:
        """The request of *scope*, whose body has not been read."""
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        return cls(scope["method"], scope["path"].removeprefix(scope.get("root_path", "")), headers, receive, send)

    async def read_body(self) -> bool:
        """Read the whole body; False if the client disconnects first."""
        body: list[bytes] = []
        more = True
        while more:
            event = await self._receive()
            if event["type"] == "http.disconnect":
                return False
            body.append(event.get("body", b""))
            more = event.get("more_body", False)
        self.body = b"".join(body)
        return True

    async def respond(self, response: HttpResponse) -> None:
        """Send a complete response."""
        await self._start(response.status, {**response.headers, "content-length": str(len(response.body))})
        await self._send({"type": "http.response.body", "body": response.body})

    async def start_events(self, headers: Mapping[str, str]) -> None:
        """Begin a response that is an event stream."""
        self._started = True
        await self._start(200, {"content-type": EVENTS, "cache-control": "no-cache", **headers})

    async def write(self, events: bytes) -> None:
        await self._send({"type": "http.response.body", "body": events, "more_body": True})

    async def end_events(self, headers: Mapping[str, str], last: bytes = b"") -> None:
        """End a response that is an event stream. If it has not begun, it is empty."""
        if not self._started:
            await self.start_events(headers)
        await self._send({"type": "http.response.body", "body": last})

    @asynccontextmanager
    async def while_connected(self) -> AsyncIterator[TaskGroup]:
        """Run the body and its tasks to their end. If the client disconnects, all of it is cancelled."""
        watching = CancelScope()

        async def watch() -> None:
            with watching:
                await self._receive()  # the body has been read, so this is the end of the connection
                tasks.cancel_scope.cancel()

        async with create_task_group() as tasks:
            tasks.start_soon(watch)
            yield tasks
            watching.cancel()

    async def _start(self, status: int, headers: Mapping[str, str]) -> None:
        encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": encoded})


MAX_KEPT = 4 * 1024 * 1024  # bytes of one stream that a client can ask for again
MAX_WAITING = 10_000  # events that the client has not read; beyond that, notifications are dropped
COMMENT = b":\n\n"  # keeps a connection alive; "clients must ignore such lines"


class EventStream:
    """The events of one stream, kept so that they can be sent again: of those that were sent, the last `MAX_KEPT` bytes.

    An event's id is the stream's *key* and the event's position. Without a key events have
    no ids, and the stream cannot be resumed. Only the newest connection gets events: "the server
    MUST send each of its JSON-RPC messages on only one of the connected streams".
    """

    def __init__(self, key: str = "") -> None:
        self.key = key
        self.sent = 0
        """How many events have been sent on any connection."""
        self.retry = b""
        """The `retry` field to send on connections that are dropped, or nothing."""
        self._events: list[bytes] = []
        self._dropped = 0
        """How many events are no longer kept."""
        self.size = 0
        """Bytes of the events that are kept."""
        self._ended = False
        self._connection = 0
        self._changed = Event()

    def append(self, data: bytes) -> None:
        """Add an event. *data* is a message in one line, or empty for an event that only has an id."""
        id = b"id: %s/%d\n" % (self.key.encode(), len(self)) if self.key else b""
        event = b"%sdata: %s\n\n" % (id, data)
        self._events.append(event)
        self.size += len(event)
        self._wake()

    def add(self, message: Message) -> None:
        """Add an event with *message*. A notification is dropped if the client does not read the others."""
        if len(self) - self.sent < MAX_WAITING or not isinstance(message, Notification):
            self.append(encode(message))

    async def begun(self) -> None:
        """Wait for the first event, or the end."""
        while not (len(self) or self._ended):
            await self._changed.wait()

    def end(self) -> None:
        """No event will be added."""
        self._ended = True
        self._wake()

    def drop(self, retry: bytes) -> None:
        """End the current connection, if there is one; the stream goes on."""
        self.retry = retry
        self._connection += 1
        self._wake()

    async def send_to(
        self, write: Callable[[bytes], Awaitable[None]], position: int, *, keep_alive: float | None = None
    ) -> None:
        """Write events from *position* on, until the stream ends or a newer connection takes over.

        After *keep_alive* seconds without an event, a comment is written.
        """
        self._connection += 1
        self._wake()
        connection = self._connection
        while connection == self._connection:
            if events := self._events[max(0, position - self._dropped) :]:
                position = self.sent = len(self)
                await write(b"".join(events))
                self._forget_sent()
            elif self._ended:
                return
            else:
                with move_on_after(keep_alive) as waiting:
                    await self._changed.wait()
                if waiting.cancelled_caught:
                    await write(COMMENT)

    @property
    def resumable(self) -> range:
        """The positions of the events after which the stream can be sent again."""
        return range(max(0, self._dropped - 1), len(self))

    def _forget_sent(self) -> None:
        if self.size <= 2 * MAX_KEPT:  # seldom, because the others move up
            return
        count = 0
        while self.size > MAX_KEPT and self._dropped + count < self.sent:
            self.size -= len(self._events[count])
            count += 1
        del self._events[:count]
        self._dropped += count

    def __len__(self) -> int:
        """How many events there have been."""
        return self._dropped + len(self._events)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = Event()
