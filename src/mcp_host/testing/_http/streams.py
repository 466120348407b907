"""Event streams that can be resumed after a connection was lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from anyio import Event, move_on_after

COMMENT = b":\n\n"  # keeps a connection alive; "clients must ignore such lines"


class EventStream:
    """All events of one stream, kept so that they can be sent again.

    An event's id is the stream's *key* and the event's position. Without a key events have
    no ids, and the stream cannot be resumed. Only the newest connection gets events: "the server
    MUST send each of its JSON-RPC messages on only one of the connected streams".
    """

    def __init__(self, key: str = "") -> None:
        self.key = key
        self.sent = 0
        """How many events have been sent on any connection."""
        self.farewell = b""
        """What to send on connections that are dropped."""
        self._events: list[bytes] = []
        self._ended = False
        self._connection = 0
        self._changed = Event()

    def append(self, data: bytes) -> None:
        """Add an event. *data* is a message in one line, or empty for an event that only has an id."""
        id = b"id: %s/%d\n" % (self.key.encode(), len(self._events)) if self.key else b""
        self._events.append(b"%sdata: %s\n\n" % (id, data))
        self._wake()

    def end(self) -> None:
        """No event will be added."""
        self._ended = True
        self._wake()

    def drop(self, farewell: bytes) -> None:
        """End the current connection, if there is one; the stream goes on."""
        self.farewell = farewell
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
            if events := self._events[position:]:
                position = self.sent = len(self._events)
                await write(b"".join(events))
            elif self._ended:
                return
            else:
                with move_on_after(keep_alive) as waiting:
                    await self._changed.wait()
                if waiting.cancelled_caught:
                    await write(COMMENT)

    def __len__(self) -> int:
        return len(self._events)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = Event()


def split_event_id(event_id: str) -> tuple[str, int] | None:
    """The stream's key, and the position after that event; None if it is not one of our ids."""
    key, _, position = event_id.rpartition("/")
    return (key, int(position) + 1) if key and position.isdecimal() and position.isascii() else None
