"""Streamable HTTP: one POST, and what its answer may be."""

from __future__ import annotations

import httpx
import pytest

from tests.transports.http_peers import (
    CALL,
    DONE,
    DONE_JSON,
    EVENTS,
    JSON,
    NOTE,
    NOTE_JSON,
    VERSION,
    Wire,
    ask,
    event,
    head,
    mocked,
    opened,
    serving,
)
from mcp_host.errors import ConnectionClosed, ProtocolError


async def test_a_json_body_with_the_response_answers_the_request() -> None:
    heard: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        heard.append(request)
        return httpx.Response(200, headers=JSON, content=DONE_JSON)

    async with mocked(answer, headers={"Authorization": "Bearer secret"}) as channel:
        received = await ask(channel)

    assert received == [DONE]
    assert heard[0].method == "POST"
    assert heard[0].content == b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"tides"}}'
    assert {
        name: heard[0].headers[name] for name in ("accept", "content-type", "authorization", "mcp-protocol-version")
    } == {
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
        "authorization": "Bearer secret",
        "mcp-protocol-version": "2025-11-25",
    }


async def test_an_event_stream_delivers_its_messages_in_order_until_the_response() -> None:
    async def script(wire: Wire) -> None:
        await wire.hear()
        await wire.events(event(NOTE_JSON), event(NOTE_JSON), event(DONE_JSON), event(NOTE_JSON))

    async with serving(script) as peer, opened(peer.url) as channel:
        received = await ask(channel)

    assert received == [NOTE, NOTE, DONE]


async def test_requests_follow_each_other_on_one_connection_also_after_event_streams() -> None:
    async def script(wire: Wire) -> None:
        while True:
            await wire.hear()
            chunk = event(DONE_JSON)
            await wire.say(head(200, {**EVENTS, "transfer-encoding": "chunked"}))
            await wire.say(b"%x\r\n%s\r\n0\r\n\r\n" % (len(chunk), chunk))
            await wire.hear()
            await wire.reply(200, JSON, DONE_JSON)

    async with serving(script) as peer, opened(peer.url) as channel:
        for _ in range(10):
            assert await ask(channel) == [DONE]

    assert len(peer.heard) == 10
    assert peer.connections <= 2
