"""An `httpx.Auth` around our requests.

A `ReadyAuth` runs around any backend, all others inside a client of their library.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, aclosing, contextmanager
from types import ModuleType
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import httpx

from mcp_host.concurrency.asking import asking_person
from mcp_host.errors import AuthError, ConnectionClosed, McpTimeout, ProtocolError, ServerError
from mcp_host.secret import Secret
from mcp_host.transports._http.response import HttpResponse
from mcp_host.transports._http.url import SecretRequest
from mcp_host.transports.base import AuthorizationContext

REFUSED = frozenset({401, 403})
REQUESTED_URL = "requested_url"
"""The extension of a request that follows a redirect, or goes to a unix socket: the name of the server, as for `ReadyAuth`."""
ENDS_SESSION = "DELETE"  # while a client closes: no person is asked to log in for it

Authorizing: TypeAlias = Callable[[], AbstractContextManager[object]]
"""A context in which an Auth gets the authorization: see `RequestHandle.authorizing`."""


class AuthorizedBy(NamedTuple):
    """What requests are authorized by."""

    context: AuthorizationContext
    token: object = None
    """Another value after each refresh."""


class Auth(Protocol):
    """An `httpx.Auth`, or one of httpx2. Its `async_auth_flow` yields requests, and gets their responses."""

    def async_auth_flow(self, request: Any, /) -> AsyncGenerator[Any, Any]: ...


@runtime_checkable
class ReadyAuth(Protocol):
    """An Auth that has the headers of most requests at hand: then no flow is made, which would cost far more than they do.

    Its servers have names: the URL, or ``<url> at <unix socket>``.

    It says itself when it asks a person (`concurrency.asking.asking_person`). Its flow yields only the request that
    it got, and looks only at the status and the headers of responses. A redirect is followed by another request, with
    `REQUESTED_URL`.
    """

    def ready(self, method: str, server: str, /) -> Mapping[str, str] | None:
        """The headers that the flow would add to its first request, and None if it would wait for them.

        If such a request is refused (401, 403), a flow gets that response to its first request.
        """
        ...

    def authorized_by(self, server: str, /) -> AuthorizedBy:
        """What requests to *server* are authorized by now."""
        ...

    def async_auth_flow(self, request: Any, /) -> AsyncGenerator[Any, Any]: ...


def library_of(auth: object) -> ModuleType:
    """The library whose clients take *auth*: httpx, if both do.

    Raises:
        TypeError: It is no Auth.
    """
    for name in ("httpx", "httpx2"):
        module = sys.modules.get(name)
        if module is not None and isinstance(auth, module.Auth):
            return module
    raise TypeError(f"auth is an httpx.Auth or an httpx2.Auth, not {type(auth).__name__}")


class Pausing:
    """An *auth* that is no `ReadyAuth`, for `HttpLibrary.pausing`.

    While *auth* itself works, it is inside *authorizing*, and `asking_person`: it may ask one, and cannot say so.

    httpx reads all of a response that *auth* answers, or wants to read. So a refusal is cut with *shorten* before.
    """

    def __init__(self, auth: Auth, authorizing: Authorizing, *, shorten: Callable[[Any], Awaitable[None]]) -> None:
        self._auth = auth
        self._authorizing = authorizing
        self._shorten = shorten

    async def async_auth_flow(self, request: Any) -> AsyncIterator[Any]:
        async with aclosing(self._auth.async_auth_flow(request)) as flow:
            response: Any = None
            while (asked := await _next(flow, response, self._asking)) is not None:
                response = yield asked
                if response.status_code in REFUSED:
                    await self._shorten(response)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        with self._authorizing(), asking_person():
            yield


async def send_authorized(
    auth: ReadyAuth,
    method: str,
    url: str,
    headers: Mapping[str, str],
    send: Callable[[Mapping[str, str]], Awaitable[HttpResponse]],
    authorizing: Authorizing,
    server: str,
    *,
    is_redirected: bool,
) -> HttpResponse:
    """Send a request to *url*, which *server* may have redirected to, with *headers* and those of *auth*, by *send*."""
    ready = None if is_redirected else auth.ready(method, server)
    response = None
    if ready is not None:
        response = await send({**headers, **ready})
        if response.status not in REFUSED or method == ENDS_SESSION:
            return response
    request = SecretRequest(method, url, extensions={REQUESTED_URL: server} if server != url else None)
    own = set(request.headers)  # such as Host
    try:
        async with aclosing(auth.async_auth_flow(request)) as flow:
            asked = await _next(flow, None, authorizing)
            while asked is not None:
                added = {name: Secret(value) for name, value in asked.headers.items() if name not in own}
                if response is not None and ready is not None and added != lowered(ready):
                    await response.drain()  # it refuses what was ready, and the flow has something better by now
                    response = None
                if response is None:
                    response = await send({**headers, **added})
                    if method == ENDS_SESSION:
                        return response
                seen = httpx.Response(response.status, headers=response.headers, request=asked)
                asked = await _next(flow, seen, authorizing)
                if asked is not None:
                    await response.drain()
                    response = None
    except BaseException:
        if response is not None:
            await response.close()
        raise
    assert response is not None, "a flow yields its request once at least"
    return response


def lowered(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


async def _next(flow: AsyncGenerator[Any, Any], response: object, authorizing: Authorizing) -> Any:
    """What *flow* asks for after *response*. None if that was its last.

    Raises:
        AuthError: It raised an error that could be taken for one of the server.
    """
    with authorizing():
        try:
            return await flow.asend(response)
        except StopAsyncIteration:
            return None
        except (ConnectionClosed, McpTimeout, ProtocolError, ServerError) as exc:
            # Of another client, which it has asked. It is none of this server: nothing is sent again, and no session is lost.
            raise AuthError(f"an Auth raised {type(exc).__name__}: {exc}") from exc
