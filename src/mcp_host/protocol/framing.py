"""Finding lines in a stream of bytes: linear in time, bounded in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

Raw: TypeAlias = bytes | bytearray  # the latter if it came in pieces: a copy of 64 MiB would be one too many

EDGE = 256  # bytes kept of each end of a line that is dropped: enough to find an id in


@dataclass(frozen=True, slots=True)
class Oversize:
    """A line longer than the limit, reported twice: with its *head* when it becomes too long, with both ends at its end."""

    head: bytes
    tail: bytes


class LineBuffer:
    """Cuts a byte stream at LF (and only there: U+2028 and its like are legal inside JSON strings).

    The limit applies to the line, wherever the chunks happen to end. A line over
    the limit is dropped as it arrives. It is reported at once, for it may never end.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._line = bytearray()  # no list of pieces: each would take up more than it holds, if they are small
        self._size = 0
        self._head = b""
        self._tail = b""

    def feed(self, chunk: bytes) -> Iterator[Raw | Oversize]:
        """The lines that *chunk* completes, without their line ends."""
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            yield from self._complete(chunk[start:end])
            start = end + 1
        if start < len(chunk):
            yield from self._keep(chunk[start:])

    def rest(self) -> Iterator[Raw | Oversize]:
        """What stands after the last LF; to be asked at the end of the stream."""
        if self._size:
            yield from self._complete(b"")

    def _keep(self, part: bytes) -> Iterator[Oversize]:
        fitted = self._size <= self._limit
        self._size += len(part)
        if self._size <= self._limit:
            self._line += part
            return
        if fitted:  # only its ends are copied: what is dropped may be as long as the limit
            self._head = bytes(self._line[:EDGE]) + part[: max(EDGE - len(self._line), 0)]
            self._tail = bytes(self._line[-EDGE:])
            self._line = bytearray()
            yield Oversize(self._head, b"")
        self._tail = (self._tail + part[-EDGE:])[-EDGE:]

    def _complete(self, last: bytes) -> Iterator[Raw | Oversize]:
        if not self._size and len(last) <= self._limit:
            yield last  # the usual case: the whole line came in one chunk
            return
        yield from self._keep(last)
        if self._size <= self._limit:
            yield self._line
        else:
            yield Oversize(self._head, self._tail)
        self._line, self._size, self._head, self._tail = bytearray(), 0, b"", b""
