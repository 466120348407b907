"""Stateless requests, since revision 2026-07-28: each names its client, and what that client can do."""

from __future__ import annotations

from functools import partial

from mcp_host.protocol.eras import CACHEABLE, DISCOVER, LISTEN, META, REQUIRED_CAPABILITY
from mcp_host.protocol.jsonrpc import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    UNSUPPORTED_PROTOCOL_VERSION,
    Notification,
    Params,
    Request,
)
from mcp_host.testing._server import methods
from mcp_host.testing._server.catalog import Catalog
from mcp_host.testing._server.dispatcher import AsyncAnswer, meta_of
from mcp_host.testing._server.revision import RevisionWriter, given
from mcp_host.testing._server.subscriptions import Subscriptions, granted
from mcp_host.testing._server.suspended import Spawn, SuspendedCalls
from mcp_host.testing.context import SEVERITY, Call, Context, Notify, RemoteClient
from mcp_host.testing.errors import NotDeclared, RequestError
from mcp_host.types import (
    DiscoverResult,
    Implementation,
    ServerCapabilities,
    SubscriptionFilter,
    SubscriptionsListenRequestParams,
)
from mcp_host.types.requests import RequestMetaObject, ResultMetaObject

VERSION = f"{META}protocolVersion"
UNNAMED = Implementation(name="", version="")  # "Clients SHOULD include" their name, and need not

CACHE_SCOPE = dict.fromkeys(CACHEABLE, "public") | {"resources/read": "private"}
""" "Servers MUST include caching hints on" these results. A function may read something else for each client."""


def version_of(message: Request | Notification) -> object:
    """The revision that a message names; None in the handshake revisions."""
    return meta_of(message.params).get(VERSION)


class Stateless:
    """The stateless requests of one connection or HTTP endpoint. *spawn* runs the functions.

    "A server processes each request independently; no state should be inferred from
    previous requests": the only state is that of suspended calls.
    """

    def __init__(self, catalog: Catalog, spawn: Spawn) -> None:
        self.catalog = catalog
        self._calls = SuspendedCalls(spawn, catalog.max_suspended, catalog.resume_timeout)
        self._subscriptions = Subscriptions()

    def serves(self, version: object) -> bool:
        """Whether a message that names this *version* is stateless. Without a handshake, all are."""
        return bool(self.catalog.modern_versions) and (version is not None or not self.catalog.handshake_versions)

    def accept(self, request: Request, notify: Notify) -> Call:
        """Read who is calling.

        Raises:
            RequestError: The request lacks this information, or names another revision.
        """
        meta = meta_of(request.params)
        if request.method == "initialize" and VERSION not in meta:
            # "A server that supports only modern versions SHOULD name the protocol versions
            # it supports in any error it returns to an `initialize` request".
            raise self._unsupported(request.params.get("protocolVersion", ""))
        if isinstance(version := meta.get(VERSION), str) and version not in self.catalog.modern_versions:
            raise self._unsupported(version)
        read = methods.read(RequestMetaObject, meta)
        # "The server MUST NOT emit `notifications/message` for a request that does not include this field."
        min_severity = len(SEVERITY) if read.log_level is None else SEVERITY[read.log_level]
        writer = RevisionWriter(read.protocol_version)
        return Call(
            request, RemoteClient(read.client_info or UNNAMED, read.client_capabilities, writer, min_severity), notify
        )

    def answer(self, call: Call) -> Params | AsyncAnswer:
        """Answer a request, or return the function that does so. Raises `RequestError` to refuse."""
        method, params = call.request.method, call.request.params
        if method == DISCOVER:
            return self._complete(method, self._discover().to_wire())
        if method == LISTEN:
            return partial(self._listen, call, methods.read(SubscriptionsListenRequestParams, params).notifications)
        capability, *_ = REQUIRED_CAPABILITY.get(method, (None,))
        if capability is not None and capability not in self.catalog.capabilities():
            raise RequestError(METHOD_NOT_FOUND, f"{method} needs {capability}, which was not declared")
        found = methods.find(self.catalog, method, params, call.client.writer)
        if isinstance(found, dict):
            return self._complete(method, found)
        return partial(self._call, found, call)

    async def announce(self, method: str, params: Params) -> None:
        self._subscriptions.announce(method, params)

    async def end_subscriptions(self) -> None:
        self._subscriptions.end()

    async def aclose(self) -> None:
        """Cancel every function and wait until it has ended."""
        await self._calls.aclose()

    def _discover(self) -> DiscoverResult:
        return DiscoverResult(
            supported_versions=list(self.catalog.versions),
            capabilities=ServerCapabilities.from_wire(self.catalog.capabilities()),
            **given(instructions=self.catalog.instructions),
        )

    async def _listen(self, call: Call, wanted: SubscriptionFilter) -> Params:
        chosen = granted(wanted, self.catalog.capabilities())
        return self._complete(LISTEN, {"_meta": await self._subscriptions.listen(call.request.id, chosen, call.notify)})

    async def _call(self, method: methods.Method, call: Call) -> Params:
        request, answers = call.request, call.request.params.get("inputResponses", {})
        # "Servers SHOULD validate that the data provided by the client is a valid `InputResponses` object".
        if not isinstance(answers, dict) or not all(isinstance(answer, dict) for answer in answers.values()):
            raise RequestError(INVALID_PARAMS, "inputResponses has to be an object of objects")
        if "requestState" in request.params:
            suspended = self._calls.resume(request)
        else:
            # Without a state there are no questions: "the server SHOULD ignore any information it does not [...] need".
            params = {key: value for key, value in request.params.items() if key != "inputResponses"}

            async def run(context: Context) -> Params:
                return await method(self.catalog, params, context, call.client.writer)

            suspended = self._calls.start(call, run)
        if questions := await suspended.resume(call, answers):
            state = self._calls.suspend(suspended, request)
            return self._with_server_info(
                {"resultType": "input_required", "inputRequests": questions, "requestState": state}
            )
        try:
            return self._complete(request.method, suspended.result())
        except NotDeclared as exc:
            # "If processing a request requires a capability the client did not include [...],
            # the server MUST return a MissingRequiredClientCapabilityError" (basic: _meta).
            data = {"requiredCapabilities": exc.required}
            raise RequestError(MISSING_REQUIRED_CLIENT_CAPABILITY, str(exc), data) from None

    def _complete(self, method: str, result: Params) -> Params:
        hints: Params = {}
        if scope := CACHE_SCOPE.get(method):
            hints = {"ttlMs": round(self.catalog.ttl * 1000), "cacheScope": scope}
        return self._with_server_info({"resultType": "complete", **hints, **result})

    def _with_server_info(self, result: Params) -> Params:
        """ "Servers SHOULD include [serverInfo] in every result's `_meta`"."""
        return {**result, "_meta": {**ResultMetaObject(server_info=self.catalog.info).to_wire(), **meta_of(result)}}

    def _unsupported(self, requested: object) -> RequestError:
        supported = list(self.catalog.versions)
        message = f"Unsupported protocol version: this server supports {', '.join(supported)}"
        return RequestError(
            UNSUPPORTED_PROTOCOL_VERSION, message, {"supported": supported, "requested": str(requested)}
        )
