"""What a server says on stderr: handed to a callback, its end kept for error messages."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import TypeAlias

from mcp_host.errors import excerpt
from mcp_host.transports._process.child import LINES_PER_TICK

logger = logging.getLogger(__name__)

OnStderr: TypeAlias = Callable[[str], None]

MAX_LINE = 8 * 1024  # bytes; a longer line is handed over in pieces
TAIL_LINES = 20
SHOWN = 1000  # characters of the tail that an error message repeats


class Stderr:
    """Cuts stderr into lines and keeps the last of them. stderr is never a sign of failure by itself."""

    def __init__(self, callback: OnStderr | None) -> None:
        self._callback = callback
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._rest = b""

    def feed(self, chunk: bytes) -> Iterator[None]:
        """Take in a piece of whatever size, in steps."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for number, line in enumerate(lines, 1):
            self._take_pieces(line)
            if not number % LINES_PER_TICK:
                yield
        if len(self._rest) >= MAX_LINE:
            self._take_pieces(self._rest)
            self._rest = b""

    def end(self) -> None:
        """There is no more: a last line needs no line end."""
        if self._rest:
            self._take(self._rest)
            self._rest = b""

    def tail(self) -> str:
        """The last lines, made harmless for a terminal."""
        shown = "\n".join(excerpt(line, SHOWN) for line in self._tail)
        return shown[-SHOWN:]

    def _take_pieces(self, line: bytes) -> None:
        for start in range(0, len(line) or 1, MAX_LINE):
            self._take(line[start : start + MAX_LINE])

    def _take(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip("\r")
        self._tail.append(text)
        if self._callback is None:
            return
        try:
            self._callback(text)
        except Exception:  # the application's bug must not end the connection
            logger.exception("the stderr callback failed")
