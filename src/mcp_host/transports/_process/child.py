"""A server as a child process: what there is to it on every platform, and what it inherits."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

from anyio.abc import Process

from mcp_host.errors import ConnectFailed
from mcp_host.transports._process.outbox import Pipe

if sys.platform == "win32":
    INHERITED = (
        *("APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATH", "PATHEXT", "PROCESSOR_ARCHITECTURE"),
        *("PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE"),
    )
else:
    INHERITED = ("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
"""The only variables of ours that a server gets. Any other may be a secret, and servers are other people's code."""

LINES_PER_TICK = 256  # lines, after which others have their turn: one read may bring a hundred thousand

Take: TypeAlias = Callable[[bytes], Iterator[None] | None]
"""Takes a piece of what a server writes; returns the rest of that work, in steps, if it is too much for one turn."""


class Input(Pipe, Protocol):
    async def taken(self) -> None:
        """Wait until the server has read all that was written. Returns at once where nobody can tell."""
        ...

    async def close(self) -> None: ...


class Output(Protocol):
    async def pump(self, take: Take) -> None:
        """Hand every piece to *take*, until the end of the stream or its closing."""
        ...

    async def close(self) -> None: ...


class Child(Protocol):
    """A running server and all of its descendants that did not run away."""

    @property
    def process(self) -> Process: ...
    @property
    def stdin(self) -> Input: ...
    @property
    def stdout(self) -> Output: ...
    @property
    def stderr(self) -> Output: ...

    async def exits_within(self, seconds: float) -> bool:
        """Whether the server's own process ends in time. Also reaps it."""
        ...

    async def stop(self, limit: float) -> None:
        """End it all within *limit* seconds, as gently as it lets us; even when cancelled."""
        ...

    async def close(self) -> None:
        """Close what can still be read of it."""
        ...


def environment(extra: Mapping[str, str] | None) -> dict[str, str]:
    """The environment of a server: the safe few of ours, then *extra*."""
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    # Some shells export functions as variables, to be run by whichever shell starts next.
    safe = {name: value for name, value in inherited.items() if not value.startswith("()")}
    return safe | dict(extra or {})


async def start(command: Sequence[str], env: Mapping[str, str] | None, cwd: str | Path | None) -> Child:
    """Start *command* with pipes to its standard streams.

    Raises:
        ConnectFailed: There is no such command, or the system would not run it.
    """
    if sys.platform == "win32":  # pragma: no cover  # runs on Windows only
        from mcp_host.transports._process.windows import start_child
    else:
        from mcp_host.transports._process.posix import start_child
    try:
        return await start_child(command, environment(env), cwd)
    except (OSError, ValueError, subprocess.SubprocessError) as exc:
        raise ConnectFailed(f"cannot start {command[0]!r}: {exc}", may_have_run=False) from exc
