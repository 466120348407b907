"""Streamable HTTP: one POST, and what its answer may be."""

from __future__ import annotations

import gzip
import json
from typing import Any

import anyio
import httpx
import pytest

from mcp_host.errors import (
    CallerError,
    ConnectionClosed,
    HttpStatusError,
    MessageTooLarge,
    ProtocolError,
    ServerError,
    excerpt,
)
from mcp_host.limits import Limits
from mcp_host.protocol.jsonrpc import Failure, Malformed, Notification, Request, Success
from mcp_host.protocol.sse import ODD_SIZE
from tests.client.sites import EventStream
from tests.transports.http_peers import (
    CALL,
    CHUNKED,
    DONE,
    DONE_JSON,
    EVENTS,
    JSON,
    NOTE,
    NOTE_JSON,
    VERSION,
    RecordedHandle,
    Wire,
    answering,
    ask,
    chunk,
    error_of,
    event,
    head,
    mocked,
    opened,
    response,
    saying,
    serving,
)

WRONG_ID = b'{"jsonrpc":"2.0","id":8,"result":{}}'
REFUSAL = b'{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"no such tool","data":{"name":"tides"}}}'


in_memory = pytest.mark.backends("asyncio")  # the server is a function: no event loop can change what comes of it


# A response


@in_memory
async def test_a_json_body_with_the_response_answers_the_request() -> None:
    heard: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        heard.append(request)
        return httpx.Response(200, headers=JSON, content=DONE_JSON)

    async with mocked(answer, headers={"Authorization": "Bearer secret"}) as channel:
        received = await ask(channel)

    assert received == [DONE]
    (post,) = heard
    assert (post.method, json.loads(post.content)) == (
        "POST",
        {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "tides"}},
    )
    names = ("accept", "accept-encoding", "content-type", "authorization", "mcp-protocol-version")
    assert {name: post.headers[name] for name in names} == {
        "accept": "application/json, text/event-stream",
        "accept-encoding": "gzip, deflate",
        "content-type": "application/json",
        "authorization": "Bearer secret",
        "mcp-protocol-version": "2025-11-25",
    }
    assert "mcp-session-id" not in post.headers


BODY, STREAM = "application/json", "text/event-stream"
RESPONSES: dict[str, tuple[int, str, bytes, list[Any]]] = {
    "a BOM first": (200, BODY, b"\xef\xbb\xbf" + DONE_JSON, [DONE]),
    "blanks around it": (200, BODY, b"\r\n\t" + DONE_JSON + b"\n\n", [DONE]),
    "a content type with parameters": (200, "Application/JSON; charset=utf-8", DONE_JSON, [DONE]),
    "201": (201, BODY, DONE_JSON, [DONE]),
    "202": (202, BODY, DONE_JSON, [DONE]),
    "a batch of one": (200, BODY, b"[%s]" % DONE_JSON, [DONE]),
    "a batch": (200, BODY, b"[%s,%s]" % (NOTE_JSON, DONE_JSON), [NOTE, DONE]),
    "a batch with nonsense": (200, BODY, b"[7,null,%s,%s]" % (DONE_JSON, NOTE_JSON), [Malformed, Malformed, DONE, NOTE]),
    "an error response is a response": (200, BODY, REFUSAL, [Failure(7, -32602, "no such tool", {"name": "tides"})]),
    "an event": (200, STREAM, event(DONE_JSON), [DONE]),
    "a type that a gateway repeats": (200, "application/json, Application/JSON;charset=utf-8", DONE_JSON, [DONE]),
    "a type that is a list": (200, "application/json,application/json", DONE_JSON, [DONE]),
    "a comma in a parameter": (200, 'application/json;profile="a,b"', DONE_JSON, [DONE]),
    "a stream that a gateway repeats": (200, f"{STREAM}, {STREAM}", event(DONE_JSON), [DONE]),
    "a stream with parameters": (200, "text/event-stream;charset=utf-8", event(DONE_JSON), [DONE]),
    "JSON by itself on a stream": (200, STREAM, DONE_JSON, [DONE]),
    "JSON in several lines on a stream": (200, STREAM, json.dumps(json.loads(DONE_JSON), indent=1).encode() + b"\n", [DONE]),
    "an event that is a batch": (200, STREAM, event(b"[%s,%s]" % (NOTE_JSON, DONE_JSON)), [NOTE, DONE]),
    "an event without a blank line": (200, STREAM, b"data: " + DONE_JSON, [DONE]),
    "an event and a field without a blank line": (200, STREAM, b"data: " + DONE_JSON + b"\nid: e-1", [DONE]),
    "an event of another type": (200, STREAM, b"event: ping\ndata: {}\n\n" + event(DONE_JSON), [DONE]),
    "its response as another type": (200, STREAM, b"event: ping\n" + event(DONE_JSON) + event(DONE_JSON), [DONE]),
    "another's response first": (200, STREAM, event(WRONG_ID) + event(DONE_JSON), [Success(8, {}), DONE]),
    "something after it": (200, STREAM, event(DONE_JSON) + event(NOTE_JSON), [DONE]),
    **{
        f"something malformed on a stream: {data!r}": (200, STREAM, event(data) + event(DONE_JSON), [Malformed, DONE])
        for data in (b"nonsense", b"{", b"[]", b"null", b"{}", b"\xff\xfe", b'{"jsonrpc":"1.0"}', b'{"jsonrpc":"2.0","method":7}')
    },
    "something that nests too deeply": (200, STREAM, event(b"[" * 5000) + event(DONE_JSON), [Malformed, DONE]),
}  # fmt: skip


@in_memory
@pytest.mark.fault("E03", "E16", "E18", "E19", "H14", "H16")
async def test_a_response_is_found_in_every_shape_it_may_have(subtests: pytest.Subtests) -> None:
    for name, (status, kind, body, expected) in RESPONSES.items():
        with subtests.test(name):
            async with mocked(answering(status, {"content-type": kind}, body)) as channel:
                received = await ask(channel)
            assert [Malformed if isinstance(each, Malformed) else each for each in received] == expected


@pytest.mark.parametrize("kind", [JSON, EVENTS], ids=["json", "stream"])
@pytest.mark.parametrize("coding", ["gzip", "identity", "gzip, Identity", "identity,gzip"])
async def test_a_body_may_be_compressed_and_come_in_any_pieces(coding: str, kind: dict[str, str]) -> None:
    plain = event(DONE_JSON) if kind is EVENTS else DONE_JSON
    body = plain if coding == "identity" else gzip.compress(plain)

    async def script(wire: Wire) -> None:
        await wire.hear()
        await wire.say(head(200, {**kind, "content-encoding": coding, **CHUNKED}))
        for i in range(len(body) + 1):
            await wire.say(chunk(body[i : i + 1]))

    async with serving(script) as peer, opened(peer.url) as channel:
        assert await ask(channel) == [DONE]


NOT_COMPRESSED = ["UTF-8", "utf8, br", "none", "application/json", "br", "gzip", "deflate"]


async def test_a_body_that_is_not_compressed_is_read_whatever_its_encoding_says(subtests: pytest.Subtests) -> None:
    for coding in NOT_COMPRESSED:
        for kind, body in ((JSON, DONE_JSON), (EVENTS, event(DONE_JSON)), (JSON, b"\r\n " + DONE_JSON)):
            if coding != "deflate" or body is DONE_JSON:
                with subtests.test(coding=coding, body=body):
                    script = saying(response(200, {**kind, "content-encoding": coding}, body))
                    async with serving(script) as peer, opened(peer.url) as channel:
                        assert await ask(channel) == [DONE]


async def test_callbacks_are_awaited_for_all_that_has_arrived_before_more_is_read() -> None:
    async def note() -> None:
        heard_before.append(len(handle.received))

    heard_before: list[int] = []
    handle = RecordedHandle(on_progress=note)
    body = EventStream(event(NOTE_JSON), event(NOTE_JSON) * 2, event(NOTE_JSON) + event(DONE_JSON))
    async with mocked(lambda request: httpx.Response(200, headers=EVENTS, stream=body)) as channel:
        await channel.request(CALL, VERSION, handle)

    assert heard_before == [1, 3, 5]


async def test_an_exception_of_a_callback_is_raised_and_the_channel_stays_open() -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    async with serving(saying(head(200, EVENTS) + event(NOTE_JSON))) as peer, opened(peer.url) as channel:
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                await channel.request(CALL, VERSION, RecordedHandle(on_progress=fail))


@in_memory
async def test_a_value_that_is_not_json_is_refused_before_anything_is_sent() -> None:
    async with mocked(lambda request: pytest.fail("sent")) as channel:
        with pytest.raises(CallerError):
            await ask(channel, Request(7, "tools/call", {"value": object()}))


# No response


NO_RESPONSES: dict[str, tuple[int, dict[str, str], bytes, str]] = {
    "another id": (200, JSON, WRONG_ID, "the body holds no response to this request"),
    "an id in another type": (200, JSON, WRONG_ID.replace(b"8", b'"other"'), "the body holds no response to this request"),
    "a notification": (200, JSON, NOTE_JSON, "the body holds no response to this request"),
    "a batch without it": (200, JSON, b"[%s]" % NOTE_JSON, "the body holds no response to this request"),
    "no usable id": (200, JSON, WRONG_ID.replace(b"8", b"1.5"), "no JSON-RPC response: a response without a usable id"),
    "nothing": (200, JSON, b"", "no JSON-RPC response: not JSON"),
    "blanks": (200, JSON, b" \r\n", "no JSON-RPC response: not JSON"),
    "half of it": (200, JSON, DONE_JSON[:-5], "no JSON-RPC response: not JSON"),
    "bad UTF-8": (200, JSON, b'{"x": "\xff"}', "no JSON-RPC response: not JSON"),
    "NULs": (200, JSON, b"\0" * 100, "no JSON-RPC response: not JSON"),
    "null": (200, JSON, b"null", "no JSON-RPC response: "),
    "a number": (200, JSON, b"7", "no JSON-RPC response: "),
    "nesting": (200, JSON, b"[" * 10_000, "no JSON-RPC response: "),
    "a gateway's error": (200, JSON, b'{"error": "upstream timed out"}', "{'error': 'upstream timed out'}"),
    "an empty batch": (200, JSON, b"[]", "no JSON-RPC response: an empty batch"),
    "a batch of nonsense": (200, JSON, b"[7]", "no JSON-RPC response: "),
    "202": (202, {}, b"", "HTTP 202 Accepted for a request: no response can follow"),
    "202 of JSON": (202, JSON, b"", "HTTP 202 Accepted for a request: no response can follow"),
    "204": (204, {}, b"", "HTTP 204 No Content for a request: no response can follow"),
    "a login page": (200, {"content-type": "text/html"}, b"<h1>Log in", "HTTP 200 OK with the content type text/html"),
    "a response of another type": (200, {"content-type": "text/plain"}, DONE_JSON, "HTTP 200 OK with the content type text/plain"),
    "a gateway's text": (200, {"content-type": "text/plain"}, b"back \x1bat 10\n", r"application/json nor text/event-stream: back \x1bat 10"),
    "two types": (200, {"content-type": "application/json, text/html;a=b"}, DONE_JSON, "OK with the content type application/json, text/html"),
    "an escape sequence for a type": (200, {"content-type": "a\x1bb"}, b"", r"the content type a\x1bb"),
    "no type": (200, {}, b"?", "HTTP 200 OK with no content type"),
}  # fmt: skip


@in_memory
@pytest.mark.fault("H13", "H14", "H15", "H16", "H17", "H18")
async def test_a_success_without_the_response_breaks_the_protocol(subtests: pytest.Subtests) -> None:
    for name, (status, headers, body, complaint) in NO_RESPONSES.items():
        with subtests.test(name):
            response = httpx.Response(status, headers=headers, stream=httpx.ByteStream(body))
            error = await error_of(lambda request, response=response: response)  # type: ignore[misc]
            assert type(error) is ProtocolError
            assert complaint in str(error)


@in_memory
@pytest.mark.fault("E17", "H17")
@pytest.mark.parametrize("kind", [JSON, EVENTS], ids=["json", "stream"])
async def test_an_error_that_names_no_request_is_about_the_one_whose_answer_it_is(kind: dict[str, str]) -> None:
    body = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?","data":1}}'
    error = await error_of(answering(200, kind, event(body) if kind is EVENTS else body))

    assert type(error) is ServerError
    assert (error.code, error.message, error.data) == (-32700, "what?", 1)


CUT_STREAMS = {
    "empty": (b"", ""),
    "blank lines": (b"\n\n\n", ""),
    "a comment": (b": hello\n\n", ""),
    "a retry": (b"retry: 10\n\n", ""),
    "a type alone": (b"event: message\n\n", ""),
    "a note": (event(NOTE_JSON), ""),
    "another's response": (event(WRONG_ID), ""),
    "an id but no session": (event(b"", id="1"), ""),
    "cut inside the event": (event(DONE_JSON)[:-9], ""),
    "cut after an event of another type": (b"event: ping\ndata: {}", "; it had an event of the type ping: {}"),
    "an error": (b"event: error\ndata: no \x1bupstream\n\n", r"; it had an event of the type error: no \x1bupstream"),
    "a page": (b"<html>\n502 Bad Gateway</html>" + b"x" * 5000, "; it had the line <html>"),
    "a long line": (b"x" * 5000, "; it had the line " + excerpt("x" * ODD_SIZE)),
    "no message": (event(b"'x'") + b"<html>", "; it had no message but not JSON (expected value at line 1 column 1): 'x'"),
}  # fmt: skip


@in_memory
@pytest.mark.fault("E01", "E02", "E16", "E19")
async def test_a_stream_that_ends_without_the_response_fails_the_request_alone_and_quotes_what_came(
    subtests: pytest.Subtests,
) -> None:
    for name, (body, odd) in CUT_STREAMS.items():
        with subtests.test(name):
            error = await error_of(answering(200, EVENTS, body))
            assert type(error) is ConnectionClosed
            assert error.may_have_run
            assert str(error) == f"http://server.test/mcp: the stream ended before the response{odd}"


# Sizes


@pytest.mark.fault("H32")
@pytest.mark.parametrize("encoding", [{}, {"content-encoding": "gzip"}], ids=["plain", "gzip"])
@pytest.mark.parametrize("kind", [JSON, EVENTS], ids=["json", "stream"])
async def test_a_message_past_the_limit_fails_its_request(kind: dict[str, str], encoding: dict[str, str]) -> None:
    body = b"data: " + b" " * 1_000_000

    script = saying(response(200, {**kind, **encoding}, gzip.compress(body) if encoding else body))
    async with serving(script) as peer, opened(peer.url, limits=Limits(max_message=500_000)) as channel:
        with pytest.raises(MessageTooLarge, match="larger than 500000 bytes"):
            await ask(channel)


@pytest.mark.parametrize("kind", [JSON, EVENTS], ids=["json", "stream"])
@pytest.mark.fault("E24", "H32")
async def test_one_cap_holds_for_bodies_and_events_to_the_byte(kind: dict[str, str]) -> None:
    content = event(DONE_JSON) if kind is EVENTS else DONE_JSON

    async with mocked(answering(200, kind, content), limits=Limits(max_message=len(DONE_JSON))) as channel:
        assert await ask(channel) == [DONE]
    async with mocked(answering(200, kind, content), limits=Limits(max_message=len(DONE_JSON) - 1)) as channel:
        with pytest.raises(MessageTooLarge):
            await ask(channel)


# Messages without a response


@in_memory
@pytest.mark.parametrize("status", [200, 202, 204])
async def test_a_message_without_a_response_is_delivered_when_the_server_accepts_it(status: int) -> None:
    heard: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        heard.append(request)
        return httpx.Response(status)

    async with mocked(answer) as channel:
        await channel.send(Success(3, {"ok": True}), VERSION)

    assert json.loads(heard[0].content) == {"jsonrpc": "2.0", "id": 3, "result": {"ok": True}}


@in_memory
async def test_a_message_that_is_refused_is_an_error_of_that_message() -> None:
    async with mocked(answering(500)) as channel:
        with pytest.raises(HttpStatusError, match="HTTP 500"):
            await channel.send(Notification("notifications/cancelled", {"requestId": 7}), VERSION)


async def test_messages_do_not_wait_for_each_other() -> None:
    release = anyio.Event()

    async def script(wire: Wire) -> None:
        while True:
            heard = await wire.hear()
            if heard.rpc.get("id") == 7:
                await wire.reply(200, JSON, DONE_JSON)
                release.set()
            else:
                await release.wait()
                await wire.reply(202)

    async with serving(script) as peer, opened(peer.url) as channel, anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(channel.send, NOTE, VERSION)
        assert await ask(channel) == [DONE]
