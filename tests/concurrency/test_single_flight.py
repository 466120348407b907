"""One job for all callers that need its result."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import anyio

from mcp_host.concurrency.single_flight import SingleFlight


async def test_callers_wait_for_the_job_that_runs_and_not_where_none_does() -> None:
    begun: list[str] = []

    async def job() -> None:
        begun.append("job")
        await anyio.wait_all_tasks_blocked()

    def spawn(run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        tasks.start_soon(run)

    with anyio.fail_after(25):
        async with anyio.create_task_group() as tasks:
            flight = SingleFlight(spawn)
            await flight.wait()
            flight.end(None)
            for _ in range(2):
                for _ in range(3):
                    flight.begin(job)
                await flight.wait()
                assert flight.flight is None

    assert begun == ["job", "job"]
