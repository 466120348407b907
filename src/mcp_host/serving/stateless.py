"""Stateless requests, since revision 2026-07-28: each names its client, and what that client can do.

A function requests input in a result, and a retry answers. A running coroutine cannot be
repeated for the retry: it has side effects and local variables. So it stays suspended where
it is, in a task that outlives the request, and the `requestState` of the result refers to it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from anyio import CancelScope, current_time, get_cancelled_exc_class, move_on_after
from anyio.lowlevel import checkpoint

from mcp_host.concurrency.synchronization import Event
from mcp_host.errors import NotDeclared
from mcp_host.protocol.eras import ACKNOWLEDGED, CACHEABLE, DISCOVER, LISTEN, META, OF_A_RETRY
from mcp_host.protocol.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    UNSUPPORTED_PROTOCOL_VERSION,
    Incoming,
    Notification,
    Params,
    Request,
)
from mcp_host.serving.dispatcher import AsyncAnswer, Future, Spawn
from mcp_host.serving.errors import RequestError, read
from mcp_host.serving.remote_client import SEVERITY, Notify, ReceivedRequest, RemoteClient, meta_of
from mcp_host.serving.request_state import RequestStates, unknown_state
from mcp_host.serving.service import Handler, Prepare, Service
from mcp_host.serving.subscriptions import LISTED, Subscription
from mcp_host.types import (
    DiscoverResult,
    Implementation,
    ServerCapabilities,
    SubscriptionFilter,
    SubscriptionsListenRequestParams,
)
from mcp_host.types.base import given
from mcp_host.types.requests import NotificationMetaObject, RequestMetaObject, ResultMetaObject

VERSION = f"{META}protocolVersion"
UNNAMED = Implementation(name="", version="")  # "Clients SHOULD include" their name, and need not

CACHE_SCOPE = dict.fromkeys(CACHEABLE, "public") | {"resources/read": "private"}
""" "Servers MUST include caching hints on" these results. A function may read something else for each client.

All are private where the service relays: the server behind it may list something else for each user.
"""

QUIET_PASSES = 16  # passes of the event loop without a new input request, after which a round is complete


def version_of(message: Incoming) -> object:
    """The revision that a message names; None in the handshake revisions."""
    return meta_of(message.params).get(VERSION) if isinstance(message, Request | Notification) else None


class Stateless:
    """The stateless requests of one connection or HTTP endpoint. *spawn* runs the functions; *owner* is whose they are.

    "A server processes each request independently; no state should be inferred from
    previous requests": the only state is that of suspended calls. Up to `max_suspended`
    of them wait at a time, each for `resume_timeout` seconds.
    """

    def __init__(self, service: Service, spawn: Spawn, owner: str = "") -> None:
        self._service = service
        self._serves_any = bool(service.modern_versions)
        self._serves_all = not service.handshake_versions
        self._spawn = spawn
        self._states = RequestStates(service.state_key, owner, service.resume_timeout)
        self._suspended: dict[str, SuspendedCall] = {}

    def serves(self, version: object) -> bool:
        """Whether a message that names this *version* is stateless. Without a handshake, all are."""
        return self._serves_any and (version is not None or self._serves_all)

    def accept(self, request: Request, notify: Notify) -> ReceivedRequest:
        """Read who is calling.

        Raises:
            RequestError: The request lacks this information, or names another revision.
        """
        meta = meta_of(request.params)
        if request.method == "initialize" and VERSION not in meta:
            # "A server that supports only modern versions SHOULD name the protocol versions
            # it supports in any error it returns to an `initialize` request".
            raise self._unsupported(request.params.get("protocolVersion", ""))
        if isinstance(version := meta.get(VERSION), str) and version not in self._service.modern_versions:
            raise self._unsupported(version)
        described = read(RequestMetaObject, meta)
        # "The server MUST NOT emit `notifications/message` for a request that does not include this field."
        min_severity = len(SEVERITY) if described.log_level is None else SEVERITY[described.log_level]
        info, capabilities = described.client_info or UNNAMED, described.client_capabilities
        return ReceivedRequest(
            request, RemoteClient(info, capabilities, described.protocol_version, min_severity), notify
        )

    def answer(self, call: ReceivedRequest) -> Params | AsyncAnswer:
        """Answer a request, or return the function that does so. Raises `RequestError` to refuse."""
        method, params = call.request.method, call.request.params
        if method == DISCOVER:
            prepare = self._service.prepare(call.client)
            return self._discovered() if prepare is None else partial(self._discover, prepare)
        if method == LISTEN:
            return partial(self._listen, call, read(SubscriptionsListenRequestParams, params).notifications)
        # Without a state nothing was requested: "the server SHOULD ignore any information it does not [...] need".
        own = {key: value for key, value in params.items() if key not in OF_A_RETRY}
        found = self._service.find(method, own, call.client)
        return self._complete(method, found) if isinstance(found, dict) else partial(self._call, found, call)

    def end(self) -> None:
        """End every subscription with its result, and cancel every suspended function."""
        for subscription in list(self._service.subscriptions):
            if subscription.owner is self:
                subscription.ended.set()
        for suspended in self._suspended.values():
            suspended.scope.cancel()
        self._suspended.clear()

    async def _discover(self, prepare: Prepare) -> Params:
        await prepare()
        return self._discovered()

    def _discovered(self) -> Params:
        discovered = DiscoverResult(
            supported_versions=list(self._service.versions),
            capabilities=ServerCapabilities.from_wire(self._service.capabilities()),
            **given(instructions=self._service.instructions),
        )
        return self._complete(DISCOVER, {**self._service.others(), **discovered.to_wire()})

    async def _listen(self, call: ReceivedRequest, wanted: SubscriptionFilter) -> Params:
        """Acknowledge, and keep the subscription open until the server ends it."""
        if (prepare := self._service.prepare(call.client)) is not None:
            await prepare()
        offered = self._service.capabilities()  # "Only includes notification types the server actually supports"
        lists = {kind for kind in LISTED if kind in offered and getattr(wanted, f"{kind}_list_changed")}
        uris = wanted.resource_subscriptions if "resources" in offered else None
        meta = NotificationMetaObject(subscription_id=call.request.id).to_wire()
        early = dict[tuple[str, object], Params]()  # "MUST NOT send any notification [...] before acknowledging it"

        def keep(method: str, params: Params) -> None:
            early[method, params.get("uri")] = params

        subscription = Subscription(keep, lists, set(uris or ()), meta, self)
        with self._service.subscribed(subscription):
            async with self._service.listening(uris or (), call.client) as watched:
                granted: dict[str, Any] = {f"{kind}_list_changed": True for kind in lists}
                if uris is not None:
                    granted["resource_subscriptions"] = [uri for uri in uris if uri in watched]
                call.notify(ACKNOWLEDGED, {"notifications": SubscriptionFilter(**granted).to_wire(), "_meta": meta})
                subscription.notify, subscription.uris = call.notify, set(watched)
                for (method, uri), params in early.items():
                    if uri is None or uri in watched:
                        call.notify(method, params)
                await subscription.ended.wait()
        return self._complete(LISTEN, {"_meta": meta})

    async def _call(self, function: Handler, call: ReceivedRequest) -> Params:
        request, answers = call.request, call.request.params.get("inputResponses", {})
        # "Servers SHOULD validate that the data provided by the client is a valid `InputResponses` object".
        if not isinstance(answers, dict) or not all(isinstance(answer, dict) for answer in answers.values()):
            raise RequestError(INVALID_PARAMS, "inputResponses has to be an object of objects")
        suspended = self._resume(call, answers) if "requestState" in request.params else None
        if suspended is None:
            suspended = SuspendedCall(call, self._service.pause)
            self._spawn(partial(self._run, suspended, function))
        if requests := await suspended.resume(call, answers):
            state = self._suspend(suspended, request)
            return self._with_server_info(
                {"resultType": "input_required", "inputRequests": requests, "requestState": state}
            )
        try:
            result = suspended.result()
        except NotDeclared as exc:
            # "If processing a request requires a capability the client did not include [...],
            # the server MUST return a MissingRequiredClientCapabilityError" (basic: _meta).
            data = {"requiredCapabilities": exc.required}
            raise RequestError(MISSING_REQUIRED_CLIENT_CAPABILITY, str(exc), data) from None
        if result.get("resultType") == "input_required":  # of the server behind
            state = self._states.write_inner(request, result.get("requestState"))
            return self._with_server_info(result | {"requestState": state})
        return self._complete(request.method, result)

    async def _run(self, suspended: SuspendedCall, function: Handler) -> None:
        await suspended.run(function)
        self._suspended.pop(suspended.id, None)  # if its state has expired

    def _suspend(self, suspended: SuspendedCall, request: Request) -> str:
        """Keep a call for its retry, and return the request state that resumes it. If there is no room, cancel it."""
        if len(self._suspended) >= (limit := self._service.max_suspended):
            suspended.scope.cancel()
            raise RequestError(INTERNAL_ERROR, f"{limit:,} calls wait for input already (max_suspended)")
        state, suspended.id = self._states.write_suspended(request)
        self._suspended[suspended.id] = suspended
        suspended.scope.deadline = current_time() + self._service.resume_timeout
        return state

    def _resume(self, call: ReceivedRequest, answers: Params) -> SuspendedCall | None:
        """The suspended call of a retry; None if the server behind continues it."""
        state = self._states.read(call.request)
        if state.worker is not None:
            if (suspended := self._suspended.pop(state.id, None)) is None:
                raise unknown_state()
            return suspended
        call.continuing = {"inputResponses": answers} | given(requestState=state.inner)
        return None

    def _complete(self, method: str, result: Params) -> Params:
        hints: Params = {}
        if scope := CACHE_SCOPE.get(method):
            scope = "private" if self._service.relays else scope
            hints = {"ttlMs": round(self._service.ttl * 1000), "cacheScope": scope}
        return self._with_server_info({"resultType": "complete", **hints, **result})

    def _with_server_info(self, result: Params) -> Params:
        """ "Servers SHOULD include [serverInfo] in every result's `_meta`"."""
        return {**result, "_meta": {**ResultMetaObject(server_info=self._service.info).to_wire(), **meta_of(result)}}

    def _unsupported(self, requested: object) -> RequestError:
        data = {"supported": list(self._service.versions), "requested": str(requested)}
        message = f"Unsupported protocol version: this server supports {', '.join(self._service.versions)}"
        return RequestError(UNSUPPORTED_PROTOCOL_VERSION, message, data)


class SuspendedCall:
    """One function, over the request that called it and all its retries.

    Input that the function requests at the same time goes into one round. A round is complete
    when the function has requested nothing new for `QUIET_PASSES` passes of the event loop, in
    each of which every task that can run does run, and then for *pause* seconds. (Whether a waiting task will request input
    later cannot be known: it may wait for a clock, a thread, or another task's answer.) Later
    requests go into the next round; notifications in between are lost.
    """

    def __init__(self, call: ReceivedRequest, pause: float) -> None:
        self._pause = pause
        self.id = ""
        """That of its last state, if it has been suspended."""
        self.scope = CancelScope()
        self._call = replace(call, notify=self._notify)
        self._current: ReceivedRequest | None = None
        """The request that waits for this function, if there is one."""
        self._requests: dict[str, tuple[Params, Future[Params]]] = {}
        self._count = 0
        self._outcome: Params | Exception = RequestError(INTERNAL_ERROR, "the server has cancelled this request")
        self._ended = False
        self._changed = Event()
        self._resumed = Event()

    async def run(self, function: Handler) -> None:
        """Run *function* until it has ended, or has been suspended for too long. While it is, keep what came of it."""
        with self.scope:
            try:
                self._outcome = await function(self._call, self._request)
            except Exception as exc:
                self._outcome = exc  # raised by `result`
            finally:
                self._ended = True
                self._changed.set()
            if self._current is None:
                self._resumed = Event()
                await self._resumed.wait()

    async def resume(self, call: ReceivedRequest, answers: Mapping[str, Params]) -> dict[str, Params]:
        """Continue with *answers* until the function has ended or requests input; return its open input requests.

        Unknown answers are ignored. If the caller is cancelled, so is the function.
        """
        self._current, self.scope.deadline = call, math.inf
        self._resumed.set()
        self._call.request, self._call.client = call.request, call.client
        for key, (_, answer) in self._requests.items():
            if key in answers:
                answer.set(answers[key])
        try:
            return await self._next_round()
        except get_cancelled_exc_class():
            self.scope.cancel()
            raise
        finally:
            self._current = None

    def result(self) -> Params:
        """What the function returned; raises what it raised."""
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome

    async def _next_round(self) -> dict[str, Params]:
        quiet = 0
        while not self._ended:
            count = self._count
            requests = {key: request for key, (request, answer) in self._requests.items() if not answer.done}
            if not requests:
                self._changed = Event()
                await self._changed.wait()
            elif quiet == QUIET_PASSES:
                if not self._pause or not await self._requests_more():
                    return requests
            else:
                await checkpoint()
            quiet = quiet + 1 if requests and count == self._count else 0
        return {}

    async def _requests_more(self) -> bool:
        """Wait for the pause. Whether the function has ended or requested input meanwhile."""
        self._changed = Event()
        with move_on_after(self._pause):
            await self._changed.wait()
        return self._changed.is_set()

    async def _request(self, method: str, params: Params) -> Params:
        self._count += 1
        key, answer = f"{method.partition('/')[0]}-{self._count}", Future[Params]()
        self._requests[key] = {"method": method, "params": params}, answer
        self._changed.set()
        try:
            return await answer.wait()
        finally:
            del self._requests[key]

    def _notify(self, method: str, params: Params) -> None:
        if self._current is not None:
            self._current.notify(method, params)
