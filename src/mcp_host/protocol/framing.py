"""Finding lines in a stream of bytes: linear in time, bounded in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

EDGE = 256  # bytes kept of each end of a line that is dropped: enough to find an id in


@dataclass(frozen=True, slots=True)
class Oversize:
    """A line longer than the limit. Only its two ends were kept."""

    head: bytes
    tail: bytes
    size: int


class LineBuffer:
    """Cuts a byte stream at LF (and only there: U+2028 and its like are legal inside JSON strings).

    The limit applies to the line, wherever the chunks happen to end. A line over
    the limit is dropped as it arrives and reported once it has ended.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._head = b""
        self._tail = b""

    def feed(self, chunk: bytes) -> Iterator[bytes | Oversize]:
        """The lines that *chunk* completes, without their line ends."""
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            yield self._complete(chunk[start:end])
            start = end + 1
        if start < len(chunk):
            self._keep(chunk[start:])

    def rest(self) -> bytes | Oversize | None:
        """What stands after the last LF; to be asked at the end of the stream."""
        return self._complete(b"") if self._size else None

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= self._limit:
            self._parts.append(part)
            return
        if self._parts or not self._head:
            whole = b"".join(self._parts) + part
            self._head, self._tail = whole[:EDGE], whole[-EDGE:]
            self._parts = []
        else:
            self._tail = (self._tail + part[-EDGE:])[-EDGE:]

    def _complete(self, last: bytes) -> bytes | Oversize:
        if not self._size and len(last) <= self._limit:
            return last  # the usual case: the whole line came in one chunk
        self._keep(last)
        line = b"".join(self._parts) if self._size <= self._limit else Oversize(self._head, self._tail, self._size)
        self._parts, self._size, self._head, self._tail = [], 0, b"", b""
        return line
