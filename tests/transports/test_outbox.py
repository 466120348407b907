"""Lines into a pipe that takes as much as the test lets it."""

from __future__ import annotations

import anyio
import pytest
from anyio.lowlevel import checkpoint

from mcp_host.errors import ConnectionClosed
from mcp_host.transports._process.outbox import Outbox


class Pipe:
    """Takes *room* bytes, then none until the test makes more."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.taken = b""
        self.writes = 0
        self.broken = False
        self._more = anyio.Event()

    def write_now(self, data: bytes | memoryview) -> int:
        if self.broken:
            raise BrokenPipeError
        taken = bytes(data[: self.room])
        self.room -= len(taken)
        self.taken += taken
        self.writes += bool(taken)
        return len(taken)

    async def write_some(self, data: memoryview) -> int:
        while not (written := self.write_now(data)):
            await self._more.wait()
        return written

    def make(self, room: int) -> None:
        self.room += room
        self.wake()

    def break_(self) -> None:
        self.broken = True
        self.wake()

    def wake(self) -> None:
        self._more.set()
        self._more = anyio.Event()


def outbox(pipe: Pipe, *, limit: int = 100, stall_timeout: float = 60) -> Outbox:
    return Outbox(pipe, limit=limit, stall_timeout=stall_timeout)


async def test_a_line_that_fits_leaves_nothing_to_wait_for() -> None:
    pipe = Pipe(10)

    assert outbox(pipe).put(b"hello\n") is None
    assert pipe.taken == b"hello\n"


async def test_lines_that_wait_are_written_together_and_in_order() -> None:
    pipe = Pipe(0)
    box = outbox(pipe)
    for line in (b"one\n", b"two\n", b"three\n"):
        assert box.put(line) is not None

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(box.run)
        await anyio.wait_all_tasks_blocked()
        pipe.make(100)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()

    assert (pipe.taken, pipe.writes) == (b"one\ntwo\nthree\n", 1)


async def test_a_line_cut_anywhere_is_continued_where_it_was_cut() -> None:
    pipe = Pipe(2)
    box = outbox(pipe)
    box.put(b"one\n")
    box.put(b"two\n")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(box.run)
        for _ in range(6):
            await anyio.wait_all_tasks_blocked()
            pipe.make(1)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()

    assert pipe.taken == b"one\ntwo\n"


async def test_a_line_that_has_not_begun_can_be_taken_back() -> None:
    pipe = Pipe(1)
    box = outbox(pipe)
    begun, waiting = box.put(b"one\n"), box.put(b"two\n")
    assert begun is not None
    assert waiting is not None

    assert not box.withdraw(begun)
    assert box.withdraw(waiting)
    assert not box.withdraw(waiting)

    pipe.room = 100
    with anyio.move_on_after(0):
        await box.run()
    assert pipe.taken == b"one\n"


async def test_who_writes_past_the_limit_waits_for_room() -> None:
    pipe = Pipe(0)
    box = outbox(pipe, limit=10)
    box.put(b"12345678\n")
    written = []

    async def write() -> None:
        await box.wait_for_room(b"abc\n")
        box.put(b"abc\n")
        written.append("abc")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        await anyio.wait_all_tasks_blocked()
        assert written == []
        tasks.start_soon(box.run)
        pipe.make(100)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()

    assert written == ["abc"]
    assert pipe.taken == b"12345678\nabc\n"


async def test_what_was_written_of_a_backlog_makes_room_for_as_much() -> None:
    pipe = Pipe(0)
    box = outbox(pipe, limit=10)
    box.put(b"123456789\n")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(box.run)
        for left in (10, 7, 4):
            await anyio.wait_all_tasks_blocked()
            assert (box.has_room(b"x" * (10 - left)), box.has_room(b"x" * (11 - left))) == (True, False)
            pipe.make(3)
        pipe.make(1)
        await anyio.wait_all_tasks_blocked()
        box.put(b"a\n")
        assert (box.has_room(b"x" * 8), box.has_room(b"x" * 9)) == (True, False)
        tasks.cancel_scope.cancel()

    assert pipe.taken == b"123456789\n"


async def test_a_single_line_may_be_larger_than_the_limit() -> None:
    pipe = Pipe(0)

    box = outbox(pipe, limit=10)

    assert box.has_room(b"x" * 50)
    assert box.put(b"x" * 50) is not None


async def test_a_broken_pipe_fails_the_line_that_meets_it_and_every_later_one() -> None:
    pipe = Pipe(0)
    pipe.broken = True
    box = outbox(pipe)

    for _ in range(2):
        with pytest.raises(ConnectionClosed, match="has closed its input") as failure:
            box.put(b"one\n")
        assert not failure.value.may_have_run
    with anyio.fail_after(5):
        await box.run()  # there is nothing left to do


async def test_a_pipe_that_breaks_tells_each_waiting_line_whether_it_had_begun() -> None:
    pipe = Pipe(2)
    box = outbox(pipe, limit=10)
    lost: list[tuple[str, bool]] = []
    box.put(b"one\n", lambda error: lost.append(("one", error.may_have_run)))
    box.put(b"two\n", lambda error: lost.append(("two", error.may_have_run)))
    box.put(b"3\n")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(box.run)
        await checkpoint()
        pipe.break_()

    # The burst that was tried holds both: any part of it might have been written.
    assert lost == [("one", True), ("two", True)]


async def test_a_writer_that_waits_for_room_hears_of_the_break() -> None:
    pipe = Pipe(0)
    box = outbox(pipe, limit=1)
    box.put(b"one\n")

    async def write() -> None:
        await box.wait_for_room(b"two\n")
        with pytest.raises(ConnectionClosed):
            box.put(b"two\n")

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            tasks.start_soon(box.run)
            await anyio.wait_all_tasks_blocked()
            pipe.break_()


async def test_a_reader_that_reads_nothing_for_too_long_is_given_up() -> None:
    pipe = Pipe(0)
    box = outbox(pipe, stall_timeout=0)
    lost: list[str] = []
    box.put(b"one\n", lambda error: lost.append(str(error)))

    with pytest.raises(ConnectionClosed, match="has read none of its input for 0 s"):
        await box.run()
    assert lost == ["the server has read none of its input for 0 s"]
