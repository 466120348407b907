"""A server as a child process: the interface that each platform implements."""

from __future__ import annotations

import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from anyio import BrokenResourceError, CancelScope, ClosedResourceError, move_on_after
from anyio.abc import Process

GRACE = 2.0  # seconds for each gentle step of a shutdown, and for a server that has closed a pipe to exit
LINES_PER_TICK = 256  # lines, after which other tasks run: one read may bring a hundred thousand

PIPE_ERRORS = (OSError, ValueError, BrokenResourceError, ClosedResourceError)  # the second for a closed file

OnChunk: TypeAlias = Callable[[bytes], Iterator[None] | None]
"""Takes what was read. Returns an iterator if that is too much work for one tick: each step does a part of it."""


class WritablePipe(Protocol):
    """The writing end of a pipe. Writing raises one of `PIPE_ERRORS` once either end is closed."""

    def write(self, data: bytes | memoryview, /) -> int | None:
        """Write what fits without waiting; return how many bytes that was, None if nothing fits."""
        ...

    async def write_some(self, data: memoryview) -> int:
        """Wait until at least one byte was written; return how many were."""
        ...

    async def aclose(self) -> None: ...


class ChildStdin(WritablePipe, Protocol):
    """Our end of the server's stdin."""

    async def wait_until_read(self) -> None:
        """Wait until the server has read all that was written. Returns at once where the system cannot tell."""
        ...


class ReadablePipe(Protocol):
    """The reading end of a pipe."""

    async def read_all(self, on_chunk: OnChunk) -> None:
        """Call *on_chunk* with what is read, until the end of the stream or `aclose`."""
        ...

    async def aclose(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Child(ABC):
    """A running server, with its descendants."""

    process: Process
    stdin: ChildStdin
    stdout: ReadablePipe
    stderr: ReadablePipe
    grace: float = field(default=GRACE, kw_only=True)

    @abstractmethod
    async def stop(self, limit: float) -> None:
        """End the server and its descendants, within *limit* seconds as gently as possible; even when cancelled."""

    @property
    def exit_code(self) -> int | None:
        """The exit code of the server's own process, negative for a signal; None if it runs.

        None, too, where the program ignores SIGCHLD: the system drops the code, and asyncio and trio make one up.
        """
        is_lost = sys.platform != "win32" and signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
        return None if is_lost else self.process.returncode

    async def exits_within(self, seconds: float) -> bool:
        """Whether the server's own process ends in time. Also reaps it."""
        with move_on_after(seconds):
            await self.process.wait()
        return self.process.returncode is not None

    async def close(self) -> None:
        """Close its output."""
        with CancelScope(shield=True):
            await self.stdout.aclose()
            await self.stderr.aclose()
