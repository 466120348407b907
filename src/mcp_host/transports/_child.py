"""A server as a child process: what it inherits, and how all of it is ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from anyio import CancelScope, current_time, move_on_after, open_process, sleep
from anyio.abc import Process

from mcp_host.errors import ConnectFailed
from mcp_host.transports._outbox import Pipe
from mcp_host.transports._pipes import WriteEnd, open_pipe, read_end

if sys.platform == "win32":
    INHERITED = (
        *("APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATH", "PATHEXT", "PROCESSOR_ARCHITECTURE"),
        *("PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE"),
    )
else:
    INHERITED = ("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
"""The only variables of ours that a server gets. Any other may be a secret, and servers are other people's code."""

GRACE = 2.0  # seconds for each gentle step of a shutdown
GLANCE = 0.02  # seconds between looks at a group whose leader is gone: no event tells when the last member ends


class Input(Pipe, Protocol):
    async def close(self) -> None: ...


class Output(Protocol):
    async def read(self) -> bytes:
        """The next bytes; empty at the end."""
        ...

    async def close(self) -> None: ...


def environment(extra: Mapping[str, str] | None) -> dict[str, str]:
    """The environment of a server: the safe few of ours, then *extra*."""
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    # Some shells export functions as variables, to be run by whichever shell starts next.
    safe = {name: value for name, value in inherited.items() if not value.startswith("()")}
    return safe | dict(extra or {})


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
        await self.stdout.close()
        await self.stderr.close()

    async def exits_within(self, seconds: float) -> bool:
        with move_on_after(seconds):
            await self.process.wait()
        return self.process.returncode is not None

    async def _group_ends_within(self, seconds: float) -> None:
        end = current_time() + seconds
        await self.exits_within(seconds)
        while self._group_lives() and current_time() < end:  # noqa: ASYNC110  # no event to wait for: see GLANCE
            await sleep(GLANCE)

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


async def start(command: Sequence[str], env: Mapping[str, str] | None, cwd: str | Path | None) -> Child:
    """Start *command* with pipes to its standard streams.

    Raises:
        ConnectFailed: There is no such command, or the system would not run it.
    """
    variables = environment(env)
    try:
        if sys.platform == "win32":
            from mcp_host.transports._windows import start_on_windows

            return await start_on_windows(command, variables, cwd)
        return await _start(command, variables, cwd)
    except (OSError, ValueError, subprocess.SubprocessError) as exc:
        raise ConnectFailed(f"cannot start {command[0]!r}: {exc}", may_have_run=False) from exc


async def _start(command: Sequence[str], env: Mapping[str, str], cwd: str | Path | None) -> Child:
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
