"""Lines on their way into a pipe: bounded, never cut short, taken back while there is time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeAlias

from anyio import Event, move_on_after

from mcp_host.errors import ConnectionClosed

BURST = 64 * 1024  # lines waiting together are written together, up to a pipe's usual capacity

OnLost: TypeAlias = Callable[[ConnectionClosed], None]


class Pipe(Protocol):
    """The writing end of a pipe. Raises OSError once the other end is gone."""

    def write_now(self, data: bytes) -> int:
        """Write what fits without waiting; return how much that was."""
        ...

    async def write_some(self, data: memoryview) -> int:
        """Wait until at least one byte was written; return how many were."""
        ...


class Line:
    """What is left of a line that could not be written at once."""

    def __init__(self, left: memoryview, on_lost: OnLost | None, *, begun: bool) -> None:
        self.left = left
        self.on_lost = on_lost
        self.begun = begun


class Outbox:
    """Writes lines in order.

    A line that fits goes into the pipe from the caller's own task. What does not
    fit waits for `run`, so that a caller who gives up never leaves half a line behind.
    """

    def __init__(self, pipe: Pipe, *, limit: int, stall_timeout: float) -> None:
        self._pipe = pipe
        self._limit = limit
        self._stall_timeout = stall_timeout
        self._lines: deque[Line] = deque()
        self._size = 0
        self._work = Event()
        self._room = Event()
        self._lost: ConnectionClosed | None = None

    def has_room(self, data: bytes) -> bool:
        """Whether *data* may be put now: not where `limit` bytes are waiting already."""
        return not self._lines or self._size + len(data) <= self._limit or self._lost is not None

    async def wait_for_room(self, data: bytes) -> None:
        """Wait until *data* may be put."""
        while not self.has_room(data):
            await self._room.wait()

    def put(self, data: bytes, on_lost: OnLost | None = None) -> Line | None:
        """Write *data*, a whole line; return it if (part of) it still has to wait.

        To be called as soon as there is room. *on_lost* is called if the pipe
        breaks before all of it was written.

        Raises:
            ConnectionClosed: The pipe is broken; none of *data* was written.
        """
        if self._lost is not None:
            raise self._lost.again()
        written = 0 if self._lines else self._write_now(data)
        if written == len(data):
            return None
        line = Line(memoryview(data)[written:], on_lost, begun=written > 0)
        self._lines.append(line)
        self._size += len(line.left)
        self._work.set()
        return line

    def withdraw(self, line: Line) -> bool:
        """Take back a line that has not begun. Whether that was still possible."""
        if line.begun or line not in self._lines:
            return False
        self._lines.remove(line)
        self._shrink(len(line.left))
        return True

    async def run(self) -> None:
        """Write what waits, until the pipe breaks.

        Raises:
            ConnectionClosed: Nothing could be written for `stall_timeout` seconds.
        """
        while self._lost is None:
            if self._lines:
                await self._write_burst()
            else:
                self._work = Event()
                await self._work.wait()

    def _write_now(self, data: bytes) -> int:
        try:
            return self._pipe.write_now(data)
        except OSError as exc:
            self._break("the server has closed its input")
            raise ConnectionClosed("the server has closed its input", may_have_run=False) from exc

    async def _write_burst(self) -> None:
        burst = self._gather()
        written = 0
        with move_on_after(self._stall_timeout):
            try:
                written = await self._pipe.write_some(burst)
            except OSError:
                self._break("the server has closed its input")
                return
        if not written:
            reason = f"the server has read none of its input for {self._stall_timeout:g} s"
            self._break(reason)
            raise ConnectionClosed(reason)
        self._shrink(written)
        self._drop(written)

    def _gather(self) -> memoryview:
        """The next lines, as one write. Any part of it may be written, so all of them have begun."""
        first, size = self._lines[0], 0
        parts: list[memoryview] = []
        for line in self._lines:
            size += len(line.left)
            if parts and size > BURST:
                break
            line.begun = True
            parts.append(line.left)
        return first.left if len(parts) == 1 else memoryview(b"".join(parts))

    def _drop(self, written: int) -> None:
        while written:
            line = self._lines[0]
            if written < len(line.left):
                line.left = line.left[written:]
                return
            written -= len(line.left)
            self._lines.popleft()

    def _shrink(self, size: int) -> None:
        self._size -= size
        self._room.set()
        self._room = Event()

    def _break(self, reason: str) -> None:
        self._lost = ConnectionClosed(reason, may_have_run=False)
        lines = list(self._lines)
        self._lines.clear()
        self._shrink(self._size)
        self._work.set()
        for line in lines:
            if line.on_lost is not None:
                line.on_lost(ConnectionClosed(reason, may_have_run=line.begun))
