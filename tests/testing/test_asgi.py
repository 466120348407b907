"""The ASGI application by itself, under a server that sends the minimum that ASGI requires."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import pytest
from anyio import Event as Signal
from anyio import create_task_group, current_time, fail_after, sleep_forever
from pydantic_core import from_json, to_json

from mcp_host.testing import Server
from tests.extent import on_both
from tests.testing.raw_http import INITIALIZE, call, request, with_meta

pytestmark = [on_both, pytest.mark.fake_clock]  # all in memory: no deadline passes while anything can run

Event = MutableMapping[str, Any]


async def test_an_event_without_more_body_is_the_last_of_its_body() -> None:
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


@pytest.mark.parametrize(
    "message", [request(1, "subscriptions/listen", {"notifications": {}}), call(1, "wait")], ids=["listening", "a call"]
)
async def test_a_silent_response_sends_a_comment_every_15_seconds(message: dict[str, Any]) -> None:
    """Common proxies end a connection after 30 or 60 seconds of silence."""
    events: list[Event] = [{"type": "http.request", "body": to_json(with_meta(message))}]
    comments: list[float] = []
    enough = Signal()

    async def wait() -> None:
        await sleep_forever()

    async def receive() -> Event:
        if not events:
            await sleep_forever()
        return events.pop()

    async def send(event: Event) -> None:
        if event.get("body", b"").startswith(b":"):
            comments.append(current_time() - begun)
        if len(comments) == 3:
            enough.set()

    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": message["method"],
        "mcp-name": "wait",
    }
    server = Server("s")
    server.tool(wait)
    app, begun = server.asgi(), current_time()
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/mcp",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }

    with fail_after(100):
        async with create_task_group() as tasks:
            tasks.start_soon(app, scope, receive, send)
            await enough.wait()
            await app.aclose()
            tasks.cancel_scope.cancel()

    assert comments == pytest.approx([15, 30, 45] if message["method"] != "tools/call" else [30, 45, 60])
