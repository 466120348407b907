"""What asyncio and trio do differently."""

from __future__ import annotations

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

    with anyio.fail_after(10):
        await loop.when_readable(reading, closes)
    os.close(writing)
