"""Event streams that answer a call: cut, malformed, oddly written, without an end, or with the response to another request."""

from __future__ import annotations

import tracemalloc

import anyio
import pytest

from mcp_host.errors import ConnectionClosed, McpError, MessageTooLarge, ProtocolError, RequestTimeout, ServerError
from mcp_host.limits import Limits
from mcp_host.types import TextContent
from tests.faults.fault import fault
from tests.faults.http_server import (
    DONE,
    LOG,
    SOON,
    chunked,
    connected,
    error_of,
    failing,
    filled,
    mcp,
    says,
    sends,
    storm,
    streams,
    tides,
)
from tests.transports.http_peers import Heard, Wire, event
from tests.transports.legacy_peers import Answer, hang, in_turn

MiB = 1024 * 1024


# Streams that end too early


@pytest.mark.parametrize("reset", [False, True], ids=["end", "reset"])
@pytest.mark.parametrize(
    "pieces",
    [[b"data"], [b"data: "], [b"data: " + DONE[:-1]], [event(LOG), b"data: {\n"], [b"id: e-1"]],
    ids=["inside a field's name", "before the data", "inside the data", "between two lines", "inside an id"],
)
@fault("E01")
async def test_a_stream_cut_inside_an_event_fails_its_call_at_once(pieces: list[bytes], reset: bool) -> None:
    error = await error_of(sends(chunked(*pieces), reset=reset))

    assert type(error) is ConnectionClosed
    assert error.may_have_run


@pytest.mark.parametrize(
    "pieces",
    [[], [b"\n\n\n"], [b": hello\n\n"], [event(LOG)], [b"retry: 10\n\n"], [b"event: message\n\n"], [b"data:\n\n"]],
    ids=["empty", "blank lines", "a comment", "a notification", "a retry", "a type alone", "empty data"],
)
@fault("E02")
async def test_a_stream_that_ends_without_the_reply_fails_its_call_at_once(pieces: list[bytes]) -> None:
    error = await error_of(streams(*pieces))

    assert type(error) is ConnectionClosed
    assert "the stream ended before the response" in str(error)
    assert error.may_have_run


@pytest.mark.parametrize("end", [b"", b"\n", b"\r", b"\nid: e-1", b"\nretry: 1"])
@fault("E03")
async def test_a_last_event_without_its_blank_line_is_delivered(end: bytes) -> None:
    async with connected(mcp(call=streams(b"data: " + DONE + end))) as (client, _):
        await tides(client)


# Whose reply


def under(id: bytes) -> bytes:
    return event(DONE.replace(b"@id", id).replace(b"high", b"low"))


@pytest.mark.parametrize("id", [b"4711", b'"other"', b"-1", b"0"])
@fault("E16")
async def test_a_response_to_another_request_is_ignored_and_counted(id: bytes) -> None:
    async with connected(mcp(call=streams(under(id), event(DONE)))) as (client, _):
        await tides(client)
        assert client.counters == {"answers to nothing": 1}


@fault("E16")
async def test_a_response_to_another_request_is_ignored_even_if_it_is_the_only_one() -> None:
    assert type(await error_of(streams(under(b"4711")))) is ConnectionClosed


@fault("E16")
async def test_a_reply_on_another_calls_stream_finds_its_call() -> None:
    """The first call's stream stays silent; the second's brings the replies to both."""
    first = anyio.Event()

    async def silent(wire: Wire, heard: Heard) -> None:
        first.set()
        await hang(wire, heard)

    both = streams(event(DONE.replace(b"@id", b"2")) + event(DONE))
    async with connected(mcp(call=in_turn(silent, both))) as (client, _), anyio.create_task_group() as tasks:
        tasks.start_soon(tides, client)
        await first.wait()
        await tides(client)


@pytest.mark.parametrize("id", [b"@id", b"null"])
@pytest.mark.parametrize("stay", [False, True], ids=["that ends", "that stays open"])
@fault("E17")
async def test_an_error_on_a_stream_fails_its_call(id: bytes, stay: bool) -> None:
    refusal = b'{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no such tool","data":[1]}}' % id

    error = await error_of(streams(event(refusal), stay=stay))

    assert type(error) is ServerError
    assert (error.code, error.message, error.data) == (-32602, "no such tool", [1])


# Events that are none


@pytest.mark.parametrize(
    "data",
    [b"nonsense", b"{", b"[]", b"null", b"{}", b"\xff\xfe", b'{"jsonrpc":"1.0"}', b'{"jsonrpc":"2.0","method":7}', b"[" * 5000],
)  # fmt: skip
@fault("E18")
async def test_a_malformed_event_before_the_reply_is_skipped_and_counted(data: bytes) -> None:
    async with connected(mcp(call=streams(event(data), event(DONE)))) as (client, _):
        await tides(client)
        assert client.counters == {"malformed messages": 1}


@fault("E18")
async def test_a_malformed_reply_on_a_stream_fails_its_call_at_once() -> None:
    assert type(await error_of(streams(event(b'{"jsonrpc":"2.0","id":@id,"result":7}'), stay=True))) is ProtocolError


@pytest.mark.parametrize("kind", [b"ping", b"heartbeat", b"endpoint", b"Message", b"message ", b"error", b"\xff"])
@fault("E19")
async def test_an_event_of_another_type_is_ignored(kind: bytes) -> None:
    other = b"event: " + kind + b"\n" + under(b"@id")

    async with connected(mcp(call=in_turn(streams(other, event(DONE)), streams(other), says()))) as (client, _):
        await tides(client)
        assert type(await failing(client)) is ConnectionClosed
        await tides(client)
        assert client.counters == {}


# Events in every writing


WRITINGS = {
    "LF": b"id: 1\nevent: message\ndata: " + DONE + b"\n\n",
    "CRLF": b"id: 1\r\nevent: message\r\ndata: " + DONE + b"\r\n\r\n",
    "CR": b"id: 1\revent: message\rdata: " + DONE + b"\r\r",
    "mixed": b"id: 1\r\nevent: message\rdata: " + DONE + b"\n\r\n",
    "a BOM": b"\xef\xbb\xbfdata: " + DONE + b"\n\n",
    "many lines": b"data: " + DONE.replace(b",", b",\ndata: ") + b"\n\n",
    "no space": b"event:message\ndata:" + DONE + b"\n\n",
    "no type": b"data: " + DONE + b"\n\n",
    "comments and unknown fields": b":\n: x\nfoo: bar\nfoo\ndata: " + DONE + b"\n:\n\n",
    "data first": b"data: " + DONE + b"\nid: 1\nevent: message\n\n",
}


@pytest.mark.parametrize("raw", WRITINGS.values(), ids=WRITINGS)
@pytest.mark.parametrize("stay", [False, True], ids=["that ends", "that stays open"])
@fault("E20")
async def test_an_event_may_have_every_form_of_its_standard(raw: bytes, stay: bool) -> None:
    async with connected(mcp(call=streams(raw, stay=stay))) as (client, _):
        await tides(client)


@pytest.mark.parametrize("raw", WRITINGS.values(), ids=WRITINGS)
@fault("E20", "E22")
async def test_an_event_may_come_byte_by_byte(raw: bytes) -> None:
    async def answer(wire: Wire, heard: Heard) -> None:
        await wire.say(chunked(*(bytes([byte]) for byte in filled(raw, heard))))
        await wire.hung_up()

    async with connected(mcp(call=answer)) as (client, _):
        await tides(client)


@pytest.mark.parametrize("split", [False, True], ids=["at once", "byte by byte"])
@fault("E21", "E22")
async def test_other_line_separators_stay_in_the_text(split: bool) -> None:
    text = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\u00e9\U0001f30a"

    async def answer(wire: Wire, heard: Heard) -> None:
        escaped = text.replace("\x0b", "\\u000b").replace("\x0c", "\\u000c").replace("\x1c", "\\u001c")
        raw = event(filled(DONE, heard).replace(b"high", escaped.encode()))
        await wire.say(chunked(*(bytes([byte]) for byte in raw) if split else [raw]))
        await wire.hung_up()

    async with connected(mcp(call=answer)) as (client, _):
        with anyio.fail_after(SOON):
            assert (await client.call_tool("tides")).content == [TextContent(text=text)]


# Events without an end, and large ones


def endless(first: bytes, piece: bytes) -> Answer:
    async def answer(wire: Wire, heard: Heard) -> None:
        await wire.events(first)
        while True:
            await wire.say(piece)

    return answer


@pytest.mark.parametrize(
    ("first", "piece"),
    [(b"data: ", b"x" * 8192), (b"", (b"data: " + b"x" * 200 + b"\n") * 40), (b"", b"x" * 8192), (b"id: ", b"1" * 8192), (b":", b" " * 8192)],
    ids=["a line", "lines", "a field's name", "an id", "a comment"],
)  # fmt: skip
@fault("E23")
async def test_an_event_without_an_end_is_read_up_to_the_limit(first: bytes, piece: bytes) -> None:
    tracemalloc.start()
    try:
        error = await error_of(endless(first, piece), limits=Limits(max_message=MiB))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert type(error) is MessageTooLarge
    assert peak < 8 * MiB


@pytest.mark.parametrize(
    "piece", [b": still here\n\n" * 100, b"\n" * 1000, event(LOG) * 10, b"event: ping\ndata: {}\n\n" * 50]
)
@fault("E23")
async def test_an_endless_stream_without_the_response_ends_at_the_calls_timeout(piece: bytes) -> None:
    async with connected(mcp(call=storm(endless(b"", piece)))) as (client, _):
        error: McpError = await failing(client, "storm", timeout=0.2)
        await tides(client)

    assert type(error) is RequestTimeout


@pytest.mark.parametrize("size", [MiB, 4 * MiB, 16 * MiB])
@fault("E24")
async def test_a_large_reply_is_accepted_on_a_stream_as_in_a_body(size: int) -> None:
    large = DONE.replace(b"high", b"x" * size)
    async with connected(mcp(call=in_turn(streams(event(large)), says(large)))) as (client, _):
        with anyio.fail_after(SOON):
            on_a_stream, in_a_body = await client.call_tool("tides"), await client.call_tool("tides")

    assert on_a_stream == in_a_body
    assert on_a_stream.content == [TextContent(text="x" * size)]


@pytest.mark.parametrize("streamed", [False, True], ids=["in a body", "on a stream"])
@pytest.mark.parametrize("excess", [0, 1])
@fault("E24")
async def test_one_limit_applies_to_a_message_in_json_and_in_a_stream(streamed: bool, excess: int) -> None:
    reply = DONE.replace(b"@id", b"2").ljust(1000 + excess)
    answer = streams(event(reply)) if streamed else says(reply)
    async with connected(mcp(call=answer), limits=Limits(max_message=1000)) as (client, _):
        if excess:
            assert type(await failing(client)) is MessageTooLarge
        else:
            await tides(client)
