"""Places in front of the model: in order, fair, and never lost."""

from __future__ import annotations

import math

import anyio
import pytest
from anyio import CancelScope, Event, create_task_group, fail_after, wait_all_tasks_blocked

from mcp_host.sampling.places import NoPlace, Places, Share


class Visitors:
    """People who enter, stay until they are sent home, and leave."""

    def __init__(self) -> None:
        self.inside: list[str] = []
        self._doors: dict[str, Event] = {}

    async def visit(self, name: str, share: Share) -> None:
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
    share = Places(1).share(at_once=1, waiting=0)

    with fail_after(0):
        await share.enter()
        share.leave()
        await share.enter()


async def test_places_are_handed_out_in_the_order_of_asking() -> None:
    visitors, share = Visitors(), Places(2).share(at_once=2, waiting=math.inf)

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
    visitors, share = Visitors(), Places(1).share(at_once=1, waiting=1)

    with fail_after(5):
        await share.enter()
        async with create_task_group() as tasks:
            tasks.start_soon(visitors.visit, "a", share)
            await wait_all_tasks_blocked()
            share.leave()
            with pytest.raises(NoPlace):
                await share.enter()
            await wait_all_tasks_blocked()
            assert visitors.inside == ["a"]
            await visitors.send_home("a")


async def test_a_server_at_its_own_bound_holds_up_no_other() -> None:
    visitors, places = Visitors(), Places(2)
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
    visitors, places = Visitors(), Places(1)
    full, other = places.share(at_once=1, waiting=1), places.share(at_once=1, waiting=1)

    with fail_after(5):
        async with create_task_group() as tasks:
            for name in "ab":
                tasks.start_soon(visitors.visit, name, full)
                await wait_all_tasks_blocked()
            with pytest.raises(NoPlace):
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
    visitors, share = Visitors(), Places(1).share(at_once=1, waiting=2)

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
    visitors, share, leaving = Visitors(), Places(1).share(at_once=1, waiting=2), CancelScope()

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
    places = Places(1)
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
