"""`OAuth` adds a token to each request, and gets the token.

https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from typing import Any, TypeVar

import httpx

from mcp_host.auth.authorization import Authorization
from mcp_host.auth.grants import USE_DPOP_NONCE
from mcp_host.auth.login.device import OnDevice
from mcp_host.auth.login.limits import LoginLimits
from mcp_host.auth.login.ways import Login, LoginFunction, by_function
from mcp_host.auth.machines import Machine
from mcp_host.auth.registration import Dynamic, Registration
from mcp_host.auth.requests.challenges import INSUFFICIENT_SCOPE, token_challenge
from mcp_host.auth.requests.discovery import NO_ALIASES
from mcp_host.auth.requests.steps import Step
from mcp_host.auth.requests.urls import at_socket_of, canonical, shown, url_of
from mcp_host.auth.server import Server, no_authorization
from mcp_host.auth.settings import Settings
from mcp_host.auth.storage.pending import take_login
from mcp_host.auth.storage.saved import Place, Saved
from mcp_host.auth.storage.stores import MemoryTokens, TokenStore
from mcp_host.handlers import check_callable
from mcp_host.secret import Secret
from mcp_host.transports._http.authorization import REQUESTED_URL, AuthorizedBy
from mcp_host.transports._http.backend import AnyClient

try:
    from httpx2 import Auth as Httpx2Auth
except ImportError:  # an application without it has no client that asks for its Auth
    Httpx2Auth = object  # type: ignore[assignment, misc]

K = TypeVar("K")
V = TypeVar("V")

MAX_KNOWN = 100  # URLs, and authorizations, that are not loaded from the store again
MAX_RENEWALS = 3  # of the token of one request: "no more than a few times" (step-up authorization flow)


class OAuth(httpx.Auth, Httpx2Auth):  # type: ignore[misc]  # their sync flows differ in a type
    """Authorization for the requests of an HTTP client: of `StreamableHttp(auth=)`, or any client of httpx or httpx2.

    A server that wants a token is asked where to get one. The person logs in (*login*), and the token is sent with every
    request to that server, refreshed before it expires, and kept in *tokens*.

    One object is for one user, and for one event loop at a time: with threads, make one for each, with the same *tokens*.
    Work of two event loops at once raises `CallerError`.

    *tokens* keeps tokens and registrations; the default is this process's memory.

    *registration* says how this client gets its id, best first; the default registers itself.

    *login* is how a person visits the authorization server. With None no person is asked.

    *redirect_uri* is where the authorization server redirects to: with a function as *login*, or with None in a web host,
    whose requests raise `AuthorizationNeeded`.

    *authorization_params* are added to the URL that the person visits, for authorization servers that need more than the
    standard: ``{"access_type": "offline"}``. A ``prompt`` replaces that of OAuth. Those that OAuth sets otherwise, such as
    ``scope``, are refused.

    *scopes* are asked for in every login, in addition to those that the server names.

    *issuer_aliases* are issuers by the name that a server has for them, if the two differ:
    ``{"https://accounts.example.com/": "https://accounts.example.com"}``. Without it, that authorization server is
    refused (RFC 8414, section 3.3).

    *shared_resources* are resources whose servers share one token: ``["https://example.com"]``, if all servers of that
    origin that name it as their resource are of one owner. Otherwise each URL has a login and a token of its own.

    *dpop* binds tokens to a key of this client (RFC 9449). It needs the extra ``mcp-host[oauth]``, and an authorization
    server that offers it.

    *client* is an httpx client for OAuth's own requests, for networks where the addresses of authorization servers are
    private.

    Raises:
        TypeError, ValueError: An argument cannot be used.
    """

    def __init__(
        self,
        *,
        tokens: TokenStore | None = None,
        registration: Registration | Sequence[Registration] | None = None,
        login: Login | OnDevice | LoginFunction | None = None,
        redirect_uri: str | None = None,
        authorization_params: Mapping[str, str] | None = None,
        scopes: Sequence[str] = (),
        issuer_aliases: Mapping[str, str] = NO_ALIASES,
        shared_resources: Sequence[str] = (),
        dpop: bool = False,
        client: AnyClient | None = None,
        _machine: Machine | None = None,
        _clock: Callable[[], float] = time.time,
    ) -> None:
        if registration is None:
            registration = Dynamic()
        if isinstance(scopes, str):
            raise TypeError(f"scopes has to be a list of texts, such as {scopes.split()!r}, not one text")
        if isinstance(shared_resources, str):
            raise TypeError("shared_resources has to be a list of URLs, not one text")
        mappings = {"issuer_aliases": issuer_aliases, "authorization_params": authorization_params or {}}
        for name, value in mappings.items():
            if not isinstance(value, Mapping):
                raise TypeError(f"{name} has to be a mapping, not {type(value).__name__}")
        if callable(login):
            check_callable(login, argument="login", shape="(url: str) -> str")
            if redirect_uri is None:
                raise ValueError("a function as login needs redirect_uri: where the authorization server redirects to")
            login = by_function(login, redirect_uri)
        self._settings = Settings(
            store=MemoryTokens() if tokens is None else tokens,
            registrations=tuple(registration) if isinstance(registration, Sequence) else (registration,),
            login=login,
            machine=_machine,
            redirect_uri=redirect_uri,
            authorization_params=dict(authorization_params or {}),
            issuer_aliases=dict(issuer_aliases),
            shared_resources=tuple(shared_resources),
            scopes=tuple(scopes),
            dpop=dpop,
            client=client,
            clock=_clock,
        )
        self._servers: dict[str, Server] = {}
        self._authorizations: dict[Place, Authorization] = {}
        self._login_limits = LoginLimits(_clock)

    @classmethod
    def machine(
        cls,
        machine: Machine,
        *,
        tokens: TokenStore | None = None,
        scopes: Sequence[str] = (),
        issuer_aliases: Mapping[str, str] = NO_ALIASES,
        shared_resources: Sequence[str] = (),
        dpop: bool = False,
        client: AnyClient | None = None,
        _clock: Callable[[], float] = time.time,
    ) -> OAuth:
        """Authorization without a person: of `ClientSecret`, `PrivateKeyJwt`, `Workload` or `EnterpriseManaged`."""
        if not isinstance(machine, Machine):
            raise TypeError(f"machine has to be ClientSecret or another Machine, not {type(machine).__name__}")
        return cls(
            tokens=tokens,
            scopes=scopes,
            issuer_aliases=issuer_aliases,
            shared_resources=shared_resources,
            dpop=dpop,
            client=client,
            _machine=machine,
            _clock=_clock,
        )

    def __repr__(self) -> str:
        urls = dict.fromkeys(shown(server.url) for server in self._servers.values())
        return f"<OAuth for {', '.join(urls) or 'no server yet'}>"

    async def async_auth_flow(self, request: Any) -> AsyncGenerator[Any, Any]:
        """Send *request* with a token, if there is one; get another if the server wants that."""
        method, url = request.method, Secret(request.url)
        requested = request.extensions.get(REQUESTED_URL, url)
        server, identifier = self._server(requested), canonical(at_socket_of(requested, url))
        authorization = await server.load(identifier)
        token = None if authorization is None else await authorization.token()
        renewals = 0
        while True:
            fresh_nonce = False
            if authorization is not None:
                request.headers.update(authorization.credentials.headers(token, method, url))
            response = yield request
            if authorization is not None:
                fresh_nonce = authorization.credentials.heard(url, response.headers)
                if response.status_code != 401:
                    authorization.credentials.accepted(token)
            if response.status_code not in (401, 403) or renewals == MAX_RENEWALS:
                return
            renewals += 1
            challenge = token_challenge(response.headers.get_list("www-authenticate"))
            if challenge.error == USE_DPOP_NONCE and fresh_nonce:
                continue
            wants_more = response.status_code == 403
            if wants_more and challenge.error != INSUFFICIENT_SCOPE:
                return
            renewed = await server.renew(identifier, token, challenge, wants_more=wants_more)
            if renewed is None:
                return
            authorization, token = renewed

    def ready(self, method: str, url: str) -> Mapping[str, str] | None:
        """The headers of a request with a good token, for transports that need no flow then. None if one is needed."""
        server = self._servers.get(url)
        authorization = None if server is None else server.authorization_at(server.url)
        return None if authorization is None else authorization.ready(method, url)

    def authorized_by(self, url: str) -> AuthorizedBy:
        """What requests to *url* are authorized by, for transports."""
        server = self._servers.get(url)
        return no_authorization(0) if server is None else server.authorized_by

    def sync_auth_flow(self, request: Any) -> Generator[Any, Any, None]:
        raise RuntimeError("OAuth is for async clients: httpx.AsyncClient(auth=...)")
        yield

    async def finish(self, state: str, redirected: str) -> None:
        """Finish the login of `AuthorizationNeeded.state`, in any process with the same store.

        *redirected* is the whole URL of your route that the authorization server redirected the person to. Check
        before that the person is the one who was sent to the URL: the state belongs in their session.

        Raises:
            LoginFailed: There is no such login, or it was denied.
            TokenRequestFailed: There is no token.
        """
        state, redirected = Secret(state), Secret(redirected)
        pending = await take_login(self._settings.store, state, redirected, self._settings.clock)
        server = self._server(pending.url)
        await server.load(server.url)
        saved = pending.saved
        authorization = self._authorization(server.place(saved.resource.identifier, saved.server.issuer), server)
        await authorization.finish(pending, redirected)
        await server.keep(authorization)

    def explain(self) -> str:
        """Each step on the way to a token, for people. `steps` has them as data."""
        return "\n".join(str(step) for step in self.steps)

    @property
    def steps(self) -> tuple[Step, ...]:
        """Each step on the way to a token, of all servers."""
        return tuple(step for server in dict.fromkeys(self._servers.values()) for step in server.steps)

    async def saved(self, url: str) -> Saved | None:
        """What is kept for the server at *url*, with the token. None if there was no login.

        It does not wait for a login that is under way.
        """
        authorization = await self._server(url).find()
        return None if authorization is None else await authorization.saved()

    async def login(self, url: str) -> Saved | None:
        """Log in for the server at *url*, even if it has not asked, or there is a token.

        The old token stays until there is a new one. Requests may then ask again for scopes that were denied.

        For a server behind a unix socket, *url* is the `identity` of its `StreamableHttp`, also for `saved` and `logout`.

        Returns what is kept then. None if there are no metadata: such a server may still ask when you connect.

        Raises:
            AuthError: There is no other token, as for a request.
        """
        return await self._server(url).log_in()

    async def logout(self, url: str) -> bool:
        """Forget the token and the registration for the server at *url*, and have the token revoked (RFC 7009).

        A login that is under way is given up: requests that wait for it raise `LoginFailed`. A login function that
        calls this is cancelled. A token request that is under way has five seconds
        to end: a token that the server gives later is not revoked.

        Returns whether the authorization server has revoked it. If not, `steps` says why, and others who have the
        token may use it until it ends.
        """
        return await self._server(url).forget()

    def _server(self, url: str) -> Server:
        server = self._servers.get(url)
        if server is None:
            identifier = canonical(url)
            server = self._servers.get(identifier)
            if server is None:
                server = Server(self._settings, identifier, self._authorization)
                _keep(self._servers, identifier, server)
            if url != identifier:
                _keep(self._servers, url, server)
        return server

    def _authorization(self, place: Place, server: Server) -> Authorization:
        """The authorization of *place*, which *server* has named."""
        authorization = self._authorizations.get(place)
        if authorization is None:
            http = self._settings.http(url_of(server.url))
            authorization = Authorization(self._settings, place, http, server.steps, self._login_limits)
            _keep(self._authorizations, place, authorization)
        return authorization


def _keep(known: dict[K, V], key: K, value: V) -> None:
    """Keep *value*, in the place of the oldest if there are too many: a client of httpx may request ever new URLs."""
    if len(known) == MAX_KNOWN:
        del known[next(iter(known))]
    known[key] = value
