"""One connection to a server: the handshake revisions, and 2026-07-28 beside them."""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial

from mcp_host.protocol.eras import INITIALIZED
from mcp_host.protocol.jsonrpc import INTERNAL_ERROR, INVALID_REQUEST, Incoming, Notification, Params, Request
from mcp_host.serving.dispatcher import AsyncAnswer, Dispatcher, OnCancelled, Send, Spawn
from mcp_host.serving.errors import RequestError, read
from mcp_host.serving.remote_client import SEVERITY, ReceivedRequest, RemoteClient
from mcp_host.serving.service import Peer, Prepare, Service
from mcp_host.serving.stateless import Stateless, version_of
from mcp_host.serving.subscriptions import LISTED, Subscription
from mcp_host.types import InitializeRequestParams, InitializeResult, ServerCapabilities
from mcp_host.types.base import given
from mcp_host.types.requests import ResourceRequestParams, SetLevelRequestParams

CANCELLED = "notifications/cancelled"
MAX_SUBSCRIBED = 10_000  # resources of one session
KEPT = frozenset({"logging/setLevel", "resources/subscribe", "resources/unsubscribe"})
"""What a session itself keeps, where the service does not relay it."""


class Session:
    """One client's session. Requests of 2026-07-28 on the same connection are answered, too.

    "A dual-era server MAY serve both eras concurrently on the same endpoint or process"
    (2026-07-28, basic/versioning).
    """

    def __init__(
        self,
        service: Service,
        spawn: Spawn,
        send: Send,
        on_cancelled: OnCancelled = lambda id: None,
        principal: Hashable = None,
    ) -> None:
        self.client: RemoteClient | None = None
        """The client, once it has sent `initialize`."""
        self._dispatcher = Dispatcher(
            spawn, send, self._answer, on_cancelled, lambda response: self._service.unexpected(response)
        )
        self._service = service.begin(Peer(self._dispatcher.request, self._dispatcher.notify), principal)
        self.stateless = Stateless(self._service, spawn)
        self._subscription = Subscription(self._dispatcher.notify)
        self._service.subscriptions.append(self._subscription)

    def receive(self, message: Incoming) -> None:
        """Take a message from the client. Returns at once."""
        if isinstance(message, Notification) and self.client is not None:
            if message.method == INITIALIZED:
                self._subscription.lists = LISTED
            elif message.method != CANCELLED:
                self._service.notified(message)
        self._dispatcher.receive(message)

    def close(self) -> None:
        """Cancel everything."""
        self._service.subscriptions.remove(self._subscription)
        self._dispatcher.close()
        self.stateless.end()
        self._service.end()

    def _answer(self, request: Request) -> Params | AsyncAnswer:
        notify = partial(self._dispatcher.notify, related=request.id)
        if self.stateless.serves(version_of(request)):
            return self.stateless.answer(self.stateless.accept(request, notify))
        match request.method:
            case "initialize":
                return self._begin(read(InitializeRequestParams, request.params))
            case "ping":
                return {}
        if self.client is None:
            raise RequestError(INVALID_REQUEST, "not initialized yet")
        self._service.check(request.method)
        match request.method:
            case "logging/setLevel":
                self.client.min_severity = SEVERITY[read(SetLevelRequestParams, request.params).level]
            case "resources/subscribe":
                self._subscribe(read(ResourceRequestParams, request.params).uri)
            case "resources/unsubscribe":
                self._subscription.uris.discard(read(ResourceRequestParams, request.params).uri)
        if request.method in KEPT and not self._service.relays:
            return {}
        found = self._service.find(request.method, request.params, self.client)
        if isinstance(found, dict):
            return found
        call = ReceivedRequest(request, self.client, notify)
        return partial(found, call, partial(self._dispatcher.request, related=request.id))

    def _subscribe(self, uri: str) -> None:
        if len(self._subscription.uris) >= MAX_SUBSCRIBED:
            raise RequestError(INTERNAL_ERROR, f"{MAX_SUBSCRIBED:,} resources are subscribed to already")
        self._subscription.uris.add(uri)

    def _begin(self, params: InitializeRequestParams) -> Params | AsyncAnswer:
        if self.client is not None:
            raise RequestError(INVALID_REQUEST, "initialized already")
        # "If the server supports the requested protocol version, it MUST respond with the same version.
        # Otherwise, the server MUST respond with another protocol version it supports."
        requested, supported = params.protocol_version, self._service.handshake_versions
        version = requested if requested in supported else supported[0]
        self.client = RemoteClient(params.client_info, params.capabilities, version)
        if (prepare := self._service.prepare(self.client)) is None:
            return self._initialized(self.client)
        return partial(self._prepared, prepare, self.client)

    async def _prepared(self, prepare: Prepare, client: RemoteClient) -> Params:
        ready = False
        try:
            await prepare()
            ready = True
        finally:
            if not ready:
                self.client = None
        return self._initialized(client)

    def _initialized(self, client: RemoteClient) -> Params:
        result = InitializeResult(
            protocol_version=client.version,
            capabilities=ServerCapabilities.from_wire(self._service.capabilities()),
            server_info=self._service.info,
            **given(instructions=self._service.instructions),
        )
        wire = client.write(result)
        if self._service.relays:  # with those that came after the revision, such as extensions
            wire["capabilities"] = self._service.capabilities()
        return {**self._service.others(), **wire}
