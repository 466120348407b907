"""Requests that stand for themselves: revision 2026-07-28, in which each says who asks and what they can do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeAlias

from mcp_host.protocol.eras import CACHEABLE, DISCOVER, LISTEN, META
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
from mcp_host.testing._server.dispatcher import Later
from mcp_host.testing._server.revision import RevisionWriter, given
from mcp_host.testing._server.subscriptions import Listeners, granted
from mcp_host.testing._server.suspended import Questions, SuspendedCall, SuspendedCalls, Tell, Turn
from mcp_host.testing.context import SEVERITY, Caller, Context
from mcp_host.testing.errors import NotDeclared, RequestError
from mcp_host.types import (
    DiscoverResult,
    Implementation,
    JSONObject,
    ServerCapabilities,
    SubscriptionFilter,
    SubscriptionsListenRequestParams,
)
from mcp_host.types.lifecycle import RequestMetaObject, ResultMetaObject

VERSION = f"{META}protocolVersion"
NAMELESS = Implementation(name="", version="")  # "Clients SHOULD include" their name, and need not

CACHE_SCOPE = dict.fromkeys(CACHEABLE, "public") | {"resources/read": "private"}
""" "Servers MUST include caching hints on" these results. What a function reads may depend on who asks."""

Start: TypeAlias = Callable[[Callable[[], Coroutine[Any, Any, None]]], object]
"""Starts a task that may outlive the request that it is started for."""


def version_named(message: Request | Notification) -> object:
    """The revision that a message says it is written in; None in the handshake revisions."""
    return _meta(message.params).get(VERSION)


class Stateless:
    """Everything asked for in this way, of one process or endpoint. *start* runs the functions.

    "A server processes each request independently; no state should be inferred from
    previous requests": what there is of state is behind the request states that it gave out.
    """

    def __init__(self, catalog: Catalog, start: Start) -> None:
        self._catalog = catalog
        self._start = start
        self._suspended = SuspendedCalls(catalog.max_suspended, catalog.resume_timeout)
        self._listeners = Listeners()
        self._errands: set[SuspendedCall] = set()

    @property
    def versions(self) -> tuple[str, ...]:
        """The revisions in which it is asked."""
        return self._catalog.modern

    @property
    def alone(self) -> bool:
        """Whether there are no others: the server knows no revision with a handshake."""
        return not self._catalog.handshake

    def serves(self, version: object) -> bool:
        """Whether a message that names this *version* is to be answered here, and not within a handshake."""
        return bool(self.versions) and (version is not None or self.alone)

    def input_schema(self, request: Request) -> JSONObject | None:
        """The schema of the tool that is called, if it is one."""
        name = request.params.get("name") if request.method == "tools/call" else None
        tool = self._catalog.tools.get(name) if isinstance(name, str) else None
        return tool.definition.input_schema if tool else None

    def admit(self, request: Request, tell: Tell) -> Turn:
        """Who asks, with *tell* for what is to be said on the way.

        Raises:
            RequestError: The request does not say what it has to, or is written in another revision.
        """
        meta = _meta(request.params)
        if request.method == "initialize" and VERSION not in meta:
            # "A server that supports only modern versions SHOULD name the protocol versions
            # it supports in any error it returns to an `initialize` request".
            raise self._unsupported(request.params.get("protocolVersion", ""))
        if isinstance(version := meta.get(VERSION), str) and version not in self._catalog.modern:
            raise self._unsupported(version)
        said = methods.read(RequestMetaObject, meta)
        client = Caller(said.client_info or NAMELESS, said.client_capabilities, RevisionWriter(said.protocol_version))
        # "The server MUST NOT emit `notifications/message` for a request that does not include this field."
        least_severity = len(SEVERITY) if said.log_level is None else SEVERITY[said.log_level]
        return Turn(request, meta, client, least_severity, tell)

    def answer(self, turn: Turn) -> Params | Later:
        """The answer, or what has to be awaited for it. Raises `RequestError` to refuse."""
        method = turn.request.method
        if method == DISCOVER:
            return self._complete(method, self._discover().to_wire())
        if method == LISTEN:
            wanted = methods.read(SubscriptionsListenRequestParams, turn.request.params).notifications
            return partial(self._listen, turn, wanted)
        if missing := self._catalog.missing(method):
            raise RequestError(METHOD_NOT_FOUND, f"{method} takes {missing}, which was not declared")
        if page := methods.PAGES.get(method):
            return self._complete(method, turn.client.dialect.write(page(self._catalog, turn.request.params)))
        if work := methods.WORK.get(method):
            return partial(self._go_on, work, turn)
        raise RequestError(METHOD_NOT_FOUND, f"Method not found: {method}")

    async def announce(self, method: str, params: Params) -> None:
        self._listeners.announce(method, params)

    async def end_subscriptions(self) -> None:
        self._listeners.end()

    async def aclose(self) -> None:
        """End every function, and wait until it has ended."""
        for errand in list(self._errands):
            errand.cancel()
        for errand in list(self._errands):
            await errand.ended.wait()

    def _discover(self) -> DiscoverResult:
        return DiscoverResult(
            supported_versions=list(self._catalog.versions),
            capabilities=ServerCapabilities.from_wire(self._catalog.capabilities()),
            **given(instructions=self._catalog.instructions),
        )

    async def _listen(self, turn: Turn, wanted: SubscriptionFilter) -> Params:
        chosen = granted(wanted, self._catalog.capabilities())
        meta = await self._listeners.listen(turn.request.id, chosen, turn.tell)
        return self._complete(LISTEN, {"_meta": meta})

    async def _go_on(self, work: methods.Work, turn: Turn) -> Params:
        request = turn.request
        answers = _answers(request.params)
        errand = self._suspended.resume(request) if "requestState" in request.params else self._begin(work, turn)
        try:
            outcome = await errand.go_on(turn, answers)
        except NotDeclared as exc:
            # "If processing a request requires a capability the client did not include [...],
            # the server MUST return a MissingRequiredClientCapabilityError" (basic: _meta).
            data = {"requiredCapabilities": exc.required}
            raise RequestError(MISSING_REQUIRED_CLIENT_CAPABILITY, str(exc), data) from None
        if isinstance(outcome, Questions):
            state = self._suspended.keep(errand, request)
            asked = {"resultType": "input_required", "inputRequests": outcome.requests, "requestState": state}
            return self._signed(asked)
        return self._complete(request.method, outcome)

    def _begin(self, work: methods.Work, turn: Turn) -> SuspendedCall:
        errand = SuspendedCall(turn)
        # Without a state, answers answer nothing: "the server SHOULD ignore any information it does not [...] need".
        params = {key: value for key, value in turn.request.params.items() if key != "inputResponses"}

        def begin(context: Context) -> Awaitable[Params]:
            return work(self._catalog, params, context, turn.client.dialect)

        async def run() -> None:
            self._errands.add(errand)
            try:
                await errand.run(begin)
            finally:
                self._errands.discard(errand)

        self._start(run)
        return errand

    def _complete(self, method: str, result: Params) -> Params:
        hints: Params = {}
        if scope := CACHE_SCOPE.get(method):
            hints = {"ttlMs": round(self._catalog.ttl * 1000), "cacheScope": scope}
        return self._signed({"resultType": "complete", **hints, **result})

    def _signed(self, result: Params) -> Params:
        """ "Servers SHOULD include [serverInfo] in every result's `_meta`"."""
        return {**result, "_meta": {**ResultMetaObject(server_info=self._catalog.info).to_wire(), **_meta(result)}}

    def _unsupported(self, requested: object) -> RequestError:
        supported = list(self._catalog.versions)
        message = f"Unsupported protocol version: this server speaks {', '.join(supported)}"
        return RequestError(
            UNSUPPORTED_PROTOCOL_VERSION, message, {"supported": supported, "requested": str(requested)}
        )


def _meta(carrier: Params) -> dict[str, Any]:
    meta = carrier.get("_meta")
    return meta if isinstance(meta, dict) else {}


def _answers(params: Params) -> dict[str, Params]:
    """ "Servers SHOULD validate that the data provided by the client is a valid `InputResponses` object"."""
    answers = params.get("inputResponses", {})
    if not isinstance(answers, dict) or not all(isinstance(answer, dict) for answer in answers.values()):
        raise RequestError(INVALID_PARAMS, "inputResponses has to be an object of objects")
    return answers
