"""Writing lines into a pipe with as much room as the test gives it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio import WouldBlock
from anyio.lowlevel import checkpoint

from mcp_host.errors import ConnectionClosed
from mcp_host.transports.stdio import QUEUED_LINE, LineWriter


class Pipe:
    """Takes *room* bytes, then none until the test makes more."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.taken = b""
        self.writes = 0
        self.broken = False
        self._more = anyio.Event()

    def write(self, data: bytes | memoryview, /) -> int | None:
        if self.broken:
            raise BrokenPipeError
        taken = bytes(data[: self.room])
        self.room -= len(taken)
        self.taken += taken
        self.writes += bool(taken)
        return len(taken) or None

    async def write_some(self, data: memoryview) -> int:
        while not (written := self.write(data)):
            await self._more.wait()
        return written

    async def wait_until_read(self) -> None:
        raise AssertionError("a writer does not ask")

    async def aclose(self) -> None:
        raise AssertionError("a writer does not close its pipe")

    def make(self, room: int) -> None:
        self.room += room
        self.wake()

    def break_(self) -> None:
        self.broken = True
        self.wake()

    def wake(self) -> None:
        self._more.set()
        self._more = anyio.Event()


def writing(pipe: Pipe, *, limit: int = 100_000, stall_timeout: float = 60) -> LineWriter:
    return LineWriter(pipe, limit=limit, stall_timeout=stall_timeout)


@asynccontextmanager
async def running(writer: LineWriter) -> AsyncIterator[None]:
    """Write what is queued, while the block runs and until no more can be written."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(writer.run)
        await anyio.wait_all_tasks_blocked()
        yield
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()


def has_room(writer: LineWriter, size: int) -> bool:
    """Whether a line of *size* bytes can be queued; it is withdrawn again."""
    try:
        line = writer.write(b"x" * size)
    except WouldBlock:
        return False
    assert line is not None
    return writer.withdraw(line)


async def test_a_line_that_fits_is_written_at_once() -> None:
    pipe = Pipe(10)

    assert writing(pipe).write(b"hello\n") is None
    assert pipe.taken == b"hello\n"


async def test_queued_lines_are_written_together_and_in_order() -> None:
    pipe = Pipe(0)
    writer = writing(pipe)
    for line in (b"one\n", b"two\n", b"three\n"):
        assert writer.write(line) is not None

    async with running(writer):
        pipe.make(100)

    assert (pipe.taken, pipe.writes) == (b"one\ntwo\nthree\n", 1)


@pytest.mark.parametrize("end", [lambda pipe: pipe.make(100), Pipe.break_], ids=["written", "broken"])
async def test_all_is_flushed_once_nothing_is_queued(end: Callable[[Pipe], None]) -> None:
    pipe = Pipe(0)
    writer = writing(pipe)
    flushed: list[int] = []

    async def flush() -> None:
        await writer.flushed()
        flushed.append(writer.lines)

    await flush()
    writer.write(b"one\n")
    writer.write(b"two\n")
    assert writer.lines == 2
    async with running(writer), anyio.create_task_group() as tasks:
        tasks.start_soon(flush)
        await anyio.wait_all_tasks_blocked()
        assert flushed == [0]
        end(pipe)

    assert flushed == [0, 0]


async def test_one_write_has_lines_of_up_to_64_kib() -> None:
    pipe = Pipe(0)
    writer = writing(pipe, limit=300_000)
    for size in (1, 65_535, 65_536, 1):
        writer.write(b"x" * size)

    async with running(writer):
        pipe.make(300_000)

    assert (len(pipe.taken), pipe.writes) == (131_073, 3)


async def test_a_line_cut_anywhere_is_continued_where_it_was_cut() -> None:
    pipe = Pipe(2)
    writer = writing(pipe)
    writer.write(b"one\n")
    writer.write(b"two\n")

    async with running(writer):
        for _ in range(6):
            pipe.make(1)
            await anyio.wait_all_tasks_blocked()

    assert pipe.taken == b"one\ntwo\n"


async def test_a_line_that_has_not_begun_can_be_withdrawn() -> None:
    pipe = Pipe(1)
    writer = writing(pipe)
    begun, waiting = writer.write(b"one\n"), writer.write(b"two\n")
    assert begun is not None
    assert waiting is not None

    assert not writer.withdraw(begun)
    assert writer.withdraw(waiting)
    assert not writer.withdraw(waiting)

    async with running(writer):
        pipe.make(100)
    assert pipe.taken == b"one\n"


async def test_a_line_past_the_limit_has_to_wait_for_room() -> None:
    pipe = Pipe(0)
    writer = writing(pipe, limit=10)
    writer.write(b"12345678\n")
    written = []

    async def write() -> None:
        with pytest.raises(WouldBlock):
            writer.write(b"abc\n")
        await writer.wait_for_room(b"abc\n")
        writer.write(b"abc\n")
        written.append("abc")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        await anyio.wait_all_tasks_blocked()
        assert written == []
        tasks.start_soon(writer.run)
        pipe.make(100)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()

    assert written == ["abc"]
    assert pipe.taken == b"12345678\nabc\n"


async def test_each_byte_written_makes_room_for_another() -> None:
    pipe = Pipe(0)
    writer = writing(pipe, limit=QUEUED_LINE + 10)
    writer.write(b"123456789\n")

    async with running(writer):
        for left in (10, 7, 4):
            await anyio.wait_all_tasks_blocked()
            assert (has_room(writer, 10 - left), has_room(writer, 11 - left)) == (True, False)
            pipe.make(3)
        pipe.make(1)
        await anyio.wait_all_tasks_blocked()
        writer.write(b"a\n")
        assert (has_room(writer, 8), has_room(writer, 9)) == (True, False)

    assert pipe.taken == b"123456789\n"


async def test_short_lines_take_room_too() -> None:
    """A list of them takes far more memory than their bytes."""
    writer = writing(Pipe(0), limit=100 * QUEUED_LINE)
    for _ in range(100):
        writer.write(b"{}\n")

    with pytest.raises(WouldBlock):
        writer.write(b"{}\n")


async def test_a_single_line_may_be_larger_than_the_limit() -> None:
    pipe = Pipe(0)

    writer = writing(pipe, limit=10)

    assert writer.write(b"x" * 50) is not None


async def test_a_broken_pipe_fails_every_line() -> None:
    pipe = Pipe(0)
    pipe.broken = True
    writer = writing(pipe)

    for _ in range(2):
        with pytest.raises(ConnectionClosed, match="has closed its input") as failure:
            writer.write(b"one\n")
        assert not failure.value.may_have_run
    with anyio.fail_after(25):
        await writer.run()  # it returns at once


async def test_a_pipe_that_breaks_tells_each_queued_line_whether_it_had_begun() -> None:
    pipe = Pipe(2)
    writer = writing(pipe)
    lost: list[tuple[str, bool]] = []
    writer.write(b"one\n", lambda error: lost.append(("one", error.may_have_run)))
    writer.write(b"two\n", lambda error: lost.append(("two", error.may_have_run)))
    writer.write(b"3\n")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(writer.run)
        await checkpoint()
        pipe.break_()

    # One write was tried with both: any part of it may have been written.
    assert lost == [("one", True), ("two", True)]


async def test_a_caller_that_waits_for_room_gets_the_error_of_a_broken_pipe() -> None:
    pipe = Pipe(0)
    writer = writing(pipe, limit=1)
    writer.write(b"one\n")

    async def write() -> None:
        await writer.wait_for_room(b"two\n")
        with pytest.raises(ConnectionClosed):
            writer.write(b"two\n")

    with anyio.fail_after(25):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            tasks.start_soon(writer.run)
            await anyio.wait_all_tasks_blocked()
            pipe.break_()


async def test_a_server_that_reads_nothing_for_too_long_is_an_error() -> None:
    pipe = Pipe(0)
    writer = writing(pipe, stall_timeout=0)
    lost: list[str] = []
    writer.write(b"one\n", lambda error: lost.append(str(error)))

    with pytest.raises(ConnectionClosed, match="has read none of its input for 0 s"):
        await writer.run()
    assert lost == ["the server has read none of its input for 0 s"]
