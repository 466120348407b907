"""HTTP as ASGI spells it: reading a request, and sending a response whole or event by event."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from anyio import CancelScope, create_task_group, move_on_after
from anyio.abc import TaskGroup

from mcp_host.testing._http.rules import EVENTS, HttpRequest, Reply
from mcp_host.testing._http.streams import EventStream

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

COMMENT = b":\n\n"  # "clients must ignore such lines"


class Gone(Exception):
    """The client went away while it was still sending."""


async def read(scope: Scope, receive: Receive) -> HttpRequest:
    """The whole request.

    Raises:
        Gone: There will be no more of it.
    """
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
    path = scope["path"].removeprefix(scope.get("root_path", ""))
    parts: list[bytes] = []
    more = True
    while more:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise Gone
        parts.append(event.get("body", b""))
        more = event.get("more_body", False)
    return HttpRequest(scope["method"], path, headers, b"".join(parts))


async def respond(send: Send, reply: Reply) -> None:
    """Send a whole response."""
    await _start(send, reply.status, {**reply.headers, "content-length": str(len(reply.body))})
    await send({"type": "http.response.body", "body": reply.body})


@asynccontextmanager
async def while_connected(receive: Receive) -> AsyncIterator[TaskGroup]:
    """Run what is inside, and the tasks it starts, to the end; or until the client goes, which cancels all that."""
    watching = CancelScope()
    async with create_task_group() as tasks:
        tasks.start_soon(_until_gone, receive, watching, tasks.cancel_scope)
        yield tasks
        watching.cancel()


async def start_events(send: Send, headers: Mapping[str, str]) -> None:
    """Begin a response that is a stream of events."""
    await _start(send, 200, {"content-type": EVENTS, "cache-control": "no-cache", **headers})


async def pour(stream: EventStream, position: int, turn: int, send: Send, *, pause: float | None = None) -> None:
    """Send events from *position* on, until the stream ends or another connection takes it over.

    After every *pause* of so many seconds a comment is sent.
    """
    while True:
        events = COMMENT
        with move_on_after(pause):
            events = await stream.read(position, turn)
            position = len(stream)
        if not events:
            return
        await send({"type": "http.response.body", "body": events, "more_body": True})


async def end_events(send: Send, farewell: bytes = b"") -> None:
    """End a response that is a stream of events."""
    await send({"type": "http.response.body", "body": farewell})


async def _start(send: Send, status: int, headers: Mapping[str, str]) -> None:
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})


async def _until_gone(receive: Receive, watching: CancelScope, scope: CancelScope) -> None:
    with watching:
        await receive()  # the body has been read, so nothing is left to be received but the end
        scope.cancel()
