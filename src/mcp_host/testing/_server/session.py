"""One connection to a test server: the handshake revisions, and 2026-07-28 beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from anyio.abc import TaskGroup

from mcp_host.protocol.eras import Legacy
from mcp_host.protocol.jsonrpc import INVALID_REQUEST, METHOD_NOT_FOUND, Incoming, Notification, Params, Request
from mcp_host.testing._server.catalog import Catalog, find, read
from mcp_host.testing._server.dispatcher import AsyncAnswer, Dispatcher, OnCancelled, Send
from mcp_host.testing._server.revision import RevisionWriter, given
from mcp_host.testing._server.stateless import Stateless, version_of
from mcp_host.testing._server.subscriptions import UPDATED
from mcp_host.testing.context import SEVERITY, Call, Context, RemoteClient
from mcp_host.testing.errors import RequestError
from mcp_host.types import InitializeRequestParams, InitializeResult, ServerCapabilities
from mcp_host.types.requests import ResourceRequestParams, SetLevelRequestParams


class Session:
    """One client's session. Requests of 2026-07-28 on the same connection are answered, too.

    "A dual-era server MAY serve both eras concurrently on the same endpoint or process"
    (2026-07-28, basic/versioning).
    """

    def __init__(
        self, catalog: Catalog, tasks: TaskGroup, send: Send, on_cancelled: OnCancelled = lambda id: None
    ) -> None:
        self.client: RemoteClient | None = None
        """The client, once it has sent `initialize`."""
        self._catalog = catalog
        self._stateless = Stateless(catalog, tasks.start_soon)
        self._capabilities: Mapping[str, Any] = {}
        self._subscriptions: set[str] = set()
        self._ready = False
        self._dispatcher = Dispatcher(
            tasks, send, self._answer, on_notification=self._on_notification, on_cancelled=on_cancelled
        )
        self.receive: Callable[[Incoming], None] = self._dispatcher.receive
        self.idle = self._dispatcher.idle

    async def announce(self, method: str, params: Params) -> None:
        """Send a notification that belongs to no request: in the session, and to the stateless subscriptions."""
        if self._ready and (method != UPDATED or params["uri"] in self._subscriptions):
            self._dispatcher.notify(method, params)
        await self._stateless.announce(method, params)

    async def end_subscriptions(self) -> None:
        """End every `subscriptions/listen`. The subscriptions of the handshake revisions have no end."""
        await self._stateless.end_subscriptions()

    def _on_notification(self, notification: Notification) -> None:
        if notification.method == "notifications/initialized":
            self._ready = self.client is not None

    def _answer(self, request: Request) -> Params | AsyncAnswer:
        if self._stateless.serves(version_of(request)):
            return self._stateless.answer(
                self._stateless.accept(request, partial(self._dispatcher.notify, related=request.id))
            )
        match request.method:
            case "initialize":
                return self._initialize(read(InitializeRequestParams, request.params))
            case "ping":
                return {}
        if self.client is None:
            raise RequestError(INVALID_REQUEST, "not initialized yet")
        if missing := Legacy(self.client.writer.version).missing(request.method, self._capabilities):
            raise RequestError(METHOD_NOT_FOUND, f"{request.method} needs {missing}, which was not declared")
        match request.method:
            case "logging/setLevel":
                self.client.min_severity = SEVERITY[read(SetLevelRequestParams, request.params).level]
                return {}
            case "resources/subscribe":
                self._subscriptions.add(read(ResourceRequestParams, request.params).uri)
                return {}
            case "resources/unsubscribe":
                self._subscriptions.discard(read(ResourceRequestParams, request.params).uri)
                return {}
        found = find(self._catalog, request.method, request.params, self.client.writer)
        if isinstance(found, dict):
            return found
        call = Call(request, self.client, partial(self._dispatcher.notify, related=request.id))
        context = Context(call, partial(self._dispatcher.request, related=request.id))
        return partial(found, self._catalog, request.params, context, self.client.writer)

    def _initialize(self, params: InitializeRequestParams) -> Params:
        if self.client is not None:
            raise RequestError(INVALID_REQUEST, "initialized already")
        # "If the server supports the requested protocol version, it MUST respond with the same version.
        # Otherwise, the server MUST respond with another protocol version it supports."
        requested, supported = params.protocol_version, self._catalog.handshake_versions
        writer = RevisionWriter(requested if requested in supported else supported[0])
        self.client = RemoteClient(params.client_info, params.capabilities, writer)
        self._capabilities = self._catalog.capabilities()
        result = InitializeResult(
            protocol_version=writer.version,
            capabilities=ServerCapabilities.from_wire(self._capabilities),
            server_info=self._catalog.info,
            **given(instructions=self._catalog.instructions),
        )
        return writer.write(result)
