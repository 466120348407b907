"""What every Python client is put through: the same operations, each of whose outcomes is checked."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from itertools import count
from pathlib import Path
from typing import Protocol

from benchmarks.job import NAME, Job, Spent, names_of, text_of


class Session(Protocol):
    """One connection of the client that is measured."""

    @property
    def server(self) -> str:
        """What the server calls itself."""

    async def call(
        self, tool: str, arguments: dict[str, object], on_progress: Callable[[float], None] | None = None
    ) -> str:
        """Call a tool, and return the text of its result."""

    async def list_tools(self) -> list[str]:
        """The names of all tools."""


Think = Callable[[int], str]
"""The model: the number of tools on offer, and what it says."""

Open = Callable[[str | list[str], Think | None], AbstractAsyncContextManager[Session]]
"""Connects to a URL or to a command, with a model if sampling is to be offered."""

THOUGHT = "It is Paris, and I was lent %d tools."
PAGE = os.sysconf("SC_PAGE_SIZE")
AT_ONCE = 64  # connections that are being opened; more than that waits, as a host would


def main(open: Open) -> None:
    """Do the jobs that come on stdin, one a line, and print what each took."""
    for line in sys.stdin:
        gc.collect()
        print(json.dumps(asyncio.run(Driver(open, Job(*json.loads(line))).run())), flush=True)


class Driver:
    """The operations of one job."""

    def __init__(self, open: Open, job: Job) -> None:
        self._open = open
        self._job = job
        self._numbers = count()
        self._thoughts = 0

    async def run(self) -> Spent:
        return await {"connect": self._connecting, "sessions": self._holding}.get(self._job.kind, self._asking)()

    async def _asking(self) -> Spent:
        """Operations of one session."""
        job = self._job
        operation: Callable[[Session], Awaitable[None]] = getattr(self, f"_{job.kind}")
        async with self._open(job.server, self._think if job.kind == "sample" else None) as session:
            await self._repeat(operation, session, job.warm_up)
            return await measured(lambda: self._repeat(operation, session, job.operations))

    async def _repeat(self, operation: Callable[[Session], Awaitable[None]], session: Session, times: int) -> None:
        turns = iter(range(times))

        async def work() -> None:
            for _ in turns:
                await operation(session)

        if self._job.in_flight == 1:
            await work()
            return
        async with asyncio.TaskGroup() as group:
            for _ in range(self._job.in_flight):
                group.create_task(work())

    async def _echo(self, session: Session) -> None:
        words = f"Hello, {next(self._numbers)}!"
        expect(await session.call("echo", {"text": words}), words)

    async def _sample(self, session: Session) -> None:
        """One call that has the model asked as many times as the job has in its size."""
        before = self._thoughts
        asked: dict[str, object] = {"tools": self._job.tools, "times": self._job.size}
        expect(await session.call("ask", asked), THOUGHT % self._job.tools)
        expect(self._thoughts - before, self._job.size)

    def _think(self, tools: int) -> str:
        self._thoughts += 1
        return THOUGHT % tools

    async def _progress(self, session: Session) -> None:
        """One call with as many reports as the job has in its size."""
        total = self._job.size
        reports: list[float] = []
        expect(await session.call("count", {"to": total}, reports.append), str(total))
        expect(len(reports), total)
        expect(reports, sorted(reports))

    async def _tools(self, session: Session) -> None:
        expect(await session.list_tools(), names_of(self._job.tools))

    async def _text(self, session: Session) -> None:
        expect(await session.call("text", {"size": self._job.size}), text_of(self._job.size))

    async def _connecting(self) -> Spent:
        """Connections one after another, each closed before the next."""

        async def connect(times: int) -> None:
            for _ in range(times):
                async with self._open(self._job.server, None) as session:
                    expect(session.server, NAME)

        await connect(self._job.warm_up)
        return await measured(lambda: connect(self._job.operations))

    async def _holding(self) -> Spent:
        """Connections that are all open at once, and what they add to the process."""
        await self._hold(self._job.warm_up)
        gc.collect()
        before = resident()
        spent = await self._hold(self._job.operations)
        return {**spent, "memory": spent["memory"] - before}

    async def _hold(self, sessions: int) -> Spent:
        """Open them, see how large the process is, which is not timed, and close them."""
        ready = asyncio.Barrier(sessions + 1)
        done = asyncio.Event()
        places = asyncio.Semaphore(AT_ONCE)

        async def hold() -> None:
            async with AsyncExitStack() as stack:
                async with places:
                    session = await stack.enter_async_context(self._open(self._job.server, None))
                    expect(session.server, NAME)
                await ready.wait()
                await done.wait()

        start = now()
        async with asyncio.TaskGroup() as group:
            for _ in range(sessions):
                group.create_task(hold())
            await ready.wait()
            opened = now()
            gc.collect()
            held, looked = resident(), now()
            done.set()
        clocks = zip(start, opened, looked, now(), strict=True)
        cpu, wall = (end - begin - (after - before) for begin, before, after, end in clocks)
        return Spent(cpu=cpu, wall=wall, memory=held)


def now() -> tuple[float, float]:
    """Seconds of CPU, and by the clock."""
    return time.process_time(), time.perf_counter()


async def measured(work: Callable[[], Awaitable[None]]) -> Spent:
    cpu, wall = now()
    await work()
    after = now()
    return Spent(cpu=after[0] - cpu, wall=after[1] - wall, memory=resident())


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def expect(got: object, wanted: object) -> None:
    """What a client hands over has to be what the server sent, or the run counts for nothing."""
    if got != wanted:
        raise AssertionError(f"got {str(got)[:60]!r} instead of {str(wanted)[:60]!r}")
