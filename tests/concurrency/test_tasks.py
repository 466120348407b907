"""Tasks of handlers, and context managers that a task of their own enters."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import Context, ContextVar
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from mcp_host.concurrency.tasks import HandlerTasks, OwnedContext, spawn_in_scope


@pytest.mark.backends("asyncio")
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


@pytest.mark.backends("asyncio")
async def test_a_task_without_an_owner_is_not_made_by_the_applications_task_factory_either() -> None:
    def make(loop: asyncio.AbstractEventLoop, job: Any, **options: Any) -> asyncio.Task[Any]:
        raise AssertionError

    async def job() -> None:
        began.append(scope)

    began: list[anyio.CancelScope] = []
    loop = asyncio.get_running_loop()
    loop.set_task_factory(make)
    scope = spawn_in_scope(job)
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

    with anyio.fail_after(25):
        async with HandlerTasks.open() as tasks:
            tasks.start(job)
            tasks.start(job)
            await anyio.wait_all_tasks_blocked()

    assert ended == ["cleaned up", "cleaned up"]


async def test_waiting_until_no_job_runs() -> None:
    steps: list[str] = []
    go = anyio.Event()

    async def job() -> None:
        await go.wait()
        steps.append("ended")

    with anyio.fail_after(25):
        async with HandlerTasks.open() as tasks:
            await tasks.idle()
            tasks.start(job)
            tasks.start(job)
            async with anyio.create_task_group() as others:
                others.start_soon(tasks.idle)
                await anyio.wait_all_tasks_blocked()
                go.set()
            steps.append("idle")

    assert steps == ["ended", "ended", "idle"]


async def test_one_job_can_be_cancelled_and_none_starts_after_the_end() -> None:
    steps: list[str] = []

    async def job() -> None:
        steps.append("begun")
        await anyio.sleep_forever()

    async def late() -> None:
        await checkpoint()
        steps.append("never")

    with anyio.fail_after(25):
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
    with anyio.fail_after(25):
        async with HandlerTasks.open() as tasks:
            var.set("later")
            for context in (None, given, given, Context()):
                tasks.start(look, context)
            await anyio.wait_all_tasks_blocked()

    assert sorted(seen) == ["gathered", "given", "given", "none"]


async def test_an_error_while_leaving_an_owned_context_is_logged_and_not_raised(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @asynccontextmanager
    async def fails_to_close() -> AsyncIterator[int]:
        yield 5
        raise ZeroDivisionError

    owned = OwnedContext(fails_to_close())
    with anyio.fail_after(25), caplog.at_level("DEBUG", "mcp_host"):
        assert await owned.enter() == 5
        await owned.leave()

    assert [record.message for record in caplog.records] == ["closing a connection failed"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_ctrl_c_in_a_task_of_a_context_ends_the_context_and_interrupts_the_program(backend: str) -> None:
    """Trio raises it in the task that runs just then, and takes what leaves a system task for an error of its own."""
    left: list[str] = []

    async def interrupted() -> None:
        signal.raise_signal(signal.SIGINT)
        await checkpoint()

    @asynccontextmanager
    async def manager() -> AsyncIterator[None]:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(interrupted)
                yield
        finally:
            left.append("left")

    async def program() -> None:
        with anyio.fail_after(25):
            await OwnedContext(manager()).enter()
            await anyio.sleep_forever()

    with pytest.raises(KeyboardInterrupt):
        anyio.run(program, backend=backend)

    assert left == ["left"]
