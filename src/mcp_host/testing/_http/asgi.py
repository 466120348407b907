"""One HTTP request and its response, in ASGI."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias

from anyio import CancelScope, create_task_group
from anyio.abc import TaskGroup

from mcp_host.protocol.jsonrpc import INVALID_REQUEST, Failure, encode

JSON = "application/json"
EVENTS = "text/event-stream"

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """One complete HTTP response."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class HttpError(Exception):
    """A refusal: "the HTTP response body MAY comprise a JSON-RPC error response that has no id"."""

    def __init__(self, status: int, message: str, code: int = INVALID_REQUEST, **headers: str) -> None:
        super().__init__(message)
        body = encode(Failure(None, code, message))
        self.response = HttpResponse(status, body, {"content-type": JSON, **headers})


@dataclass(frozen=True, slots=True)
class HttpExchange:
    """A request, and the means to respond to it: all at once, or event by event."""

    method: str
    path: str
    headers: Mapping[str, str]
    """Names are in lower case."""
    body: bytes
    _receive: Receive
    _send: Send

    @classmethod
    async def read(cls, scope: Scope, receive: Receive, send: Send) -> Self | None:
        """Read the whole request; None if the client disconnects first."""
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        body: list[bytes] = []
        more = True
        while more:
            event = await receive()
            if event["type"] == "http.disconnect":
                return None
            body.append(event.get("body", b""))
            more = event.get("more_body", False)
        return cls(scope["method"], path, headers, b"".join(body), receive, send)

    async def respond(self, response: HttpResponse) -> None:
        """Send a complete response."""
        await self._start(response.status, {**response.headers, "content-length": str(len(response.body))})
        await self._send({"type": "http.response.body", "body": response.body})

    async def start_events(self, headers: Mapping[str, str]) -> None:
        """Begin a response that is an event stream."""
        await self._start(200, {"content-type": EVENTS, "cache-control": "no-cache", **headers})

    async def write(self, events: bytes) -> None:
        await self._send({"type": "http.response.body", "body": events, "more_body": True})

    async def end_events(self, farewell: bytes = b"") -> None:
        """End a response that is an event stream."""
        await self._send({"type": "http.response.body", "body": farewell})

    @asynccontextmanager
    async def while_connected(self) -> AsyncIterator[TaskGroup]:
        """Run the body and its tasks to their end. If the client disconnects, all of it is cancelled."""
        watching = CancelScope()

        async def watch() -> None:
            with watching:
                await self._receive()  # the body has been read, so this is the end of the connection
                tasks.cancel_scope.cancel()

        async with create_task_group() as tasks:
            tasks.start_soon(watch)
            yield tasks
            watching.cancel()

    async def _start(self, status: int, headers: Mapping[str, str]) -> None:
        encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": encoded})
