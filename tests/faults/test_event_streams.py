"""Event streams that answer a call over a socket: oddly written, without an end, or with what is no reply to it.

What a single stream comes to is in `tests/transports/test_http.py`, and the decoder in `tests/protocol/test_sse.py`.
"""

from __future__ import annotations

import itertools

import anyio
import pytest

from mcp_host.errors import MessageTooLarge, ProtocolError, RequestTimeout, ServerError
from mcp_host.limits import Limits
from mcp_host.types import TextContent
from tests.clock import advance
from tests.extent import on_both
from tests.faults.fault import fault
from tests.faults.http_server import (
    DONE,
    LOG,
    SOON,
    TIDES,
    accept,
    chunked,
    connected,
    errors_of,
    filled,
    mcp,
    says,
    streams,
    tides,
)
from tests.faults.measure import peak
from tests.transports.http_peers import Heard, Wire, event
from tests.transports.legacy_peers import Answer, hang, in_turn

MiB = 1024 * 1024


# Whose reply


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


REFUSAL = b'{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no such tool","data":[1]}}'
ENDINGS = {
    "an error": (REFUSAL % b"@id", ServerError),
    "an error without an id": (REFUSAL % b"null", ServerError),
    "a malformed reply": (b'{"jsonrpc":"2.0","id":@id,"result":7}', ProtocolError),
}


@fault("E17", "E18")
async def test_an_error_or_a_malformed_reply_on_a_stream_that_stays_open_fails_its_call_at_once() -> None:
    errors = await errors_of({name: streams(event(data), stay=True) for name, (data, _) in ENDINGS.items()})

    assert {name: type(error) for name, error in errors.items()} == {name: kind for name, (_, kind) in ENDINGS.items()}
    assert isinstance(errors["an error"], ServerError)
    assert (errors["an error"].code, errors["an error"].data) == (-32602, [1])


@fault("E16", "E18", "E19")
async def test_what_is_no_reply_of_the_call_is_skipped_and_counted() -> None:
    others = event(DONE.replace(b"@id", b"4711")), event(b"nonsense"), b"event: ping\n" + event(DONE)

    async with connected(mcp(call=streams(*others, event(DONE)))) as (client, _):
        await tides(client)
        assert client.counters == {"answers to nothing": 1, "malformed messages": 1}


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


@fault("E20", "E22")
async def test_an_event_may_come_byte_by_byte_in_every_form_of_its_standard(subtests: pytest.Subtests) -> None:
    async def answer(wire: Wire, heard: Heard) -> None:
        raw = WRITINGS[heard.rpc["params"]["name"]]
        await wire.say(chunked(*(bytes([byte]) for byte in filled(raw, heard))))
        await wire.hung_up()

    async with connected(mcp(call=answer)) as (client, _):
        for name in WRITINGS:
            with subtests.test(name):
                assert (await client.call_tool(name)).content == TIDES


@fault("E21", "E22")
async def test_other_line_separators_stay_in_the_text() -> None:
    text = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\u00e9\U0001f30a"
    escaped = text.replace("\x0b", "\\u000b").replace("\x0c", "\\u000c").replace("\x1c", "\\u001c").encode()

    async with connected(mcp(call=streams(event(DONE.replace(b"high", escaped))))) as (client, _):
        assert (await client.call_tool("tides")).content == [TextContent(text=text)]


# Events without an end, and large ones


def endless(first: bytes, piece: bytes) -> Answer:
    async def answer(wire: Wire, heard: Heard) -> None:
        await wire.events(first)
        while True:
            await wire.say(piece)

    return answer


ENDLESS = {
    "a line": (b"data: ", b"x" * 8192),
    "lines": (b"", (b"data: " + b"x" * 200 + b"\n") * 40),
    "a field's name": (b"", b"x" * 8192),
    "an id": (b"id: ", b"1" * 8192),
    "a comment": (b":", b" " * 8192),
}


@fault("E23")
async def test_an_event_without_an_end_is_read_up_to_the_limit() -> None:
    with peak() as most:
        errors = await errors_of(
            {name: endless(*pieces) for name, pieces in ENDLESS.items()}, limits=Limits(max_message=MiB)
        )

    assert {name: type(error) for name, error in errors.items()} == dict.fromkeys(ENDLESS, MessageTooLarge)
    assert most() < 8 * MiB


@on_both
@pytest.mark.adjustable_clock
@fault("E23", within=100)
async def test_an_endless_stream_without_the_response_ends_at_the_calls_timeout(subtests: pytest.Subtests) -> None:
    async def answer(wire: Wire, heard: Heard) -> None:
        await wire.events(b"")
        for turn in itertools.count():
            await wire.say(pieces[heard.rpc["params"]["name"]])
            advance(9 if turn == 5 else 0)

    pieces = {
        "comments": b": still here\n\n" * 100,
        "blank lines": b"\n" * 1000,
        "logs": event(LOG) * 10,
        "pings": b"event: ping\ndata: {}\n\n" * 50,
    }
    async with connected(mcp(call=answer, cancelled=accept)) as (client, _):
        for name in pieces:
            with subtests.test(name), pytest.raises(RequestTimeout):
                await client.call_tool(name, timeout=9)


@fault("E24")
async def test_a_large_reply_is_accepted_on_a_stream_as_in_a_body() -> None:
    large = DONE.replace(b"high", b"x" * 4 * MiB)
    async with connected(mcp(call=in_turn(streams(event(large)), says(large)))) as (client, _):
        with anyio.fail_after(SOON):
            on_a_stream, in_a_body = await client.call_tool("tides"), await client.call_tool("tides")

    assert on_a_stream == in_a_body
    assert on_a_stream.content == [TextContent(text="x" * 4 * MiB)]
