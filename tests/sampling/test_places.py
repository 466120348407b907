"""Places in front of the model: in order, fair, and never lost."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from functools import partial

import anyio
import pytest
from anyio import CancelScope, Event, create_task_group, fail_after, to_thread, wait_all_tasks_blocked

from mcp_host.sampling.slots import FairSemaphore, QueueFull, SemaphoreShare, Slot, current_slot


class Visitors:
    """People who enter, stay until they are sent home, and leave."""

    def __init__(self) -> None:
        self.inside: list[str] = []
        self._doors: dict[str, Event] = {}

    async def visit(self, name: str, share: SemaphoreShare) -> None:
        self._doors[name] = Event()
        await share.enter()
        try:
            self.inside.append(name)
            await self._doors[name].wait()
        finally:
            share.leave()
            if name in self.inside:
                self.inside.remove(name)

    async def send_home(self, name: str) -> None:
        self._doors[name].set()
        await wait_all_tasks_blocked()


async def test_a_free_place_is_taken_at_once() -> None:
    share = FairSemaphore(1).share(at_once=1, waiting=0)

    with fail_after(0):
        await share.enter()
        share.leave()
        await share.enter()


async def test_places_are_handed_out_in_the_order_of_asking() -> None:
    visitors, share = Visitors(), FairSemaphore(2).share(at_once=2, waiting=math.inf)

    with fail_after(5):
        async with create_task_group() as tasks:
            for name in "abcd":
                tasks.start_soon(visitors.visit, name, share)
                await wait_all_tasks_blocked()
            assert visitors.inside == ["a", "b"]
            await visitors.send_home("b")
            assert visitors.inside == ["a", "c"]
            await visitors.send_home("a")
            assert visitors.inside == ["c", "d"]
            tasks.cancel_scope.cancel()


async def test_nobody_overtakes_a_place_that_is_promised() -> None:
    """A place given up goes to whoever waits, not to whoever asks in the same instant."""
    visitors, share = Visitors(), FairSemaphore(1).share(at_once=1, waiting=1)

    with fail_after(5):
        await share.enter()
        async with create_task_group() as tasks:
            tasks.start_soon(visitors.visit, "a", share)
            await wait_all_tasks_blocked()
            share.leave()
            with pytest.raises(QueueFull):
                await share.enter()
            await wait_all_tasks_blocked()
            assert visitors.inside == ["a"]
            await visitors.send_home("a")


async def test_a_server_at_its_own_bound_holds_up_no_other() -> None:
    visitors, places = Visitors(), FairSemaphore(2)
    greedy, modest = places.share(at_once=1, waiting=8), places.share(at_once=1, waiting=8)

    with fail_after(5):
        async with create_task_group() as tasks:
            for name, share in [("g1", greedy), ("g2", greedy), ("g3", greedy), ("m1", modest), ("m2", modest)]:
                tasks.start_soon(visitors.visit, name, share)
                await wait_all_tasks_blocked()
            assert visitors.inside == ["g1", "m1"]
            await visitors.send_home("m1")
            assert visitors.inside == ["g1", "m2"]
            await visitors.send_home("g1")
            assert visitors.inside == ["m2", "g2"]
            tasks.cancel_scope.cancel()


async def test_only_so_many_may_wait() -> None:
    visitors, places = Visitors(), FairSemaphore(1)
    full, other = places.share(at_once=1, waiting=1), places.share(at_once=1, waiting=1)

    with fail_after(5):
        async with create_task_group() as tasks:
            for name in "ab":
                tasks.start_soon(visitors.visit, name, full)
                await wait_all_tasks_blocked()
            with pytest.raises(QueueFull):
                await full.enter()
            tasks.start_soon(visitors.visit, "c", other)  # another share's line is its own
            await wait_all_tasks_blocked()
            await visitors.send_home("a")
            tasks.start_soon(visitors.visit, "d", full)  # b is inside: the line has room again
            await wait_all_tasks_blocked()
            await visitors.send_home("b")
            assert visitors.inside == ["c"]
            tasks.cancel_scope.cancel()


async def test_whoever_stops_waiting_leaves_the_line() -> None:
    visitors, share = Visitors(), FairSemaphore(1).share(at_once=1, waiting=2)

    with fail_after(5):
        async with create_task_group() as tasks:
            tasks.start_soon(visitors.visit, "a", share)
            await wait_all_tasks_blocked()
            with CancelScope() as impatience:
                impatience.cancel()
                await share.enter()
            for name in "bc":
                tasks.start_soon(visitors.visit, name, share)
                await wait_all_tasks_blocked()
            await visitors.send_home("a")
            assert visitors.inside == ["b"]
            tasks.cancel_scope.cancel()


async def test_a_place_called_out_to_somebody_who_just_left_goes_to_the_next() -> None:
    """Called and cancelled at the same moment: the place must not be lost."""
    visitors, share, leaving = Visitors(), FairSemaphore(1).share(at_once=1, waiting=2), CancelScope()

    async def leave_when_called() -> None:
        with leaving:
            await share.enter()
            pytest.fail("it was cancelled before it was called")

    with fail_after(5):
        await share.enter()
        async with create_task_group() as tasks:
            tasks.start_soon(leave_when_called)
            await wait_all_tasks_blocked()
            tasks.start_soon(visitors.visit, "b", share)
            await wait_all_tasks_blocked()
            leaving.cancel()
            share.leave()
            await wait_all_tasks_blocked()
            assert visitors.inside == ["b"]
            await visitors.send_home("b")


def test_one_object_serves_one_event_loop_after_another(anyio_backend_name: str) -> None:
    places = FairSemaphore(1)
    share = places.share(at_once=1, waiting=2)

    async def wait_in_vain() -> None:
        await share.enter()
        try:
            with fail_after(5), CancelScope() as scope:
                async with create_task_group() as tasks:
                    tasks.start_soon(share.enter)
                    await wait_all_tasks_blocked()
                    scope.cancel()
        finally:
            share.leave()

    for _ in range(3):
        anyio.run(wait_in_vain, backend=anyio_backend_name)
    assert share.room == 1


# Lending


class Handlers:
    """Handlers that hold a slot, and do what a test tells them to."""

    def __init__(self) -> None:
        self.at_work: list[str] = []
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
        await slot.enter()
        try:
            with scope or CancelScope():
                async with create_task_group() as tasks:
                    for number in range(calls):
                        tasks.start_soon(self._call, f"{name}{number}")
            self.at_work.append(name)
            self._works[name].set()
            await self._ends[name].wait()
            self.at_work.remove(name)
        finally:
            slot.leave()

    async def _call(self, name: str) -> None:
        slot = current_slot()
        assert slot is not None
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


async def test_a_handler_that_awaits_a_call_lends_its_place_and_waits_for_one_to_go_on() -> None:
    handlers, share = Handlers(), FairSemaphore(1).share(at_once=1, waiting=8)

    with fail_after(5):
        async with create_task_group() as tasks:
            tasks.start_soon(handlers.handle, "a", share)
            await wait_all_tasks_blocked()
            for name in "bc":
                tasks.start_soon(partial(handlers.handle, name, share, calls=0))
                await wait_all_tasks_blocked()
            assert handlers.at_work == ["b"]
            await handlers.answer("a0")
            assert handlers.at_work == ["b"]
            await handlers.end("b")
            await handlers.works("a")
            assert handlers.at_work == ["a"], "it has begun before c, and goes before it"
            await handlers.end("a")
            await handlers.works("c")
            await handlers.end("c")

        assert share.room == 1


async def test_a_handler_with_several_calls_lends_once_and_goes_on_after_the_last() -> None:
    handlers, share = Handlers(), FairSemaphore(1).share(at_once=1, waiting=8)

    with fail_after(5):
        async with create_task_group() as tasks:
            tasks.start_soon(partial(handlers.handle, "a", share, calls=3))
            await wait_all_tasks_blocked()
            assert share.room == 1
            await handlers.answer("a0")
            assert share.room == 1, "while others are awaited it holds none"
            await handlers.answer("a1")
            await handlers.answer("a2")
            await handlers.works("a")
            assert (share.room, handlers.at_work) == (0, ["a"])
            await handlers.end("a")

    assert share.room == 1


async def test_calls_that_end_at_once_wait_for_one_place_together() -> None:
    handlers, share = Handlers(), FairSemaphore(1).share(at_once=1, waiting=8)

    with fail_after(5):
        async with create_task_group() as tasks:
            tasks.start_soon(partial(handlers.handle, "a", share, calls=2))
            await wait_all_tasks_blocked()
            tasks.start_soon(partial(handlers.handle, "b", share, calls=0))
            await wait_all_tasks_blocked()
            await handlers.answer("a0")
            await handlers.answer("a1")
            assert (handlers.at_work, handlers.awaiting) == (["b"], 1)
            await handlers.end("b")
            await handlers.works("a")
            assert (handlers.at_work, handlers.awaiting) == (["a"], 0)
            await handlers.end("a")

    assert share.room == 1


async def test_a_call_that_begins_while_another_waits_for_the_place_lets_it_go_on_without() -> None:
    share = FairSemaphore(1).share(at_once=1, waiting=8)
    slot, first, second = Slot(share), Event(), Event()
    ended: list[str] = []

    async def call(name: str, answered: Event) -> None:
        await slot.lend(answered.wait)
        ended.append(name)

    with fail_after(5):
        await slot.enter()
        async with create_task_group() as tasks:
            tasks.start_soon(call, "first", first)
            await wait_all_tasks_blocked()
            await share.enter()
            first.set()
            await wait_all_tasks_blocked()
            assert ended == []
            tasks.start_soon(call, "second", second)
            await wait_all_tasks_blocked()
            assert ended == ["first"]
            share.leave()
            second.set()
        slot.leave()

    assert ended == ["first", "second"]
    assert share.room == 1


@pytest.mark.parametrize("answered", [False, True], ids=["in the call", "in line"])
async def test_a_cancelled_call_seizes_a_place_and_the_next_that_comes_free_makes_up_for_it(answered: bool) -> None:
    handlers, share = Handlers(), FairSemaphore(1).share(at_once=1, waiting=8)
    scope = CancelScope()

    with fail_after(5):
        async with create_task_group() as tasks:
            tasks.start_soon(partial(handlers.handle, "a", share, scope=scope))
            await wait_all_tasks_blocked()
            for name in "bc":
                tasks.start_soon(partial(handlers.handle, name, share, calls=0))
                await wait_all_tasks_blocked()
            if answered:
                await handlers.answer("a0")
            scope.cancel()
            await handlers.works("a")
            assert (handlers.at_work, share.room) == (["b", "a"], -1)
            await handlers.end("b")
            assert handlers.at_work == ["a"]
            await handlers.end("a")
            await handlers.works("c")
            assert handlers.at_work == ["c"]
            await handlers.end("c")

    assert share.room == 1


async def test_one_of_two_that_wait_for_the_place_is_cancelled_and_the_other_goes_on_with_what_it_seizes() -> None:
    share = FairSemaphore(1).share(at_once=1, waiting=8)
    slot, answered, scope = Slot(share), Event(), CancelScope()
    ended: list[str] = []

    async def call(name: str, scope: CancelScope, answered: Callable[[], Awaitable[object]]) -> None:
        with scope:
            await slot.lend(answered)
        ended.append(name)

    async def at_once() -> None:
        pass

    with fail_after(5):
        await slot.enter()
        async with create_task_group() as tasks:
            tasks.start_soon(call, "other", CancelScope(), answered.wait)
            await wait_all_tasks_blocked()
            await share.enter()
            answered.set()
            await wait_all_tasks_blocked()
            tasks.start_soon(call, "cancelled", scope, at_once)
            await wait_all_tasks_blocked()
            assert ended == []
            scope.cancel()
        assert share.room == -1
        slot.leave()
        share.leave()

    assert sorted(ended) == ["cancelled", "other"]
    assert share.room == 1


async def test_a_call_that_fails_takes_a_place_again_as_well() -> None:
    share = FairSemaphore(1).share(at_once=1, waiting=8)
    slot = Slot(share)

    async def fail() -> None:
        assert share.room == 1
        raise ValueError("no")

    with fail_after(5):
        await slot.enter()
        with pytest.raises(ValueError, match="no"):
            await slot.lend(fail)
        assert share.room == 0
        slot.leave()

    assert share.room == 1
    assert current_slot() is None


async def test_what_a_handler_leaves_running_takes_no_place() -> None:
    share = FairSemaphore(1).share(at_once=1, waiting=8)
    slot, answered = Slot(share), [Event(), Event()]

    with fail_after(5):
        await slot.enter()
        async with create_task_group() as tasks:
            tasks.start_soon(slot.lend, answered[0].wait)
            await wait_all_tasks_blocked()
            slot.leave()
            tasks.start_soon(slot.lend, answered[1].wait)
            for event in answered:
                event.set()

    assert share.room == 1


# Threads that were left behind


async def test_a_slot_that_is_left_keeps_its_place_until_the_last_of_its_threads_has_ended() -> None:
    visitors, share = Visitors(), FairSemaphore(1).share(at_once=1, waiting=8)
    slot = Slot(share)

    with fail_after(5):
        await slot.enter()
        first, last = slot.hold(), slot.hold()
        slot.leave()
        async with create_task_group() as tasks:
            tasks.start_soon(visitors.visit, "next", share)
            await wait_all_tasks_blocked()
            await to_thread.run_sync(first)
            await wait_all_tasks_blocked()
            assert visitors.inside == []
            await to_thread.run_sync(last)
            await wait_all_tasks_blocked()
            assert visitors.inside == ["next"]
            await visitors.send_home("next")

    assert share.room == 1


async def test_a_slot_whose_thread_has_ended_gives_its_place_back_when_it_is_left() -> None:
    share = FairSemaphore(1).share(at_once=1, waiting=8)
    slot = Slot(share)

    with fail_after(5):
        await slot.enter()
        await to_thread.run_sync(slot.hold())
        assert share.room == 0
        slot.leave()

    assert share.room == 1


async def test_a_place_whose_thread_has_ended_is_taken_where_none_may_wait() -> None:
    share = FairSemaphore(1).share(at_once=1, waiting=0)
    slot = Slot(share)

    with fail_after(5):
        await slot.enter()
        end = slot.hold()
        slot.leave()
        with pytest.raises(QueueFull):
            await share.enter()
        await to_thread.run_sync(end)
        await share.enter()
        share.leave()

    assert share.room == 1


async def test_a_thread_that_was_left_behind_in_a_call_takes_a_place_again_until_it_has_ended() -> None:
    share = FairSemaphore(1).share(at_once=1, waiting=8)
    slot, answered = Slot(share), Event()

    with fail_after(5):
        await slot.enter()
        end = slot.hold()
        async with create_task_group() as tasks:
            tasks.start_soon(slot.lend, answered.wait)
            await wait_all_tasks_blocked()
            slot.leave()
            assert share.room == 1
            answered.set()
        assert share.room == 0
        end()
        await share.enter()
        share.leave()

    assert share.room == 1


async def test_a_task_that_returns_from_a_call_takes_no_place_if_the_last_thread_has_ended_meanwhile() -> None:
    share = FairSemaphore(1).share(at_once=1, waiting=8)
    slot, answered = Slot(share), Event()

    with fail_after(5):
        await slot.enter()
        end = slot.hold()
        async with create_task_group() as tasks:
            tasks.start_soon(slot.lend, answered.wait)
            await wait_all_tasks_blocked()
            slot.leave()
            await share.enter()
            end()
            answered.set()
        share.leave()

    assert share.room == 1


async def test_a_thread_that_ended_while_nothing_waited_gives_its_place_to_a_handler_that_returns_from_a_call() -> None:
    share = FairSemaphore(2).share(at_once=2, waiting=8)
    slot, other = Slot(share), Slot(share)

    async def call() -> None:
        await share.enter()
        end()

    with fail_after(5):
        await other.enter()
        end = other.hold()
        other.leave()
        await slot.enter()
        await slot.lend(call)
        slot.leave()
        share.leave()

    assert share.room == 2


@pytest.mark.parametrize("waiting", [False, True], ids=["between two loops", "while the next one waits"])
def test_a_thread_that_outlives_its_event_loop_gives_its_place_back_in_the_next(
    anyio_backend_name: str, waiting: bool
) -> None:
    share = FairSemaphore(1).share(at_once=1, waiting=1)
    ends: list[Callable[[], None]] = []

    async def leave_a_thread() -> None:
        slot = Slot(share)
        await slot.enter()
        ends.append(slot.hold())
        async with create_task_group() as tasks:
            tasks.start_soon(share.enter)
            await wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        slot.leave()

    async def enter() -> None:
        with fail_after(5):
            async with create_task_group() as tasks:
                tasks.start_soon(share.enter)
                await wait_all_tasks_blocked()
                for end in ends:
                    await to_thread.run_sync(end)
        share.leave()

    anyio.run(leave_a_thread, backend=anyio_backend_name)
    assert share.room == 0
    if not waiting:
        ends.pop()()
    anyio.run(enter, backend=anyio_backend_name)

    assert share.room == 1
