"""A child process on POSIX: a process group of its own, ended whole."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from anyio import CancelScope, current_time, move_on_after, open_process, sleep
from anyio.abc import Process

from mcp_host.transports._process import pipes
from mcp_host.transports._process.child import Input, Output

assert sys.platform != "win32"  # which tells a type checker that what follows is not for Windows

GRACE = 2.0  # seconds for each gentle step of a shutdown
POLL_INTERVAL = 0.02  # seconds between looks at a group whose leader is gone: no event tells when the last member ends


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
        while self._group_lives() and current_time() < end:  # noqa: ASYNC110  # no event to wait for: see GLANCE
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
            pipe = pipes.open_pipe()
            ours.callback(os.close, pipe[our_end])
            theirs.callback(os.close, pipe[1 - our_end])
            ends.append(pipe)
        (stdin, to_child), (from_child, stdout), (from_stderr, stderr) = ends
        with CancelScope(shield=True):  # a cancelled caller must not lose a process that nobody knows of
            process = await open_process(
                command, stdin=stdin, stdout=stdout, stderr=stderr, env=env, cwd=cwd, start_new_session=True
            )
        ours.pop_all()
        return PosixChild(process, pipes.WriteEnd(to_child), pipes.read_end(from_child), pipes.read_end(from_stderr))
