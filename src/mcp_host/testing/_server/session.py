"""One client's conversation with a test server: the handshake, and what each request means."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from anyio.abc import TaskGroup

from mcp_host.protocol.eras import Legacy
from mcp_host.protocol.jsonrpc import (
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    Incoming,
    Notification,
    Params,
    Request,
)
from mcp_host.testing._server import methods
from mcp_host.testing._server.catalog import Catalog
from mcp_host.testing._server.dispatcher import Dialogue, GivenUp, Later, Send
from mcp_host.testing._server.revision import RevisionWriter, given
from mcp_host.testing._server.stateless import Stateless, version_named
from mcp_host.testing._server.subscriptions import UPDATED
from mcp_host.testing.context import SEVERITY, Call, Caller, Context
from mcp_host.testing.errors import RequestError
from mcp_host.types import InitializeRequestParams, InitializeResult, ServerCapabilities
from mcp_host.types.messages import SetLevelRequestParams
from mcp_host.types.requests import ResourceRequestParams


class Session:
    """What one client has agreed on and asked for, for as long as it stays; requests that stand for themselves, too.

    "A dual-era server MAY serve both eras concurrently on the same endpoint or process"
    (2026-07-28, basic/versioning).
    """

    def __init__(self, catalog: Catalog, tasks: TaskGroup, send: Send, given_up: GivenUp) -> None:
        self.client: Caller | None = None
        self._catalog = catalog
        self._stateless = Stateless(catalog, tasks.start_soon)
        self._capabilities: Mapping[str, Any] = {}
        self._subscriptions: set[str] = set()
        self._severity = 0  # before the client has set a level, "the server MAY decide": it sends everything
        self._dialogue = Dialogue(tasks, send, given_up, self._answer, self._hear)
        self._ready = False
        self.receive: Callable[[Incoming], None] = self._dialogue.receive
        self.idle = self._dialogue.idle

    async def announce(self, method: str, params: Params) -> None:
        """Send a notification that belongs to no request, if the client has shaken hands, and to whoever listens."""
        if self._ready and (method != UPDATED or params["uri"] in self._subscriptions):
            self._dialogue.tell(method, params)
        await self._stateless.announce(method, params)

    async def end_subscriptions(self) -> None:
        """End every `subscriptions/listen`. What was subscribed to within the handshake has no end."""
        await self._stateless.end_subscriptions()

    def _hear(self, notification: Notification) -> None:
        if notification.method == "notifications/initialized":
            self._ready = self.client is not None

    def _answer(self, request: Request) -> Params | Later:
        if self._stateless.serves(version_named(request)):
            turn = self._stateless.admit(request, partial(self._dialogue.tell, origin=request.id))
            return self._stateless.answer(turn)
        return self._answer_in_session(request)

    def _answer_in_session(self, request: Request) -> Params | Later:
        match request.method:
            case "initialize":
                return self._shake_hands(methods.read(InitializeRequestParams, request.params))
            case "ping":
                return {}
        if self.client is None:
            raise RequestError(INVALID_REQUEST, "not initialized yet")
        if missing := Legacy(self.client.dialect.version).missing(request.method, self._capabilities):
            raise RequestError(METHOD_NOT_FOUND, f"{request.method} takes {missing}, which was not declared")
        match request.method:
            case "logging/setLevel":
                self._severity = SEVERITY[methods.read(SetLevelRequestParams, request.params).level]
                return {}
            case "resources/subscribe":
                self._subscriptions.add(methods.read(ResourceRequestParams, request.params).uri)
                return {}
            case "resources/unsubscribe":
                self._subscriptions.discard(methods.read(ResourceRequestParams, request.params).uri)
                return {}
        if page := methods.PAGES.get(request.method):
            return self.client.dialect.write(page(self._catalog, request.params))
        if work := methods.WORK.get(request.method):
            return partial(self._work, work, request, self.client)
        raise RequestError(METHOD_NOT_FOUND, f"Method not found: {request.method}")

    async def _work(self, work: methods.Work, request: Request, client: Caller) -> Params:
        meta = request.params.get("_meta")
        call = Call(
            id=request.id,
            meta=meta if isinstance(meta, dict) else {},
            client=client,
            ask=partial(self._dialogue.ask, origin=request.id),
            tell=partial(self._dialogue.tell, origin=request.id),
            least_severity=lambda: self._severity,
        )
        return await work(self._catalog, request.params, Context(call), client.dialect)

    def _shake_hands(self, params: InitializeRequestParams) -> Params:
        if self.client is not None:
            raise RequestError(INVALID_REQUEST, "initialized already")
        catalog = self._catalog
        # "If the server supports the requested protocol version, it MUST respond with the same version.
        # Otherwise, the server MUST respond with another protocol version it supports."
        wanted = params.protocol_version
        dialect = RevisionWriter(wanted if wanted in catalog.handshake else catalog.handshake[0])
        self.client = Caller(params.client_info, params.capabilities, dialect)
        self._capabilities = catalog.capabilities()
        result = InitializeResult(
            protocol_version=dialect.version,
            capabilities=ServerCapabilities.from_wire(self._capabilities),
            server_info=catalog.info,
            **given(instructions=catalog.instructions),
        )
        return dialect.write(result)
