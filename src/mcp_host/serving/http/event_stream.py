"""The events of one response, sent as the client reads them, and again if it asks for them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from anyio import CancelScope, move_on_after, sleep_forever

from mcp_host.concurrency.synchronization import Event
from mcp_host.protocol.jsonrpc import Message, Notification, encode

MAX_KEPT = 4 * 1024 * 1024  # bytes of one stream that a client can ask for again
MAX_WAITING = 10_000  # events that the client has not read; beyond that, notifications are dropped
MAX_SIZE = 16 * 1024 * 1024  # bytes of the events that are kept or not read; beyond that, notifications are dropped
KEEP_ALIVE = 15.0  # seconds; common proxies end a connection after 30 or 60 seconds of silence
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
        """Bytes of the events that are kept, sent or not."""
        self._ended = False
        self._connection = 0
        self._begun = Event()
        self._waiting: CancelScope | None = None
        """In which the newest connection waits for events; None while it does not."""

    def append(self, data: bytes) -> None:
        """Add an event. *data* is a message in one line, or empty for an event that only has an id."""
        id = b"id: %s/%d\n" % (self.key.encode(), len(self)) if self.key else b""
        event = b"%sdata: %s\n\n" % (id, data)
        self._events.append(event)
        self.size += len(event)
        self._wake()

    def add(self, message: Message) -> None:
        """Add an event with *message*. A notification is dropped if the client does not read the others."""
        is_read = len(self) - self.sent < MAX_WAITING and self.size < MAX_SIZE
        if is_read or not isinstance(message, Notification):
            self.append(encode(message))

    async def begun(self) -> None:
        """Wait for the first event, or the end."""
        await self._begun.wait()

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
        self,
        write: Callable[[bytes], Awaitable[None]],
        position: int,
        disconnected: Callable[[], Awaitable[object]] = sleep_forever,
    ) -> None:
        """Write events from *position* on, until the stream ends, a newer connection takes over or *disconnected* returns.

        After `KEEP_ALIVE` seconds without an event, a comment is written. While nothing is written, *disconnected* is
        awaited, and cancelled for the next event: a task for it would cost each session 4 KiB.
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
                try:
                    with move_on_after(KEEP_ALIVE) as waiting:
                        self._waiting = waiting
                        await disconnected()
                        return
                    is_silent = self._waiting is waiting  # `_wake` has not been called
                finally:
                    if self._waiting is waiting:
                        self._waiting = None
                if is_silent:
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
        if len(self) or self._ended:
            self._begun.set()
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
