"""Events and locks, which are small while no task waits."""

from __future__ import annotations

import sys

import anyio
import pytest

from mcp_host.concurrency.synchronization import Event, Lock


async def test_all_tasks_that_wait_for_an_event_go_on_when_it_is_set() -> None:
    event, went_on = Event(), list[int]()

    async def wait(number: int) -> None:
        await event.wait()
        went_on.append(number)

    with anyio.fail_after(25):
        async with anyio.create_task_group() as tasks:
            for number in range(3):
                tasks.start_soon(wait, number)
            await anyio.wait_all_tasks_blocked()
            assert not event.is_set()
            assert not went_on
            event.set()
            event.set()
        await event.wait()

    assert event.is_set()
    assert sorted(went_on) == [0, 1, 2]


async def test_a_cancelled_task_waits_no_more_and_the_others_do() -> None:
    event, went_on = Event(), list[str]()

    async def wait() -> None:
        await event.wait()
        went_on.append("other")

    with anyio.fail_after(25):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            with anyio.move_on_after(0) as timeout:
                await event.wait()
            await anyio.wait_all_tasks_blocked()
            assert not went_on
            event.set()

    assert timeout.cancelled_caught
    assert went_on == ["other"]


async def test_waiting_for_an_event_that_is_set_can_be_cancelled() -> None:
    event = Event()
    event.set()

    with anyio.move_on_after(0) as timeout:
        await event.wait()

    assert timeout.cancelled_caught


async def test_a_lock_is_given_in_the_order_of_asking_and_a_cancelled_task_does_not_get_it() -> None:
    lock, order = Lock(), list[int]()

    async def hold(number: int) -> None:
        async with lock:
            order.append(number)
            assert lock.locked()

    with anyio.fail_after(25):
        async with anyio.create_task_group() as tasks, lock:
            tasks.start_soon(hold, 1)
            await anyio.wait_all_tasks_blocked()
            async with anyio.create_task_group() as others:
                others.start_soon(hold, 2)
                await anyio.wait_all_tasks_blocked()
                others.cancel_scope.cancel()
            tasks.start_soon(hold, 3)
            await anyio.wait_all_tasks_blocked()
            assert not order

    assert order == [1, 3]
    assert not lock.locked()


def test_a_lock_serves_one_event_loop_after_another() -> None:
    """Also after a task was cancelled as it took it: on trio, a lock of asyncio would raise."""
    lock = Lock()

    async def use() -> None:
        async with lock:
            assert lock.locked()
        with anyio.move_on_after(0):
            async with lock:
                raise AssertionError

    for backend in ("asyncio", "trio", "asyncio"):
        anyio.run(use, backend=backend)

    assert not lock.locked()


@pytest.mark.parametrize("made", [Event(), Lock()], ids=["event", "lock"])
def test_what_no_task_waits_for_holds_no_other_object(made: Event | Lock) -> None:
    """On asyncio an event of anyio has one of asyncio, which has a deque of 0.7 KiB."""
    assert sys.getsizeof(made) + sum(sys.getsizeof(getattr(made, name)) for name in made.__slots__) < 200
