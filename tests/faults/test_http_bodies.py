"""Bodies of HTTP answers: empty, cut, of another kind, endless, compressed to explode. One call fails, at once."""

from __future__ import annotations

import tracemalloc
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
from anyio import wait_all_tasks_blocked

from mcp_host.errors import (
    HttpStatusError,
    MessageTooLarge,
    ProtocolError,
    RequestTimeout,
)
from mcp_host.limits import Limits
from tests.clock import advance
from tests.extent import on_both
from tests.faults.fault import fault
from tests.faults.http_server import (
    DONE,
    LOG,
    TIDES,
    connected,
    error_of,
    failing,
    mcp,
    says,
    storm,
    subjects,
    tides,
)
from tests.transports.http_peers import JSON, LENGTH, Heard, Log, Wire, event, head
from tests.transports.legacy_peers import Answer, in_turn

MiB = 1024 * 1024
SMALL = Limits(max_message=MiB)
BOMB = 32 * MiB  # in 32 KiB
KINDS = pytest.mark.parametrize("kind", ["application/json", "text/event-stream"], ids=["JSON", "events"])


# Bodies without the reply


NO_REPLY = {
    "nothing": b"",
    "half of it": DONE[:-1],
    "another id": DONE.replace(b"@id", b"4711"),
    "a notification": LOG,
    "a request": b'{"jsonrpc":"2.0","id":"p","method":"ping"}',
}


@fault("H15", "H17", "H18")
async def test_a_body_without_the_reply_fails_its_call_at_once_and_what_it_holds_is_heeded() -> None:
    logs, answers = Log[object](), Log[object]()

    async def on_log(message: object) -> None:
        logs.append(message)

    async def answer(wire: Wire, heard: Heard) -> None:
        answers.append(heard.rpc)
        await wire.reply(202)

    call = in_turn(*(each for body in NO_REPLY.values() for each in (says(body), says())))
    async with connected(mcp(call=call, answer=answer), on_log=on_log) as (client, _):
        for body in NO_REPLY:
            assert type(await failing(client)) is ProtocolError, body
            await tides(client)
        await logs.reaches(lambda logs: len(logs) == 1)
        await answers.reaches(lambda answers: answers == [{"jsonrpc": "2.0", "id": "p", "result": {}}])
        assert client.counters == {"answers to nothing": 1, "malformed messages": 2}


# Bodies without an end


@cache
def bomb(size: int, *, wbits: int = 31) -> bytes:
    """So many NULs, in a thousandth of the space; *wbits* is zlib's, for gzip if not given."""
    packer = zlib.compressobj(wbits=wbits)
    return b"".join(packer.compress(bytes(MiB)) for _ in range(size // MiB)) + packer.flush()


@contextmanager
def memory_below(most: int) -> Iterator[None]:
    """What runs inside never holds more than that."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < most


@KINDS
@fault("H31")
async def test_a_compression_bomb_fails_its_call_at_the_limit(kind: str) -> None:
    answer = says(bomb(BOMB), content_encoding="gzip", content_type=kind)
    with memory_below(8 * MiB):
        error = await error_of(answer, limits=SMALL)

    assert type(error) is MessageTooLarge


@fault("H31")
async def test_a_compression_bomb_in_an_error_is_not_inflated() -> None:
    answer = says(bomb(BOMB), 500, content_encoding="gzip", content_type="text/plain")
    with memory_below(8 * MiB):
        error = await error_of(answer, limits=SMALL)

    assert isinstance(error, HttpStatusError)
    assert error.body == "\0" * 64 * 1024


@fault("H31")
async def test_a_compression_bomb_after_the_reply_is_not_read() -> None:
    """Comments without end, compressed: the reply is there, and the rest is left."""
    packer = zlib.compressobj(wbits=31)
    first = packer.compress(event(DONE.replace(b"@id", b"2"))) + packer.flush(zlib.Z_SYNC_FLUSH)
    rest = b"".join(packer.compress(b": x\n" * (MiB // 4)) for _ in range(20))

    with memory_below(8 * MiB):
        bomb = says(first + rest, content_type="text/event-stream", content_encoding="gzip")
        async with connected(mcp(call=bomb)) as (client, _):
            await tides(client)


def endless(status: int, kind: str, piece: bytes) -> Answer:
    async def answer(wire: Wire, heard: Heard) -> None:
        await wire.say(head(status, {"content-type": kind, "connection": "close"}))
        while True:
            await wire.say(piece)

    return answer


@fault("H32")
async def test_a_body_without_an_end_is_read_up_to_the_limit() -> None:
    with memory_below(8 * MiB):
        error = await error_of(endless(200, "application/json", b"[[1]," * 1000), limits=SMALL)

    assert type(error) is MessageTooLarge


# Bodies that take their time


def dripping(beginning: bytes) -> Answer:
    """There is always something more to read, and never anything in it; on the adjustable clock, five seconds for each byte."""

    async def answer(wire: Wire, heard: Heard) -> None:
        await wire.say(beginning)
        while True:
            await wire.say(b" ")
            await wait_all_tasks_blocked()  # until the client has read it
            advance(5)

    return answer


@on_both
@pytest.mark.parametrize("options", [{"idle_timeout": 9}, {"timeout": 9}], ids=["idle timeout", "timeout"])
@pytest.mark.parametrize("beginning", [b"HTTP/1.1 200 OK\r\nx: y", head(200, {**JSON, **LENGTH})], ids=["head", "body"])
@pytest.mark.adjustable_clock
@fault("H28", within=100)
async def test_a_response_that_drips_ends_at_the_calls_timeout(beginning: bytes, options: Any) -> None:
    async with connected(mcp(call=storm(dripping(beginning)))) as (client, peer):
        with pytest.raises(RequestTimeout):
            await client.call_tool("storm", **options)
        assert (await client.call_tool("tides")).content == TIDES

    assert subjects(peer).count("initialize") == 1
