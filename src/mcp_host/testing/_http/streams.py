"""Event streams that outlive the connections they are read over."""

from __future__ import annotations

from anyio import Event


class EventStream:
    """Everything said on one stream, in order, so that it can be read again from any event on.

    An event's id is the stream's key and the event's place in it; without a key events have
    none, and nobody can resume. One connection reads at a time: the newest, for "the server
    MUST send each of its JSON-RPC messages on only one of the connected streams".
    """

    def __init__(self, key: str = "") -> None:
        self.key = key
        self.ended = False
        self.sent = 0
        """How many events some connection has taken."""
        self.farewell = b""
        """What to say to the connections that were dropped."""
        self._events: list[bytes] = []
        self._turn = 0
        self._news = Event()

    def append(self, data: bytes) -> None:
        """Say *data*, a message in one line; empty for an event that only has an id to resume from."""
        id = b"id: %s/%d\n" % (self.key.encode(), len(self._events)) if self.key else b""
        self._events.append(b"%sdata: %s\n\n" % (id, data))
        self._wake()

    def end(self) -> None:
        """Nothing more will be said."""
        self.ended = True
        self._wake()

    def take_over(self) -> int:
        """The turn of a new reader. The one before reads no further."""
        self._turn += 1
        self._wake()
        return self._turn

    def drop(self, farewell: bytes) -> None:
        """End the connection that reads, if there is one; the stream goes on without it."""
        self.farewell = farewell
        self.take_over()

    async def read(self, position: int, turn: int) -> bytes:
        """Wait for events from *position* on, and return all there are; empty when there is nothing more to wait for."""
        while self._turn == turn:
            if events := self._events[position:]:
                self.sent = max(self.sent, len(self._events))
                return b"".join(events)
            if self.ended:
                break
            await self._news.wait()
        return b""

    def __len__(self) -> int:
        return len(self._events)

    def _wake(self) -> None:
        self._news.set()
        self._news = Event()


def split_event_id(event_id: str) -> tuple[str, int] | None:
    """The stream's key, and the position after that event; None if it is none of our ids."""
    key, _, place = event_id.rpartition("/")
    return (key, int(place) + 1) if key and place.isdecimal() and place.isascii() else None
