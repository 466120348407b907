"""Our ends of a child's pipes, with real pipes."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
import sniffio
from anyio.lowlevel import checkpoint

from mcp_host.transports._process.posix import InheritedWriteEnd, ReadEnd, WriteEnd, open_pipe

CHUNK = 64 * 1024  # bytes

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX pipes")


@asynccontextmanager
async def pipe() -> AsyncIterator[tuple[ReadEnd, WriteEnd]]:
    from_pipe, to_pipe = open_pipe()
    reading, writing = ReadEnd(from_pipe), WriteEnd(to_pipe)
    try:
        with anyio.fail_after(25):
            yield reading, writing
    finally:
        await reading.aclose()
        await writing.aclose()


async def test_closing_ends_a_reader_that_waits_and_every_later_one() -> None:
    read: list[bytes] = []

    async with pipe() as (reading, _):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reading.read_all, read.append)
            await anyio.wait_all_tasks_blocked()
            await reading.aclose()
        await reading.read_all(read.append)

    assert read == []


async def test_a_cancelled_reader_loses_nothing_and_no_longer_watches_the_pipe() -> None:
    """Otherwise the event loop would spin as long as something can be read."""
    read: list[bytes] = []

    async with pipe() as (reading, writing):
        for _ in range(3):
            with anyio.move_on_after(0):
                await reading.read_all(read.append)
        if sniffio.current_async_library() == "asyncio":  # trio's tasks watch for themselves
            assert asyncio.get_running_loop().remove_reader(reading) is False

        assert writing.write(b"kept") == 4
        await writing.aclose()
        for _ in range(2):
            await reading.read_all(read.append)

    assert read == [b"kept"]


async def test_a_chunk_that_takes_many_steps_lets_other_tasks_run() -> None:
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
        writing.write(bytes(range(6)))
        await writing.aclose()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reading.read_all, take)
            tasks.start_soon(other)

    assert [byte for byte in said if byte != "other"] == list(range(6))
    assert said[said.index(0) : said.index(5)].count("other") >= 4


def fails(chunk: bytes) -> None:
    raise ZeroDivisionError


def fails_later(chunk: bytes) -> Iterator[None]:
    yield
    raise ZeroDivisionError


@pytest.mark.parametrize("take", [fails, fails_later])
async def test_an_error_in_the_callback_or_a_later_step_of_it_is_raised(take: Any) -> None:
    async with pipe() as (reading, writing):
        writing.write(b"one")

        with pytest.raises(ZeroDivisionError):
            await reading.read_all(take)


async def test_the_callback_may_use_anyio() -> None:
    """On asyncio it runs in no task, and sniffio looks for one."""
    clocks: list[float] = []

    async with pipe() as (reading, writing):
        writing.write(b"one")
        await writing.aclose()
        await reading.read_all(lambda chunk: clocks.append(anyio.current_time()))

    assert len(clocks) == 1


async def test_what_is_not_installed_is_not_looked_for_at_each_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking for sniffio took a tenth of what opening and closing a process takes."""
    async with pipe() as (reading, writing):
        await writing.aclose()
        monkeypatch.delitem(sys.modules, "sniffio")  # anyio has it
        await reading.read_all(lambda chunk: None)

        assert "sniffio" not in sys.modules


async def test_after_a_full_read_the_next_one_is_larger() -> None:
    sizes: list[int] = []

    async with pipe() as (reading, writing):
        written = writing.write(b"x" * 500_000)
        await writing.aclose()
        await reading.read_all(lambda chunk: sizes.append(len(chunk)))

    assert sizes == [size for size in (CHUNK, written - CHUNK) if size]


async def test_a_large_write_waits_for_its_reader() -> None:
    large = b"x" * (16 * CHUNK)
    received: list[bytes] = []

    async with pipe() as (reading, writing):

        async def write() -> None:
            left = memoryview(large)
            while left:
                left = left[await writing.write_some(left) :]
            await writing.aclose()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            await reading.read_all(received.append)

    assert b"".join(received) == large


async def test_a_pipe_that_either_end_has_closed_is_broken() -> None:
    async with pipe() as (reading, writing):
        await reading.aclose()
        with pytest.raises(BrokenPipeError):
            writing.write(b"x")
        await writing.aclose()
        with pytest.raises(ValueError, match="closed file"):
            writing.write(b"x")


async def test_a_closed_pipe_or_another_file_counts_as_read() -> None:
    async with pipe() as (_, writing):
        writing.write(b"x")
        await writing.aclose()
        await writing.wait_until_read()
        no_pipe = WriteEnd(os.open(os.devnull, os.O_WRONLY))
        await no_pipe.wait_until_read()
        await no_pipe.aclose()


async def test_waiting_until_what_was_written_is_read() -> None:
    taken = anyio.Event()

    async def wait() -> None:
        await writing.wait_until_read()
        taken.set()

    async with pipe() as (reading, writing), anyio.create_task_group() as tasks:
        writing.write(b"x")
        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        assert not taken.is_set()
        tasks.start_soon(reading.read_all, lambda chunk: None)
        await taken.wait()
        await writing.aclose()


async def test_a_waiting_writer_fails_when_its_end_is_closed() -> None:
    async with pipe() as (_, writing):
        while writing.write(b"x" * CHUNK):
            pass

        async def write() -> None:
            with pytest.raises(anyio.ClosedResourceError):
                await writing.write_some(memoryview(b"x"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            await anyio.wait_all_tasks_blocked()
            await writing.aclose()


async def test_unread_output_stays_in_the_pipe() -> None:
    """A server that writes faster than its client reads waits for its pipe."""
    written, read = 0, [0]

    async with pipe() as (reading, writing):
        while wrote := writing.write(b"x" * CHUNK):
            written += wrote
            await anyio.wait_all_tasks_blocked()
        await writing.aclose()
        await reading.read_all(lambda chunk: read.append(len(chunk)))

    assert sum(read) == written


async def test_closing_a_pipe_during_a_read_does_not_affect_the_next_pipe() -> None:
    """The system gives it the same file descriptor."""
    read: list[bytes] = []

    async with pipe() as (reading, writing), anyio.create_task_group() as tasks:

        def take(chunk: bytes) -> Iterator[None]:
            tasks.start_soon(reading.aclose)
            yield

        tasks.start_soon(reading.read_all, take)
        await anyio.wait_all_tasks_blocked()
        writing.write(b"one")
    async with pipe() as (reading, writing):
        writing.write(b"two")
        await writing.aclose()
        await reading.read_all(read.append)

    assert read == [b"two"]


async def test_a_reader_goes_on_waiting_if_another_has_read_what_woke_it() -> None:
    read: list[bytes] = []

    async with pipe() as (reading, writing):
        other = ReadEnd(os.dup(reading.fileno()))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reading.read_all, read.append)
            tasks.start_soon(other.read_all, read.append)
            await anyio.wait_all_tasks_blocked()
            for chunk in (b"one", b"two"):
                writing.write(chunk)
                await writing.wait_until_read()
            await writing.aclose()
        await other.aclose()

    assert read == [b"one", b"two"]


async def test_an_inherited_pipe_stays_as_it_is_and_is_written_as_far_as_it_has_room() -> None:
    """Another process that has it, too, would find it non-blocking."""
    from_pipe, to_pipe = os.pipe()
    reading, writing = ReadEnd(from_pipe, inherited=True), InheritedWriteEnd(to_pipe)
    data, read = bytes(range(256)) * 4096, list[bytes]()

    with anyio.fail_after(25):
        assert writing.write(b"small") == 5
        written = writing.write(data)
        assert 0 < written < len(data)
        assert writing.write(b"no room") == 0
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reading.read_all, read.append)
            while written < len(data):
                written += await writing.write_some(memoryview(data)[written:])
            assert os.get_blocking(from_pipe)
            assert os.get_blocking(to_pipe)
            await writing.aclose()

    assert b"".join(read) == b"small" + data
    await reading.aclose()


async def test_an_inherited_pipe_without_a_reader_is_broken() -> None:
    from_pipe, to_pipe = os.pipe()
    os.close(from_pipe)
    writing = InheritedWriteEnd(to_pipe)

    with pytest.raises(BrokenPipeError):
        writing.write(b"lost")
    await writing.aclose()
