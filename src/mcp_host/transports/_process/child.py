"""A server as a child process: the interface that each platform implements, and how to start one."""

from __future__ import annotations

import os
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from anyio import BrokenResourceError, CancelScope, ClosedResourceError, move_on_after
from anyio.abc import Process

from mcp_host.errors import ConnectFailed

if sys.platform == "win32":  # pragma: no cover  # runs on Windows only
    INHERITED = (
        *("APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATH", "PATHEXT", "PROCESSOR_ARCHITECTURE"),
        *("PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE"),
    )
else:
    INHERITED = ("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
"""The only environment variables that a server inherits. Others may be secrets, and servers are other people's code."""

GRACE = 2.0  # seconds for each gentle step of a shutdown
LINES_PER_TICK = 256  # lines, after which other tasks run: one read may bring a hundred thousand

PIPE_ERRORS = (OSError, ValueError, BrokenResourceError, ClosedResourceError)  # the second for a closed file

OnChunk: TypeAlias = Callable[[bytes], Iterator[None] | None]
"""Takes what was read. Returns an iterator if that is too much work for one tick: each step does a part of it."""


class ChildStdin(Protocol):
    """The writing end of a pipe. Writing raises one of `PIPE_ERRORS` once either end is closed."""

    def write(self, data: bytes | memoryview, /) -> int | None:
        """Write what fits without waiting; return how many bytes that was, None if nothing fits."""
        ...

    async def write_some(self, data: memoryview) -> int:
        """Wait until at least one byte was written; return how many were."""
        ...

    async def wait_until_read(self) -> None:
        """Wait until the server has read all that was written. Returns at once where the system cannot tell."""
        ...

    async def aclose(self) -> None: ...


class ChildOutput(Protocol):
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
    stdout: ChildOutput
    stderr: ChildOutput

    @abstractmethod
    async def stop(self, limit: float) -> None:
        """End the server and its descendants within *limit* seconds, as gently as possible; even when cancelled."""

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


async def start(command: Sequence[str], env: Mapping[str, str] | None, cwd: str | Path | None) -> Child:
    """Start *command* with pipes to its standard streams.

    Raises:
        ConnectFailed: There is no such command, or the system cannot run it.
    """
    if sys.platform == "win32":  # pragma: no cover  # runs on Windows only
        from mcp_host.transports._process.windows import start_child
    else:
        from mcp_host.transports._process.posix import start_child
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    # Some shells export functions as variables, which the next shell runs.
    safe = {name: value for name, value in inherited.items() if not value.startswith("()")}
    try:
        return await start_child(command, safe | dict(env or {}), cwd)
    except (OSError, ValueError, subprocess.SubprocessError) as exc:
        raise ConnectFailed(f"cannot start {command[0]!r}: {exc}", may_have_run=False) from exc
