"""The ASGI application by itself, under a server that sends the minimum that ASGI requires."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import pytest
from anyio import Event as Signal
from anyio import create_task_group, current_time, fail_after, sleep_forever
from pydantic_core import from_json, to_json

from mcp_host.testing import Server
from tests.extent import on_both
from tests.testing.raw import INITIALIZE, Wire, call, request, with_meta
from tests.testing.raw_http import ACCEPT, repeated

pytestmark = [on_both, pytest.mark.fake_clock]  # all in memory: no deadline passes while anything can run

Event = MutableMapping[str, Any]


def post(message: Wire, **headers: str) -> tuple[Event, Callable[[], Awaitable[Event]]]:
    """The scope of a POST of *message*, and a receiver of its body, after which nothing comes."""
    events: list[Event] = [{"type": "http.request", "body": to_json(message)}]

    async def receive() -> Event:
        if not events:
            await sleep_forever()
        return events.pop()

    given = {"content-type": "application/json", "accept": ACCEPT, **headers}
    fields = [(name.encode(), value.encode()) for name, value in given.items()]
    return {"type": "http", "method": "POST", "path": "/mcp", "headers": fields}, receive


async def test_an_event_without_more_body_is_the_last_of_its_body() -> None:
    """ASGI: "`more_body` (bool): [...] Optional; if missing defaults to `False`", and so do most other keys."""
    sent: list[Event] = []

    async def send(event: Event) -> None:
        sent.append(event)

    app = Server("s").asgi()
    with fail_after(5):
        await app(*post(request(1, "initialize", INITIALIZE)), send)
        await app.aclose()

    start, *rest = sent
    assert (start["status"], dict(start["headers"])[b"content-type"]) == (200, b"text/event-stream")
    [data] = [line for line in b"".join(event.get("body", b"") for event in rest).splitlines() if b"jsonrpc" in line]
    assert from_json(data.removeprefix(b"data: "))["result"]["serverInfo"]["name"] == "s"


@pytest.mark.parametrize(
    ("message", "times"),
    [(request(1, "subscriptions/listen", {"notifications": {}}), [15, 30, 45]), (call(1, "wait"), [30, 45, 60])],
    ids=["listening", "a call"],
)
async def test_a_silent_response_sends_a_comment_every_15_seconds(message: Wire, times: list[float]) -> None:
    """Common proxies end a connection after 30 or 60 seconds of silence."""
    comments: list[float] = []
    enough = Signal()

    async def wait() -> None:
        await sleep_forever()

    async def send(event: Event) -> None:
        if event.get("body", b"").startswith(b":"):
            comments.append(current_time() - begun)
        if len(comments) == 3:
            enough.set()

    server = Server("s")
    server.tool(wait)
    app, begun = server.asgi(), current_time()
    with fail_after(100):
        async with create_task_group() as tasks:
            tasks.start_soon(app, *post(with_meta(message), **repeated(message)), send)
            await enough.wait()
            await app.aclose()
            tasks.cancel_scope.cancel()

    assert comments == pytest.approx(times)


async def test_an_asgi_server_starts_and_ends_the_app_by_lifespan() -> None:
    server = Server("s")
    app = server.asgi(path="/")
    said: list[str] = []
    events = iter(["lifespan.startup", "lifespan.shutdown"])

    async def receive() -> Event:
        return {"type": next(events)}

    async def send(event: Event) -> None:
        said.append(event["type"])

    await app({"type": "lifespan"}, receive, send)
    await server.drop_streams()  # and there are none
    await app({"type": "websocket"}, receive, send)

    assert said == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_a_client_that_disconnects_while_it_sends_is_not_answered() -> None:
    async def receive() -> Event:
        return {"type": "http.disconnect"}

    async def send(event: Event) -> None:
        said.append(event)

    said: list[object] = []
    scope, _ = post(request(1, "initialize", INITIALIZE))
    await Server("s").asgi()(scope, receive, send)

    assert said == []
