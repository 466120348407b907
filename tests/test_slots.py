"""Slots in front of the model: in order, fair, and never lost."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial

import anyio
import pytest
from anyio import CancelScope, Event, create_task_group, fail_after, to_thread, wait_all_tasks_blocked
from anyio.abc import TaskGroup

from mcp_host.slots import FairSemaphore, QueueFull, SemaphoreShare, Slot
from tests.extent import on_both

pytestmark = on_both


def share_of(slots: int, *, queue_space: float = 8) -> SemaphoreShare:
    """The only share of a semaphore with so many slots."""
    return SemaphoreShare(FairSemaphore(slots), free=slots, queue_space=queue_space)


@asynccontextmanager
async def soon() -> AsyncIterator[TaskGroup]:
    """Tasks that end within five seconds, or fail."""
    with fail_after(25):
        async with create_task_group() as tasks:
            yield tasks


async def acquire(share: SemaphoreShare) -> Slot:
    slot = Slot(share)
    await slot.acquire()
    return slot


class Handlers:
    """Handlers with a slot that do what a test tells them to."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self.awaiting = 0
        self._calls: dict[str, Event] = {}
        self._ends: dict[str, Event] = {}
        self._works: dict[str, Event] = {}

    async def handle(
        self, name: str, share: SemaphoreShare, *, calls: int = 1, scope: CancelScope | None = None
    ) -> None:
        """Begin, await so many calls side by side, work on, and end."""
        slot = Slot(share)
        self._calls |= {f"{name}{number}": Event() for number in range(calls)}
        self._ends[name], self._works[name] = Event(), Event()
        await slot.acquire()
        with scope or CancelScope():
            async with create_task_group() as tasks:
                for number in range(calls):
                    tasks.start_soon(self._call, f"{name}{number}", slot)
        self.running.append(name)
        self._works[name].set()
        await self._ends[name].wait()
        self.running.remove(name)
        slot.release()

    async def begin(self, tasks: TaskGroup, names: Iterable[str], share: SemaphoreShare, *, calls: int = 0) -> None:
        """One after the other."""
        for name in names:
            tasks.start_soon(partial(self.handle, name, share, calls=calls))
            await wait_all_tasks_blocked()

    async def _call(self, name: str, slot: Slot) -> None:
        self.awaiting += 1
        await slot.lend(self._calls[name].wait)
        self.awaiting -= 1

    async def answer(self, call: str) -> None:
        self._calls[call].set()
        await wait_all_tasks_blocked()

    async def works(self, name: str) -> None:
        await self._works[name].wait()

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await wait_all_tasks_blocked()


async def test_a_free_slot_is_acquired_at_once() -> None:
    share = share_of(1, queue_space=0)

    with fail_after(0):
        entered = await acquire(share)
        entered.release()
        entered = await acquire(share)


async def test_slots_are_acquired_in_the_order_of_asking() -> None:
    handlers, share = Handlers(), share_of(2, queue_space=math.inf)

    async with soon() as tasks:
        await handlers.begin(tasks, "abcd", share)
        assert handlers.running == ["a", "b"]
        await handlers.end("b")
        assert handlers.running == ["a", "c"]
        await handlers.end("a")
        assert handlers.running == ["c", "d"]
        tasks.cancel_scope.cancel()


async def test_a_released_slot_goes_to_the_first_that_waits() -> None:
    """Not to one that asks in the same instant."""
    handlers, share = Handlers(), share_of(1, queue_space=1)

    async with soon() as tasks:
        entered = await acquire(share)
        await handlers.begin(tasks, "a", share)
        entered.release()
        with pytest.raises(QueueFull):
            await acquire(share)
        await wait_all_tasks_blocked()
        assert handlers.running == ["a"]
        await handlers.end("a")


async def test_a_server_at_its_own_limit_delays_no_other() -> None:
    handlers, semaphore = Handlers(), FairSemaphore(2)
    greedy, modest = SemaphoreShare(semaphore, free=1, queue_space=8), SemaphoreShare(semaphore, free=1, queue_space=8)

    async with soon() as tasks:
        await handlers.begin(tasks, ["g1", "g2", "g3"], greedy)
        await handlers.begin(tasks, ["m1", "m2"], modest)
        assert handlers.running == ["g1", "m1"]
        await handlers.end("m1")
        assert handlers.running == ["g1", "m2"]
        await handlers.end("g1")
        assert handlers.running == ["m2", "g2"]
        tasks.cancel_scope.cancel()


async def test_servers_that_wait_take_turns_however_many_requests_each_has() -> None:
    handlers, semaphore = Handlers(), FairSemaphore(1)
    greedy, modest, third = (SemaphoreShare(semaphore, free=1, queue_space=8) for _ in range(3))
    ended = []

    async with soon() as tasks:
        await handlers.begin(tasks, ["g1", "g2", "g3", "g4"], greedy)
        await handlers.begin(tasks, ["m1", "m2"], modest)
        await handlers.begin(tasks, ["t1"], third)
        while handlers.running:
            [name] = handlers.running
            ended.append(name)
            await handlers.end(name)

    assert ended == ["g1", "m1", "t1", "g2", "m2", "g3", "g4"]


async def test_only_so_many_may_wait_in_each_share() -> None:
    handlers, semaphore = Handlers(), FairSemaphore(1)
    full, other = SemaphoreShare(semaphore, free=1, queue_space=1), SemaphoreShare(semaphore, free=1, queue_space=1)

    async with soon() as tasks:
        await handlers.begin(tasks, "ab", full)
        with pytest.raises(QueueFull):
            await acquire(full)
        await handlers.begin(tasks, "c", other)  # another share has another queue
        await handlers.end("a")
        await handlers.end("c")
        await handlers.begin(tasks, "d", full)  # b is inside: the queue has space again
        await handlers.end("b")
        assert handlers.running == ["d"]
        tasks.cancel_scope.cancel()


async def test_a_cancelled_wait_leaves_the_queue() -> None:
    handlers, share = Handlers(), share_of(1, queue_space=2)

    async with soon() as tasks:
        await handlers.begin(tasks, ["a"], share)
        with CancelScope() as scope:
            scope.cancel()
            await acquire(share)
        await handlers.begin(tasks, "bc", share)
        await handlers.end("a")
        assert handlers.running == ["b"]
        tasks.cancel_scope.cancel()


async def test_a_slot_acquired_in_the_moment_of_cancellation_goes_to_the_next() -> None:
    """It must not be lost."""
    handlers, share, leaving = Handlers(), share_of(1, queue_space=2), CancelScope()

    async def leave_when_called() -> None:
        with leaving:
            await acquire(share)
            pytest.fail("it was cancelled before it was called")

    async with soon() as tasks:
        entered = await acquire(share)
        tasks.start_soon(leave_when_called)
        await wait_all_tasks_blocked()
        await handlers.begin(tasks, "b", share)
        leaving.cancel()
        entered.release()
        await wait_all_tasks_blocked()
        assert handlers.running == ["b"]
        await handlers.end("b")


def test_a_semaphore_serves_one_event_loop_after_another(anyio_backend_name: str) -> None:
    semaphore = FairSemaphore(1)
    share = SemaphoreShare(semaphore, free=1, queue_space=2)

    async def wait_in_vain() -> None:
        entered = await acquire(share)
        try:
            with fail_after(25), CancelScope() as scope:
                async with create_task_group() as tasks:
                    tasks.start_soon(acquire, share)
                    await wait_all_tasks_blocked()
                    scope.cancel()
        finally:
            entered.release()

    for _ in range(3):
        anyio.run(wait_in_vain, backend=anyio_backend_name)
    assert share.free == 1


# Lending


async def test_a_handler_lends_its_slot_while_it_awaits_a_call_and_then_waits_for_one() -> None:
    handlers, share = Handlers(), share_of(1)

    async with soon() as tasks:
        await handlers.begin(tasks, "a", share, calls=1)
        await handlers.begin(tasks, "bc", share)
        assert handlers.running == ["b"]
        await handlers.answer("a0")
        assert handlers.running == ["b"]
        await handlers.end("b")
        await handlers.works("a")
        assert handlers.running == ["a"], "it began before c, so it goes first"
        await handlers.end("a")
        await handlers.works("c")
        await handlers.end("c")

        assert share.free == 1


async def test_a_handler_with_several_calls_lends_its_slot_once_and_the_last_to_return_waits_for_one() -> None:
    handlers, share = Handlers(), share_of(1)

    async with soon() as tasks:
        await handlers.begin(tasks, "a", share, calls=3)
        assert share.free == 1
        await handlers.answer("a0")
        assert share.free == 1, "it has none while it awaits others"
        await handlers.begin(tasks, "b", share)
        await handlers.answer("a1")
        await handlers.answer("a2")
        assert (handlers.running, handlers.awaiting) == (["b"], 1)
        await handlers.end("b")
        await handlers.works("a")
        assert (handlers.running, handlers.awaiting, share.free) == (["a"], 0, 0)
        await handlers.end("a")

    assert share.free == 1


async def test_a_call_that_begins_while_another_waits_for_the_slot_lets_that_one_continue_without() -> None:
    share, first, second = share_of(1), Event(), Event()
    slot = await acquire(share)
    ended: list[str] = []

    async def call(name: str, answered: Event) -> None:
        await slot.lend(answered.wait)
        ended.append(name)

    async with soon() as tasks:
        tasks.start_soon(call, "first", first)
        await wait_all_tasks_blocked()
        entered = await acquire(share)
        first.set()
        await wait_all_tasks_blocked()
        assert ended == []
        tasks.start_soon(call, "second", second)
        await wait_all_tasks_blocked()
        assert ended == ["first"]
        entered.release()
        second.set()
    slot.release()

    assert ended == ["first", "second"]
    assert share.free == 1


@pytest.mark.parametrize("answered", [False, True], ids=["in the call", "in the queue"])
async def test_a_cancelled_call_acquires_a_slot_at_once_and_one_fewer_is_given_out(answered: bool) -> None:
    handlers, share = Handlers(), share_of(1)
    scope = CancelScope()

    async with soon() as tasks:
        tasks.start_soon(partial(handlers.handle, "a", share, scope=scope))
        await wait_all_tasks_blocked()
        await handlers.begin(tasks, "bc", share)
        if answered:
            await handlers.answer("a0")
        scope.cancel()
        await handlers.works("a")
        assert (handlers.running, share.free) == (["b", "a"], -1)
        await handlers.end("b")
        assert handlers.running == ["a"]
        await handlers.end("a")
        await handlers.works("c")
        assert handlers.running == ["c"]
        await handlers.end("c")

    assert share.free == 1


async def test_if_one_of_two_calls_that_wait_for_the_slot_is_cancelled_the_other_continues_with_the_same_slot() -> None:
    share, answered, scope = share_of(1), Event(), CancelScope()
    slot = await acquire(share)
    ended: list[str] = []

    async def call(name: str, scope: CancelScope, answered: Callable[[], Awaitable[object]]) -> None:
        with scope:
            await slot.lend(answered)
        ended.append(name)

    async def at_once() -> None:
        pass

    async with soon() as tasks:
        tasks.start_soon(call, "other", CancelScope(), answered.wait)
        await wait_all_tasks_blocked()
        entered = await acquire(share)
        answered.set()
        await wait_all_tasks_blocked()
        tasks.start_soon(call, "cancelled", scope, at_once)
        await wait_all_tasks_blocked()
        assert ended == []
        scope.cancel()
    assert share.free == -1
    slot.release()
    entered.release()

    assert sorted(ended) == ["cancelled", "other"]
    assert share.free == 1


async def test_a_call_that_fails_takes_the_slot_back_as_well() -> None:
    share = share_of(1)
    slot = await acquire(share)

    async def fail() -> None:
        assert share.free == 1
        raise ValueError("no")

    with fail_after(25), pytest.raises(ValueError, match="no"):
        await slot.lend(fail)
    assert share.free == 0
    slot.release()

    assert share.free == 1


async def test_tasks_that_outlive_the_handler_take_no_slot() -> None:
    share, answered = share_of(1), [Event(), Event()]
    slot = await acquire(share)

    async with soon() as tasks:
        tasks.start_soon(slot.lend, answered[0].wait)
        await wait_all_tasks_blocked()
        slot.release()
        tasks.start_soon(slot.lend, answered[1].wait)
        for event in answered:
            event.set()

    assert share.free == 1


# Threads that were left behind


async def test_a_released_slot_stays_acquired_until_the_last_of_its_threads_has_ended() -> None:
    handlers, share = Handlers(), share_of(1)
    slot = await acquire(share)
    first, last = slot.keep_for_thread(), slot.keep_for_thread()
    slot.release()

    async with soon() as tasks:
        await handlers.begin(tasks, ["next"], share)
        await to_thread.run_sync(first)
        await wait_all_tasks_blocked()
        assert handlers.running == []
        await to_thread.run_sync(last)
        await wait_all_tasks_blocked()
        assert handlers.running == ["next"]
        await handlers.end("next")

    assert share.free == 1


async def test_a_slot_is_free_once_it_is_released_and_its_thread_has_ended() -> None:
    """In this order or the other. It can be acquired where none may wait."""
    share = share_of(1, queue_space=0)

    with fail_after(25):
        slot = await acquire(share)
        await to_thread.run_sync(slot.keep_for_thread())
        assert share.free == 0
        slot.release()
        assert share.free == 1

        slot = await acquire(share)
        end = slot.keep_for_thread()
        slot.release()
        with pytest.raises(QueueFull):
            await acquire(share)
        await to_thread.run_sync(end)
        slot = await acquire(share)
        slot.release()

    assert share.free == 1


@pytest.mark.parametrize("has_ended", [False, True], ids=["its thread runs", "its thread has ended"])
async def test_a_task_that_returns_from_a_call_after_its_handler_takes_a_slot_only_for_a_thread_that_runs(
    has_ended: bool,
) -> None:
    share, answered = share_of(1), Event()
    slot = await acquire(share)
    end = slot.keep_for_thread()

    async with soon() as tasks:
        tasks.start_soon(slot.lend, answered.wait)
        await wait_all_tasks_blocked()
        slot.release()
        assert share.free == 1
        if has_ended:
            end()
        answered.set()
    assert share.free == (1 if has_ended else 0)
    if not has_ended:
        end()
    with fail_after(25):
        entered = await acquire(share)
    entered.release()

    assert share.free == 1


async def test_a_thread_that_ended_while_nothing_waited_frees_its_slot_for_a_handler_that_returns_from_a_call() -> None:
    share = share_of(2)
    third = Slot(share)

    async def call() -> None:
        await third.acquire()
        end()

    with fail_after(25):
        other = await acquire(share)
        end = other.keep_for_thread()
        other.release()
        slot = await acquire(share)
        await slot.lend(call)
        slot.release()
        third.release()

    assert share.free == 2


@pytest.mark.parametrize("waiting", [False, True], ids=["between two loops", "while the next one waits"])
def test_a_thread_that_outlives_its_event_loop_frees_its_slot_in_the_next(
    anyio_backend_name: str, waiting: bool
) -> None:
    share = share_of(1, queue_space=1)
    ends: list[Callable[[], None]] = []

    async def leave_a_thread() -> None:
        slot = Slot(share)
        await slot.acquire()
        ends.append(slot.keep_for_thread())
        async with create_task_group() as tasks:
            tasks.start_soon(acquire, share)
            await wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        slot.release()

    async def use_next() -> None:
        slot = Slot(share)
        with fail_after(25):
            async with create_task_group() as tasks:
                tasks.start_soon(slot.acquire)
                await wait_all_tasks_blocked()
                for end in ends:
                    await to_thread.run_sync(end)
        slot.release()

    anyio.run(leave_a_thread, backend=anyio_backend_name)
    assert share.free == 0
    if not waiting:
        ends.pop()()
    anyio.run(use_next, backend=anyio_backend_name)

    assert share.free == 1
