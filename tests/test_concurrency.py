"""Handler tasks, the ends of jobs, one timer for many deadlines, coroutines in other contexts, and pipes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import Context, ContextVar
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from mcp_host._backends import Loop
from mcp_host.concurrency import Alarm, HandlerTasks, OwnedContext, TimeoutScope, in_context


@pytest.mark.fake_clock
async def test_each_of_the_waits_that_share_an_alarm_is_cancelled_at_its_own_deadline() -> None:
    alarm = Alarm(Loop.running())
    outcomes: list[str] = []

    async def take_too_long(name: str, seconds: float) -> None:
        began = anyio.current_time()
        with TimeoutScope(alarm, began + seconds) as timeout:
            await anyio.sleep_forever()
        outcomes.append(f"{name} {timeout.expired} {anyio.current_time() - began:.1f}")

    async def be_in_time() -> None:
        with TimeoutScope(alarm, anyio.current_time() + 0.3) as timeout:
            await checkpoint()
        outcomes.append(f"in time {timeout.expired}")

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(take_too_long, "long", 0.5)
            tasks.start_soon(be_in_time)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(take_too_long, "short", 0.2)

    assert outcomes == ["in time False", "short True 0.2", "long True 0.5"]
    assert alarm.waits == set()


@pytest.mark.fake_clock
async def test_a_stopped_alarm_never_rings_again() -> None:
    alarm = Alarm(Loop.running())

    with anyio.fail_after(5), TimeoutScope(alarm, anyio.current_time() + 0.1) as before:
        alarm.stop()
        with TimeoutScope(alarm, anyio.current_time() + 0.1) as after:
            await anyio.sleep(1)

    assert (before.expired, after.expired) == (False, False)


async def test_a_deadline_in_the_past_cancels_at_once_and_an_infinite_one_never() -> None:
    alarm = Alarm(Loop.running())

    with TimeoutScope(alarm, anyio.current_time()) as past:
        await checkpoint()
    with TimeoutScope(alarm, float("inf")) as never:
        await checkpoint()

    assert (past.expired, never.expired) == (True, False)
    assert alarm.next == float("inf")


@pytest.mark.fake_clock
async def test_a_timeout_within_a_given_scope_cancels_that_scope() -> None:
    alarm = Alarm(Loop.running())
    with anyio.fail_after(5), anyio.CancelScope() as scope:
        with TimeoutScope(alarm, anyio.current_time() + 1000, scope) as timeout:
            await checkpoint()
        assert not timeout.expired
        with TimeoutScope(alarm, anyio.current_time() + 0.05, scope) as timeout:
            await anyio.sleep_forever()
        assert timeout.expired

    assert scope.cancel_called


@pytest.mark.fake_clock
@pytest.mark.parametrize("within", [False, True], ids=["its own scope", "a given scope"])
async def test_a_timeout_catches_only_cancellations_grouped_or_not(within: bool) -> None:
    alarm = Alarm(Loop.running())

    async def end_with(*errors: BaseException) -> None:
        with anyio.CancelScope() as scope:
            with TimeoutScope(alarm, anyio.current_time() + 0.05, scope if within else None):
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
async def test_a_handler_task_is_not_made_by_the_applications_task_factory() -> None:
    """The eager one of Python 3.12 would run the job before `start` has returned its scope."""

    def make(loop: asyncio.AbstractEventLoop, job: Any, **options: Any) -> asyncio.Task[Any]:
        raise AssertionError

    async def job() -> None:
        began.append(scope)

    began: list[anyio.CancelScope] = []
    async with HandlerTasks.open() as tasks:
        loop = asyncio.get_running_loop()
        loop.set_task_factory(make)
        scope = tasks.start(job)
        loop.set_task_factory(None)
        await anyio.wait_all_tasks_blocked()

    assert began == [scope]


async def test_leaving_cancels_the_jobs_and_waits_for_them() -> None:
    ended: list[str] = []

    async def job() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await checkpoint()
            ended.append("cleaned up")

    with anyio.fail_after(5):
        async with HandlerTasks.open() as tasks:
            tasks.start(job)
            tasks.start(job)
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
        async with HandlerTasks.open() as tasks:
            scope = tasks.start(job)
            await anyio.wait_all_tasks_blocked()
            scope.cancel()
            await anyio.wait_all_tasks_blocked()
            assert scope.cancelled_caught
            tasks.cancel()
            tasks.start(late)
            with anyio.CancelScope(shield=True):  # leaving cancels it once more
                await anyio.wait_all_tasks_blocked()

    assert steps == ["begun"]


async def test_a_job_runs_in_a_copy_of_the_given_context_even_of_an_empty_one() -> None:
    var: ContextVar[str] = ContextVar("var", default="none")
    seen: list[str] = []

    async def look() -> None:
        seen.append(var.get())
        var.set("of this job alone")

    given = Context()
    given.run(var.set, "given")
    var.set("gathered")
    with anyio.fail_after(5):
        async with HandlerTasks.open() as tasks:
            var.set("later")
            for context in (None, given, given, Context()):
                tasks.start(look, context)
            await anyio.wait_all_tasks_blocked()

    assert sorted(seen) == ["gathered", "given", "given", "none"]


async def test_a_coroutine_runs_in_another_context_within_the_task_that_awaits_it() -> None:
    var: ContextVar[str] = ContextVar("var", default="none")

    async def look() -> list[str]:
        seen = [var.get()]
        await checkpoint()
        var.set("changed")
        await checkpoint()
        return [*seen, var.get()]

    context = Context()
    context.run(var.set, "given")

    assert await in_context(context, look()) == ["given", "changed"]
    assert (var.get(), context[var]) == ("none", "changed")


async def test_errors_and_cancellations_pass_through_another_context() -> None:
    async def fail() -> None:
        await checkpoint()
        raise ZeroDivisionError

    async def wait() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            steps.append("cancelled")

    steps: list[str] = []
    with pytest.raises(ZeroDivisionError):
        await in_context(Context(), fail())
    with anyio.move_on_after(0) as scope:
        await in_context(Context(), wait())

    assert scope.cancelled_caught
    assert steps == ["cancelled"]


async def test_an_error_while_leaving_an_owned_context_is_logged_and_not_raised(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @asynccontextmanager
    async def fails_to_close() -> AsyncIterator[int]:
        yield 5
        raise ZeroDivisionError

    owned = OwnedContext(fails_to_close())
    with anyio.fail_after(5), caplog.at_level("DEBUG", "mcp_host"):
        assert await owned.enter() == 5
        await owned.leave()

    assert [record.message for record in caplog.records] == ["closing a connection failed"]


async def test_a_callback_may_close_what_it_reads_and_be_done() -> None:
    loop = Loop.running()
    reading, writing = os.pipe()
    os.write(writing, b"data")

    def closes() -> bool:
        loop.notify_closing(reading)
        os.close(reading)
        return True

    with anyio.fail_after(10):
        await loop.when_readable(reading, closes)
    os.close(writing)
