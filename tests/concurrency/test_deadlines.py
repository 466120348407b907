"""One timer for the deadlines of many waits."""

from __future__ import annotations

import anyio
import pytest
from anyio.lowlevel import checkpoint

from mcp_host.concurrency.backends import Loop
from mcp_host.concurrency.deadlines import Alarm, TimeoutScope


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
