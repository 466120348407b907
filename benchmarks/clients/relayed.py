"""The bare client, with a relay before the server: ``python -m benchmarks.clients.relayed COMMAND``. It is the relay that is measured."""

from __future__ import annotations

import os
import sys
import time
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from statistics import quantiles

from benchmarks.clients import bare
from benchmarks.clients.drive import Driver, Model, Session, main, measure
from benchmarks.job import Measurement, Server

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

    async def _echo(self, session: Session) -> None:
        began = time.perf_counter()
        await super()._echo(session)
        self._seconds.append(time.perf_counter() - began)


def cpu_of_child() -> float:
    """Seconds of CPU that the only child of this process has used."""
    [pid] = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return time.clock_gettime(~int(pid) << 3 | CPU_OF_ALL_THREADS)  # the clock of clock_getcpuclockid(3)


def open(server: Server, model: Model | None) -> AbstractAsyncContextManager[Session]:
    return bare.open([*sys.argv[1:], *server], model)


if __name__ == "__main__":
    main(open, driver=RelayedDriver)
