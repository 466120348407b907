"""A child process on POSIX, in its own process group, and our ends of its pipes.

We hold the file descriptors ourselves instead of using the event loop's subprocess
streams. A line that fits is written without a task or a buffer, on both backends;
and closing works even when a descendant keeps its end of a pipe open.
"""

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
    notify_closing,
    open_process,
    sleep,
    wait_readable,
    wait_writable,
)
from anyio.lowlevel import checkpoint

from mcp_host.transports._process.child import GRACE, Child, OnChunk

assert sys.platform != "win32"  # so that type checkers skip this module on Windows

PIPE_SIZE = 1024 * 1024  # bytes, where the system lets us choose (Linux: 64 KiB by default)
READ_SIZE = 64 * 1024  # bytes read at once; for a buffer of four times that malloc asks the system each time: 30 µs
LARGE_READ_SIZE = 1024 * 1024  # bytes read at once after a read that left more behind
POLL_INTERVAL = 0.02  # seconds, for what no event tells: a process group has ended, a pipe has been read

FINISHED = object()


@dataclass(frozen=True, slots=True)
class PosixChild(Child):
    """A running server in its own process group."""

    async def stop(self, limit: float) -> None:
        """End the server and its descendants in the specification's order, within *limit* seconds.

        Close its input and wait; terminate and wait; kill. The group is signalled even when
        its leader has exited: a wrapper like npx may leave the real server behind.
        """
        grace = min(GRACE, limit / 3)
        with CancelScope(shield=True):
            await self.stdin.close()
            await self.exits_within(grace)
            if self._group_lives():
                self._signal_group(signal.SIGTERM)
                end = current_time() + grace
                await self.exits_within(grace)
                while self._group_lives() and current_time() < end:  # noqa: ASYNC110  # see POLL_INTERVAL
                    await sleep(POLL_INTERVAL)
            if self._group_lives():
                self._signal_group(signal.SIGKILL)
                await self.exits_within(grace)

    def _group_lives(self) -> bool:
        return self.process.returncode is None or self._signal_group(0)

    def _signal_group(self, number: int) -> bool:
        """Signal every process of the group; returns whether there was one. The group's id is the leader's."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)
            return True
        return False


class WriteEnd:
    """The writing end of a pipe."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd

    def write_now(self, data: bytes | memoryview) -> int:
        if self._fd < 0:
            raise BrokenPipeError("closed")
        try:
            return os.write(self._fd, data)
        except BlockingIOError:
            return 0

    async def write_some(self, data: memoryview) -> int:
        while not (written := self.write_now(data)):
            try:
                await wait_writable(self._fd)
            except ClosedResourceError:
                raise BrokenPipeError("closed") from None
        return written

    async def wait_until_read(self) -> None:
        unread = array("i", [0])
        while self._fd >= 0:
            with suppress(OSError):  # a system that does not count at this end
                fcntl.ioctl(self._fd, termios.FIONREAD, unread)
            if not unread[0]:
                return
            await sleep(POLL_INTERVAL)

    async def close(self) -> None:
        self._fd = _close(self._fd)


class ReadEnd:
    """The reading end of a pipe, on any backend."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._size = READ_SIZE

    async def read_all(self, on_chunk: OnChunk) -> None:
        while (steps := await self._read(on_chunk)) is not None:
            for _ in steps:
                await checkpoint()

    async def close(self) -> None:
        self._fd = _close(self._fd)

    async def _read(self, on_chunk: OnChunk) -> Iterator[None] | None:
        """Wait for a chunk and pass it on; return the steps that remain of that, None at the end."""
        if self._fd >= 0:
            with suppress(ClosedResourceError):
                await wait_readable(self._fd)  # always, so that a flood cannot starve other tasks
        return self._read_now(on_chunk)

    def _read_now(self, on_chunk: OnChunk) -> Iterator[None] | None:
        if self._fd < 0:
            return None
        try:
            chunk = os.read(self._fd, self._size)
        except BlockingIOError:
            return iter(())
        self._size = READ_SIZE if len(chunk) < READ_SIZE else LARGE_READ_SIZE
        return on_chunk(chunk) or iter(()) if chunk else None


class AsyncioReadEnd(ReadEnd):
    """The reading end of a pipe on asyncio. The event loop calls *on_chunk* itself, while one step suffices.

    Waiting in a task for each chunk would cost two more system calls and one more tick.
    """

    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        self._waiter: asyncio.Future[Iterator[None] | None] | None = None

    async def close(self) -> None:
        if self._waiter is not None and self._fd >= 0:
            self._waiter.get_loop().remove_reader(self._fd)  # before the system reuses the descriptor
            if not self._waiter.done():
                self._waiter.set_result(None)
        await super().close()

    async def _read(self, on_chunk: OnChunk) -> Iterator[None] | None:
        if self._fd < 0:
            return None
        # sniffio looks for a task, and there is none in a callback of the event loop. anyio does without sniffio.
        with suppress(ImportError):
            from sniffio import current_async_library_cvar

            current_async_library_cvar.set("asyncio")
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[Iterator[None] | None] = loop.create_future()
        self._waiter = waiter
        loop.add_reader(self._fd, self._on_readable, on_chunk, waiter)
        try:
            return await waiter
        finally:
            if self._fd >= 0:
                loop.remove_reader(self._fd)

    def _on_readable(self, on_chunk: OnChunk, waiter: asyncio.Future[Iterator[None] | None]) -> None:
        if waiter.done():
            return  # its task has not run yet
        try:
            steps = self._read_now(on_chunk)
            if steps is None or next(steps, FINISHED) is not FINISHED:
                waiter.set_result(steps)
        except Exception as exc:  # a bug, for the reading task to raise
            waiter.set_exception(exc)


def read_end(fd: int) -> ReadEnd:
    """The reading end for the running backend."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return ReadEnd(fd)
    return AsyncioReadEnd(fd)


def open_pipe() -> tuple[int, int]:
    """A pipe's two ends, for reading and writing; as large as the system permits, up to 1 MiB."""
    reading, writing = os.pipe()
    if sys.platform == "linux":
        with suppress(OSError):  # the user's quota for pipes is used up
            fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE_SIZE)
    return reading, writing


def _close(fd: int) -> int:
    if fd >= 0:
        notify_closing(fd)
        os.close(fd)
    return -1


async def start_child(command: Sequence[str], env: Mapping[str, str], cwd: str | Path | None) -> Child:
    """Start *command* in its own process group."""
    with ExitStack() as theirs, ExitStack() as ours:
        pipes = []
        for our_end in (1, 0, 0):  # we write to the first pipe, and read from the others
            pipe = open_pipe()
            ours.callback(os.close, pipe[our_end])
            theirs.callback(os.close, pipe[1 - our_end])
            pipes.append(pipe)
        (stdin, to_child), (from_child, stdout), (from_stderr, stderr) = pipes
        with CancelScope(shield=True):  # a cancelled caller must not lose a process that has started
            process = await open_process(
                command, stdin=stdin, stdout=stdout, stderr=stderr, env=env, cwd=cwd, start_new_session=True
            )
        ours.pop_all()
        return PosixChild(process, WriteEnd(to_child), read_end(from_child), read_end(from_stderr))
