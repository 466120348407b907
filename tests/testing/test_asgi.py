"""The ASGI application by itself, under a server that says no more than it has to."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from anyio import fail_after, sleep_forever
from pydantic_core import from_json, to_json

from mcp_host.testing import Server
from tests.testing.raw_http import INITIALIZE, request

Event = MutableMapping[str, Any]


async def test_an_event_that_says_nothing_of_more_is_the_last_of_its_body() -> None:
    """ASGI: "`more_body` (bool): [...] Optional; if missing defaults to `False`", and so do most other keys."""
    events: list[Event] = [{"type": "http.request", "body": to_json(request(1, "initialize", INITIALIZE))}]
    sent: list[Event] = []

    async def receive() -> Event:
        if not events:
            await sleep_forever()
        return events.pop()

    async def send(event: Event) -> None:
        sent.append(event)

    headers = [(b"content-type", b"application/json"), (b"accept", b"application/json, text/event-stream")]
    app = Server("s").asgi()

    with fail_after(5):
        await app({"type": "http", "method": "POST", "path": "/mcp", "headers": headers}, receive, send)
        await app.aclose()

    start, *rest = sent
    assert (start["status"], dict(start["headers"])[b"content-type"]) == (200, b"text/event-stream")
    [data] = [line for line in b"".join(event.get("body", b"") for event in rest).splitlines() if b"jsonrpc" in line]
    assert from_json(data.removeprefix(b"data: "))["result"]["serverInfo"]["name"] == "s"
