"""Who answers what the server asks: the host, or the proxy in its place."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NoReturn

from mcp_host.elicitation import Elicitation
from mcp_host.errors import CallerError, InputRefused
from mcp_host.middleware import CallNext, ServerRequest
from mcp_host.protocol.eras import CLIENT_INPUT, CREATE_MESSAGE, InputRequired
from mcp_host.protocol.jsonrpc import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    Failure,
    Notification,
    Params,
    Response,
    Success,
    encode,
)
from mcp_host.proxy.call_lock import CallLock
from mcp_host.proxy.settings import Settings
from mcp_host.proxy.several import for_host
from mcp_host.proxy.translation import ELICIT, NOT_ANSWERED, URL, host_answers
from mcp_host.sampling import Sampling, always
from mcp_host.serving.errors import ClientError
from mcp_host.serving.remote_client import ReceivedRequest, RemoteClient
from mcp_host.serving.service import Ask, Peer
from mcp_host.types import ClientCapabilities


@dataclass(frozen=True, slots=True, eq=False)
class HostCall:
    """A request of the host, as the caller of the request to the server: what the server asks within it goes there."""

    call: ReceivedRequest
    ask: Ask


@dataclass(frozen=True, slots=True)
class AskedHost:
    """The host whose user an approver may ask, and how."""

    capabilities: ClientCapabilities
    ask: Ask


asked_host: ContextVar[AskedHost | None] = ContextVar("mcp_host.asked_host", default=None)
"""Set while the proxy answers a request of the server: the host that it belongs to. None if that cannot be asked now."""


class Answers:
    """Those of one connection to the server, to requests within a call of *host* or, if its revision has that, of *peer*.

    The *lock* says which call a request is most likely for, if the server does not.
    """

    def __init__(self, settings: Settings, host: RemoteClient, peer: Peer | None, lock: CallLock[HostCall]) -> None:
        self._settings = settings
        self._host = host
        self._peer = peer
        self._lock = lock

    async def answer(self, request: ServerRequest, call_next: CallNext) -> Params:
        """Pass a request of the server on to the host, or let the proxy answer it."""
        outer = request.outer.caller if request.outer is not None else None
        caller = outer if isinstance(outer, HostCall) else self._lock.current
        host = self._host if caller is None else caller.call.client
        ask = self._ask(caller)
        if ask is not None and self._host_answers(host, request.method, request.params):
            return await _answer_of(host, ask, request.method, self.asked(request.method, request.params))
        if self._proxy_answers(request.method):
            asked = asked_host.set(None if ask is None else AskedHost(host.capabilities, ask))
            try:
                return await call_next(request)
            finally:
                asked_host.reset(asked)
        reason = NOT_ANSWERED.get(request.method, "the host knows no such request outside of a call")
        raise InputRefused(METHOD_NOT_FOUND, reason)

    def _proxy_answers(self, method: str) -> bool:
        settings = self._settings
        if method == CREATE_MESSAGE:
            return settings.sampling is not None and settings.sampling_choice != "never"
        return method == ELICIT and settings.elicitation is not None

    def _host_answers(self, host: RemoteClient, method: str, params: Mapping[str, Any]) -> bool:
        if method == CREATE_MESSAGE and self._settings.sampling_choice == "always" and self._proxy_answers(method):
            return False
        if method not in CLIENT_INPUT and host.stateless:
            return False  # a result may require no other input
        return host_answers(method, params, host.capabilities)

    def leaves_input(self, host: RemoteClient, required: InputRequired) -> bool:
        """Whether a result of the server that requires input is one for the *host*: then no call is suspended here.

        Middleware sees each request of the server, and so the proxy makes them.
        """
        requests = required.requests.values()
        if self._settings.middleware or len(requests) > self._settings.limits.max_inputs_per_round:
            return False  # which the client then refuses
        return all(self._host_answers(host, each.method, each.params) for each in requests)

    def asked(self, method: str, params: Mapping[str, Any]) -> Params:
        """The *params* for the host."""
        return for_host(self._settings.shown_name, method, params) if self._settings.shared else dict(params)

    def _ask(self, caller: HostCall | None) -> Ask | None:
        if caller is None:
            return None if self._peer is None else self._peer.ask

        async def ask(method: str, params: Params) -> Params:
            with self._lock.released(caller):
                return await caller.ask(method, params)

        return ask


async def _answer_of(host: RemoteClient, ask: Ask, method: str, params: Params) -> Params:
    """The answer of *host* to a request of the server.

    Raises:
        InputRefused: The host refuses, or the request or the answer cannot be written: there is an infinite number in it, or it nests too deeply.
    """
    answer: Response
    try:
        if host.stateless:  # the result that asks could not be written, and would be an error of the call
            encode(Notification(method, params))
        try:
            answer = Success(0, await ask(method, params))
        except ClientError as exc:
            answer = Failure(0, exc.code, exc.message, exc.data)
        encode(answer)  # or else it would be a failure of the proxy's client, with a traceback in the log
    except CallerError as exc:
        raise InputRefused(INVALID_PARAMS, str(exc)) from exc
    if isinstance(answer, Failure):
        raise InputRefused(answer.code, answer.message, answer.data)
    return answer.result


async def _unused(request: object) -> NoReturn:
    """Stands for a capability of the host: its requests are passed on before they reach a handler."""
    raise InputRefused(METHOD_NOT_FOUND, "the host cannot be asked now")


def sampling_of(settings: Settings, declared: ClientCapabilities) -> Sampling | None:
    """The proxy's model, or else what stands for that of the host."""
    if settings.sampling is not None and settings.sampling_choice != "never":
        return settings.sampling
    if declared.sampling is None:
        return None
    if declared.sampling.tools is None:
        return Sampling(basic=_unused, approve=always)
    return Sampling(with_tools=_unused, approve=always)


def announcement(settings: Settings, declared: ClientCapabilities) -> Params:
    """The models of the proxy, as ``_meta`` of what tells the server the capabilities, if they answer for this host.

    The keys are those of the TypeScript SDK's draft of such a proxy (its branch ochafik/sep1577-backfill).
    """
    replaces = settings.sampling_choice == "always" or (
        settings.sampling_choice == "auto" and declared.sampling is None
    )
    if not settings.models or not replaces:
        return {}
    return {"sampling_models": [*settings.models], "sampling_default_model": settings.models[0]}


def elicitation_of(
    settings: Settings, declared: ClientCapabilities, on_complete: Callable[[str], Awaitable[None]]
) -> Elicitation | None:
    """What the host can ask its user, and what the proxy can where the host cannot."""
    own = settings.elicitation
    form = None if own is None else own.form
    url = None if own is None else own.url
    if host_answers(ELICIT, {}, declared):
        form = _unused
    if host_answers(ELICIT, URL, declared):
        url = _unused
    return Elicitation(form=form, url=url, on_complete=on_complete) if form or url else None
