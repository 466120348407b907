"""Decoding server-sent events from bytes, in linear time and bounded memory.

httpx-sse is not used. It has no limit on an event, accepts negative and non-ASCII
digits in `retry`, keeps a BOM and drops a last event without a blank line. It also
wraps each stream in four async generators, which have to be closed when a stream
is left early.

JSON without `data:` is read, too: some servers label a plain body as an event stream. No field begins like it.

The rules: https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from mcp_host.errors import MessageTooLarge
from mcp_host.protocol.jsonrpc import BOM, Raw

FIELD_ROOM = 64  # bytes of a line beside the data: the field's name, a colon, a space
LINES_PER_TURN = 256  # lines of one chunk, after which other tasks can run: it may have 65,000
MAX_ID = 4096  # an id is sent back in a request header, and servers accept at least 8 KiB of headers

FIELDS = frozenset({b"data", b"event", b"id", b"retry"})
ODD_SIZE = 1024  # bytes of a line that is no field, kept for error messages

_DIGITS = re.compile(rb"[0-9]+")
_HEADER_VALUE = re.compile("[!-~]([ -~]*[!-~])?")  # HTTP libraries disagree on how to send anything else


@dataclass(frozen=True, slots=True)
class Event:
    """One dispatched event. *type* is "message" unless the stream said otherwise."""

    type: str
    data: Raw


@dataclass(slots=True)
class LastEvent:
    """What a client keeps of a stream to resume it.

    *id* is empty or a valid Last-Event-ID header; *retry* is the server's reconnection
    delay in seconds, from 0 to infinity.
    """

    id: str = ""
    retry: float | None = None


class EventDecoder:
    """Decodes the events of one stream, and updates *last_event*.

    Raises:
        MessageTooLarge: An event's data is longer than *limit* bytes. This is raised
            before the event ends.
    """

    def __init__(self, limit: int, last_event: LastEvent) -> None:
        self.lines = 0
        """How many lines have been read, comments too."""
        self._limit = limit
        self._last_event = last_event
        self._line = bytearray()  # an incomplete line
        self._after_cr = False
        self._at_start = True
        self.odd = b""
        """The beginning of the first line that is neither a field nor JSON: a page instead of a stream may begin so."""
        self._is_bare = False
        self._type: Raw = b""
        self._data: Raw | None = None
        self._id: str | None = None

    def feed(self, chunk: bytes) -> Iterator[Event | None]:
        """The events that *chunk* completes. Exhaust it before you feed the next chunk. None is no event: there, other tasks can run."""
        if not chunk:
            return  # an empty chunk may come between CR and LF
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]  # the LF of a CRLF that two chunks share
        self._after_cr = chunk.endswith(b"\r")
        for number, line in enumerate(chunk.splitlines(keepends=True), 1):  # bytes are split at CR, LF and CRLF only
            part: Raw = line.rstrip(b"\r\n")
            if len(self._line) + len(part) > self._limit + FIELD_ROOM:
                raise self._too_large()
            complete = len(part) < len(line)
            if self._line or not complete:  # usually, one chunk has the whole line
                self._line += part
                if not complete:
                    continue
                part, self._line = self._line, bytearray()
            self.lines += 1
            if part:
                self._read(part)
            elif (event := self._dispatch()) is not None:
                yield event
            if not number % LINES_PER_TURN:
                yield None

    def end(self) -> Iterator[Event]:
        """The last event, if the stream ended without its blank line.

        The specification discards it, but some servers omit the blank line. The event may be
        incomplete, so its id is not kept.
        """
        if self._line:
            self._read(self._line)
        self._id = None
        if (event := self._dispatch()) is not None:
            yield event

    def _read(self, line: Raw) -> None:
        """Take one line that is not empty."""
        if self._at_start:
            self._at_start = False
            line = line[len(BOM) :] if line.startswith(BOM) else line
        colon = line.find(b":")
        name = bytes(line[:colon]) if colon >= 0 else bytes(line)
        start = len(name) + (2 if line[len(name) + 1 : len(name) + 2] == b" " else 1)
        if name not in FIELDS:
            return self._read_odd(name, line)
        if isinstance(line, bytes):
            value: Raw = line[start:]
        else:
            del line[:start]  # in place: a line from several chunks may be large
            value = line
        match name:
            case b"data":
                if self._data is None:
                    self._data = value  # the usual case, one line, without a copy
                else:
                    self._data = self._data if isinstance(self._data, bytearray) else bytearray(self._data)
                    self._data += b"\n"
                    self._data += value
                if len(self._data) > self._limit:
                    raise self._too_large()
            case b"event":
                self._type = value
            case b"id":
                self._read_id(value.decode(errors="replace"))
            case b"retry" if _DIGITS.fullmatch(value):
                self._last_event.retry = float(value) / 1000  # too many digits become infinity
        return None

    def _read_odd(self, name: bytes, line: Raw) -> None:
        """Take a comment, or a line that is no field. JSON without ``data:`` is read as if it had it, up to an empty line."""
        self._is_bare = self._is_bare or (self._data is None and line[:1] in (b"{", b"["))
        if self._is_bare:
            self._read(b"data: " + line)
        elif name:
            self.odd = self.odd or bytes(line[:ODD_SIZE])

    def _read_id(self, id: str) -> None:
        if not id or (len(id) <= MAX_ID and _HEADER_VALUE.fullmatch(id)):  # which U+FFFD is not
            self._id = id

    def _dispatch(self) -> Event | None:
        if self._id is not None:
            self._last_event.id = self._id
        type, data = self._type.decode(errors="replace"), self._data
        self._type, self._data, self._id, self._is_bare, self._at_start = b"", None, None, False, False
        return Event(type or "message", data) if data else None

    def _too_large(self) -> MessageTooLarge:
        return MessageTooLarge(f"an event is larger than {self._limit} bytes")
