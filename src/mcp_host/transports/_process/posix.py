"""A child process on POSIX: a process group of its own, ended whole."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import sys
import termios
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from anyio import (
    CancelScope,
    ClosedResourceError,
    current_time,
    move_on_after,
    notify_closing,
    open_process,
    sleep,
    wait_readable,
    wait_writable,
)
from anyio.abc import Process
from anyio.lowlevel import checkpoint

from mcp_host.transports._process.child import Input, Output, Take

GRACE = 2.0  # seconds for each gentle step of a shutdown
POLL_INTERVAL = (
    0.02  # seconds between looks at what no event tells: whether a group still lives, what a server has read
)


@dataclass(frozen=True, slots=True)
class PosixChild:
    """A running server, in a process group of its own."""

    process: Process
    stdin: Input
    stdout: Output
    stderr: Output

    async def stop(self, limit: float) -> None:
        """End the server and its descendants in the specification's order, within *limit* seconds.

        Close its input and wait; terminate and wait; kill. The group is swept even when
        its leader has gone by itself: a wrapper like npx may leave the real server behind.
        """
        grace = min(GRACE, limit / 3)
        with CancelScope(shield=True):
            await self.stdin.close()
            await self.exits_within(grace)
            if self._group_lives():
                self._signal_group(signal.SIGTERM)
                await self._group_ends_within(grace)
            if self._group_lives():
                self._signal_group(signal.SIGKILL)
                await self.exits_within(grace)

    async def close(self) -> None:
        """Close what can still be read of it."""
        await self.stdout.close()
        await self.stderr.close()

    async def exits_within(self, seconds: float) -> bool:
        """Whether the server's own process ends in time. Also reaps it."""
        with move_on_after(seconds):
            await self.process.wait()
        return self.process.returncode is not None

    async def _group_ends_within(self, seconds: float) -> None:
        end = current_time() + seconds
        await self.exits_within(seconds)
        while self._group_lives() and current_time() < end:  # noqa: ASYNC110  # no event to wait for: see POLL_INTERVAL
            await sleep(POLL_INTERVAL)

    def _group_lives(self) -> bool:
        if self.process.returncode is None:
            return True
        return self._signal_group(0)

    def _signal_group(self, number: int) -> bool:
        """Signal every process of the group; whether there was one. The group's id is the leader's, for its lifetime."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)
            return True
        return False


async def start_child(command: Sequence[str], env: Mapping[str, str], cwd: str | Path | None) -> PosixChild:
    """Start *command* in a group of its own."""
    with ExitStack() as theirs, ExitStack() as ours:
        ends = []
        for our_end in (1, 0, 0):  # we write to the first pipe, and read from the others
            pipe = open_pipe()
            ours.callback(os.close, pipe[our_end])
            theirs.callback(os.close, pipe[1 - our_end])
            ends.append(pipe)
        (stdin, to_child), (from_child, stdout), (from_stderr, stderr) = ends
        with CancelScope(shield=True):  # a cancelled caller must not lose a process that nobody knows of
            process = await open_process(
                command, stdin=stdin, stdout=stdout, stderr=stderr, env=env, cwd=cwd, start_new_session=True
            )
        ours.pop_all()
        return PosixChild(process, WriteEnd(to_child), read_end(from_child), read_end(from_stderr))


assert sys.platform != "win32"  # which tells a type checker that what follows is not for Windows

CHUNK = 64 * 1024  # bytes read at once; for a buffer of four times that malloc asks the system each time: 30 µs
BULK = 1024 * 1024  # bytes read at once where the last read left more behind
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
        while self._unread():  # noqa: ASYNC110  # no event tells: see POLL_INTERVAL
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
