"""Writing lines into a pipe: in order, without a task for a line that fits, and with a bounded queue for those that do not."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from anyio import Event, WouldBlock, move_on_after

from mcp_host.errors import ConnectionClosed
from mcp_host.transports._process.child import ChildStdin

MAX_WRITE = 64 * 1024  # bytes: queued lines are written together, up to a pipe's usual capacity

OnLost: TypeAlias = Callable[[ConnectionClosed], None]


@dataclass(slots=True, eq=False)
class QueuedLine:
    """The unwritten rest of a line. *begun*: some of the line may have been written."""

    rest: memoryview
    on_lost: OnLost | None
    begun: bool


class LineWriter:
    """Writes lines in order.

    A line that fits goes into the pipe from the caller's own task. `run` writes
    the others, so that a cancelled caller never leaves half a line behind.
    """

    def __init__(self, pipe: ChildStdin, *, limit: int, stall_timeout: float) -> None:
        self._pipe = pipe
        self._limit = limit
        self._stall_timeout = stall_timeout
        self._queue: deque[QueuedLine] = deque()
        self._size = 0  # bytes in the queue
        self._queued = Event()
        self._shrunk = Event()
        self._broken: ConnectionClosed | None = None

    def write(self, data: bytes, on_lost: OnLost | None = None) -> QueuedLine | None:
        """Write *data*, a whole line. Returns the line if it, or some of it, had to be queued.

        *on_lost* is called if the pipe breaks before the whole line is written.

        Raises:
            WouldBlock: `limit` bytes are queued already (see `wait_for_room`); nothing was written.
            ConnectionClosed: The pipe is broken; nothing was written.
        """
        if self._broken is not None:
            raise self._broken.again()
        written = 0
        if not self._queue:
            try:
                written = self._pipe.write_now(data)
            except OSError as exc:
                raise self._break("the server has closed its input") from exc
            if written == len(data):
                return None
        elif not self._has_room(data):
            raise WouldBlock
        line = QueuedLine(memoryview(data)[written:], on_lost, written > 0)
        self._queue.append(line)
        self._size += len(line.rest)
        self._queued.set()
        return line

    async def wait_for_room(self, data: bytes) -> None:
        """Wait until `write` takes *data*, or raises because the pipe has broken."""
        while not self._has_room(data):
            await self._shrunk.wait()

    def withdraw(self, line: QueuedLine) -> bool:
        """Remove a line that has not begun from the queue. Returns whether that was still possible."""
        if line.begun or line not in self._queue:
            return False
        self._queue.remove(line)
        self._shrink(len(line.rest))
        return True

    async def run(self) -> None:
        """Write the queued lines, until the pipe breaks.

        Raises:
            ConnectionClosed: Nothing could be written for `stall_timeout` seconds.
        """
        while self._broken is None:
            if not self._queue:
                self._queued = Event()
                await self._queued.wait()
                continue
            data = self._next_write()
            written = 0
            with move_on_after(self._stall_timeout):
                try:
                    written = await self._pipe.write_some(data)
                except OSError:
                    self._break("the server has closed its input")
                    return
            if not written:
                raise self._break(f"the server has read none of its input for {self._stall_timeout:g} s")
            self._shrink(written)
            while written:
                line = self._queue[0]
                if written < len(line.rest):
                    line.rest = line.rest[written:]
                    break
                written -= len(line.rest)
                self._queue.popleft()

    def _next_write(self) -> memoryview:
        """The next lines as one piece. Any part of it may be written, so all of them have begun."""
        size = 0
        parts: list[memoryview] = []
        for line in self._queue:
            size += len(line.rest)
            if parts and size > MAX_WRITE:
                break
            line.begun = True
            parts.append(line.rest)
        return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))

    def _has_room(self, data: bytes) -> bool:
        return not self._queue or self._size + len(data) <= self._limit

    def _shrink(self, size: int) -> None:
        self._size -= size
        self._shrunk.set()
        self._shrunk = Event()

    def _break(self, reason: str) -> ConnectionClosed:
        self._broken = ConnectionClosed(reason, may_have_run=False)
        lines = list(self._queue)
        self._queue.clear()
        self._shrink(self._size)
        self._queued.set()
        for line in lines:
            if line.on_lost is not None:
                line.on_lost(ConnectionClosed(reason, may_have_run=line.begun))
        return self._broken.again()
