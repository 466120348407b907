"""Shared work: one piece of work for all who want it, whoever of them is cancelled."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from functools import partial

import anyio
import pytest
from anyio import wait_all_tasks_blocked

from mcp_host.auth import AuthError
from mcp_host.auth.shared_work import GRACE, SharedWork
from mcp_host.concurrency import backends
from mcp_host.concurrency.owners import WorkOwner, owned_by
from mcp_host.errors import CallerError, ConnectTimeout
from tests.auth.world import SOON, soon
from tests.clock import with_fake_clock
from tests.extent import on_both

pytestmark = on_both


class Counted:
    """Work that ends when it may, and counts."""

    def __init__(self, hangs_in: SharedWork | None = None) -> None:
        self._shared = hangs_in
        self.begun = 0
        self.cancelled = 0
        self.reached = anyio.Event()
        self.may_end = anyio.Event()

    async def __call__(self) -> int:
        self.begun += 1
        try:
            async with nullcontext() if self._shared is None else self._shared.uncancelled():
                self.reached.set()
                await self.may_end.wait()
        except anyio.get_cancelled_exc_class():
            self.cancelled += 1
            raise
        return self.begun

    @staticmethod
    async def done() -> int:
        return 7


async def ask(shared: SharedWork, work: Callable[[], Awaitable[int]], results: list[int], key: str = "key") -> None:
    results.append(await shared.do(key, work))


async def test_many_callers_get_the_result_of_one_piece_of_work_although_the_one_that_began_is_cancelled() -> None:
    shared, work, results = SharedWork(), Counted(), list[int]()

    async with soon() as tasks:
        with anyio.CancelScope() as leader:
            async with anyio.create_task_group() as leading:
                leading.start_soon(ask, shared, work, results)
                await work.reached.wait()
                for _ in range(100):
                    tasks.start_soon(ask, shared, work, results)
                await wait_all_tasks_blocked()
                leader.cancel()
        assert shared.is_busy
        work.may_end.set()

    assert (results, work.begun, work.cancelled) == ([1] * 100, 1, 0)
    assert not shared.is_busy


async def test_a_failure_is_raised_to_all_and_the_next_caller_begins_anew() -> None:
    shared, failures, begun = SharedWork(), list[str](), 0

    async def fails() -> None:
        nonlocal begun
        begun += 1
        await wait_all_tasks_blocked()
        raise ValueError(f"failure {begun}")

    async def one() -> None:
        with pytest.raises(ValueError, match="failure") as caught:
            await shared.do("key", fails)
        failures.append(str(caught.value))

    with anyio.fail_after(SOON):
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(one)
        await one()

    assert failures == ["failure 1"] * 10 + ["failure 2"]


async def test_work_with_another_key_waits_for_its_turn() -> None:
    shared, first, second, results = SharedWork(), Counted(), Counted(), list[int]()

    async with soon() as tasks:
        tasks.start_soon(ask, shared, first, results, "first")
        await first.reached.wait()
        tasks.start_soon(ask, shared, second, results, "second")
        await wait_all_tasks_blocked()
        assert second.begun == 0
        first.may_end.set()
        await second.reached.wait()
        second.may_end.set()

    assert results == [1, 1]


async def test_without_a_caller_the_work_is_cancelled_and_the_next_caller_begins_anew() -> None:
    shared, work, results = SharedWork(), Counted(), list[int]()

    with anyio.fail_after(SOON):
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(ask, shared, work, results)
            await work.reached.wait()
            await wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        assert (work.cancelled, shared.is_busy) == (1, False)
        work.may_end.set()
        await ask(shared, work, results)

    assert results == [2]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("takes", [GRACE - 0.5, 3600.0])
def test_what_is_uncancelled_goes_on_and_its_last_caller_waits_a_little(backend: str, takes: float) -> None:
    async def main() -> None:
        shared, results, times = SharedWork(), list[int](), dict[str, float]()

        async def work() -> int:
            async with shared.uncancelled():
                times["reached"] = anyio.current_time()
                await anyio.sleep(takes)
                times["ended"] = anyio.current_time()
            await anyio.sleep(1)
            return 1

        with anyio.move_on_after(1) as scope:
            await ask(shared, work, results)
        times["left"] = anyio.current_time()
        assert scope.cancelled_caught
        await ask(shared, Counted.done, results)

        assert results == [7]
        assert times["left"] - times["reached"] == pytest.approx(min(takes, GRACE))
        assert times["ended"] - times["reached"] == pytest.approx(takes)

    name, options = with_fake_clock(backend)
    anyio.run(main, backend=name, backend_options=options)


async def leave_after(seconds: float, shared: SharedWork, work: Callable[[], Awaitable[int]]) -> None:
    """Ask for the *work*, and be cancelled after so many *seconds*, no later."""
    begun = anyio.current_time()
    with anyio.move_on_after(seconds):
        await ask(shared, work, [])
    assert anyio.current_time() == begun + seconds


async def seconds_to_leave(owner: WorkOwner, error: Exception | None = None) -> float:
    begun = anyio.current_time()
    with suppress(OSError):
        async with owner:
            if error is not None:
                raise error
    return anyio.current_time() - begun


@pytest.mark.fake_clock
@pytest.mark.parametrize("is_nested", [False, True])
async def test_what_is_uncancelled_goes_on_until_all_owners_have_left(is_nested: bool) -> None:
    inner, (first, second) = SharedWork(), (WorkOwner(), WorkOwner())
    work, outer = Counted(hangs_in=inner), SharedWork()
    shared, asked = (outer, partial(inner.do, "inner", work)) if is_nested else (inner, work)

    async with soon() as tasks:
        with owned_by({first}):
            tasks.start_soon(leave_after, 1, shared, asked)
        await work.reached.wait()
        with owned_by({second}):
            tasks.start_soon(leave_after, 4, shared, asked)
        await anyio.sleep(2)

        assert await seconds_to_leave(first) == 0
        await anyio.sleep(8)
        assert inner.is_busy
        assert await seconds_to_leave(second) == 0
        await wait_all_tasks_blocked()

    assert (work.cancelled, inner.is_busy, outer.is_busy) == (1, False, False)


@pytest.mark.fake_clock
async def test_an_owner_that_leaves_waits_a_little_unless_its_time_is_up(subtests: pytest.Subtests) -> None:
    for error, waited in ((None, GRACE - 1), (OSError("lost"), GRACE - 1), (ConnectTimeout("too long"), 0)):
        with subtests.test(repr(error)):
            shared, owner = SharedWork(), WorkOwner()
            work, results = Counted(hangs_in=shared), list[int]()
            with owned_by({owner}):
                await leave_after(1, shared, work)

            assert await seconds_to_leave(owner, error) == waited
            async with soon() as tasks:
                tasks.start_soon(ask, shared, work, results)  # the answer may come after all
                await wait_all_tasks_blocked()
                await anyio.sleep(GRACE)
                work.may_end.set()
            assert (work.begun, work.cancelled, results) == ((2, 1, [2]) if waited else (2, 0, [2]))


@pytest.mark.backends("asyncio")
async def test_a_caller_that_asyncio_itself_cancels_is_like_any_other(anyio_backend: str) -> None:
    shared, work, results = SharedWork(), Counted(), list[int]()
    tasks = [asyncio.ensure_future(ask(shared, work, results)) for _ in range(2)]
    await work.reached.wait()

    tasks[0].cancel()
    await asyncio.wait([tasks[0]])
    work.may_end.set()
    await tasks[1]

    assert (results, work.begun, work.cancelled) == ([1], 1, 0)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_event_loop_that_ends_during_the_work_leaves_nothing_for_the_next(backend: str) -> None:
    shared = SharedWork()

    async def ends_early() -> None:
        work = Counted(hangs_in=shared)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, shared, work, list[int]())
            await work.reached.wait()
            tasks.cancel_scope.cancel()

    name, options = with_fake_clock(backend)
    anyio.run(ends_early, backend=name, backend_options=options)

    other = "trio" if backend == "asyncio" else "asyncio"
    assert anyio.run(shared.do, "key", Counted.done, backend=other) == 7
    gc.collect()  # what was left would warn


async def test_work_of_another_event_loop_that_goes_on_is_an_error(anyio_backend: str) -> None:
    shared, work, results = SharedWork(), Counted(), list[int]()

    async def elsewhere() -> None:
        with pytest.raises(CallerError, match="make one for each thread"):
            await shared.do("key", work)

    async with soon() as tasks:
        tasks.start_soon(ask, shared, work, results)
        await work.reached.wait()
        await anyio.to_thread.run_sync(partial(anyio.run, elsewhere, backend=anyio_backend))
        work.may_end.set()

    assert results == [1]


def test_an_event_loop_that_was_closed_during_the_work_leaves_nothing_for_the_next() -> None:
    shared, work = SharedWork(), Counted()
    loop = asyncio.new_event_loop()

    async def left_behind() -> None:
        tasks.append(asyncio.ensure_future(ask(shared, work, [])))
        await work.reached.wait()

    tasks: list[asyncio.Future[None]] = []
    loop.run_until_complete(left_behind())
    loop.close()

    async def next_loop() -> None:
        assert not shared.is_busy
        with anyio.fail_after(SOON):
            assert await shared.do("key", Counted.done) == 7

    anyio.run(next_loop)
    backends.background_tasks.clear()  # no event loop ends it any more


async def fails(shared: SharedWork, work: Counted) -> None:
    with pytest.raises(AuthError, match="given up"):
        await shared.do("key", work)


async def test_work_is_done_instead_of_other_work() -> None:
    shared, work, results = SharedWork(), Counted(), list[int]()

    async with soon() as tasks:
        for _ in range(3):
            tasks.start_soon(fails, shared, work)
        await work.reached.wait()
        await ask_instead(shared, results)

    assert (results, work.begun, work.cancelled) == ([7], 1, 1)


async def test_work_is_done_instead_of_other_work_when_what_is_uncancelled_has_ended() -> None:
    shared, results = SharedWork(), list[int]()
    held = Counted(shared)

    async with soon() as tasks:
        tasks.start_soon(fails, shared, held)
        await held.reached.wait()
        tasks.start_soon(ask_instead, shared, results)
        await wait_all_tasks_blocked()
        assert results == []
        held.may_end.set()

    assert results == [7]


async def ask_instead(shared: SharedWork, results: list[int]) -> None:
    results.append(await shared.do_instead("instead", Counted.done, AuthError("given up")))


async def test_work_that_is_done_instead_of_the_work_that_wants_it_ends_both() -> None:
    shared = SharedWork()

    async def wants_itself() -> int:
        return await shared.do_instead("instead", Counted.done, AuthError("given up"))

    with anyio.fail_after(SOON):
        with pytest.raises(AuthError, match="given up"):
            await shared.do("key", wants_itself)
        assert await shared.do("key", Counted.done) == 7


@pytest.mark.backends("asyncio")
async def test_work_that_awaits_what_was_cancelled_has_failed(anyio_backend: str) -> None:
    shared = SharedWork()

    async def awaits_it() -> int:
        cancelled: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        cancelled.cancel()
        return await cancelled

    with anyio.fail_after(SOON), pytest.raises(AuthError, match="a function of the application awaited a task"):
        await shared.do("key", awaits_it)
