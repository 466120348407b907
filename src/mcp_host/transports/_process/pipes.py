"""Our ends of a child's standard streams, on POSIX.

We hold the file descriptors ourselves rather than through the event loop's
subprocess streams: a line that fits is written without a task or a buffer in
between, on both backends alike; and closing is closing, even when some
grandchild keeps its end open for ever.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sys
import termios
from array import array
from collections.abc import Iterator
from contextlib import suppress

from anyio import ClosedResourceError, notify_closing, sleep, wait_readable, wait_writable
from anyio.lowlevel import checkpoint

from mcp_host.transports._process.child import Take

assert sys.platform != "win32"  # which tells a type checker that what follows is not for Windows

CHUNK = 64 * 1024  # bytes read at once; for a buffer of four times that malloc asks the system each time: 30 µs
BULK = 1024 * 1024  # bytes read at once where the last read left more behind
POLL_INTERVAL = 0.05  # seconds between looks at what a starting server has read; only while a connection is opened
CAPACITY = 1024 * 1024  # of a pipe where the system lets us choose (Linux: 64 KiB unless asked)

DONE = object()  # what `next` says of steps that have all been taken


class WriteEnd:
    """The writing end of a pipe."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd

    def write_now(self, data: bytes | memoryview) -> int:
        """Write what fits without waiting; return how much that was. Raises OSError when nobody reads any more."""
        if self._fd < 0:
            raise BrokenPipeError("closed")
        try:
            return os.write(self._fd, data)
        except BlockingIOError:
            return 0

    async def write_some(self, data: memoryview) -> int:
        """Wait until at least one byte was written; return how many were."""
        while not (written := self.write_now(data)):
            try:
                await wait_writable(self._fd)
            except ClosedResourceError:
                raise BrokenPipeError("closed") from None
        return written

    async def taken(self) -> None:
        """Wait until all that was written has been read, or nobody can tell any more."""
        while self._unread():  # noqa: ASYNC110  # no event tells: see GLANCE
            await sleep(POLL_INTERVAL)

    async def close(self) -> None:
        self._fd = _close(self._fd)

    def _unread(self) -> int:
        if self._fd < 0:
            return 0
        count = array("i", [0])
        with suppress(OSError):  # a system that does not count at this end
            fcntl.ioctl(self._fd, termios.FIONREAD, count)
        return count[0]


class ReadEnd:
    """The reading end of a pipe, on any backend."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._size = CHUNK

    async def pump(self, take: Take) -> None:
        """Hand every piece to *take* as it comes, until the end of the stream or its closing."""
        while (steps := await self._next(take)) is not None:
            for _ in steps:
                await checkpoint()

    async def close(self) -> None:
        self._fd = _close(self._fd)

    async def _next(self, take: Take) -> Iterator[None] | None:
        """Wait for something to read and hand it over; return what is left of that work, None at the end."""
        if self._fd >= 0:
            with suppress(ClosedResourceError):
                await wait_readable(self._fd)  # first, so that a flood cannot keep the event loop from its other work
        return self._hand_over(take)

    def _hand_over(self, take: Take) -> Iterator[None] | None:
        """Hand over what can be read at once; return what is left of that work, None at the end."""
        if self._fd < 0:
            return None
        try:
            chunk = os.read(self._fd, self._size)
        except BlockingIOError:
            return iter(())
        self._size = CHUNK if len(chunk) < CHUNK else BULK
        return take(chunk) or iter(()) if chunk else None


class WatchedReadEnd(ReadEnd):
    """The reading end of a pipe on asyncio: the event loop itself calls *take*, as long as one turn suffices.

    A task that waits anew for each piece would cost two more system calls and one
    more turn of the loop.
    """

    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        self._left: asyncio.Future[Iterator[None] | None] | None = None

    async def close(self) -> None:
        if self._left is not None and self._fd >= 0:
            self._left.get_loop().remove_reader(self._fd)  # the pump, if it is about to, would be too late
            if not self._left.done():
                self._left.set_result(None)
        await super().close()

    async def _next(self, take: Take) -> Iterator[None] | None:
        if self._fd < 0:
            return None
        _say_where_we_are()
        loop = asyncio.get_running_loop()
        left: asyncio.Future[Iterator[None] | None] = loop.create_future()
        self._left = left
        loop.add_reader(self._fd, self._ready, take, left)
        try:
            return await left
        finally:
            if self._fd >= 0:
                loop.remove_reader(self._fd)

    def _ready(self, take: Take, left: asyncio.Future[Iterator[None] | None]) -> None:
        if left.done():
            return  # its task has yet to see that
        try:
            steps = self._hand_over(take)
            if steps is None or next(steps, DONE) is None:
                left.set_result(steps)
        except Exception as exc:  # a bug, for the task that pumps to report
            left.set_exception(exc)


def _say_where_we_are() -> None:
    """In a callback of asyncio's there is no task, which is what sniffio tells the running library by."""
    with suppress(ImportError):  # where it is not installed, anyio asks asyncio itself
        from sniffio import current_async_library_cvar

        current_async_library_cvar.set("asyncio")


def read_end(fd: int) -> ReadEnd:
    """The reading end that fits the running backend."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return ReadEnd(fd)
    return WatchedReadEnd(fd)


def open_pipe() -> tuple[int, int]:
    """A pipe's two ends, reading and writing, as large as the system makes them."""
    reading, writing = os.pipe()
    if sys.platform == "linux":
        import fcntl

        with suppress(OSError):  # the user's quota for pipes is used up; a small one serves, too
            fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, CAPACITY)
    return reading, writing


def _close(fd: int) -> int:
    if fd >= 0:
        notify_closing(fd)
        os.close(fd)
    return -1
