"""Bodies of HTTP answers: empty, cut, of another kind, endless, compressed to explode. One call fails, at once."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import pytest
from anyio import sleep

from mcp_host.errors import (
    ConnectionClosed,
    HttpStatusError,
    McpError,
    MessageTooLarge,
    ProtocolError,
    RequestTimeout,
    ServerError,
)
from mcp_host.limits import Limits
from tests.faults.fault import fault
from tests.faults.http_server import (
    DONE,
    LOG,
    connected,
    error_of,
    failing,
    mcp,
    says,
    sends,
    storm,
    subjects,
    tides,
)
from tests.transports.http_peers import JSON, LENGTH, Heard, Log, Wire, head
from tests.transports.legacy_peers import Answer, in_turn

MiB = 1024 * 1024
SMALL = Limits(max_message=MiB)
KINDS = pytest.mark.parametrize("kind", ["application/json", "text/event-stream"], ids=["JSON", "events"])
PING = b'{"jsonrpc":"2.0","id":"p","method":"ping"}'


def under(id: bytes) -> bytes:
    """The good reply, to a request with that id."""
    return DONE.replace(b"@id", id)


# Bodies without the reply


@pytest.mark.parametrize(
    "body",
    [b"", b" \r\n", b"{", DONE[:-1], DONE.replace(b"high", b"hi\xffgh"), b"null", b"7", b"OK", b"\x00" * 100, b"[" * 10_000],
    ids=["nothing", "blanks", "a brace", "cut", "no UTF-8", "null", "a number", "text", "NULs", "nesting"],
)  # fmt: skip
@fault("H15")
async def test_a_body_without_a_reply_fails_its_call_at_once(body: bytes) -> None:
    assert type(await error_of(says(body))) is ProtocolError


@pytest.mark.parametrize("body", [b"\r\n\t" + DONE + b"\n\n", b"\xef\xbb\xbf" + DONE], ids=["blanks", "a BOM"])
@fault("H15")
async def test_a_body_in_an_unusual_form_may_be_the_reply(body: bytes) -> None:
    async with connected(mcp(call=says(body))) as (client, _):
        await tides(client)


@pytest.mark.parametrize(
    "body",
    [
        b"[" + DONE + b"]",
        b"[" + LOG + b"," + DONE + b"]",
        b"[7,null," + DONE + b"," + LOG + b"]",
    ],
    ids=["alone", "after a notification", "between nonsense and a notification"],
)
@fault("H16")
async def test_a_reply_in_an_array_is_delivered(body: bytes) -> None:
    async with connected(mcp(call=says(body))) as (client, _):
        await tides(client)


@pytest.mark.parametrize("body", [b"[]", b"[[]]", b"[" + LOG + b"]", b"[7]"])
@fault("H16")
async def test_an_array_without_the_reply_fails_its_call_at_once(body: bytes) -> None:
    assert type(await error_of(says(body))) is ProtocolError


@pytest.mark.parametrize("id", [b"4711", b'"other"', b"-1", b"1.5", b"null", b"{}", b"true"])
@fault("H17")
async def test_a_reply_with_another_id_fails_its_call_at_once(id: bytes) -> None:
    assert type(await error_of(says(under(id)))) is ProtocolError


@fault("H17")
async def test_a_response_with_an_unknown_id_is_ignored_and_counted() -> None:
    async with connected(mcp(call=in_turn(says(under(b"4711")), says()))) as (client, _):
        await failing(client)
        assert client.counters == {"answers to nothing": 1}


@fault("H17")
async def test_an_error_without_an_id_is_about_the_one_request_it_answers() -> None:
    refusal = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"what was that?"}}'

    error = await error_of(says(refusal))

    assert isinstance(error, ServerError)
    assert (error.code, error.message) == (-32600, "what was that?")


@fault("H18")
async def test_a_notification_in_place_of_the_reply_is_delivered_and_the_call_fails_at_once() -> None:
    logs = Log[object]()

    async def on_log(message: object) -> None:
        logs.append(message)

    async with connected(mcp(call=in_turn(says(LOG), says())), on_log=on_log) as (client, _):
        assert type(await failing(client)) is ProtocolError
        await logs.reaches(lambda logs: len(logs) == 1)
        await tides(client)


@fault("H18")
async def test_a_request_in_place_of_the_reply_is_answered_and_the_call_fails_at_once() -> None:
    answers = Log[object]()

    async def answer(wire: Wire, heard: Heard) -> None:
        answers.append(heard.rpc)
        await wire.reply(202)

    async with connected(mcp(call=in_turn(says(PING), says()), answer=answer)) as (client, _):
        assert type(await failing(client)) is ProtocolError
        await answers.reaches(lambda answers: answers == [{"jsonrpc": "2.0", "id": "p", "result": {}}])
        await tides(client)


# Bodies that break off


@pytest.mark.parametrize("reset", [False, True], ids=["end", "reset"])
@pytest.mark.parametrize("said", [b"", b"It all", b"It all" * 1000], ids=["nothing", "little", "more"])
@fault("H20")
async def test_an_error_with_a_broken_body_is_still_that_error(said: bytes, reset: bool) -> None:
    error = await error_of(
        sends(head(500, {"content-type": "text/plain", "content-length": "9999"}) + said, reset=reset)
    )

    assert isinstance(error, HttpStatusError)
    assert error.status == 500
    assert said.decode().startswith(error.body)  # a reset may overtake what was said


@fault("H20")
async def test_an_error_with_a_corrupt_compressed_body_is_still_that_error() -> None:
    error = await error_of(says(b"no gzip", 503, content_encoding="gzip"))

    assert isinstance(error, HttpStatusError)
    assert (error.status, error.body) == (503, "")


CUT = gzip.compress(DONE)[:-9]


@KINDS
@pytest.mark.parametrize("coding", ["gzip", "deflate", "x-gzip"])
@pytest.mark.parametrize(
    "body", [b"no compression at all", CUT, b"\x1f\x8b" + b"\xff" * 50], ids=["none", "cut", "bad"]
)
@fault("H22")
async def test_a_body_whose_compression_is_corrupt_fails_its_call_alone(kind: str, coding: str, body: bytes) -> None:
    error = await error_of(says(body, content_type=kind, content_encoding=coding))

    assert type(error) is ConnectionClosed
    assert error.may_have_run


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip", "rot13"])
@fault("H22")
async def test_an_encoding_that_was_not_requested_is_named(coding: str) -> None:
    error = await error_of(says(content_encoding=coding))

    assert type(error) is ProtocolError
    assert f"Content-Encoding {coding}" in str(error)


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
    answer = says(bomb(256 * MiB), content_encoding="gzip", content_type=kind)
    with memory_below(8 * MiB):
        error = await error_of(answer, limits=SMALL)

    assert type(error) is MessageTooLarge


@fault("H31")
async def test_a_compression_bomb_in_an_error_is_not_inflated() -> None:
    answer = says(bomb(256 * MiB), 500, content_encoding="gzip", content_type="text/plain")
    with memory_below(8 * MiB):
        error = await error_of(answer, limits=SMALL)

    assert isinstance(error, HttpStatusError)
    assert error.body == "\0" * 64 * 1024


@fault("H31")
async def test_a_compression_bomb_after_the_reply_is_not_read() -> None:
    """Comments without end, compressed: the reply is there, and the rest is left."""
    packer = zlib.compressobj(wbits=31)
    first = packer.compress(b"data: " + under(b"2") + b"\n\n") + packer.flush(zlib.Z_SYNC_FLUSH)
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


@fault("H32")
async def test_an_endless_error_body_is_read_up_to_its_limit() -> None:
    with memory_below(8 * MiB):
        error = await error_of(endless(500, "text/plain", b"sorry " * 1000))

    assert isinstance(error, HttpStatusError)
    assert len(error.body) == 64 * 1024


@pytest.mark.parametrize("excess", [0, 1])
@fault("H32")
async def test_the_limit_is_the_one_that_was_set_to_the_byte(excess: int) -> None:
    body = under(b"2").ljust(1000 + excess)

    async with connected(mcp(call=says(body)), limits=Limits(max_message=1000)) as (client, _):
        if excess:
            assert type(await failing(client)) is MessageTooLarge
        else:
            await tides(client)


# Bodies that take their time


async def drip(wire: Wire, heard: Heard) -> None:
    """A body of blanks, one by one: there is always something to read, and never anything in it."""
    await wire.say(head(200, {**JSON, **LENGTH}))
    while True:
        await wire.say(b" ")
        await sleep(0.01)


@pytest.mark.parametrize("options", [{"idle_timeout": 0.2}, {"timeout": 0.2}], ids=["idle timeout", "timeout"])
@fault("H28")
async def test_a_slow_body_ends_at_the_calls_timeout(options: dict[str, float]) -> None:
    async with connected(mcp(call=storm(drip))) as (client, peer):
        error: McpError = await failing(client, "storm", **options)
        await tides(client)

    assert type(error) is RequestTimeout
    assert subjects(peer).count("initialize") == 1
