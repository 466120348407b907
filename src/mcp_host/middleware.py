"""Middleware: functions of the application around each request, in both directions.

>>> async def log(request: AnyRequest, call_next: CallNext) -> dict[str, Any]:
...     print(request.method)
...     return await call_next(request)
>>> client = Client(url, middleware=[log])
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias, TypeVar, runtime_checkable

from anyio import current_time, get_cancelled_exc_class, sleep

from mcp_host.concurrency.backends import cancels_current_task
from mcp_host.errors import CallDenied, ConnectionClosed, HttpStatusError, McpError, SessionLost, quoted
from mcp_host.handlers import as_async, check_callable, check_plain, inspected
from mcp_host.limits import check_count, check_seconds
from mcp_host.protocol.backoff import Backoff
from mcp_host.protocol.eras import IDEMPOTENT
from mcp_host.protocol.headers import check_headers
from mcp_host.protocol.jsonrpc import Id, as_sent, snapshot
from mcp_host.secret import Secret, SecretValues
from mcp_host.server_requests import OuterCall
from mcp_host.transports.base import Transport
from mcp_host.types import Implementation, Tool
from mcp_host.types.base import copy_of

if TYPE_CHECKING:
    from mcp_host.sampling.approval import Allow, Deny
    from mcp_host.sampling.request import AroundModel

__all__ = [
    "AnyRequest",
    "ApproveToolCall",
    "CallNext",
    "ClientRequest",
    "EndedSession",
    "Exchange",
    "Middleware",
    "ServerRequest",
    "SessionObserver",
    "add_headers",
    "add_meta",
    "approve_tool_calls",
    "retry",
    "tap",
]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """A request of ours, as middleware sees it. To change one, pass a copy to `call_next`.

    *params* are those of the application: what the revision adds is not in them yet, and a tool has the name that
    `ToolPolicy.rename` gives it. *headers* are
    HTTP headers to add; other transports ignore them. *server* is `Client.name`.
    *sent_ids* grows: it has the JSON-RPC id of each message that was sent for this request so far, which are
    several if input was required, or if it was sent again.

    *caller* is what the application passed as ``call_tool(..., caller=...)``. *call_id* is that of
    `OuterCall`, and None for requests that the client makes by itself: those of connecting
    (`initialize`, `server/discover`), those that restore the log level and subscriptions,
    `subscriptions/listen`, and the pings of ``Client(ping_interval=...)``.
    *protocol_version* is None while it is not negotiated. A *relayed* request is that of a proxy's host, with its ``_meta``.
    """

    method: str
    params: Mapping[str, Any] = field(default_factory=dict, repr=False)  # as private as the arguments in them
    headers: Mapping[str, str] = field(default_factory=dict, kw_only=True, repr=False)
    server: str = field(default="", kw_only=True)
    protocol_version: str | None = field(default=None, kw_only=True)
    caller: object = field(default=None, kw_only=True, repr=False, compare=False)
    call_id: int | None = field(default=None, kw_only=True)
    relayed: bool = field(default=False, kw_only=True)
    transport: Transport | None = field(default=None, kw_only=True, repr=False, compare=False)
    sent_ids: list[Id] = field(default_factory=list, kw_only=True, repr=False, compare=False)
    find_tool: Callable[[str], Tool | None] = field(default=lambda name: None, kw_only=True, repr=False, compare=False)
    """Looks up a listed tool by its name."""
    find_session: Callable[[], object] = field(default=lambda: None, kw_only=True, repr=False, compare=False)
    """Looks up the `session_key`."""
    only_session: object = field(default=None, kw_only=True, repr=False, compare=False)
    """The `session_key` of the only session to send it in; None for any. See `in_session`."""

    @property
    def tool(self) -> Tool | None:
        """The tool that this request calls, if it does and the listing has it. As listed: under your name for it.

        None if the listing is out of date: the server has announced a change since, or has lost the session.
        """
        name = self.params.get("name")
        return self.find_tool(name) if self.method == "tools/call" and isinstance(name, str) else None

    @property
    def session_key(self) -> object:
        """An object that lives as long as the session at this moment, since 2026-07-28 as long as the connection.

        It is a key for a `weakref.WeakKeyDictionary` with what is decided for the session. None while connecting.
        """
        return self.find_session()

    @property
    def server_info(self) -> Implementation | None:
        """What the server calls itself, unverified. None while connecting, or if it says nothing (2026-07-28)."""
        info: Implementation | None = getattr(self.session_key, "server_info", None)
        return info

    def with_params(self, **params: object) -> Self:
        """This request, with these parameters in place of those of the same name."""
        return replace(self, params={**self.params, **params})

    def with_headers(self, headers: Mapping[str, str]) -> Self:
        """This request, with more HTTP headers."""
        return replace(self, headers={**self.headers, **headers})

    def in_session(self, key: object) -> Self:
        """This request, to be sent in the session with this `session_key` only, such as one in which it was approved.

        If that is lost before the request has run, `call_next` raises `SessionLost`, whose *may_have_run* is False.
        """
        return replace(self, only_session=key)

    def with_meta(self, meta: Mapping[str, Any]) -> Self:
        """This request, with more keys in its ``_meta``.

        What the client writes there itself replaces keys of the same name: since 2026-07-28 those of the protocol,
        such as the version. Before, every key is sent as given, so add none under ``io.modelcontextprotocol/``.
        """
        return self.with_params(_meta={**self.params.get("_meta", {}), **meta})


@dataclass(frozen=True, slots=True)
class ServerRequest:
    """A request of the server, as middleware sees it, in either form: a message, or input that a result requires.

    *params* are as received: unchecked. *server* is `Client.name`, *server_info* what the server calls itself. *outer* is the call of
    ours that the request belongs to, if that is known. *id* is its JSON-RPC id; input requests have none.

    *around_model* are functions around the handler of a sampling request, the outermost first. They run once the
    request is checked and approved and has its slot.
    """

    method: str
    params: Mapping[str, Any] = field(default_factory=dict, repr=False)
    server: str = field(default="", kw_only=True)
    protocol_version: str | None = field(default=None, kw_only=True)
    outer: OuterCall | None = field(default=None, kw_only=True)
    id: Id | None = field(default=None, kw_only=True)
    transport: Transport | None = field(default=None, kw_only=True, repr=False, compare=False)
    server_info: Implementation | None = field(default=None, kw_only=True, repr=False, compare=False)
    around_model: tuple[AroundModel, ...] = field(default=(), kw_only=True, repr=False, compare=False)

    def with_params(self, **params: object) -> Self:
        """This request, with these parameters in place of those of the same name."""
        return replace(self, params={**self.params, **params})

    def wrap_model(self, around: AroundModel) -> Self:
        """This request, with *around* around the handler, inside of what is there already.

        It gets the checked `SamplingRequest` and a function without parameters that calls the handler.
        """
        return replace(self, around_model=(*self.around_model, around))


AnyRequest: TypeAlias = ClientRequest | ServerRequest
CallNext: TypeAlias = Callable[[AnyRequest], Awaitable[dict[str, Any]]]
"""Passes the request on, to the next middleware or to its destination, and returns the result as JSON."""
Middleware: TypeAlias = Callable[[AnyRequest, CallNext], Awaitable[dict[str, Any]]]
"""Returns the result of the request as JSON: that of *call_next*, or another."""

Added: TypeAlias = Mapping[str, Any] | Awaitable[Mapping[str, Any]]
RequestT = TypeVar("RequestT", ClientRequest, ServerRequest)
Send: TypeAlias = Callable[[RequestT], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class AroundServerRequests:
    """Middleware for requests of the server only. A client with no other prepares nothing for middleware in its own."""

    function: Callable[[ServerRequest, CallNext], Awaitable[dict[str, Any]]]

    def __call__(self, request: AnyRequest, call_next: CallNext) -> Awaitable[dict[str, Any]]:
        assert isinstance(request, ServerRequest), "the stack has chosen"
        return self.function(request, call_next)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedSession:
    """A session that has ended, *seconds* after connecting.

    *server* is `Client.name`. *error* is None if the client has closed it. Since 2026-07-28 there are no sessions: then it is the connection.
    """

    server: str
    transport: Transport
    protocol_version: str
    seconds: float
    error: ConnectionClosed | None


@runtime_checkable
class SessionObserver(Protocol):
    """An interface that middleware may also implement, to learn of each session of its clients that has ended."""

    def session_ended(self, session: EndedSession) -> None:
        """Called at once. Must not wait; what it raises is logged."""


class MiddlewareStack:
    """The middleware of one client, the outermost first."""

    def __init__(self, middleware: Sequence[Middleware], transport: Transport, server: str) -> None:
        if callable(middleware) or isinstance(middleware, str | bytes):
            raise TypeError("middleware is a list of functions: middleware=[function]")
        self._middleware = tuple(middleware)
        self._around_ours = tuple(each for each in self._middleware if not isinstance(each, AroundServerRequests))
        self._transport, self._server = transport, server
        self.client_request = partial(ClientRequest, server=server, transport=transport)
        self.server_request = partial(ServerRequest, server=server, transport=transport)
        for each in self._middleware:
            _check_middleware(each)
        candidates: Sequence[object] = self._middleware
        self._observers = [each for each in candidates if isinstance(each, SessionObserver)]

    @property
    def around_ours(self) -> Self | None:
        """The stack, if any of it is for requests of ours."""
        return self if self._around_ours else None

    def session_ended(self, protocol_version: str, seconds: float, error: ConnectionClosed | None) -> None:
        """Tell those that observe sessions."""
        ended = EndedSession(
            server=self._server,
            transport=self._transport,
            protocol_version=protocol_version,
            seconds=seconds,
            error=error,
        )
        for observer in self._observers:
            try:
                observer.session_ended(ended)
            except Exception:
                logger.exception("session_ended of %s failed", type(observer).__name__)

    async def run(self, request: RequestT, send: Send[RequestT], *, depth: int = 0) -> dict[str, Any]:
        """Pass *request* through the middleware from *depth* on; *send* is the innermost `call_next`.

        Raises:
            ValueError: The HTTP headers cannot be sent, or the transport writes them itself.
            TypeError: A middleware passed on something else than a request of this direction, or returned no result.
            McpError: A middleware awaited a task that was cancelled.
        """
        kind = type(request)
        stack = self._around_ours if kind is ClientRequest else self._middleware
        if depth == len(stack):
            return await send(_checked(request))

        async def call_next(passed: AnyRequest) -> dict[str, Any]:
            if not isinstance(passed, kind):
                raise TypeError(f"call_next takes the {kind.__name__}, not {type(passed).__name__}")
            return await self.run(passed, send, depth=depth + 1)

        middleware = stack[depth]
        result: object = middleware(request, call_next)
        if isawaitable(result):
            try:
                result = await result
            except get_cancelled_exc_class() as exc:
                if cancels_current_task(exc):
                    raise
                raise McpError(f"the middleware {_name(middleware)} awaited a task that was cancelled") from exc
            if isinstance(result, dict):
                return result
        name = _name(middleware)
        raise TypeError(
            f"the middleware {name} has to be async and return the result as a dict: it returned {type(result).__name__}"
        )


def _checked(request: RequestT) -> RequestT:
    """*request* as it is sent, which all middleware has passed on."""
    if not isinstance(request.method, str):
        raise TypeError(f"the method of a request is text, not {type(request.method).__name__}")
    if not isinstance(request.params, Mapping):
        raise TypeError(f"the params of a request are a mapping, not {type(request.params).__name__}")
    if isinstance(request, ClientRequest):
        check_headers(request.headers)
        if request.headers:
            return request.with_headers({name: Secret(value) for name, value in request.headers.items()})
    return request


def _check_middleware(middleware: Middleware) -> None:
    check_callable(middleware, argument="middleware", shape=None)
    if (found := inspected(middleware, follow_wrapped=False)) is None:
        return
    try:
        found.bind(None, None)
    except TypeError as exc:
        name = _name(middleware)
        raise TypeError(
            f"middleware is called with two arguments, request and call_next, and {name} cannot be: {exc}."
            f" If it makes middleware, call it: middleware=[{name}(...)]"
        ) from None


def _name(middleware: Middleware) -> str:
    return getattr(middleware, "__name__", type(middleware).__name__)


# Ready to use


def add_headers(headers: Mapping[str, str] | Callable[[ClientRequest], Added]) -> Middleware:
    """Middleware that adds HTTP headers to each request of ours, those of connecting included.

    A function for *headers* is called for each request, such as one that returns a fresh token. If it is plain,
    it must be quick. Other transports ignore headers.

    Raises:
        TypeError: *headers* is neither, or a header of a mapping is no text.
        ValueError: A header of a mapping cannot be sent, or the transport writes it itself.
    """
    if isinstance(headers, Mapping):
        check_headers(headers)
    return _adding(headers, ClientRequest.with_headers, argument="headers")


def add_meta(meta: Mapping[str, Any] | Callable[[ClientRequest], Added]) -> Middleware:
    """Middleware that adds keys to the ``_meta`` of each request of ours. A function for *meta* is as for `add_headers`."""
    return _adding(meta, ClientRequest.with_meta, argument="meta")


def _adding(
    given: Mapping[str, Any] | Callable[[ClientRequest], Added],
    add: Callable[[ClientRequest, Mapping[str, Any]], ClientRequest],
    *,
    argument: str,
) -> Middleware:
    if isinstance(given, Mapping):
        function = _returning(given)  # the mapping itself would be a variable of the frame below
    else:
        check_callable(given, argument=argument, shape="(request: ClientRequest) -> Mapping")
        function = given

    async def middleware(request: AnyRequest, call_next: CallNext) -> dict[str, Any]:
        if isinstance(request, ClientRequest):
            added = function(request)
            added = await added if isawaitable(added) else added
            if not isinstance(added, Mapping):
                raise TypeError(f"the function for {argument} has to return a mapping, not {type(added).__name__}")
            added = SecretValues(added)  # also while the request is sent
            request = add(request, added)
        return await call_next(request)

    return middleware


def _returning(mapping: Mapping[str, Any]) -> Callable[[ClientRequest], Added]:
    return lambda request: mapping


def retry(
    attempts: int = 3,
    *,
    pause: float = 0.5,
    max_pause: float = 10.0,
    may_repeat: Callable[[ClientRequest], bool] | None = None,
) -> Middleware:
    """Middleware that makes a request of yours again after a lost connection or a transient HTTP status.

    It makes at most *attempts* attempts, within the same *timeout* of the request. Before each repetition there is
    a pause in seconds, which grows up to *max_pause*. If the server asks for a longer one, its error is raised.

    What may have run is repeated only where that does no harm: requests that read, and tools that the server
    has listed as idempotent or read-only. *may_repeat* may add others, such as those of a tool that you know.

    Raises:
        TypeError, ValueError: An argument is no number of attempts or seconds.
    """
    _check_attempts(attempts)
    pause, max_pause = check_seconds("pause", pause), check_seconds("max_pause", max_pause)

    longest = max(pause, max_pause)
    if may_repeat is not None:
        check_plain(may_repeat, argument="may_repeat", shape="(request: ClientRequest) -> bool")

    def is_safe(request: ClientRequest) -> bool:
        hints = None if request.tool is None else request.tool.annotations
        listed = hints is not None and bool(hints.idempotent_hint or hints.read_only_hint)
        return listed or request.method in IDEMPOTENT or (may_repeat is not None and may_repeat(request))

    def helps(request: ClientRequest, error: ConnectionClosed | HttpStatusError) -> bool:
        if isinstance(error, HttpStatusError):
            return error.transient and is_safe(request)
        return not error.may_have_run or is_safe(request)

    async def middleware(request: AnyRequest, call_next: CallNext) -> dict[str, Any]:
        if not isinstance(request, ClientRequest) or request.call_id is None:  # connecting has its own attempts
            return await call_next(request)
        backoff = Backoff(max_failures=attempts, max_delay=longest)
        while True:
            try:
                return await call_next(request)
            except (ConnectionClosed, HttpStatusError) as exc:
                backoff.fail()
                wanted = max(pause, exc.retry_after or 0.0) if isinstance(exc, HttpStatusError) else pause
                if backoff.exhausted or wanted > longest or not helps(request, exc):
                    raise
            await sleep(backoff.delay(wanted))

    return middleware


def _check_attempts(attempts: float) -> None:
    check_count("attempts", attempts)
    if attempts != math.inf and attempts % 1:
        raise ValueError(f"attempts must be a whole number, not {attempts}")


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and how it ended: with a *result* as JSON, or with an *error*. It took so many *seconds*.

    Its repr has neither parameters nor result, so that they do not get into your logs by accident.
    """

    request: AnyRequest
    result: dict[str, Any] | None = field(repr=False)
    error: BaseException | None
    seconds: float


def tap(callback: Callable[[Exchange], None]) -> Middleware:
    """Middleware that shows each request to *callback*, in both directions, when it has ended.

    *callback* must be plain and quick. What it raises is logged. A request that was cancelled has that as its error.
    """
    check_plain(callback, argument="callback", shape="(exchange: Exchange) -> None")

    async def middleware(request: AnyRequest, call_next: CallNext) -> dict[str, Any]:
        result: dict[str, Any] | None = None
        error: BaseException | None = None
        began = current_time()
        try:
            result = await call_next(request)
            return result
        except BaseException as exc:
            error = exc
            raise
        finally:
            try:
                callback(Exchange(request, result, error, current_time() - began))
            except Exception:
                logger.exception("the callback of a tap failed")
            finally:
                del error  # its traceback refers to this frame, which must not refer to it

    return middleware


ApproveToolCall: TypeAlias = "Callable[[ClientRequest], Awaitable[Allow | Deny] | Allow | Deny]"
"""Decides on one tool call of ours. A plain function runs in a thread."""


def approve_tool_calls(approve: ApproveToolCall) -> Middleware:
    """Middleware that asks *approve* before each tool call of ours. It gets the request, with its `ClientRequest.tool`.

    It gets a copy of the arguments, as they are sent; what the application changes in its own meanwhile is not sent.

    After ``Allow("session")`` it is not asked again about this tool in this session, for the same *caller*, until the
    definition of the tool changes; such questions that are still open are withdrawn (cancelled). A tool that has not
    been listed, or not since the server announced a change or lost the session, has no known definition, so it is
    asked about each time.
    A call whose session is lost before it has run is asked about again before it is sent again.
    The time for the decision does not count in the *timeout* of the call.

    Put it last, so that it sees what other middleware has changed; then it is asked again when that repeats the call.
    With `ToolPolicy.rename` the name is yours: the server's is put in after all middleware.

    Raises:
        CallDenied: `Client.call_tool` raises it for `Deny`; nothing was sent.
    """
    from mcp_host.sampling.approval import CallApprovals, Deny  # here, because the rest does without

    ask: Callable[[ClientRequest], Awaitable[Allow | Deny]]
    ask = as_async(approve, argument="approve", shape="(request: ClientRequest) -> Allow | Deny")

    async def ask_with_copy(request: ClientRequest) -> Allow | Deny:
        tool = request.tool and copy_of(request.tool)
        copy = replace(request, params=snapshot(request.params), find_tool=lambda name: tool)
        return await ask(copy)  # which it may change, and keep

    approvals = CallApprovals(ask_with_copy)

    async def middleware(request: AnyRequest, call_next: CallNext) -> dict[str, Any]:
        if not isinstance(request, ClientRequest) or request.method != "tools/call":
            return await call_next(request)
        first = await approved(request)
        try:
            return await call_next(first)
        except SessionLost as lost:
            if lost.may_have_run:
                raise
        return await call_next(await approved(request))  # the server may be another version now

    async def approved(request: ClientRequest) -> ClientRequest:
        session = request.session_key
        request = replace(request, params=as_sent(request.params))  # the application may change its own meanwhile
        decision = await approvals.decide(request, request.tool, session=session, caller=request.caller)
        if isinstance(decision, Deny):
            name = quoted(request.params.get("name"))
            raise CallDenied(f"the call of {name} was denied: {decision.reason}", decision.reason)
        return request.in_session(session)

    return middleware
