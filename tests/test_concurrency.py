"""A crew's jobs, and one timer for many who may take equally long."""

from __future__ import annotations

import asyncio
from contextvars import Context, ContextVar
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from mcp_host.concurrency import HandlerTasks, SharedTimeout


@pytest.mark.fake_clock
async def test_everyone_inside_a_time_limit_is_cancelled_when_their_own_time_is_up() -> None:
    limit = SharedTimeout(0.3)
    outcomes: list[str] = []

    async def take_too_long(name: str) -> None:
        with limit.held() as inside:
            await anyio.sleep_forever()
        outcomes.append(f"{name} {inside.over}")

    async def be_in_time() -> None:
        with limit.held() as inside:
            await checkpoint()
        outcomes.append(f"in time {inside.over}")

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(take_too_long, "one")
            tasks.start_soon(be_in_time)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(take_too_long, "two")

    assert outcomes[0] == "in time False"
    assert set(outcomes[1:]) == {"one True", "two True"}  # trio wakes at random who is due at once


def test_a_time_limit_serves_one_event_loop_after_another(anyio_backend_name: str) -> None:
    limit = SharedTimeout(0.3)
    caught = []

    async def once() -> None:
        with anyio.fail_after(5), limit.held() as inside:
            await anyio.sleep_forever()
        caught.append(inside.over)

    for _ in range(2):
        anyio.run(once, backend=anyio_backend_name)

    assert caught == [True, True]


@pytest.mark.parametrize("seconds", [0.0, float("inf")], ids=["none", "for ever"])
async def test_no_time_and_all_the_time_there_is_are_limits_too(seconds: float) -> None:
    with SharedTimeout(seconds).held() as inside:
        await checkpoint()

    assert inside.over == (seconds == 0)


@pytest.mark.fake_clock
async def test_a_scope_that_its_owner_lends_is_cancelled_in_time_and_given_back_unbounded() -> None:
    with anyio.fail_after(5), anyio.CancelScope() as scope:
        with SharedTimeout(1000).held(scope) as inside:
            await checkpoint()
        assert not inside.over
        assert scope.deadline == float("inf")
        with SharedTimeout(0.05).held(scope) as inside:
            await anyio.sleep_forever()
        assert inside.over

    assert scope.cancel_called


@pytest.mark.fake_clock
@pytest.mark.parametrize("lent", [False, True], ids=["its own scope", "a scope that is lent"])
async def test_a_time_limit_takes_nothing_for_its_own_end_but_cancellations_in_groups_or_not(lent: bool) -> None:
    async def end_with(*errors: BaseException) -> None:
        with anyio.CancelScope() as scope:
            with SharedTimeout(0.05).held(scope if lent else None):
                try:
                    await anyio.sleep_forever()
                except anyio.get_cancelled_exc_class() as cancelled:
                    raise BaseExceptionGroup("several", [cancelled, *errors]) from None
            went_on.append("went on")

    went_on: list[str] = []
    with anyio.fail_after(5):
        await end_with()
        with pytest.raises(BaseExceptionGroup) as caught:
            await end_with(ZeroDivisionError())

    assert went_on == ["went on"]
    assert caught.group_contains(ZeroDivisionError)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_job_is_not_made_by_the_applications_task_factory() -> None:
    """Python 3.12 has an eager one: by it a job would begin before anybody has its scope."""

    def make(loop: asyncio.AbstractEventLoop, job: Any, **options: Any) -> asyncio.Task[Any]:
        raise AssertionError

    async def job() -> None:
        began.append(scope)

    began: list[anyio.CancelScope] = []
    async with HandlerTasks.gathered() as crew:
        loop = asyncio.get_running_loop()
        loop.set_task_factory(make)
        scope = crew.start(job)
        loop.set_task_factory(None)
        await anyio.wait_all_tasks_blocked()

    assert began == [scope]


async def test_leaving_a_crew_cancels_its_jobs_and_waits_for_them() -> None:
    ended: list[str] = []

    async def job() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await checkpoint()
            ended.append("cleaned up")

    with anyio.fail_after(5):
        async with HandlerTasks.gathered() as crew:
            crew.start(job)
            crew.start(job)
            await anyio.wait_all_tasks_blocked()

    assert ended == ["cleaned up", "cleaned up"]


async def test_one_job_can_be_cancelled_and_none_starts_after_the_end() -> None:
    steps: list[str] = []

    async def job() -> None:
        steps.append("begun")
        await anyio.sleep_forever()

    async def late() -> None:
        await checkpoint()
        steps.append("never")

    with anyio.fail_after(5):
        async with HandlerTasks.gathered() as crew:
            scope = crew.start(job)
            await anyio.wait_all_tasks_blocked()
            scope.cancel()
            await anyio.wait_all_tasks_blocked()
            assert scope.cancelled_caught
            crew.cancel()
            crew.start(late)
            with anyio.CancelScope(shield=True):  # to leave the crew would cancel it once more
                await anyio.wait_all_tasks_blocked()

    assert steps == ["begun"]


async def test_a_job_gets_a_copy_of_the_context_it_is_given_even_of_an_empty_one() -> None:
    var: ContextVar[str] = ContextVar("var", default="none")
    seen: list[str] = []

    async def look() -> None:
        seen.append(var.get())
        var.set("of this job alone")

    given = Context()
    given.run(var.set, "given")
    var.set("gathered")
    with anyio.fail_after(5):
        async with HandlerTasks.gathered() as crew:
            var.set("later")
            for context in (None, given, given, Context()):
                crew.start(look, context)
            await anyio.wait_all_tasks_blocked()

    assert sorted(seen) == ["gathered", "given", "given", "none"]
