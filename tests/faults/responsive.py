"""Whether the event loop goes on while something takes its time."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from anyio import create_task_group, sleep

from tests.faults.measure import busy

TICK = 0.0001  # seconds: much less than what is measured takes on any machine


@dataclass
class Pulse:
    """Seconds of processor time, which do not depend on the load of the machine."""

    longest: float = 0.0
    """The longest time that the loop's thread worked while a task waited for its turn."""
    spent: float = 0.0
    """The time that this process worked, in all of its threads."""


@asynccontextmanager
async def pulse() -> AsyncIterator[Pulse]:
    """Measures, beside what runs inside, how long a task that only wants to tick has to wait for its turn."""
    measured = Pulse()

    async def tick() -> None:
        while True:
            before = time.thread_time()
            await sleep(TICK)
            measured.longest = max(measured.longest, time.thread_time() - before)

    with busy() as spent:
        async with create_task_group() as tasks:
            tasks.start_soon(tick)
            await sleep(2 * TICK)
            yield measured
            await sleep(2 * TICK)  # a tick that came too late comes now
            tasks.cancel_scope.cancel()
    measured.spent = spent()
