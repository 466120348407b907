"""One HTTP request and its response, in ASGI."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias

from anyio import CancelScope, create_task_group, move_on_after
from anyio.abc import TaskGroup

from mcp_host.protocol.jsonrpc import INVALID_REQUEST, Failure, Id, Response, encode

JSON = "application/json"
EVENTS = "text/event-stream"

MAX_BODY = 64 * 1024 * 1024  # bytes, as many as a client takes of a server (`Limits.max_message`)
BODY_TIMEOUT = 120.0  # seconds for a client to send it

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

Principal: TypeAlias = Hashable
"""Who sends a request. All who send no token, or one that the user has chosen, are None."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """One complete HTTP response."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def json(cls, response: Response, status: int, headers: Mapping[str, str]) -> Self:
        return cls(status, encode(response), {"content-type": JSON, **headers})


class HttpError(Exception):
    """A refusal: "the HTTP response body MAY comprise a JSON-RPC error response that has no id".

    *headers* are named with underscores for hyphens.
    """

    def __init__(
        self, status: int, message: str, code: int = INVALID_REQUEST, id: Id | None = None, **headers: str
    ) -> None:
        super().__init__(message)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.response = HttpResponse.json(Failure(id, code, message), status, named)


@dataclass(slots=True)
class HttpExchange:
    """A request, and the means to respond to it: all at once, or event by event."""

    method: str
    path: str
    headers: Mapping[str, str]
    """Names are in lower case."""
    _receive: Receive
    _send: Send
    principal: Principal = None
    body: bytes = b""
    """What `read_body` has read."""
    _started: bool = False

    @classmethod
    def of(cls, scope: Scope, receive: Receive, send: Send) -> Self:
        """The request of *scope*, whose body has not been read."""
        headers: dict[str, str] = {}
        for name, value in scope["headers"]:
            key, text = name.decode("latin-1").lower(), value.decode("latin-1")
            headers[key] = f"{headers[key]}, {text}" if key in headers else text  # RFC 9110, section 5.3
        return cls(scope["method"], scope["path"].removeprefix(scope.get("root_path", "")), headers, receive, send)

    async def read_body(self) -> bool:
        """Read the whole body; False if the client disconnects first.

        Raises:
            HttpError: It is too large, or does not come in time.
        """
        body, size, more = list[bytes](), 0, True
        with move_on_after(BODY_TIMEOUT) as waiting:
            while more:
                event = await self._receive()
                if event["type"] == "http.disconnect":
                    return False
                body.append(event.get("body", b""))
                size += len(body[-1])
                if size > MAX_BODY:
                    raise HttpError(413, f"the body has more than {MAX_BODY:,} bytes", connection="close")
                more = event.get("more_body", False)
        if waiting.cancelled_caught:
            raise HttpError(408, f"the body has not come in {BODY_TIMEOUT:g} seconds", connection="close")
        self.body = b"".join(body)
        return True

    async def respond(self, response: HttpResponse) -> None:
        """Send a complete response."""
        await self._start(response.status, {**response.headers, "content-length": str(len(response.body))})
        await self._send({"type": "http.response.body", "body": response.body})

    async def start_events(self, headers: Mapping[str, str]) -> None:
        """Begin a response that is an event stream, which may stay open for hours: the request is let go of."""
        self._started, self.headers, self.body = True, {}, b""
        await self._start(200, {"content-type": EVENTS, "cache-control": "no-cache", **headers})

    async def write(self, events: bytes) -> None:
        await self._send({"type": "http.response.body", "body": events, "more_body": True})

    async def end_events(self, headers: Mapping[str, str], last: bytes = b"") -> None:
        """End a response that is an event stream. If it has not begun, it is empty."""
        if not self._started:
            await self.start_events(headers)
        await self._send({"type": "http.response.body", "body": last})

    @property
    def disconnected(self) -> Callable[[], Awaitable[object]]:
        """Waits until the client disconnects, once the body has been read. It may be cancelled, and called again."""
        return self._receive

    @asynccontextmanager
    async def while_connected(self) -> AsyncIterator[TaskGroup]:
        """Run the body and its tasks to their end. If the client disconnects, all of it is cancelled."""
        watching = CancelScope()

        async def watch() -> None:
            with watching:
                await self.disconnected()
                tasks.cancel_scope.cancel()

        async with create_task_group() as tasks:
            tasks.start_soon(watch)
            yield tasks
            watching.cancel()

    async def _start(self, status: int, headers: Mapping[str, str]) -> None:
        encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": encoded})
