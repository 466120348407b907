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
from collections import deque
from contextlib import suppress

from anyio import ClosedResourceError, notify_closing, sleep, wait_readable, wait_writable

assert sys.platform != "win32"  # which tells a type checker that what follows is not for Windows

CHUNK = 256 * 1024  # bytes read at once
AHEAD = 4  # chunks read before anyone asks for them
GLANCE = 0.05  # seconds between looks at what a starting server has read; only while a connection is opened
CAPACITY = 1024 * 1024  # of a pipe where the system lets us choose (Linux: 64 KiB unless asked)


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
            await sleep(GLANCE)

    async def close(self) -> None:
        self._fd = _close(self._fd)

    def _unread(self) -> int:
        count = array("i", [0])
        with suppress(OSError):  # closed, or a system that does not count at this end
            fcntl.ioctl(self._fd, termios.FIONREAD, count)
        return count[0]


class ReadEnd:
    """The reading end of a pipe, on any backend."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd

    async def read(self) -> bytes:
        """Wait for the next bytes; empty at the end of the stream, or once closed."""
        while self._fd >= 0:
            with suppress(ClosedResourceError):
                await wait_readable(self._fd)  # first, so that a flood cannot keep the event loop from its other work
            if self._fd >= 0:
                with suppress(BlockingIOError):
                    return os.read(self._fd, CHUNK)
        return b""

    async def close(self) -> None:
        self._fd = _close(self._fd)


class WatchedReadEnd:
    """The reading end of a pipe on asyncio: watched by the event loop from one read to the next.

    Waiting anew for each read would cost two more system calls and one more turn of the loop.
    """

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._chunks: deque[bytes] = deque()
        self._wake: asyncio.Future[None] | None = None
        self._watching = False
        self._watch()

    async def read(self) -> bytes:
        """Wait for the next bytes; empty at the end of the stream, or once closed."""
        while not self._chunks:
            if self._fd < 0:
                return b""
            self._wake = self._loop.create_future()
            await self._wake
        if len(self._chunks) == 1 and not self._chunks[0]:
            return b""  # the end stays the end
        chunk = self._chunks.popleft()
        self._watch()
        return chunk

    async def close(self) -> None:
        self._unwatch()
        self._fd = _close(self._fd)
        self._notify()

    def _watch(self) -> None:
        if not self._watching and self._fd >= 0 and len(self._chunks) < AHEAD:
            self._loop.add_reader(self._fd, self._take)
            self._watching = True

    def _unwatch(self) -> None:
        if self._watching:
            self._loop.remove_reader(self._fd)
            self._watching = False

    def _take(self) -> None:
        with suppress(BlockingIOError):
            self._chunks.append(os.read(self._fd, CHUNK))
            if not self._chunks[-1] or len(self._chunks) >= AHEAD:
                self._unwatch()
            self._notify()

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


def read_end(fd: int) -> ReadEnd | WatchedReadEnd:
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
