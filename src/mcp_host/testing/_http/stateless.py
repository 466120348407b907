"""Stateless requests over Streamable HTTP: each POST is one request, and its response carries all its messages."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from anyio import CancelScope, Event, move_on_after

from mcp_host.concurrency import spawn
from mcp_host.protocol.eras import LISTEN
from mcp_host.protocol.headers import PROTOCOL_VERSION
from mcp_host.protocol.jsonrpc import (
    HEADER_MISMATCH,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    UNSUPPORTED_PROTOCOL_VERSION,
    Failure,
    Id,
    Incoming,
    Message,
    Notification,
    Params,
    Request,
    Response,
    Success,
    encode,
)
from mcp_host.testing._http.asgi import JSON, HttpError, HttpExchange, HttpResponse
from mcp_host.testing._http.rules import check_headers, check_version
from mcp_host.testing._http.streams import EventStream
from mcp_host.testing._server.catalog import Catalog
from mcp_host.testing._server.dispatcher import Dispatcher
from mcp_host.testing._server.stateless import Stateless, version_of
from mcp_host.testing.context import Call
from mcp_host.testing.errors import RequestError

STATUS = {
    METHOD_NOT_FOUND: 404,
    HEADER_MISMATCH: 400,
    MISSING_REQUIRED_CLIENT_CAPABILITY: 400,
    UNSUPPORTED_PROTOCOL_VERSION: 400,
}
"""The errors for which the specification names a status."""

HEADERS = {"x-accel-buffering": "no"}  # "Servers SHOULD include" it, so that proxies do not buffer
KEEP_ALIVE = 15.0  # seconds; common proxies end a connection after 30 or 60 seconds of silence


class StatelessHttp:
    """The stateless requests of one endpoint. With *json_response* only the responses are sent."""

    def __init__(self, catalog: Catalog, *, json_response: bool) -> None:
        self._catalog = catalog
        self._stateless = Stateless(catalog, spawn)
        self._json_response = json_response
        self._pending: set[PendingRequest] = set()
        self._on_close = ExitStack()
        self._on_close.enter_context(catalog.broadcaster.reaching(self._stateless))

    def takes(self, http: HttpExchange, messages: Sequence[Incoming]) -> bool:
        """Whether a POST is stateless, and not part of a session."""
        header = http.headers.get(PROTOCOL_VERSION.lower())
        named = [version_of(message) for message in messages if isinstance(message, Request | Notification)]
        if header in self._catalog.modern_versions:
            named.append(header)
        return any(map(self._stateless.serves, [None, *named]))

    async def post(self, http: HttpExchange, messages: Sequence[Incoming]) -> HttpResponse | None:
        """Answer a POST: return the response, or None if an event stream has been sent."""
        match messages:
            case [Request() as request]:
                return await self._request(http, request)
            case [Notification()]:  # "Closing the SSE response stream is itself the cancellation signal"
                return HttpResponse(202)
        raise HttpError(400, "the body has to be a single request or notification")

    def drop(self) -> None:
        """Cut every open response, which cancels its request."""
        for pending in self._pending:
            pending.scope.cancel()

    async def aclose(self) -> None:
        """End all: the subscriptions with their results, the other requests without."""
        await self._stateless.end_subscriptions()
        for pending in self._pending:
            if not pending.is_subscription:
                pending.scope.cancel()
        await self._stateless.aclose()
        self._on_close.close()

    async def _request(self, http: HttpExchange, request: Request) -> HttpResponse | None:
        pending = PendingRequest(request, json_response=self._json_response and request.method != LISTEN)
        try:
            call = self._accept(http, request, pending)
        except RequestError as exc:
            return _json(Failure(request.id, exc.code, exc.message, exc.data), 400)
        self._pending.add(pending)
        try:
            async with http.while_connected() as tasks:
                pending.scope = tasks.cancel_scope
                Dispatcher(tasks, pending.send, lambda _: self._stateless.answer(call)).receive(request)
                with move_on_after(None if pending.json_response else KEEP_ALIVE):
                    await pending.begun.wait()  # the first message may decide the status
                if pending.response() is None:
                    pending.started = True
                    await http.start_events(HEADERS)
                    await pending.stream.send_to(http.write, 0, keep_alive=KEEP_ALIVE)
        finally:
            self._pending.discard(pending)
        if (response := pending.response()) is not None:
            return response
        if not pending.started:  # cut before it began
            await http.start_events(HEADERS)
        await http.end_events()
        return None

    def _accept(self, http: HttpExchange, request: Request, pending: PendingRequest) -> Call:
        version = version_of(request)
        # An older client sends no such header; `Stateless.accept` tells it the supported revisions.
        if request.method != "initialize" or version is not None:
            check_version(http.headers, version)
        call = self._stateless.accept(request, pending.notify)
        name = request.params.get("name") if request.method == "tools/call" else None
        tool = self._catalog.tools.get(name) if isinstance(name, str) else None
        check_headers(http.headers, request, tool.definition.input_schema if tool else None)
        return call


class PendingRequest:
    """One request, and the messages to send in its response."""

    def __init__(self, request: Request, *, json_response: bool) -> None:
        self.stream = EventStream()
        self.begun = Event()
        """There is a message to send."""
        self.is_subscription = request.method == LISTEN
        self.scope = CancelScope()
        self.json_response = json_response
        self.started = False
        """Whether an event stream has begun, so that there is no other response."""
        self._answer: Response | None = None

    def notify(self, method: str, params: Params) -> None:
        self.send(Notification(method, params), None)

    def send(self, message: Message, related: Id | None) -> None:
        raw = encode(message)
        if isinstance(message, Success | Failure):
            self._answer = message
        elif self.json_response:
            return
        self.stream.append(raw)
        if self._answer is not None:
            self.stream.end()
        self.begun.set()

    def response(self) -> HttpResponse | None:
        """The response if it is no event stream: JSON, or an error before any other message that has a status."""
        if self.started or self._answer is None or len(self.stream) > 1:
            return None
        status = STATUS.get(self._answer.code, 200) if isinstance(self._answer, Failure) else 200
        return _json(self._answer, status) if self.json_response or status != 200 else None


def _json(response: Response, status: int) -> HttpResponse:
    return HttpResponse(status, encode(response), {"content-type": JSON})
