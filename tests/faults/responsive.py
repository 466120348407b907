"""Whether the event loop goes on while something takes its time."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from anyio import create_task_group, sleep

TICK = 0.005  # seconds


@dataclass
class Pulse:
    """How long the loop stood still at most, and how long all of it took, in seconds."""

    longest: float = 0.0
    took: float = 0.0


@asynccontextmanager
async def pulse() -> AsyncIterator[Pulse]:
    """Measures, beside what runs inside, how long a task that only wants to tick has to wait for its turn."""
    measured = Pulse()

    async def tick() -> None:
        while True:
            before = time.perf_counter()
            await sleep(TICK)
            measured.longest = max(measured.longest, time.perf_counter() - before - TICK)

    begun = time.perf_counter()
    async with create_task_group() as tasks:
        tasks.start_soon(tick)
        await sleep(2 * TICK)
        yield measured
        await sleep(2 * TICK)  # a tick that came too late comes now
        measured.took = time.perf_counter() - begun
        tasks.cancel_scope.cancel()
