"""Middleware: functions of the application around each request, in both directions.

>>> async def log(request: AnyRequest, call_next: CallNext) -> dict[str, Any]:
...     print(request.method)
...     return await call_next(request)
>>> client = Client(url, middleware=[log])
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias, TypeVar, runtime_checkable

from mcp_host.handlers import check_callable
from mcp_host.protocol.headers import check_headers
from mcp_host.protocol.jsonrpc import Id
from mcp_host.server_requests import OuterCall
from mcp_host.transports.base import Transport
from mcp_host.types import Tool

if TYPE_CHECKING:
    from mcp_host.errors import ConnectionClosed
    from mcp_host.sampling.request import AroundModel

__all__ = ["AnyRequest", "CallNext", "ClientRequest", "EndedSession", "Middleware", "ServerRequest", "SessionObserver"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """A request of ours, as middleware sees it. To change one, pass a copy to `call_next`.

    *params* are those of the application: what the revision adds is not in them yet. *headers* are
    HTTP headers to add; other transports ignore them. *server* is the name of the *transport*.
    *sent_ids* grows: it has the JSON-RPC id of each message that was sent for this request so far, which are
    several if input was required, or if it was sent again.

    *caller* is what the application passed as ``call_tool(..., caller=...)``. *call_id* is that of
    `OuterCall`, and None for requests that the client makes by itself: those of connecting
    (`initialize`, `server/discover`), those that restore the log level and subscriptions, and
    `subscriptions/listen`. *protocol_version* is None while it is not negotiated.
    """

    method: str
    params: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    server: str = field(default="", kw_only=True)
    protocol_version: str | None = field(default=None, kw_only=True)
    caller: object = field(default=None, kw_only=True, repr=False, compare=False)
    call_id: int | None = field(default=None, kw_only=True)
    transport: Transport | None = field(default=None, kw_only=True, repr=False, compare=False)
    sent_ids: list[Id] = field(default_factory=list, kw_only=True, repr=False, compare=False)
    find_tool: Callable[[str], Tool | None] = field(default=lambda name: None, kw_only=True, repr=False, compare=False)
    """Looks up a listed tool by its name."""

    @property
    def tool(self) -> Tool | None:
        """The tool that this request calls, if it does and the tool has been listed."""
        name = self.params.get("name")
        return self.find_tool(name) if self.method == "tools/call" and isinstance(name, str) else None

    def with_params(self, **params: object) -> Self:
        """This request, with these parameters in place of those of the same name."""
        return replace(self, params={**self.params, **params})

    def with_headers(self, headers: Mapping[str, str]) -> Self:
        """This request, with more HTTP headers."""
        return replace(self, headers={**self.headers, **headers})

    def with_meta(self, meta: Mapping[str, Any]) -> Self:
        """This request, with more keys in its ``_meta``. The keys of the protocol cannot be replaced."""
        return self.with_params(_meta={**self.params.get("_meta", {}), **meta})


@dataclass(frozen=True, slots=True)
class ServerRequest:
    """A request of the server, as middleware sees it, in either form: a message, or input that a result requires.

    *params* are as received: unchecked. *server* is the name of the *transport*. *outer* is the call of
    ours that the request belongs to, if that is known. *id* is its JSON-RPC id; input requests have none.

    *around_model* are functions around the handler of a sampling request, the outermost first. They run once the
    request is checked and approved and has its slot.
    """

    method: str
    params: Mapping[str, Any] = field(default_factory=dict)
    server: str = field(default="", kw_only=True)
    protocol_version: str | None = field(default=None, kw_only=True)
    outer: OuterCall | None = field(default=None, kw_only=True)
    id: Id | None = field(default=None, kw_only=True)
    transport: Transport | None = field(default=None, kw_only=True, repr=False, compare=False)
    around_model: tuple[AroundModel, ...] = field(default=(), kw_only=True, repr=False, compare=False)

    def with_params(self, **params: object) -> Self:
        """This request, with these parameters in place of those of the same name."""
        return replace(self, params={**self.params, **params})


AnyRequest: TypeAlias = ClientRequest | ServerRequest
CallNext: TypeAlias = Callable[[AnyRequest], Awaitable[dict[str, Any]]]
"""Passes the request on, to the next middleware or to its destination, and returns the result as JSON."""
Middleware: TypeAlias = Callable[[AnyRequest, CallNext], Awaitable[dict[str, Any]]]
"""Returns the result of the request as JSON: that of *call_next*, or another."""

RequestT = TypeVar("RequestT", ClientRequest, ServerRequest)
Send: TypeAlias = Callable[[RequestT], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedSession:
    """A session that has ended, *seconds* after connecting.

    *error* is None if the client has closed it. Since 2026-07-28 there are no sessions: then it is the connection.
    """

    server: str
    transport: Transport
    protocol_version: str
    seconds: float
    error: ConnectionClosed | None


@runtime_checkable
class SessionObserver(Protocol):
    """What a middleware may be besides: it learns of each session of its clients that has ended."""

    def session_ended(self, session: EndedSession) -> None:
        """Called at once. Must not wait; what it raises is logged."""


class MiddlewareStack:
    """The middleware of one client, the outermost first."""

    def __init__(self, middleware: Sequence[Middleware], transport: Transport) -> None:
        if callable(middleware) or isinstance(middleware, str | bytes):
            raise TypeError("middleware is a list of functions: middleware=[function]")
        self._middleware = tuple(middleware)
        self.transport = transport
        self.server = transport.name
        for each in self._middleware:
            check_callable(each, argument="middleware", shape=None)
        candidates: Sequence[object] = self._middleware
        self._observers = [each for each in candidates if isinstance(each, SessionObserver)]

    def session_ended(self, protocol_version: str, seconds: float, error: ConnectionClosed | None) -> None:
        """Tell those that observe sessions."""
        ended = EndedSession(
            server=self.server,
            transport=self.transport,
            protocol_version=protocol_version,
            seconds=seconds,
            error=error,
        )
        for observer in self._observers:
            try:
                observer.session_ended(ended)
            except Exception:
                logger.exception("session_ended of %s failed", type(observer).__name__)

    async def run(self, request: RequestT, send: Send[RequestT]) -> dict[str, Any]:
        """Pass *request* through the middleware; *send* is the innermost `call_next`.

        Raises:
            ValueError: The HTTP headers cannot be sent, or the transport writes them itself.
            TypeError: A middleware passed on something else than a request of this direction, or returned no result.
        """
        return await self._run(0, request, send)

    async def _run(self, depth: int, request: RequestT, send: Send[RequestT]) -> dict[str, Any]:
        if depth == len(self._middleware):
            if isinstance(request, ClientRequest):
                check_headers(request.headers)
            return await send(request)
        kind = type(request)

        async def call_next(passed: AnyRequest) -> dict[str, Any]:
            if not isinstance(passed, kind):
                raise TypeError(f"call_next takes the {kind.__name__}, not {type(passed).__name__}")
            return await self._run(depth + 1, passed, send)

        middleware = self._middleware[depth]
        result = await middleware(request, call_next)
        if not isinstance(result, dict):
            name = getattr(middleware, "__name__", type(middleware).__name__)
            raise TypeError(f"the middleware {name} returned {type(result).__name__}, not the result as a dict")
        return result
