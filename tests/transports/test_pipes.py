"""Our ends of a child's pipes, against real pipes."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import anyio
import pytest
import sniffio
from anyio.lowlevel import checkpoint

from mcp_host.transports._process.posix import ReadEnd, WriteEnd, open_pipe, read_end

CHUNK = 64 * 1024  # bytes

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX pipes")


@asynccontextmanager
async def pipe() -> AsyncIterator[tuple[ReadEnd, WriteEnd]]:
    from_pipe, to_pipe = open_pipe()
    reading, writing = read_end(from_pipe), WriteEnd(to_pipe)
    try:
        with anyio.fail_after(10):
            yield reading, writing
    finally:
        await reading.close()
        await writing.close()


async def test_what_is_written_is_read_and_the_end_stays_the_end() -> None:
    read: list[bytes] = []

    async with pipe() as (reading, writing):
        assert writing.write_now(b"one") == 3
        await writing.close()
        await reading.pump(read.append)
        await reading.pump(read.append)

    assert read == [b"one"]


async def test_closing_ends_a_pump_at_work_and_every_later_one() -> None:
    read: list[bytes] = []

    async with pipe() as (reading, _):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reading.pump, read.append)
            await anyio.wait_all_tasks_blocked()
            await reading.close()
        await reading.pump(read.append)

    assert read == []


async def test_a_cancelled_pump_loses_nothing() -> None:
    read: list[bytes] = []

    async with pipe() as (reading, writing):
        for _ in range(3):
            with anyio.move_on_after(0):
                await reading.pump(read.append)
        writing.write_now(b"kept")
        await writing.close()
        await reading.pump(read.append)

    assert read == [b"kept"]


async def test_a_cancelled_pump_watches_the_pipe_no_more() -> None:
    """Else the event loop would turn for nothing as long as something can be read."""
    async with pipe() as (reading, _):
        with anyio.move_on_after(0):
            await reading.pump(lambda chunk: None)

        if sniffio.current_async_library() == "asyncio":  # trio's tasks watch for themselves
            assert asyncio.get_running_loop().remove_reader(reading._fd) is False


async def test_a_piece_that_is_much_work_is_worked_off_with_others_in_between() -> None:
    said: list[object] = []

    def take(chunk: bytes) -> Iterator[None]:
        for byte in chunk:
            said.append(byte)
            yield

    async def other() -> None:
        while len(said) < 20:
            said.append("other")
            await checkpoint()

    async with pipe() as (reading, writing):
        writing.write_now(bytes(range(6)))
        await writing.close()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reading.pump, take)
            tasks.start_soon(other)

    assert [byte for byte in said if byte != "other"] == list(range(6))
    assert said[said.index(0) : said.index(5)].count("other") >= 4


async def test_what_a_later_part_of_the_work_raises_ends_the_pump() -> None:
    def take(chunk: bytes) -> Iterator[None]:
        yield
        raise ZeroDivisionError

    async with pipe() as (reading, writing):
        writing.write_now(b"one")

        with pytest.raises(ZeroDivisionError):
            await reading.pump(take)


async def test_what_taking_a_piece_raises_ends_the_pump() -> None:
    def take(chunk: bytes) -> None:
        raise ZeroDivisionError

    async with pipe() as (reading, writing):
        writing.write_now(b"one")

        with pytest.raises(ZeroDivisionError):
            await reading.pump(take)


async def test_whoever_takes_a_piece_may_use_anyio() -> None:
    """On asyncio no task runs then, which is what tells anyio where it is."""
    times: list[float] = []

    async with pipe() as (reading, writing):
        writing.write_now(b"one")
        await writing.close()
        before = anyio.current_time()
        await reading.pump(lambda chunk: times.append(anyio.current_time()))

    assert [before <= time <= before + 10 for time in times] == [True]


async def test_where_a_read_left_more_behind_the_next_one_takes_it_all() -> None:
    sizes: list[int] = []

    async with pipe() as (reading, writing):
        written = writing.write_now(b"x" * 500_000)
        await writing.close()
        await reading.pump(lambda chunk: sizes.append(len(chunk)))

    assert sizes == [size for size in (CHUNK, written - CHUNK) if size]


async def test_writing_waits_for_a_reader_and_for_nothing_else() -> None:
    large = b"x" * (16 * CHUNK)
    received: list[bytes] = []

    async with pipe() as (reading, writing):

        async def write() -> None:
            left = memoryview(large)
            while left:
                left = left[await writing.write_some(left) :]
            await writing.close()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            await reading.pump(received.append)

    assert b"".join(received) == large


async def test_a_pipe_whose_reader_has_gone_is_broken_and_so_is_one_we_closed() -> None:
    async with pipe() as (reading, writing):
        await reading.close()
        with pytest.raises(BrokenPipeError):
            writing.write_now(b"x")
        await writing.close()
        with pytest.raises(BrokenPipeError):
            writing.write_now(b"x")


async def test_an_end_that_is_closed_or_cannot_tell_has_nothing_to_be_read() -> None:
    """Both look like a pipe that is empty: whoever waits for it to be read waits no longer."""
    async with pipe() as (_, writing):
        writing.write_now(b"x")
        await writing.close()
        await writing.taken()
        no_pipe = WriteEnd(os.open(os.devnull, os.O_WRONLY))
        await no_pipe.taken()
        await no_pipe.close()


async def test_what_was_written_is_taken_once_it_was_read() -> None:
    taken = anyio.Event()

    async def wait() -> None:
        await writing.taken()
        taken.set()

    async with pipe() as (reading, writing), anyio.create_task_group() as tasks:
        writing.write_now(b"x")
        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        assert not taken.is_set()
        tasks.start_soon(reading.pump, lambda chunk: None)
        await taken.wait()
        await writing.close()


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


async def test_what_nobody_takes_stays_in_the_pipe() -> None:
    """A server that says more than anyone takes is held up by its own pipe."""
    written, read = 0, [0]

    async with pipe() as (reading, writing):
        while wrote := writing.write_now(b"x" * CHUNK):
            written += wrote
            await anyio.wait_all_tasks_blocked()
        await writing.close()
        await reading.pump(lambda chunk: read.append(len(chunk)))

    assert sum(read) == written


async def test_a_pipe_that_is_closed_while_its_pump_is_at_work_does_not_keep_the_next_from_being_watched() -> None:
    """The system gives out the number of its descriptor again."""
    read: list[bytes] = []

    async with pipe() as (reading, writing), anyio.create_task_group() as tasks:

        def take(chunk: bytes) -> Iterator[None]:
            tasks.start_soon(reading.close)
            yield

        tasks.start_soon(reading.pump, take)
        await anyio.wait_all_tasks_blocked()
        writing.write_now(b"one")
    async with pipe() as (reading, writing):
        writing.write_now(b"two")
        await writing.close()
        await reading.pump(read.append)

    assert read == [b"two"]
