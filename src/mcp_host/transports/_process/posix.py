"""A child process on POSIX, in its own session, and our ends of its pipes.

We hold the file descriptors ourselves instead of using the event loop's subprocess
streams. A line that fits is written without a task or a buffer, on both backends;
and closing works even when a descendant keeps its end of a pipe open.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import sys
import termios
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from anyio import CancelScope, current_time, notify_closing, open_process, sleep, wait_writable
from anyio.lowlevel import checkpoint

from mcp_host.concurrency.backends import Loop
from mcp_host.transports._process.child import GRACE, Child, OnChunk

assert sys.platform != "win32"  # so that type checkers skip this module on Windows

PIPE_SIZE = 1024 * 1024  # bytes, where the system lets us choose (Linux: 64 KiB by default)
READ_SIZE = 64 * 1024  # bytes read at once; for a buffer of four times that malloc asks the system each time: 30 µs
LARGE_READ_SIZE = 1024 * 1024  # bytes read at once after a read that left more behind
POLL_INTERVAL = 0.02  # seconds, for what no event tells: a session has ended, a pipe has been read

FINISHED = object()


@dataclass(frozen=True, slots=True)
class PosixChild(Child):
    """A running server in its own session."""

    async def stop(self, limit: float) -> None:
        """End the server and its descendants in the specification's order. What runs after *limit* seconds is killed.

        Close its input and wait; terminate and wait; kill. Its whole session is signalled even when
        its leader has exited: a wrapper like npx may leave the real server behind.
        """
        grace = min(self.grace, limit / 3)
        with CancelScope(shield=True):
            try:
                await self._end(grace)
            except BaseException:  # the event loop ends, say by a signal: on asyncio no scope shields from that
                self._signal(signal.SIGKILL)
                raise

    async def _end(self, grace: float) -> None:
        await self.stdin.aclose()
        await self.exits_within(grace)
        if self._lives():
            self._signal(signal.SIGTERM)
            end = current_time() + grace
            await self.exits_within(grace)
            while self._lives() and current_time() < end:  # noqa: ASYNC110  # see POLL_INTERVAL
                await sleep(POLL_INTERVAL)
            if self._lives():
                self._signal(signal.SIGKILL)
                await self.exits_within(GRACE)  # on a busy machine that may take longer than a step

    def _lives(self) -> bool:
        return self.process.returncode is None or self._signal(0)

    def _signal(self, number: int) -> bool:
        """Signal every process of the session; returns whether there was one. The session's id is the leader's."""
        signalled = False
        for group in groups_of_session(self.process.pid):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, number)
                signalled = True
        return signalled


def groups_of_session(session: int) -> set[int]:
    """The process groups of *session*: a descendant may have made its own, as the jobs of an interactive shell have.

    Only Linux lists all processes in /proc. Elsewhere only the leader's group is known, which has the session's id.
    """
    groups = {session}
    with suppress(FileNotFoundError):
        for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):
            with suppress(OSError):  # it has ended meanwhile
                if os.getsid(pid) == session:
                    groups.add(os.getpgid(pid))
    return groups


class WriteEnd(FileIO):
    """The writing end of a pipe."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        super().__init__(fd, "wb")

    async def write_some(self, data: memoryview) -> int:
        while not (written := self.write(data)):
            await wait_writable(self)
        return written

    async def wait_until_read(self) -> None:
        unread = array("i", [0])
        while not self.closed:
            with suppress(OSError):  # a system that does not count at this end
                fcntl.ioctl(self, termios.FIONREAD, unread)
            if not unread[0]:
                return
            await sleep(POLL_INTERVAL)

    async def aclose(self) -> None:
        if not self.closed:
            notify_closing(self)
            self.close()


class InheritedWriteEnd(WriteEnd):
    """The writing end of a pipe or socket that this process was started with.

    Others may write to it, too, and would find it non-blocking with us. So it stays as it is, and is written in pieces:
    one of `PIPE_BUF` bytes fits as soon as any do.
    """

    def __init__(self, fd: int) -> None:
        FileIO.__init__(self, fd, "wb")
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)

    def write(self, data: bytes | memoryview, /) -> int:  # type: ignore[override]  # any buffer
        """Write what fits without waiting; return how many bytes that was."""
        written, size = 0, len(data)
        while written < size and self._poll.poll(0):
            piece = data if size <= select.PIPE_BUF else memoryview(data)[written : written + select.PIPE_BUF]
            written += super().write(piece) or 0
        return written


class ReadEnd(FileIO):
    """The reading end of a pipe. One that is *inherited* stays as it is: see `InheritedWriteEnd`."""

    def __init__(self, fd: int, *, inherited: bool = False) -> None:
        if not inherited:
            os.set_blocking(fd, False)
        super().__init__(fd, "rb")
        self._loop = Loop.running()
        self.read_size = READ_SIZE

    async def read_all(self, on_chunk: OnChunk) -> None:
        size, ended = self.read_size, False
        steps: Iterator[None] = iter(())

        def read() -> bool:
            """Pass on a chunk. Returns whether it was the last one, or takes more than one step."""
            nonlocal size, ended, steps
            chunk = b"" if self.closed else self.read(size)
            if chunk is None:
                return False
            size, ended = self.read_size if len(chunk) < self.read_size else LARGE_READ_SIZE, not chunk
            steps = (on_chunk(chunk) if chunk else None) or iter(())
            return ended or next(steps, FINISHED) is not FINISHED

        while not ended and not self.closed:
            await self._loop.when_readable(self.fileno(), read)
            for _ in steps:
                await checkpoint()

    async def aclose(self) -> None:
        if not self.closed:
            self._loop.notify_closing(self.fileno())
            self.close()


def open_pipe() -> tuple[int, int]:
    """A pipe's two ends, for reading and writing; as large as the system permits, up to 1 MiB."""
    reading, writing = os.pipe()
    if sys.platform == "linux":  # pragma: no branch  # other systems have no such call
        with suppress(OSError):  # the user's quota for pipes is used up
            fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE_SIZE)
    return reading, writing


async def start_child(command: Sequence[str], env: Mapping[str, str], cwd: str | Path | None) -> Child:
    """Start *command* in its own session."""
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
        return PosixChild(process, WriteEnd(to_child), ReadEnd(from_child), ReadEnd(from_stderr))
