"""What pauses while a person is asked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import anyio

from mcp_host.concurrency.asking import JobEnd, asking_person, paused_by_asking


async def test_those_who_wait_for_a_job_pause_while_it_asks_a_person() -> None:
    """Also one who comes meanwhile, and none who has left."""
    end, may_end = JobEnd(), anyio.Event()
    paused: dict[str, list[bool]] = {}

    @contextmanager
    def pause(name: str) -> Iterator[None]:
        paused.setdefault(name, []).append(True)
        yield
        paused[name].append(False)

    async def wait(name: str) -> None:
        with paused_by_asking(partial(pause, name)):
            await end.wait()

    async def job() -> None:
        with end.of_job():
            with asking_person():
                await may_end.wait()
            await anyio.wait_all_tasks_blocked()
            assert paused == {"first": [True, False], "later": [True, False]}
            end.set()

    with anyio.fail_after(25):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait, "first")
            async with anyio.create_task_group() as leaving:
                leaving.start_soon(wait, "left")
                await anyio.wait_all_tasks_blocked()
                leaving.cancel_scope.cancel()
            with paused_by_asking(partial(pause, "the one that began it")):
                tasks.start_soon(job)
            await anyio.wait_all_tasks_blocked()
            assert paused == {"first": [True]}
            tasks.start_soon(wait, "later")
            await anyio.wait_all_tasks_blocked()
            may_end.set()

    assert paused == {"first": [True, False], "later": [True, False]}
