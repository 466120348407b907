"""The ASGI application by itself, under a server that sends the minimum that ASGI requires."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from weakref import ref

import httpx
import pytest
from anyio import Event as Signal
from anyio import (
    create_task_group,
    current_time,
    fail_after,
    move_on_after,
    sleep,
    sleep_forever,
    wait_all_tasks_blocked,
)
from pydantic_core import from_json, to_json

from mcp_host.serving.http.app import HttpApp
from mcp_host.testing import Server
from tests.extent import on_both
from tests.testing.raw import INITIALIZE, Wire, call, request, waiting, with_meta
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


async def begun_session(app: Any) -> dict[str, str]:
    """Begin a session with *app*; return the header that names it."""
    sent: list[Event] = []

    async def send(event: Event) -> None:
        sent.append(event)

    await app(*post(request(0, "initialize", INITIALIZE)), send)
    return {"mcp-session-id": dict(sent[0]["headers"])[b"mcp-session-id"].decode()}


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


LISTENING = request(1, "subscriptions/listen", {"notifications": {}})


@pytest.mark.parametrize(
    ("message", "headers", "times"),
    [
        (with_meta(LISTENING), repeated(LISTENING), [15, 30, 45]),
        (with_meta(call(1, "wait")), repeated(call(1, "wait")), [30, 45, 60]),
        (call(1, "wait"), {}, [15, 30, 45]),
    ],
    ids=["listening", "a call", "a call of a session"],
)
async def test_a_silent_response_sends_a_comment_every_15_seconds(
    message: Wire, headers: dict[str, str], times: list[float]
) -> None:
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
            tasks.start_soon(app, *post(message, **(headers or await begun_session(app))), send)
            await enough.wait()
            await app.aclose()
            tasks.cancel_scope.cancel()

    assert comments == pytest.approx(times)


async def test_nothing_follows_the_error_of_a_call_that_was_under_way_when_the_app_was_closed() -> None:
    """Though the tool returns before the client has read that error."""
    sent: list[bytes] = []
    begun, may_return, may_send = Signal(), Signal(), Signal()

    async def wait() -> str:
        begun.set()
        await may_return.wait()
        return "done"

    async def send(event: Event) -> None:
        if "body" in event:
            await may_send.wait()
            sent.append(event["body"])

    server = Server("s")
    server.tool(wait)
    app, message = server.asgi(), call(1, "wait")
    with fail_after(100):
        async with create_task_group() as tasks:
            tasks.start_soon(app, *post(with_meta(message), **repeated(message)), send)
            await begun.wait()
            await app.aclose()
            await wait_all_tasks_blocked()
            may_return.set()
            await wait_all_tasks_blocked()
            may_send.set()

    [data] = [line for line in b"".join(sent).splitlines() if line.startswith(b"data: ")]
    error = {"code": -32603, "message": "the server is shutting down"}
    assert from_json(data.removeprefix(b"data: ")) == {"jsonrpc": "2.0", "id": 1, "error": error}


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


async def statuses(app: Any, scope: Event, receive: Callable[[], Awaitable[Event]]) -> list[int]:
    sent: list[Event] = []

    async def send(event: Event) -> None:
        sent.append(event)

    with fail_after(1000):
        await app(scope, receive, send)
    return [event["status"] for event in sent if "status" in event]


async def test_a_body_that_is_too_large_or_does_not_come_is_not_awaited() -> None:
    chunk = b"x" * 2**24

    async def flood() -> Event:
        return {"type": "http.request", "body": chunk, "more_body": True}

    async def drip() -> Event:
        await sleep(50)
        return {"type": "http.request", "body": b" ", "more_body": True}

    app, (scope, _), begun = Server("s").asgi(), post({}), current_time()
    assert await statuses(app, scope, flood) == [413]
    assert await statuses(app, scope, drip) == [408]
    assert current_time() - begun == pytest.approx(120)


@pytest.mark.parametrize("json_response", [False, True])
async def test_a_session_whose_client_has_gone_is_idle_though_a_call_is_under_way(json_response: bool) -> None:
    """It ends when another begins."""
    _, ended = waiting(server := Server("s"))
    app = HttpApp(server._catalog, json_response=json_response, path="/mcp", max_sessions=1, idle=0.0)
    scope, receive = post(call(1, "wait"), **await begun_session(app))

    async def receive_and_go() -> Event:
        with move_on_after(0.1):
            return await receive()
        assert await statuses(app, *post(request(0, "initialize", INITIALIZE))) == [503]
        return {"type": "http.disconnect"}

    await statuses(app, scope, receive_and_go)
    assert await statuses(app, *post(request(0, "initialize", INITIALIZE))) == [200]
    with fail_after(5):
        await ended.wait()
    await app.aclose()


REPEATED: list[tuple[list[tuple[str, str]], int]] = [
    ([("accept", "application/json"), ("accept", "text/event-stream")], 200),
    ([("accept", ACCEPT), ("origin", "http://localhost"), ("origin", "http://evil.example")], 403),
    ([("accept", ACCEPT), ("origin", "http://evil.example"), ("origin", "http://localhost")], 403),
    ([("accept", ACCEPT), ("content-type", "text/plain")], 415),
]


class WeakScope(dict[str, Any]):
    """A scope to which there are weak references."""


async def test_an_event_stream_keeps_nothing_of_the_scope_of_its_request() -> None:
    app, begun = Server("s").asgi(), Signal()

    async def send(event: Event) -> None:
        begun.set()

    async def stream() -> None:
        await app(scopes.pop(), receive, send)

    posting, receive = post({}, **await begun_session(app))
    scopes = [WeakScope(posting, method="GET")]
    scope = ref(scopes[0])
    with fail_after(5):
        async with create_task_group() as tasks:
            tasks.start_soon(stream)
            await begun.wait()
            assert scope() is None
            await app.aclose()


async def test_all_lines_of_a_header_count(subtests: pytest.Subtests) -> None:
    """ "A recipient MAY combine multiple field lines within a field section that have the same field name" (RFC 9110, 5.3)."""
    for headers, status in REPEATED:
        with subtests.test(f"{headers}"):
            app, (scope, receive) = Server("s").asgi(), post(request(1, "initialize", INITIALIZE))
            fields = [("content-type", "application/json"), *headers]
            scope["headers"] = [(name.encode(), value.encode()) for name, value in fields]
            assert await statuses(app, scope, receive) == [status]
            await app.aclose()


MALFORMED: list[tuple[bytes, object, int]] = [
    (b"{", None, -32700),
    (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', None, -32700),
    (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":1}', 7, -32600),
    (b'{"id":"a","method":"ping"}', "a", -32600),
]


async def test_a_malformed_request_that_shows_its_id_is_answered_under_it(subtests: pytest.Subtests) -> None:
    transport = httpx.ASGITransport(Server("s").asgi())
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        for body, id, code in MALFORMED:
            with subtests.test(f"{body!r}"):
                headers = {"content-type": "application/json", "accept": ACCEPT}
                response = await client.post("/mcp", content=body, headers=headers)
                answer = response.json()
                assert (response.status_code, answer["id"], answer["error"]["code"]) == (400, id, code)
