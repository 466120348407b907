"""What asyncio and trio do differently."""

from __future__ import annotations

import asyncio
import os

import anyio
import pytest

from mcp_host.concurrency.backends import Loop


async def running() -> Loop:
    loop = Loop.running()
    assert loop.goes_on()
    return loop


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_loop_goes_on_until_its_run_is_over(backend: str) -> None:
    assert not anyio.run(running, backend=backend).goes_on()


async def test_a_callback_may_close_what_it_reads_and_be_done() -> None:
    loop = Loop.running()
    reading, writing = os.pipe()
    os.write(writing, b"data")

    def closes() -> bool:
        loop.notify_closing(reading)
        os.close(reading)
        return True

    with anyio.fail_after(25):
        await loop.when_readable(reading, closes)
    os.close(writing)


@pytest.mark.backends("asyncio")
async def test_a_callback_is_not_called_once_its_task_is_cancelled() -> None:
    """The cancellation and the data come in the same pass of the event loop, and the task has not run yet."""
    loop, calls = Loop.running(), list[str]()
    reading, writing = os.pipe()

    def called() -> bool:
        calls.append("called")
        return True

    with anyio.fail_after(25):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(loop.when_readable, reading, called)
            await anyio.wait_all_tasks_blocked()
            os.write(writing, b"data")
            asyncio.get_running_loop().call_soon(tasks.cancel_scope.cancel)
            await anyio.sleep_forever()
    os.close(reading)
    os.close(writing)

    assert calls == []


@pytest.mark.backends("asyncio")
async def test_a_bug_of_a_callback_that_has_closed_what_it_reads_is_told_to_the_event_loop() -> None:
    loop, running, bugs = Loop.running(), asyncio.get_running_loop(), list[str]()
    reading, writing = os.pipe()
    os.write(writing, b"data")
    handler = running.get_exception_handler()

    def fails() -> bool:
        loop.notify_closing(reading)
        raise ZeroDivisionError("a bug")

    running.set_exception_handler(lambda _, told: bugs.append(str(told["exception"])))
    try:
        with anyio.fail_after(25):
            await loop.when_readable(reading, fails)
    finally:
        running.set_exception_handler(handler)
    os.close(reading)
    os.close(writing)

    assert bugs == ["a bug"]
