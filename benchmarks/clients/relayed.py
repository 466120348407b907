"""The bare client, with a relay before the server: ``python -m benchmarks.clients.relayed COMMAND``. It is the relay that is measured."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from statistics import quantiles

from benchmarks.clients import bare, ours
from benchmarks.clients.drive import Driver, Model, Session, main, measure, resident
from benchmarks.job import Measurement, Server
from mcp_host import Client

CPU_OF_ALL_THREADS = 2  # CPUCLOCK_SCHED of Linux, in the clock's number


class RelayedDriver(Driver):
    async def _run_calls(self) -> Measurement:
        self._seconds: list[float] = []
        async with self.connected() as repeat:
            await repeat(self._job.warm_up)
            self._seconds.clear()
            before = cpu_of_child()
            spent = await measure(lambda: repeat(self._job.operations))
            return {**spent, "cpu": cpu_of_child() - before, "latency": quantiles(self._seconds, n=100)[-1]}

    async def _run_sessions(self) -> Measurement:
        """Sessions over HTTP of our client, which keeps a stream open in each as most hosts do."""
        command = [*sys.argv[1:-1], "--http", "0", str(self._job.server)]
        relay = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert relay.stdout is not None
        url = (await relay.stdout.readline()).decode().strip()
        self._job, self._open = self._job._replace(server=url), open_session
        spent = await super()._run_sessions()
        relay.terminate()
        await relay.wait()
        return spent

    def resident(self) -> int:
        return resident(child())

    async def _echo(self, session: Session) -> None:
        began = time.perf_counter()
        await super()._echo(session)
        self._seconds.append(time.perf_counter() - began)


def cpu_of_child() -> float:
    """Seconds of CPU that the only child of this process has used."""
    return time.clock_gettime(~child() << 3 | CPU_OF_ALL_THREADS)  # the clock of clock_getcpuclockid(3)


def child() -> int:
    """The id of the only child of this process."""
    [pid] = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return int(pid)


@asynccontextmanager
async def open_session(server: Server, model: Model | None) -> AsyncIterator[Session]:
    async with Client(server, era="legacy") as client:  # by default it speaks 2026-07-28, which has no sessions
        yield ours.Session(client)


def open(server: Server, model: Model | None) -> AbstractAsyncContextManager[Session]:
    return bare.open([*sys.argv[1:], *server], model)


if __name__ == "__main__":
    main(open, driver=RelayedDriver)
