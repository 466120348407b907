"""Our ends of a child's pipes, against real pipes."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from mcp_host.transports._pipes import AHEAD, CHUNK, ReadEnd, WatchedReadEnd, WriteEnd, open_pipe, read_end

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX pipes")


@asynccontextmanager
async def pipe() -> AsyncIterator[tuple[ReadEnd | WatchedReadEnd, WriteEnd]]:
    from_pipe, to_pipe = open_pipe()
    reading, writing = read_end(from_pipe), WriteEnd(to_pipe)
    try:
        with anyio.fail_after(10):
            yield reading, writing
    finally:
        await reading.close()
        await writing.close()


async def test_what_is_written_is_read_and_the_end_stays_the_end() -> None:
    async with pipe() as (reading, writing):
        assert writing.write_now(b"one") == 3
        assert await reading.read() == b"one"
        await writing.close()

        assert [await reading.read() for _ in range(3)] == [b"", b"", b""]


async def test_closing_ends_a_read_under_way_and_every_later_one() -> None:
    read: list[bytes] = []

    async with pipe() as (reading, _):

        async def wait() -> None:
            read.append(await reading.read())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            await reading.close()
        read.append(await reading.read())

    assert read == [b"", b""]


async def test_a_cancelled_read_loses_nothing() -> None:
    async with pipe() as (reading, writing):
        for _ in range(3):
            with anyio.move_on_after(0):
                await reading.read()
        writing.write_now(b"kept")

        assert await reading.read() == b"kept"


async def test_writing_waits_for_a_reader_and_for_nothing_else() -> None:
    large = b"x" * (16 * CHUNK)
    received = b""

    async with pipe() as (reading, writing):

        async def write() -> None:
            left = memoryview(large)
            while left:
                left = left[await writing.write_some(left) :]
            await writing.close()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            while chunk := await reading.read():
                received += chunk

    assert received == large


async def test_a_pipe_whose_reader_has_gone_is_broken_and_so_is_one_we_closed() -> None:
    async with pipe() as (reading, writing):
        await reading.close()
        with pytest.raises(BrokenPipeError):
            writing.write_now(b"x")
        await writing.close()
        with pytest.raises(BrokenPipeError):
            writing.write_now(b"x")


async def test_a_writer_that_waits_is_told_when_its_end_is_closed() -> None:
    async with pipe() as (_, writing):
        while writing.write_now(b"x" * CHUNK):
            pass

        async def write() -> None:
            with pytest.raises(BrokenPipeError):
                await writing.write_some(memoryview(b"x"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            await anyio.wait_all_tasks_blocked()
            await writing.close()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_no_more_is_read_ahead_than_the_bound(anyio_backend: str) -> None:
    """A server that says more than anyone takes is held up by its own pipe."""
    written = read = 0

    async with pipe() as (reading, writing):
        while wrote := writing.write_now(b"x" * CHUNK):
            written += wrote
            await anyio.wait_all_tasks_blocked()
        assert isinstance(reading, WatchedReadEnd)
        assert len(reading._chunks) == AHEAD
        await writing.close()
        while chunk := await reading.read():
            read += len(chunk)

    assert read == written
