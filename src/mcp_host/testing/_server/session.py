"""One connection to a test server: the handshake revisions, and 2026-07-28 beside them."""

from __future__ import annotations

from functools import partial

from mcp_host.protocol.eras import INITIALIZED
from mcp_host.protocol.jsonrpc import INVALID_REQUEST, Incoming, Notification, Params, Request
from mcp_host.testing._server.catalog import Catalog, read
from mcp_host.testing._server.dispatcher import AsyncAnswer, Dispatcher, OnCancelled, Send, Spawn
from mcp_host.testing._server.remote_client import SEVERITY, ReceivedRequest, RemoteClient
from mcp_host.testing._server.stateless import Stateless, version_of
from mcp_host.testing._server.subscriptions import LISTED, Subscription
from mcp_host.testing.context import Context
from mcp_host.testing.errors import RequestError
from mcp_host.types import InitializeRequestParams, InitializeResult, ServerCapabilities
from mcp_host.types.base import given
from mcp_host.types.requests import ResourceRequestParams, SetLevelRequestParams


class Session:
    """One client's session. Requests of 2026-07-28 on the same connection are answered, too.

    "A dual-era server MAY serve both eras concurrently on the same endpoint or process"
    (2026-07-28, basic/versioning).
    """

    def __init__(self, catalog: Catalog, spawn: Spawn, send: Send, on_cancelled: OnCancelled = lambda id: None) -> None:
        self.client: RemoteClient | None = None
        """The client, once it has sent `initialize`."""
        self.stateless = Stateless(catalog, spawn)
        self._catalog = catalog
        self._dispatcher = Dispatcher(spawn, send, self._answer, on_cancelled)
        self.subscription = Subscription(self._dispatcher.notify)

    def receive(self, message: Incoming) -> None:
        """Take a message from the client. Returns at once."""
        if isinstance(message, Notification) and message.method == INITIALIZED and self.client is not None:
            self.subscription.lists.update(LISTED)
        self._dispatcher.receive(message)

    def close(self) -> None:
        """Cancel everything."""
        self._dispatcher.close()
        self.stateless.end()

    def _answer(self, request: Request) -> Params | AsyncAnswer:
        notify = partial(self._dispatcher.notify, related=request.id)
        if self.stateless.serves(version_of(request)):
            return self.stateless.answer(self.stateless.accept(request, notify))
        match request.method:
            case "initialize":
                return self._initialize(read(InitializeRequestParams, request.params))
            case "ping":
                return {}
        if self.client is None:
            raise RequestError(INVALID_REQUEST, "not initialized yet")
        self._catalog.check(request.method)
        match request.method:
            case "logging/setLevel":
                self.client.min_severity = SEVERITY[read(SetLevelRequestParams, request.params).level]
                return {}
            case "resources/subscribe":
                self.subscription.uris.add(read(ResourceRequestParams, request.params).uri)
                return {}
            case "resources/unsubscribe":
                self.subscription.uris.discard(read(ResourceRequestParams, request.params).uri)
                return {}
        found = self._catalog.find(request.method, request.params, self.client)
        if isinstance(found, dict):
            return found
        call = ReceivedRequest(request, self.client, notify)
        return partial(found, Context(call, partial(self._dispatcher.request, related=request.id)))

    def _initialize(self, params: InitializeRequestParams) -> Params:
        if self.client is not None:
            raise RequestError(INVALID_REQUEST, "initialized already")
        # "If the server supports the requested protocol version, it MUST respond with the same version.
        # Otherwise, the server MUST respond with another protocol version it supports."
        requested, supported = params.protocol_version, self._catalog.handshake_versions
        version = requested if requested in supported else supported[0]
        self.client = RemoteClient(params.client_info, params.capabilities, version)
        result = InitializeResult(
            protocol_version=version,
            capabilities=ServerCapabilities.from_wire(self._catalog.capabilities()),
            server_info=self._catalog.info,
            **given(instructions=self._catalog.instructions),
        )
        return self.client.write(result)
