"""The messages of one event stream, and what is left to know when it ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mcp_host.errors import ConnectionClosed
from mcp_host.protocol.jsonrpc import Incoming, Malformed, decode
from mcp_host.protocol.sse import Cursor, Event, EventDecoder
from mcp_host.transports._http.response import HttpResponse

REMARK = 1024  # bytes of an event that is no message, kept to be quoted or understood


class MessageStream:
    """Reads *reply* event by event, moving *cursor* on.

    *failure* says, once the stream has ended, what broke it; None if it ended in order.
    *remark* is the beginning of the last event that was no message.
    """

    def __init__(self, reply: HttpResponse, cursor: Cursor, limit: int) -> None:
        self.failure: ConnectionClosed | None = None
        self.remark = b""
        self._reply = reply
        self._decoder = EventDecoder(limit, cursor)
        self._events: Iterator[Event] = iter(())
        self._ended = False

    async def next(self) -> Sequence[Incoming] | None:
        """The messages of the next event, or None at the end.

        Raises:
            MessageTooLarge: An event is past the limit.
            ProtocolError: The stream cannot be decoded.
        """
        event = await self.next_event()
        while event is not None and event.type != "message":
            event = await self.next_event()  # "unknown" types are for somebody else
        if event is None:
            return None
        messages = decode(event.data)
        if any(isinstance(message, Malformed) for message in messages):
            self.remark = bytes(event.data[:REMARK])
            # Where the stream ended inside the event, only whole JSON is a message that lacks just its blank line.
            return None if self._ended else messages
        return messages

    async def next_event(self) -> Event | None:
        """The next event of any type, or None at the end."""
        while True:
            for event in self._events:
                return event
            if self._ended:
                return None
            try:
                piece = await self._reply.read()
            except ConnectionClosed as exc:
                self.failure, piece = exc, b""
                await self._reply.close()
            if piece:
                self._events = self._decoder.feed(piece)
            else:
                self._ended = True
                return self._decoder.end()
