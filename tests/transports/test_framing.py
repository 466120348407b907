"""Splitting bytes into lines, for any chunking."""

from __future__ import annotations

import tracemalloc
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_host.errors import ConnectionClosed
from mcp_host.limits import Limits
from mcp_host.protocol.jsonrpc import Incoming, Raw
from mcp_host.transports._process.child import GRACE, OnChunk
from mcp_host.transports._process.stderr import Stderr
from mcp_host.transports.stdio import LineBuffer, LongLine, StdioChannel
from tests.clock import stepping, stopped, turns_of
from tests.transports.http_peers import NOTE_JSON


class Pipes:
    """A server whose stdout brings *chunk* in one read; *turns* counts after how many steps others have their turn."""

    def __init__(self, chunk: bytes) -> None:
        self.stdin = self.stdout = self.process = self
        self.exit_code, self.turns, self.grace = 0, 0, GRACE
        self._chunk = chunk

    async def read_all(self, on_chunk: OnChunk) -> None:
        self.turns = turns_of(on_chunk(self._chunk) or ())

    async def wait(self) -> None:
        await anyio.sleep_forever()

    async def exits_within(self, seconds: float) -> bool:
        return True


class Waiting(Pipes):
    """A server that goes on after *chunk*, and writes nothing more."""

    async def read_all(self, on_chunk: OnChunk) -> None:
        await super().read_all(on_chunk)
        await anyio.sleep_forever()


async def test_the_lines_of_one_read_are_read_in_turns_that_lines_and_time_bound() -> None:
    turns: list[int] = []
    for clock in (stopped, stepping()):
        pipes, received = Pipes((NOTE_JSON + b"\n") * 512), list[Incoming]()
        child: Any = pipes
        channel = StdioChannel("server", child, Stderr(None), Limits(), clock=clock)
        with pytest.raises(ConnectionClosed):
            await channel.listen(received.append)
        turns.append(pipes.turns)
        assert len(received) == 512

    assert turns == [2, 256]


ASKED: dict[str, tuple[bytes, str]] = {
    "a question": (b"Your key: ", "'Your key:'"),
    "after a banner": (b"Welcome\nYour key: ", "'Welcome', 'Your key:'"),
    "after many lines": (
        b"line\n" * 7 + b"Your key: ",
        "'line', 'line', 'line' and ends with 'line', 'line', 'line', 'Your key:' (7 lines)",
    ),
    "a message without a line end": (b'{"jsonrpc": "2.0"}', """'{"jsonrpc": "2.0"}'"""),
}


async def test_what_a_program_has_begun_to_write_is_quoted_before_the_line_ends(subtests: pytest.Subtests) -> None:
    """A program that asks a person for something waits for the answer, until time is up."""
    for case, (written, quotes) in ASKED.items():
        with subtests.test(case):
            child: Any = Waiting(written)
            channel = StdioChannel("server", child, Stderr(None), Limits())
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(channel.listen, list[Incoming]().append)
                await anyio.wait_all_tasks_blocked()
                assert channel.other_output == f"; it seems to be no MCP server: its stdout begins with {quotes}"
                tasks.cancel_scope.cancel()


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    chunks, start = [], 0
    for size in sizes:
        chunks.append(data[start : start + size])
        start += size
    return [*chunks, data[start:]]


@pytest.mark.fault("F02")
@given(st.lists(st.binary(max_size=20).map(lambda b: b.replace(b"\n", b""))), st.lists(st.integers(0, 9)))
def test_lines_are_complete_for_any_chunking(lines: list[bytes], sizes: list[int]) -> None:
    buffer = LineBuffer(100)

    found = [line for chunk in cut(b"".join(line + b"\n" for line in lines), sizes) for line in buffer.feed(chunk)]

    assert found == lines
    assert list(buffer.rest()) == []


@pytest.mark.fault("F07")
@given(st.lists(st.integers(0, 2000)))
def test_the_limit_applies_to_lines_not_to_chunks(sizes: list[int]) -> None:
    """A line of exactly the limit passes, one more byte does not, in one chunk or in many."""
    fits, long = b"a" * 1000, b"b" * 1001
    buffer = LineBuffer(1000)

    data = fits + b"\n" + long + b"\n" + fits + b"\n"
    found = [line for chunk in cut(data, sizes) for line in buffer.feed(chunk)]

    first, too_long, its_end, last = found
    assert (first, last) == (fits, fits)
    assert isinstance(too_long, LongLine)
    assert (too_long.head, too_long.tail) == (b"b" * 256, b"")
    assert its_end == LongLine(too_long.head, b"b" * 256)


def test_an_endless_line_costs_no_more_memory_than_the_limit() -> None:
    buffer = LineBuffer(1000)
    found: list[Raw | LongLine] = []
    tracemalloc.start()
    try:
        for _ in range(10_000):
            found += buffer.feed(("x" * 999).encode())
        held, _peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert held < 100_000  # of ten million bytes
    assert found == [LongLine(b"x" * 256, b"")], "it is reported when it becomes too long, for it may never end"
    assert list(buffer.feed(b"end\n")) == [LongLine(b"x" * 256, b"x" * (253) + b"end")]


@pytest.mark.parametrize("size", [1_000, 65_536, 1_048_576], ids=["1 kB", "64 KiB", "1 MiB"])
def test_a_line_that_becomes_too_long_is_never_copied_whole(size: int) -> None:
    """What is held of it is the limit, and what a buffer that grows keeps in reserve: an eighth."""
    limit = 8 * 1_048_576
    chunk = b"x" * size
    buffer = LineBuffer(limit)
    found: list[Raw | LongLine] = []
    tracemalloc.start()
    try:
        while not found:
            found += buffer.feed(chunk)
        held, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert most / limit < 1.2
    assert held < 10_000, "from here on only its ends are kept"
    assert found == [LongLine(b"x" * 256, b"")]
    assert list(buffer.feed(b"end\n")) == [LongLine(b"x" * 256, b"x" * 253 + b"end")]


@pytest.mark.parametrize("cut", [1, 100, 255, 256, 257, 999])
def test_both_ends_of_a_long_line_are_kept_for_any_chunking(cut: int) -> None:
    line = bytes(n % 26 + 97 for n in range(1300))
    buffer = LineBuffer(1000)

    found = [*buffer.feed(line[:cut]), *buffer.feed(line[cut:1100]), *buffer.feed(line[1100:] + b"\n")]

    assert found == [LongLine(line[:256], b""), LongLine(line[:256], line[-256:])]


def test_a_line_in_tiny_chunks_takes_no_more_memory_than_its_size() -> None:
    drops = [bytes([n % 9 + 48, 48]) for n in range(100_000)]
    buffer = LineBuffer(10**6)
    tracemalloc.start()
    try:
        for drop in drops:
            list(buffer.feed(bytes(bytearray(drop))))  # a new object, as each read makes one
        held, _peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert held < 300_000  # of two hundred thousand bytes; the objects alone would be five million
    assert list(buffer.feed(b"\n")) == [b"".join(drops)]


@pytest.mark.fault("F13")
def test_unicode_line_separators_do_not_end_a_line() -> None:
    line = "\u2028\u2029\x85\x0b\r".encode()

    assert list(LineBuffer(100).feed(line + b"\n")) == [line]


@pytest.mark.parametrize(("data", "rest"), [(b"a\nb", [b"b"]), (b"a\n", []), (b"", [])], ids=["rest", "none", "empty"])
def test_bytes_after_the_last_newline_are_returned_at_the_end(data: bytes, rest: list[bytes]) -> None:
    buffer = LineBuffer(100)
    list(buffer.feed(data))

    assert list(buffer.rest()) == rest
