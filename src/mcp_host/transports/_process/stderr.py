"""A server's stderr: each line goes to a callback, and the first and the last lines are kept for error messages."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import TypeAlias

from mcp_host.errors import escaped, excerpt
from mcp_host.handlers import worth_logging
from mcp_host.transports._process.child import LINES_PER_TICK
from mcp_host.transports.base import TURN_TIME

logger = logging.getLogger(__name__)

OnStderr: TypeAlias = Callable[[str], None]

MAX_LINE = 8 * 1024  # bytes; a longer line is passed on in pieces
HEAD_LINES = 5
HEAD_LENGTH = 200  # characters of each of the first lines that an error message repeats
TAIL_LINES = 20
TAIL_LENGTH = 1000  # characters of the last lines that an error message repeats


class Stderr:
    """Splits stderr into lines and keeps the first and the last ones. Output on stderr is not an error by itself."""

    def __init__(self, callback: OnStderr | None, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._callback = callback
        self._head: list[str] = []
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._lines = 0
        self._waiting = 0  # lines that have been read, and not taken
        self._rest = b""
        self._failures = 0

    def feed(self, chunk: bytes) -> Iterator[None]:
        """Take a chunk of any size, in steps."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) >= MAX_LINE:
            lines.append(self._rest)
            self._rest = b""
        turn_ends = self._clock() + TURN_TIME
        for number, line in enumerate(lines, 1):
            for start in range(0, len(line) or 1, MAX_LINE):
                self._take(line[start : start + MAX_LINE])
            if not number % LINES_PER_TICK or self._clock() >= turn_ends:
                self._waiting = len(lines) - number
                yield
                turn_ends = self._clock() + TURN_TIME
        self._waiting = 0

    def end(self) -> None:
        """The stream has ended: a last line needs no line end."""
        if self._rest:
            self._take(self._rest)
            self._rest = b""

    def tail(self) -> str:
        """The last lines, with control characters escaped."""
        return "\n".join([*self._last(), *self._missing()])

    def head_and_tail(self) -> str:
        """The last lines, and before them the first ones: some programs say there what is wrong, and then how they are used."""
        last = self._last()
        before = self._lines + len(self._begun()) - len(last)
        head = [excerpt(line, HEAD_LENGTH) for line in self._head[:before]]
        if before > len(head):
            head.append(f"… ({before - len(head)} lines)")
        return "\n".join([*head, *last, *self._missing()])

    def _missing(self) -> list[str]:
        """What stands for the lines that come after the last ones."""
        return [f"… ({self._waiting} lines or more)"] if self._waiting else []

    def _begun(self) -> list[str]:
        """The line that has no end yet: a program that asks a question there waits for the answer."""
        begun = "" if self._waiting else self._rest.decode(errors="replace").rstrip()
        return [begun] if begun else []

    def _last(self) -> list[str]:
        """The last lines within `TAIL_LENGTH`. The first of them may be cut at its end: most lines begin with what matters."""
        shown, room = list[str](), TAIL_LENGTH
        for line in reversed([*self._tail, *self._begun()]):
            text = escaped(line[: room + 1])
            if len(text) > room:
                if room >= HEAD_LENGTH:  # else there is more of it among the first lines, if it is one of them
                    end = f"… ({len(line)} characters)"
                    shown.append(text[: room - len(end)] + end)
                break
            shown.append(text)
            room -= len(text) + 1
        return shown[::-1]

    def _take(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip("\r")
        self._lines += 1
        if len(self._head) < HEAD_LINES:
            self._head.append(text)
        self._tail.append(text)
        if self._callback is None:
            return
        try:
            self._callback(text)
        except Exception:  # the application's bug must not end the connection
            self._failures += 1
            if worth_logging(self._failures):
                logger.exception("the stderr callback failed")
