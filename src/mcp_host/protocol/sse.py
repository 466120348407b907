"""Server-sent events, read from bytes: any line end, any chunking, linear in time, bounded in memory.

httpx-sse is not used. It has no cap on an event, takes negative and non-ASCII
digits for `retry`, keeps a BOM and loses a last event without a blank line. To
mend that beneath it, each line would have to be found, counted and rewritten,
which is this whole decoder; and its iterators put four more async generators
around each stream, which somebody must unwind whenever a stream is left early.

The rules: https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from mcp_host.errors import MessageTooLarge
from mcp_host.protocol.framing import Raw
from mcp_host.protocol.jsonrpc import BOM

FIELD_ROOM = 64  # what a line may hold beside the data: the field's name, a colon, a space
MAX_ID = 4096  # an id travels back as a request header, and servers take 8 KiB of headers or more

_DIGITS = re.compile(rb"[0-9]+")
_HEADER_VALUE = re.compile("[!-~]([ -~]*[!-~])?")  # how anything else is to be written, HTTP libraries disagree


@dataclass(frozen=True, slots=True)
class Event:
    """One dispatched event. *type* is "message" unless the stream said otherwise."""

    type: str
    data: Raw


@dataclass(slots=True)
class Cursor:
    """How far a stream has been read, kept from one connection to the next.

    *last_id* is empty or fit to be sent as Last-Event-ID; *retry* is the pause
    before reconnecting that the server asked for, in seconds, as it stands there:
    from 0 to infinity.
    """

    last_id: str = ""
    retry: float | None = None


class EventDecoder:
    """Cuts one stream into events, and moves *cursor* on as it goes.

    Raises:
        MessageTooLarge: An event's data is longer than *limit* bytes; raised as
            soon as that is known, not at the event's end.
    """

    def __init__(self, limit: int, cursor: Cursor) -> None:
        self._limit = limit
        self._cursor = cursor
        self._line = bytearray()  # the line under way, when a chunk ended inside it
        self._after_cr = False
        self._at_start = True
        self._type: Raw = b""
        self._data: Raw | None = None
        self._id: str | None = None

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """The events that *chunk* completes. To be exhausted before the next chunk is fed."""
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]  # the second half of a CRLF whose first half has already ended the line
        self._after_cr = chunk.endswith(b"\r")
        for line in chunk.splitlines(keepends=True):  # of bytes: cuts at CR, LF and CRLF, and nowhere else
            if not line.endswith((b"\r", b"\n")):
                self._begin(line)
            elif (event := self._read(self._complete(line.rstrip(b"\r\n")))) is not None:
                yield event

    def end(self) -> Event | None:
        """What the end of the stream cut off before its blank line, if it has data.

        The specification discards it; some servers forget the blank line. It may be
        half an event, so its id does not move the cursor.
        """
        if self._line:
            self._read(self._complete(b""))
        self._id = None
        return self._dispatch()

    def _begin(self, part: bytes) -> None:
        if len(self._line) + len(part) > self._limit + FIELD_ROOM:
            raise self._too_large()
        self._line += part

    def _complete(self, part: bytes) -> Raw:
        if not self._line and len(part) <= self._limit + FIELD_ROOM:
            return part  # the usual case: the whole line came in one chunk
        self._begin(part)
        line, self._line = self._line, bytearray()
        return line

    def _read(self, line: Raw) -> Event | None:
        if self._at_start:
            self._at_start = False
            line = line[len(BOM) :] if line.startswith(BOM) else line
        if not line:
            return self._dispatch()
        name, value = _field(line)
        match name:
            case b"data":
                self._add(value)
            case b"event":
                self._type = value
            case b"id":
                self._note_id(value)
            case b"retry" if _DIGITS.fullmatch(value):
                self._cursor.retry = float(value) / 1000  # of any length: too many digits are infinity
        return None

    def _add(self, value: Raw) -> None:
        if self._data is None:
            self._data = value  # the usual case, one line: not copied again
        else:
            self._data = self._data if isinstance(self._data, bytearray) else bytearray(self._data)
            self._data += b"\n"
            self._data += value
        if len(self._data) > self._limit:
            raise self._too_large()

    def _note_id(self, value: Raw) -> None:
        id = value.decode(errors="replace")  # with letters that no header takes, so it is dropped below
        if not id or (len(id) <= MAX_ID and _HEADER_VALUE.fullmatch(id)):
            self._id = id

    def _dispatch(self) -> Event | None:
        if self._id is not None:
            self._cursor.last_id = self._id
        type, data = self._type.decode(errors="replace"), self._data
        self._type, self._data, self._id = b"", None, None
        return Event(type or "message", data) if data else None

    def _too_large(self) -> MessageTooLarge:
        return MessageTooLarge(f"an event is larger than {self._limit} bytes")


def _field(line: Raw) -> tuple[bytes, Raw]:
    """A line's name and value. What came in pieces may be large, so its value is cut out of it in place."""
    colon = line.find(b":")
    if colon < 0:
        return bytes(line), b""
    name, start = bytes(line[:colon]), colon + 1
    if line[start : start + 1] == b" ":
        start += 1
    if isinstance(line, bytes):
        return name, line[start:]
    del line[:start]
    return name, line
