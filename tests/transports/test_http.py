"""Streamable HTTP: one POST, and what its answer may be."""

from __future__ import annotations

import gzip
import json

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
)
from mcp_host.limits import Limits
from mcp_host.protocol.jsonrpc import Failure, Malformed, Notification, Request, Success
from tests.transports.http_peers import (
    CALL,
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
    error_of,
    event,
    head,
    mocked,
    opened,
    serving,
)

WRONG_ID = b'{"jsonrpc":"2.0","id":8,"result":{}}'
REFUSAL = b'{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"no such tool","data":{"name":"tides"}}}'


# A response


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


@pytest.mark.parametrize(
    ("status", "kind", "body", "received"),
    [
        pytest.param(200, "application/json", b"\xef\xbb\xbf" + DONE_JSON, [DONE], id="a BOM first"),
        pytest.param(200, "Application/JSON; charset=utf-8", DONE_JSON, [DONE], id="a content type with parameters"),
        pytest.param(202, "application/json", DONE_JSON, [DONE], id="another success"),
        pytest.param(200, "application/json", b"[%s,%s]" % (NOTE_JSON, DONE_JSON), [NOTE, DONE], id="a batch"),
        pytest.param(
            200,
            "application/json",
            REFUSAL,
            [Failure(7, -32602, "no such tool", {"name": "tides"})],
            id="an error response is a response",
        ),
        pytest.param(200, "text/event-stream", event(DONE_JSON), [DONE], id="an event"),
        pytest.param(200, "text/event-stream;charset=utf-8", event(DONE_JSON), [DONE], id="a stream with parameters"),
        pytest.param(200, "text/event-stream", event(b"[%s,%s]" % (NOTE_JSON, DONE_JSON)), [NOTE, DONE], id="an event that is a batch"),
        pytest.param(200, "text/event-stream", b"data: " + DONE_JSON, [DONE], id="an event without a blank line"),
        pytest.param(200, "text/event-stream", b"event: ping\ndata: {}\n\n" + event(DONE_JSON), [DONE], id="an event of another type"),
        pytest.param(200, "text/event-stream", event(WRONG_ID) + event(DONE_JSON), [Success(8, {}), DONE], id="another's response first"),
        pytest.param(200, "text/event-stream", event(DONE_JSON) + event(NOTE_JSON), [DONE], id="something after it"),
    ],
)  # fmt: skip
async def test_a_response_is_found_in_every_shape_it_may_have(
    status: int, kind: str, body: bytes, received: list[object]
) -> None:
    async with mocked(answering(status, {"content-type": kind}, body)) as channel:
        assert await ask(channel) == received


async def test_something_malformed_on_a_stream_does_not_hide_the_response() -> None:
    async with mocked(answering(200, EVENTS, event(b"not json") + event(DONE_JSON))) as channel:
        received = await ask(channel)

    assert isinstance(received[0], Malformed)
    assert received[1:] == [DONE]


@pytest.mark.parametrize("kind", [JSON, EVENTS], ids=["json", "stream"])
@pytest.mark.parametrize("coding", ["gzip", "identity"])
async def test_a_body_may_be_compressed_and_come_in_any_pieces(coding: str, kind: dict[str, str]) -> None:
    plain = event(DONE_JSON) if kind is EVENTS else DONE_JSON
    body = gzip.compress(plain) if coding == "gzip" else plain

    async def script(wire: Wire) -> None:
        await wire.hear()
        await wire.say(head(200, {**kind, "content-encoding": coding, "transfer-encoding": "chunked"}))
        for i in range(len(body)):
            await wire.say(b"1\r\n%s\r\n" % body[i : i + 1])
        await wire.say(b"0\r\n\r\n")

    async with serving(script) as peer, opened(peer.url) as channel:
        assert await ask(channel) == [DONE]


async def test_callbacks_are_awaited_between_the_messages_of_a_stream() -> None:
    heard_before: list[int] = []
    handle = RecordedHandle()

    async def note() -> None:
        heard_before.append(len(handle.received))

    handle.on_progress = note
    async with mocked(answering(200, EVENTS, event(NOTE_JSON) * 2 + event(DONE_JSON))) as channel:
        await channel.request(CALL, VERSION, handle)

    assert heard_before == [1, 2, 3]


async def test_an_exception_of_a_callback_is_raised_and_the_channel_stays_open() -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    async def script(wire: Wire) -> None:
        await wire.hear()
        await wire.events(event(NOTE_JSON))
        await wire.hung_up()

    async with serving(script) as peer, opened(peer.url) as channel:
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                await channel.request(CALL, VERSION, RecordedHandle(on_progress=fail))


async def test_a_value_that_is_not_json_is_refused_before_anything_is_sent() -> None:
    async with mocked(lambda request: pytest.fail("sent")) as channel:
        with pytest.raises(CallerError):
            await ask(channel, Request(7, "tools/call", {"value": object()}))


# No response


@pytest.mark.parametrize(
    ("status", "headers", "body", "complaint"),
    [
        pytest.param(200, JSON, WRONG_ID, "the body holds no response to this request", id="another id"),
        pytest.param(200, JSON, NOTE_JSON, "the body holds no response to this request", id="a notification"),
        pytest.param(200, JSON, b"", "no JSON-RPC response: not JSON", id="nothing"),
        pytest.param(200, JSON, DONE_JSON[:-5], "no JSON-RPC response: not JSON", id="half of it"),
        pytest.param(200, JSON, b'{"x": "\xff"}', "no JSON-RPC response: not JSON", id="bad UTF-8"),
        pytest.param(200, JSON, b"[]", "no JSON-RPC response: an empty batch", id="an empty batch"),
        pytest.param(202, {}, b"", "HTTP 202 Accepted for a request: no response can follow", id="202"),
        pytest.param(204, {}, b"", "HTTP 204 No Content for a request: no response can follow", id="204"),
        pytest.param(200, {"content-type": "text/html"}, b"<h1>Log in", "HTTP 200 OK with the content type text/html", id="a login page"),
        pytest.param(200, {"content-type": "a\x1bb"}, b"", r"the content type a\\x1bb", id="an escape sequence for a type"),
        pytest.param(200, {}, b"?", "HTTP 200 OK with no content type", id="no type"),
    ],
)  # fmt: skip
async def test_a_success_without_the_response_breaks_the_protocol(
    status: int, headers: dict[str, str], body: bytes, complaint: str
) -> None:
    error = await error_of(lambda request: httpx.Response(status, headers=headers, stream=httpx.ByteStream(body)))

    assert type(error) is ProtocolError
    with pytest.raises(ProtocolError, match=complaint):
        raise error


@pytest.mark.parametrize("kind", [JSON, EVENTS], ids=["json", "stream"])
async def test_an_error_that_names_no_request_is_about_the_one_whose_answer_it_is(kind: dict[str, str]) -> None:
    body = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?","data":1}}'
    error = await error_of(answering(200, kind, event(body) if kind is EVENTS else body))

    assert type(error) is ServerError
    assert (error.code, error.message, error.data) == (-32700, "what?", 1)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(event(NOTE_JSON), id="a note"),
        pytest.param(event(WRONG_ID), id="another's response"),
        pytest.param(event(b"", id="1"), id="an id but no session"),
        pytest.param(event(DONE_JSON)[:-9], id="cut inside the event"),
        pytest.param(b"event: ping\ndata: {}", id="cut after an event of another type"),
    ],
)
async def test_a_stream_that_ends_without_the_response_fails_the_request_alone(body: bytes) -> None:
    error = await error_of(answering(200, EVENTS, body))

    assert isinstance(error, ConnectionClosed)
    assert error.may_have_run
    assert str(error) == "http://server.test/mcp: the stream ended before the response"


# Sizes


@pytest.mark.parametrize("encoding", [{}, {"content-encoding": "gzip"}], ids=["plain", "gzip"])
@pytest.mark.parametrize("kind", [JSON, EVENTS], ids=["json", "stream"])
async def test_a_message_past_the_limit_fails_its_request(kind: dict[str, str], encoding: dict[str, str]) -> None:
    body = b"data: " + b" " * 1_000_000

    async def script(wire: Wire) -> None:
        await wire.hear()
        await wire.reply(200, {**kind, **encoding}, gzip.compress(body) if encoding else body)

    async with serving(script) as peer, opened(peer.url, limits=Limits(max_message=500_000)) as channel:
        with pytest.raises(MessageTooLarge, match="larger than 500000 bytes"):
            await ask(channel)


@pytest.mark.parametrize("kind", [JSON, EVENTS], ids=["json", "stream"])
async def test_one_cap_holds_for_bodies_and_events(kind: dict[str, str]) -> None:
    body = DONE_JSON.replace(b"[]", b'["%s"]' % (b"x" * 4 * 1024 * 1024))
    content = event(body) if kind is EVENTS else body

    async with mocked(answering(200, kind, content), limits=Limits(max_message=len(body))) as channel:
        (message,) = await ask(channel)

    assert isinstance(message, Success)
    assert len(message.result["content"][0]) == 4 * 1024 * 1024


# Messages without a response


@pytest.mark.parametrize("status", [200, 202, 204])
async def test_a_message_without_a_response_is_delivered_when_the_server_accepts_it(status: int) -> None:
    heard: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        heard.append(request)
        return httpx.Response(status)

    async with mocked(answer) as channel:
        await channel.send(Success(3, {"ok": True}), VERSION)

    assert json.loads(heard[0].content) == {"jsonrpc": "2.0", "id": 3, "result": {"ok": True}}


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
