"""Stateless requests, since revision 2026-07-28: each names its client, and what that client can do."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from functools import partial
from secrets import token_urlsafe
from typing import Any, TypeAlias

from anyio import CancelScope, Event, current_time, get_cancelled_exc_class
from anyio.lowlevel import checkpoint

from mcp_host.protocol.eras import CACHEABLE, DISCOVER, LISTEN, META, REQUIRED_CAPABILITY
from mcp_host.protocol.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    UNSUPPORTED_PROTOCOL_VERSION,
    Notification,
    Params,
    Request,
)
from mcp_host.testing._server.catalog import Catalog, Method, find, read
from mcp_host.testing._server.dispatcher import AsyncAnswer, Future, meta_of
from mcp_host.testing._server.revision import RevisionWriter, given
from mcp_host.testing._server.subscriptions import Subscriptions, granted
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
        described = read(RequestMetaObject, meta)
        # "The server MUST NOT emit `notifications/message` for a request that does not include this field."
        min_severity = len(SEVERITY) if described.log_level is None else SEVERITY[described.log_level]
        writer = RevisionWriter(described.protocol_version)
        return Call(
            request,
            RemoteClient(described.client_info or UNNAMED, described.client_capabilities, writer, min_severity),
            notify,
        )

    def answer(self, call: Call) -> Params | AsyncAnswer:
        """Answer a request, or return the function that does so. Raises `RequestError` to refuse."""
        method, params = call.request.method, call.request.params
        if method == DISCOVER:
            return self._complete(method, self._discover().to_wire())
        if method == LISTEN:
            return partial(self._listen, call, read(SubscriptionsListenRequestParams, params).notifications)
        capability, *_ = REQUIRED_CAPABILITY.get(method, (None,))
        if capability is not None and capability not in self.catalog.capabilities():
            raise RequestError(METHOD_NOT_FOUND, f"{method} needs {capability}, which was not declared")
        found = find(self.catalog, method, params, call.client.writer)
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

    async def _call(self, method: Method, call: Call) -> Params:
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


QUIET_PASSES = 16  # passes of the event loop without a new question, after which a round is complete

Spawn: TypeAlias = Callable[[Callable[[], Coroutine[Any, Any, None]]], object]
"""Starts a task that may outlive the current request."""


class SuspendedCall:
    """One function, over the request that called it and all its retries.

    Questions that the function asks at the same time go into one round. A round is complete
    when the function has asked nothing new for `QUIET_PASSES` passes of the event loop, in
    each of which every task that can run does run. (Whether a waiting task will ask later
    cannot be known: it may wait for a clock, a thread, or another task's answer.) A task
    that asks later does so in the next round; its notifications in between are lost.
    """

    def __init__(self, call: Call) -> None:
        self.ended = Event()
        self._call = replace(call, notify=self._notify)
        self._current: Call | None = None
        """The request that waits for this function, if there is one."""
        self._questions: dict[str, tuple[Params, Future[Params]]] = {}
        self._count = 0
        self._outcome: Params | Exception = RequestError(INTERNAL_ERROR, "the server has given up this request")
        self._changed = Event()
        self._scope = CancelScope()

    async def run(self, function: Callable[[Context], Awaitable[Params]]) -> None:
        """Run *function* until it has ended."""
        try:
            with self._scope:
                try:
                    self._outcome = await function(Context(self._call, self._request))
                except Exception as exc:
                    self._outcome = exc  # raised by `result`
        finally:
            self.ended.set()
            self._changed.set()

    async def resume(self, call: Call, answers: Mapping[str, Params]) -> dict[str, Params]:
        """Continue with *answers* until the function has ended or asks again; return its open questions.

        Unknown answers are ignored. If the caller is cancelled, so is the function.
        """
        self._current, self._scope.deadline = call, math.inf
        self._call.request, self._call.client = call.request, call.client
        for key, (_, answer) in self._questions.items():
            if key in answers:
                answer.set(answers[key])
        try:
            return await self._next_round()
        except get_cancelled_exc_class():
            self.cancel()
            raise
        finally:
            self._current = None

    def result(self) -> Params:
        """What the function returned; raises what it raised."""
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome

    def cancel_at(self, deadline: float) -> None:
        self._scope.deadline = deadline

    def cancel(self) -> None:
        self._scope.cancel()

    async def _next_round(self) -> dict[str, Params]:
        quiet = 0
        while not self.ended.is_set():
            count = self._count
            questions = {key: question for key, (question, answer) in self._questions.items() if not answer.done}
            if not questions:
                self._changed = Event()
                await self._changed.wait()
            elif quiet == QUIET_PASSES:
                return questions
            else:
                await checkpoint()
            quiet = quiet + 1 if questions and count == self._count else 0
        return {}

    async def _request(self, method: str, params: Params) -> Params:
        self._count += 1
        key, answer = f"{method.partition('/')[0]}-{self._count}", Future[Params]()
        self._questions[key] = {"method": method, "params": params}, answer
        self._changed.set()
        try:
            return await answer.wait()
        finally:
            del self._questions[key]

    def _notify(self, method: str, params: Params) -> None:
        if self._current is not None:
            self._current.notify(method, params)


@dataclass(frozen=True, slots=True)
class SuspendedState:
    """What a `requestState` refers to."""

    call: SuspendedCall
    request: tuple[object, ...]
    expires: float

    @staticmethod
    def identity(request: Request) -> tuple[object, ...]:
        """What a retry has in common with the request that it repeats."""
        params = request.params
        return request.method, params.get("name"), params.get("uri"), params.get("arguments") or {}


class SuspendedCalls:
    """All calls of one connection or HTTP endpoint that may ask for input.

    Up to *limit* of them are suspended at a time, each for *timeout* seconds. A request
    state is a random key, valid once and for a retry of the same request: "an identifier
    for the originating request" and "a short expiry" (basic/patterns/mrtr).
    """

    def __init__(self, spawn: Spawn, limit: int, timeout: float) -> None:
        self._spawn = spawn
        self._limit = limit
        self._timeout = timeout
        self._running: set[SuspendedCall] = set()
        self._states: dict[str, SuspendedState] = {}

    def start(self, call: Call, function: Callable[[Context], Awaitable[Params]]) -> SuspendedCall:
        """Run *function* in a task."""
        suspended = SuspendedCall(call)

        async def run() -> None:
            self._running.add(suspended)
            try:
                await suspended.run(function)
            finally:
                self._running.discard(suspended)

        self._spawn(run)
        return suspended

    def suspend(self, suspended: SuspendedCall, request: Request) -> str:
        """Keep a call for its retry, and return the request state that resumes it.

        Raises:
            RequestError: Too many calls are suspended. This one has been cancelled.
        """
        now = current_time()
        self._states = {key: state for key, state in self._states.items() if now < state.expires}
        if len(self._states) >= self._limit:
            suspended.cancel()
            raise RequestError(INTERNAL_ERROR, f"{self._limit:,} calls wait for input already (max_suspended)")
        key, expires = token_urlsafe(32), now + self._timeout
        self._states[key] = SuspendedState(suspended, SuspendedState.identity(request), expires)
        suspended.cancel_at(expires)
        return key

    def resume(self, request: Request) -> SuspendedCall:
        """Look up the call of a retry. Its request state is used up.

        Raises:
            RequestError: The state is unknown, expired, used, or of another request.
        """
        key = request.params["requestState"]
        state = self._states.get(key) if isinstance(key, str) else None
        if state is None:
            raise RequestError(INVALID_PARAMS, "requestState is unknown, or has been used already")
        if state.request != SuspendedState.identity(request):
            raise RequestError(INVALID_PARAMS, "requestState belongs to another request")
        del self._states[key]
        if current_time() >= state.expires:
            raise RequestError(INVALID_PARAMS, "requestState has expired")
        return state.call

    async def aclose(self) -> None:
        """Cancel every call and wait until it has ended."""
        for suspended in list(self._running):
            suspended.cancel()
        for suspended in list(self._running):
            await suspended.ended.wait()
