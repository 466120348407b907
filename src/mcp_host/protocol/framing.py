"""Splitting a byte stream into lines, in linear time and bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

Raw: TypeAlias = bytes | bytearray  # the latter if it arrived in several chunks, to save a copy

EDGE = 256  # bytes kept of each end of a dropped line: enough to find an id


@dataclass(frozen=True, slots=True)
class Oversize:
    """A line longer than the limit. It is reported twice: with its *head* at once, with both ends when the line ends."""

    head: bytes
    tail: bytes


class LineBuffer:
    """Splits a byte stream at LF only: U+2028 and other line separators are legal inside JSON strings.

    The limit applies to a line, not to a chunk. A longer line is dropped as it arrives,
    and reported at once, because it may never end.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._line = bytearray()  # not a list of pieces: small ones would take more memory than they hold
        self._size = 0
        self._head = b""
        self._tail = b""

    def feed(self, chunk: bytes) -> Iterator[Raw | Oversize]:
        """The lines that *chunk* completes, without line endings."""
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            yield from self._complete(chunk[start:end])
            start = end + 1
        if start < len(chunk):
            yield from self._keep(chunk[start:])

    def rest(self) -> Iterator[Raw | Oversize]:
        """The bytes after the last LF; call it at the end of the stream."""
        if self._size:
            yield from self._complete(b"")

    def _keep(self, part: bytes) -> Iterator[Oversize]:
        fitted = self._size <= self._limit
        self._size += len(part)
        if self._size <= self._limit:
            self._line += part
            return
        if fitted:  # copy only its ends: the dropped line may be as long as the limit
            self._head = bytes(self._line[:EDGE]) + part[: max(EDGE - len(self._line), 0)]
            self._tail = bytes(self._line[-EDGE:])
            self._line = bytearray()
            yield Oversize(self._head, b"")
        self._tail = (self._tail + part[-EDGE:])[-EDGE:]

    def _complete(self, last: bytes) -> Iterator[Raw | Oversize]:
        if not self._size and len(last) <= self._limit:
            yield last  # the usual case: one chunk has the whole line
            return
        yield from self._keep(last)
        if self._size <= self._limit:
            yield self._line
        else:
            yield Oversize(self._head, self._tail)
        self._line, self._size, self._head, self._tail = bytearray(), 0, b"", b""
