"""The operations that every Python client performs. Each result is checked."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Protocol

from benchmarks.job import NAME, Job, Measurement, Server, text_of, tool_names


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


Model = Callable[[int, int], str]
"""The model: takes the numbers of tools and of messages in a sampling request, and returns its answer."""

Open = Callable[[Server, Model | None], AbstractAsyncContextManager[Session]]
"""Connects to a server. With a model, the client offers sampling."""


class Group(Protocol):
    """Connections to several servers. The name of a tool has that of its server in it."""

    async def call(self, tool: str, arguments: dict[str, object]) -> str:
        """Call a tool of any server, and return the text of its result."""

    async def list_tools(self) -> list[str]:
        """The names of the tools of all servers."""


OpenGroup = Callable[[Mapping[str, Server]], AbstractAsyncContextManager[Group]]

ANSWER = "It is Paris. I was given %d tools and %d messages."
PAGE = os.sysconf("SC_PAGE_SIZE")
AT_ONCE = 64  # connections that are opened at the same time; the others wait, as in a host


def main(open: Open, open_group: OpenGroup | None = None, driver: type[Driver] | None = None) -> None:
    """Do the jobs that come on stdin, one a line, and print a measurement for each."""
    driver = driver or Driver
    for line in sys.stdin:
        print(json.dumps(asyncio.run(driver(open, Job(*json.loads(line)), open_group).run())), flush=True)


class Driver:
    """The operations of one job."""

    def __init__(self, open: Open, job: Job, open_group: OpenGroup | None = None) -> None:
        self._open = open
        self._open_group = open_group
        self._job = job
        self._numbers = count()
        self._sampled = 0

    def resident(self) -> int:
        """The size of the process that is measured, in bytes."""
        return resident()

    async def run(self) -> Measurement:
        runs = {
            "connect": self._run_connects,
            "sessions": self._run_sessions,
            "group": self._run_groups,
            "start": self._run_start,
        }
        return await runs.get(self._job.kind, self._run_calls)()

    async def _run_calls(self) -> Measurement:
        """Operations in one session."""
        async with self.connected() as repeat:
            await repeat(self._job.warm_up)
            return await measure(lambda: repeat(self._job.operations))

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Callable[[int], Awaitable[None]]]:
        """Open a session. Gives a function that does the job's operation in it so many times."""
        job = self._job
        operation: Callable[[Session], Awaitable[None]] = getattr(self, f"_{job.kind}")
        async with self._open(job.server, self._model if job.kind == "sample" else None) as session:
            yield partial(self._repeat, operation, session)

    async def _repeat(self, operation: Callable[[Session], Awaitable[None]], session: Session, times: int) -> None:
        left = iter(range(times))

        async def work() -> None:
            for _ in left:
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

    async def _burst(self, session: Session) -> None:
        """As many calls at once as the job's size."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._job.size):
                group.create_task(self._echo(session))

    async def _sample(self, session: Session) -> None:
        """One call, with as many sampling requests as the job's size."""
        job, before = self._job, self._sampled
        arguments: dict[str, object] = {"tools": job.tools, "messages": job.messages, "times": job.size}
        expect(await session.call("ask", arguments), ANSWER % (job.tools, job.messages))
        expect(self._sampled - before, job.size)

    def _model(self, tools: int, messages: int) -> str:
        self._sampled += 1
        return ANSWER % (tools, messages)

    async def _progress(self, session: Session) -> None:
        """One call, with as many progress notifications as the job's size."""
        total = self._job.size
        reports: list[float] = []
        expect(await session.call("count", {"to": total}, reports.append), str(total))
        expect(len(reports), total)
        expect(reports, sorted(reports))

    async def _tools(self, session: Session) -> None:
        expect(await session.list_tools(), tool_names(self._job.tools))

    async def _text(self, session: Session) -> None:
        expect(await session.call("text", {"size": self._job.size}), text_of(self._job.size))

    async def _run_connects(self) -> Measurement:
        """Connections one after another, each closed before the next."""

        async def connect(times: int) -> None:
            for _ in range(times):
                async with self._open(self._job.server, None) as session:
                    expect(session.server, NAME)

        await connect(self._job.warm_up)
        return await measure(lambda: connect(self._job.operations))

    async def _run_groups(self) -> Measurement:
        """Connections to several servers at once: list the tools of all, call one of each, close."""
        assert self._open_group is not None, "variants have no groups"
        open_group, servers = self._open_group, self._job.servers or {}

        async def use(times: int) -> None:
            for _ in range(times):
                async with open_group(servers) as group:
                    names = await group.list_tools()
                    expect(len({*names}), self._job.tools * len(servers))
                    callable_names = [name for name in names if name.endswith("echo")]
                    expect(len(callable_names), len(servers))
                    for name in callable_names:
                        words = f"Hello, {next(self._numbers)}!"
                        expect(await group.call(name, {"text": words}), words)

        await use(self._job.warm_up)
        return await measure(lambda: use(self._job.operations))

    async def _run_start(self) -> Measurement:
        """Connect and make one call; counts all that this process did before: the interpreter, imports."""
        async with self._open(self._job.server, None) as session:
            await self._echo(session)
            return Measurement(cpu=time.process_time(), wall=age(), memory=resident())

    async def _run_sessions(self) -> Measurement:
        """Connections that are all open at once, and what they add to the process."""
        await self._hold(self._job.warm_up)
        gc.collect()
        before = self.resident()
        spent = await self._hold(self._job.operations)
        return {**spent, "memory": spent["memory"] - before}

    async def _hold(self, sessions: int) -> Measurement:
        """Open and close sessions. Reading the size of the process in between is not timed."""
        ready = asyncio.Barrier(sessions + 1)
        done = asyncio.Event()
        opening = asyncio.Semaphore(AT_ONCE)

        async def hold() -> None:
            async with AsyncExitStack() as stack:
                async with opening:
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
            held, looked = self.resident(), now()
            done.set()
        clocks = zip(start, opened, looked, now(), strict=True)
        cpu, wall = (end - begin - (after - before) for begin, before, after, end in clocks)
        return Measurement(cpu=cpu, wall=wall, memory=held)


def now() -> tuple[float, float]:
    """Seconds of CPU, and by the clock."""
    return time.process_time(), time.perf_counter()


async def measure(work: Callable[[], Awaitable[None]]) -> Measurement:
    gc.collect()
    cpu, wall = now()
    await work()
    after = now()
    return Measurement(cpu=after[0] - cpu, wall=after[1] - wall, memory=resident())


def age() -> float:
    """Seconds since this process started, to a hundredth."""
    started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])  # ticks after the system did
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")


def resident(pid: int | str = "self") -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE


def expect(got: object, expected: object) -> None:
    """Fail the job if the client returns anything but what the server sent."""
    if got != expected:
        raise AssertionError(f"got {str(got)[:60]!r} instead of {str(expected)[:60]!r}")
