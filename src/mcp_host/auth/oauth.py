"""`OAuth`: what a request gets a token by.

https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
from anyio import CancelScope, Lock, sleep
from pydantic import TypeAdapter, ValidationError

from mcp_host.auth.challenges import INSUFFICIENT_SCOPE, Challenge, token_challenge
from mcp_host.auth.client import AuthClient
from mcp_host.auth.device import OnDevice
from mcp_host.auth.discovery import AuthorizationServer, Resource, Step, Steps, canonical, covers, discover, shown
from mcp_host.auth.errors import (
    AuthorizationNeeded,
    DiscoveryFailed,
    LoginFailed,
    RegistrationFailed,
    TokenRequestFailed,
    TokensError,
)
from mcp_host.auth.grants import (
    OFFLINE_ACCESS,
    USE_DPOP_NONCE,
    AuthorizationRequest,
    Token,
    TokenEndpoint,
    code_grant,
    refresh_grant,
)
from mcp_host.auth.keys import ES256, Proofs
from mcp_host.auth.login import Login, LoginFunction, by_function
from mcp_host.auth.machines import Machine
from mcp_host.auth.registration import Dynamic, OAuthClient, Registered, Registration
from mcp_host.auth.stores import MemoryTokens, TokenStore
from mcp_host.errors import excerpt
from mcp_host.transports._http.backend import AnyClient

try:
    from httpx2 import Auth as Httpx2Auth
except ImportError:  # an application without it has no client that asks for its Auth
    Httpx2Auth = object  # type: ignore[assignment, misc]

INVALID_GRANT = "invalid_grant"
UNKNOWN_CLIENT = frozenset({"invalid_client", "unauthorized_client"})
MOST_RENEWALS = 3  # of the token of one request: "no more than a few times" (step-up authorization flow)

LEASE = 60.0  # seconds for one refresh, after which another process may try; a token request takes half of it at most
LEASE_POLL = 0.2  # seconds between looks at another process's refresh
NEEDED_TIME = 600.0  # seconds in which a person may visit a URL; RFC 6749 recommends as many for a code


@dataclass(frozen=True, slots=True)
class Saved:
    """What a store keeps for one server. All of it belongs together: a client and a token are never shown to another issuer."""

    resource: Resource
    server: AuthorizationServer
    client: OAuthClient
    token: Token | None = None
    scopes: tuple[str, ...] = ()
    """All that were asked for."""
    key: dict[str, Any] | None = field(default=None, repr=False)
    """The private key that the token is bound to, if it is."""
    refreshing_until: float | None = None
    """A process refreshes the token until then, in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A login of a web host that waits for its redirect."""

    url: str
    """Of the MCP server."""
    saved: Saved
    request: AuthorizationRequest
    until: float


_SAVED = TypeAdapter(Saved)
_PENDING = TypeAdapter(Pending)


class OAuth(httpx.Auth, Httpx2Auth):  # type: ignore[misc]  # their sync flows differ in a type
    """Authorization for the requests of an HTTP client: of `StreamableHttp(auth=)`, or any client of httpx or httpx2.

    One object is for one user. A server that wants a token is asked where to get one; the person logs in (*login*), and
    the token is sent with every request to that server, refreshed before it ends, and kept in *tokens*.

    *tokens* keeps tokens and registrations; the default is this process's memory. *registration* says how this client
    gets its id, best first; the default registers itself. *login* is how a person visits the authorization server; with
    None it is never interactive. *redirect_uri* is where the authorization server redirects to: with a function as *login*,
    or with None in a web host, whose requests raise `AuthorizationNeeded`. *scopes* are asked for always; the
    default are those that the server names. *client* is an httpx client for OAuth's own requests, for networks where
    the addresses of authorization servers are private.
    """

    def __init__(
        self,
        *,
        tokens: TokenStore | None = None,
        registration: Registration | Sequence[Registration] | None = None,
        login: Login | OnDevice | LoginFunction | None = None,
        redirect_uri: str | None = None,
        scopes: Sequence[str] = (),
        dpop: bool = False,
        client: AnyClient | None = None,
        _clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = MemoryTokens() if tokens is None else tokens
        if registration is None:
            registration = Dynamic()
        self._registrations = tuple(registration) if isinstance(registration, Sequence) else (registration,)
        if len(self._registrations) > 1 and any(
            isinstance(each, Registered) and each.issuer is None for each in self._registrations
        ):
            raise ValueError("beside other registrations, Registered needs its issuer")
        if callable(login):
            if redirect_uri is None:
                raise ValueError("a function as login needs redirect_uri: where the authorization server redirects to")
            login = by_function(login, redirect_uri)
        self._login = login
        self._redirect_uri = redirect_uri
        self._scopes = tuple(scopes)
        self._dpop = dpop
        self._client = client
        self._clock = _clock
        self._machine: Machine | None = None
        self._servers: dict[str, _Server] = {}

    @classmethod
    def machine(
        cls,
        machine: Machine,
        *,
        tokens: TokenStore | None = None,
        scopes: Sequence[str] = (),
        dpop: bool = False,
        client: AnyClient | None = None,
    ) -> OAuth:
        """Authorization without a person: of `ClientSecret`, `PrivateKeyJwt`, `Workload` or `EnterpriseManaged`."""
        auth = cls(tokens=tokens, registration=(), scopes=scopes, dpop=dpop, client=client)
        auth._machine = machine
        return auth

    def __repr__(self) -> str:
        return f"<OAuth for {', '.join(map(shown, self._servers)) or 'no server yet'}>"

    async def async_auth_flow(self, request: Any) -> AsyncGenerator[Any, Any]:
        """Send *request* with a token, if there is one; get another if the server wants that."""
        server = self._server(str(request.url))
        token = await server.token()
        for renewals in range(MOST_RENEWALS + 1):
            request.headers.update(server.authorization(token, request.method, str(request.url)))
            response = yield request
            fresh_nonce = server.heard(response.headers)
            if response.status_code != 401:
                server.accepted(token)
            if response.status_code not in (401, 403) or renewals == MOST_RENEWALS:
                return
            challenge = token_challenge(response.headers.get_list("www-authenticate"))
            if challenge.error == USE_DPOP_NONCE and fresh_nonce:
                continue
            wants_more = response.status_code == 403
            if wants_more and challenge.error != INSUFFICIENT_SCOPE:
                return
            token = await server.renew(token, challenge, wants_more=wants_more)
            if token is None:
                return
            server = self._server(str(request.url))  # that of another URL, if both are one resource

    def ready(self, method: str, url: str) -> Mapping[str, str] | None:
        """The headers of a request, if they are known at once. For transports that need no flow then."""
        server = self._servers.get(url)
        return None if server is None else server.ready(method, url)

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
        text = await self._store.take(f"login {state}")
        if text is None:
            raise LoginFailed("there is no login with this state: it has ended, or belongs to another user")
        try:
            pending = _PENDING.validate_json(text)
        except ValidationError:  # its text may have secrets in it
            raise LoginFailed("what is kept of this login cannot be read: begin again") from None
        if pending.until < self._clock():
            raise LoginFailed("this login took too long: begin again")
        await self._server(pending.url).finish(pending.saved, pending.request, redirected)

    def explain(self) -> str:
        """Each step on the way to a token, for people. `steps` has them as data."""
        return "\n".join(str(step) for step in self.steps)

    @property
    def steps(self) -> tuple[Step, ...]:
        """Each step on the way to a token, of all servers."""
        return tuple(step for server in dict.fromkeys(self._servers.values()) for step in server.steps)

    async def saved(self, url: str) -> Saved | None:
        """What is kept for the server at *url*, with the token. None if there was no login."""
        return await self._server(url).saved()

    async def logout(self, url: str) -> bool:
        """Forget the token and the registration for the server at *url*, and have the token revoked (RFC 7009).

        Returns whether the authorization server has revoked it. If not, `steps` says why, and others who have the
        token may use it until it ends.
        """
        return await self._server(url).forget()

    def _server(self, url: str) -> _Server:
        server = self._servers.get(url)
        if server is None:
            url = canonical(url)
            server = self._servers.get(url)
            if server is None:
                server = next((known for known in self._servers.values() if covers(known.url, url)), None)
            if server is None:
                server = self._servers[url] = _Server(self, url)
        return server

    def _share(self, url: str, resource: Resource, server: AuthorizationServer) -> _Server | None:
        """The known server that *url* belongs to, as *resource* of the same authorization *server*.

        Its token is for *url*, too, but *url* has to say so itself: the servers of one origin may have several owners.
        """
        for known in self._servers.values():
            if known.url != url and known.has_token_for(resource, server):
                self._servers[url] = known
                return known
        return None


class _Server:
    """The token of one user for one server."""

    def __init__(self, auth: OAuth, url: str) -> None:
        self._auth = auth
        self.url = url
        self._key = f"server {url}"
        self._lock = Lock()
        """Held while a token is refreshed or gotten: all that need one wait for it."""
        self._saved: Saved | None = None
        self._text: str | None = None
        """*saved*, as the store has it."""
        self._loaded = False
        self._needed: Pending | None = None
        self._new: Token | None = None
        """What a login gave, until the server accepts it: if it is refused, another login is no better."""
        self._renewed: Token | None = None
        """What a refresh gave, until the server accepts it: if it is refused, another refresh is no better."""
        self._attempts = 0
        self._failure: tuple[object, Exception] | None = None
        """Why the last attempt was made, and how it failed."""
        self._proofs: Proofs | None = None
        self.steps = Steps()

    def has_token_for(self, resource: Resource, server: AuthorizationServer) -> bool:
        saved = self._saved
        if saved is None or saved.token is None:
            return False
        return (saved.resource.identifier, saved.server.issuer) == (resource.identifier, server.issuer)

    def ready(self, method: str, url: str) -> Mapping[str, str] | None:
        if not self._loaded or self._is_due or self._new is not None:
            return None
        return self.authorization(self._token, method, url)

    def authorization(self, token: Token | None, method: str, url: str) -> dict[str, str]:
        """The headers for *token* (RFC 6750, section 2.1; RFC 9449, section 7.1)."""
        if token is None:
            return {}
        if self._proofs is None:
            return {"Authorization": f"Bearer {token.access_token}"}
        proof = self._proofs.header(method, url, token.access_token)
        return {"Authorization": f"DPoP {token.access_token}", **proof}

    def heard(self, headers: Mapping[str, str]) -> bool:
        """Look for a nonce in the headers of a response. Returns whether there is a new one."""
        return self._proofs is not None and self._proofs.heard(self.url, headers)

    async def token(self) -> Token | None:
        """The token to send: none that has ended, and in time a new one."""
        token = self._token
        if self._loaded and (
            not self._is_due or (self._lock.locked() and token is not None and not token.has_expired(self._now))
        ):
            return token  # it still is good, even if another request gets the next one
        return await self._attempt("refresh", self._in_time)

    async def _in_time(self) -> Token | None:
        if not self._loaded:
            await self._load()
        if not self._is_due:
            return self._token
        try:
            return await self._refreshed()
        except TokenRequestFailed as exc:
            if self._token is not None and not self._token.has_expired(self._now):
                return self._token
            if self._auth._machine is not None or not exc.refused:
                raise
            return None  # a request without a token tells what the server wants

    async def _attempt(self, why: object, attempt: Callable[[], Awaitable[Token | None]]) -> Token | None:
        """One *attempt* at a time. If it fails, it has failed for all who wait, and for the same reason."""
        before = self._attempts
        async with self._lock:
            if self._failure is not None and self._failure[0] == why and self._attempts != before:
                raise self._failure[1].with_traceback(None)
            self._failure = None
            try:
                return await attempt()
            except Exception as exc:  # of the host's login function, too: a person is asked once
                self._failure = why, exc
                raise
            finally:
                self._attempts += 1

    @property
    def _token(self) -> Token | None:
        return None if self._saved is None else self._saved.token

    @property
    def _now(self) -> float:
        """Seconds since 1970."""
        return self._auth._clock()

    @property
    def _is_due(self) -> bool:
        return self._token is not None and self._token.is_due(self._now)

    def accepted(self, token: Token | None) -> None:
        """The server has taken *token*."""
        if token == self._new:
            self._new = None
        if token == self._renewed:
            self._renewed = None

    async def renew(self, refused: Token | None, challenge: Challenge, *, wants_more: bool) -> Token | None:
        """Another token than the *refused* one. None if there is no better one.

        Raises:
            AuthError: There is none. The text says why.
        """

        return await self._attempt(
            (wants_more, challenge.scopes), lambda: self._another(refused, challenge, wants_more=wants_more)
        )

    async def _another(self, refused: Token | None, challenge: Challenge, *, wants_more: bool) -> Token | None:
        if (token := await self._known_other(refused)) is not None:
            return token
        if refused is not None and refused == self._new and not wants_more:
            return None
        self.steps.clear()
        self.steps.add("request", self.url, "403, it wants more scopes" if wants_more else "401, it wants a token")
        http = self._http()
        resource, server = await discover(http, self.url, challenge, self.steps, issuer=self._issuer)
        if self._saved is None and (known := self._auth._share(self.url, resource, server)) is not None:
            return await known.token()
        if self._saved is not None and self._saved.server.issuer != server.issuer:
            await self._save(None)  # nothing of one authorization server is shown to another
            self._proofs = None
        asked = () if self._saved is None else self._saved.scopes
        if wants_more and set(challenge.scopes or resource.scopes or ()) <= set(asked):
            return None  # the server refuses what it has asked for
        if not wants_more and (token := await self._refreshed_instead(refused)) is not None:
            return token
        return await self._log_in(http, resource, server, self._wanted(resource, server, challenge))

    async def _known_other(self, refused: Token | None) -> Token | None:
        """A good token that another request, or another process, has gotten meanwhile."""
        for is_fresh in (False, True):
            if is_fresh:
                await self._load()
            token = self._token
            if token is not None and token != refused and not token.has_expired(self._now):
                return token
        return None

    async def _refreshed_instead(self, refused: Token | None) -> Token | None:
        """A refreshed token. None if a login is left."""
        if refused is not None and refused == self._renewed:
            return None
        try:
            token = await self._refreshed(refused)
        except TokenRequestFailed as exc:
            if self._auth._machine is not None or not exc.refused:
                raise  # a login is no better
            return None
        return None if token == refused else token

    @property
    def _issuer(self) -> str | None:
        """The only authorization server that the client's credentials are for. None if it is not known yet, or there are others."""
        auth = self._auth
        holder = auth._machine or (auth._registrations[0] if len(auth._registrations) == 1 else None)
        if not isinstance(holder, Machine | Registered):
            return None
        return holder.issuer or (None if self._saved is None else self._saved.server.issuer)

    def _http(self) -> AuthClient:
        return AuthClient(self.url, client=self._auth._client, clock=self._auth._clock)

    def _wanted(self, resource: Resource, server: AuthorizationServer, challenge: Challenge) -> tuple[str, ...]:
        """The scopes to ask for: those of the challenge, else those of the resource; with all that were asked for before."""
        asked = self._saved.scopes if self._saved is not None else ()
        named = challenge.scopes or resource.scopes or ()
        # Alone, it would be asked for in the place of what the server gives by default.
        offline = (OFFLINE_ACCESS,) if OFFLINE_ACCESS in server.scopes and named else ()
        return tuple(dict.fromkeys([*asked, *self._auth._scopes, *named, *offline]))

    async def _log_in(
        self, http: AuthClient, resource: Resource, server: AuthorizationServer, scopes: tuple[str, ...]
    ) -> Token:
        if self._auth._dpop and self._proofs is None:
            if ES256 not in server.dpop_algorithms:
                raise DiscoveryFailed(f"{excerpt(server.issuer)} does not offer DPoP with {ES256}")
            self._proofs = Proofs()
        if (machine := self._auth._machine) is not None:
            return await self._obtain(Saved(resource, server, machine.client, None, scopes), machine.token)
        try:
            return await self._log_in_by_person(http, resource, server, scopes)
        except TokenRequestFailed as exc:
            if exc.code not in UNKNOWN_CLIENT or self._saved is None:
                raise
            await self._save(None)  # a registration may end at any time: register again, once
            return await self._log_in_by_person(http, resource, server, scopes)

    async def _log_in_by_person(
        self, http: AuthClient, resource: Resource, server: AuthorizationServer, scopes: tuple[str, ...]
    ) -> Token:
        login = self._auth._login
        if login is None:
            raise await self._authorization_needed(http, resource, server, scopes)
        if isinstance(login, OnDevice):
            client = await self._client(http, server, None, resource, scopes)
            saved = Saved(resource, server, client, None, scopes)
            return await self._obtain(saved, lambda endpoint: login.token(endpoint, client))
        known = self._saved.client.redirect_uris if self._saved is not None else ()
        async with login.open(known[0] if known else None) as redirection:
            client = await self._client(http, server, redirection.redirect_uri, resource, scopes)
            request = AuthorizationRequest.to(server, client, redirection.redirect_uri, resource.identifier, scopes)
            redirected = await redirection.authorize(request.url, request.state, server=shown(self.url))
        return await self._exchange(Saved(resource, server, client, None, scopes), request, redirected)

    async def _obtain(
        self, saved: Saved, ask: Callable[[TokenEndpoint], Awaitable[Token]], *, shield: bool = False
    ) -> Token:
        """Get a token by *ask*, and keep it. What can be asked for only once needs a *shield*: it is not cancelled."""
        with CancelScope(shield=shield) as scope:
            token = await ask(self._endpoint(saved))
            scope.shield = True
            while not await self._save(replace(saved, token=token, key=self._jwk)):
                await self._load()  # a new token is never lost
            self._new = token
        return token

    def _endpoint(self, saved: Saved) -> TokenEndpoint:
        holders = [*self._auth._registrations, *([] if self._auth._machine is None else [self._auth._machine])]
        key = next((holder.key for holder in holders if holder.key is not None), None)
        scopes = saved.scopes if saved.token is None else saved.token.scopes
        return TokenEndpoint(
            self._http(), saved.server, saved.resource.identifier, scopes, self.steps, key, self._proofs
        )

    @property
    def _jwk(self) -> dict[str, Any] | None:
        return None if self._proofs is None else self._proofs.jwk

    async def _authorization_needed(
        self, http: AuthClient, resource: Resource, server: AuthorizationServer, scopes: tuple[str, ...]
    ) -> AuthorizationNeeded | LoginFailed:
        redirect_uri = self._auth._redirect_uri
        if redirect_uri is None:
            return LoginFailed(f"{shown(self.url)} needs a login, and no one can log in: pass login=in_browser()")
        needed = self._needed
        if needed is None or needed.until - NEEDED_TIME / 2 < self._now or needed.saved.scopes != scopes:
            client = await self._client(http, server, redirect_uri, resource, scopes)
            request = AuthorizationRequest.to(server, client, redirect_uri, resource.identifier, scopes)
            saved = Saved(resource, server, client, None, scopes, self._jwk)
            needed = self._needed = Pending(self.url, saved, request, self._now + NEEDED_TIME)
            text = _PENDING.dump_json(needed).decode()
            if not await self._auth._store.swap(f"login {request.state}", None, text):
                raise TokensError("the store has kept no login")
        request = needed.request
        return AuthorizationNeeded(
            f"{shown(self.url)} needs a login at {excerpt(server.issuer)}", request.url, request.state
        )

    async def finish(self, saved: Saved, request: AuthorizationRequest, redirected: str) -> None:
        async with self._lock:
            if not self._loaded:
                await self._load()
            self._needed = None
            self._proofs = None if saved.key is None else Proofs(saved.key)
            await self._exchange(saved, request, redirected)

    async def _exchange(self, saved: Saved, request: AuthorizationRequest, redirected: str) -> Token:
        """The token for the code in *redirected*."""
        grant = code_grant(request, request.code_in(redirected))
        return await self._obtain(saved, lambda endpoint: endpoint.request(saved.client, grant), shield=True)

    async def _client(
        self,
        http: AuthClient,
        server: AuthorizationServer,
        redirect_uri: str | None,
        resource: Resource,
        scopes: Sequence[str],
    ) -> OAuthClient:
        """The client at *server*: the one of before, if it can still be used."""
        saved = self._saved
        if (
            saved is not None
            and saved.server.issuer == server.issuer
            and saved.client.can_be_used(redirect_uri, self._now)
        ):
            return saved.client
        scopes = tuple(dict.fromkeys([*scopes, *(resource.scopes or ())]))
        for registration in self._auth._registrations:
            client = await registration.register(http, server, redirect_uri, scopes, self.steps)
            if client is not None:
                return client
        raise RegistrationFailed(
            f"{excerpt(server.issuer)} takes none of {', '.join(map(repr, self._auth._registrations))}"
        )

    async def _refreshed(self, refused: Token | None = None) -> Token | None:
        """A token for the refresh token, or another than the *refused* one that still is good. None if there is none.

        Raises:
            TokenRequestFailed: The server gave none.
        """
        saved = await self._claimed(refused)
        if saved is None or saved.token is None:
            return None
        if (machine := self._auth._machine) is not None and saved.token.is_due(self._now):
            return await self._obtain(replace(saved, token=None), machine.token)
        if saved.token.refresh_token is None or saved.refreshing_until is None:
            return None if saved.token.has_expired(self._now) else saved.token
        with CancelScope(shield=True):  # the refresh token may work only once
            kept: Saved | None = replace(saved, refreshing_until=None)
            try:
                grant = refresh_grant(saved.token.refresh_token)
                new = await self._endpoint(saved).request(saved.client, grant)
                if new.refresh_token is None:
                    new = replace(new, refresh_token=saved.token.refresh_token)
                kept = replace(saved, token=new, refreshing_until=None)
            except TokenRequestFailed as exc:
                if exc.code == INVALID_GRANT:
                    kept = replace(saved, token=None, refreshing_until=None)
                elif exc.code in UNKNOWN_CLIENT:
                    kept = None
                raise
            finally:
                while not await self._save(kept):
                    await self._load()
                    if self._saved is None or self._saved.token != saved.token:
                        break  # another process has logged out, or has a newer token
            self._renewed = new
        return self._token

    async def _claimed(self, refused: Token | None) -> Saved | None:
        """What the store has, with a lease on its refresh token, unless its token is good and not the *refused* one.

        One process refreshes at a time: a refresh token may work only once.
        """
        while True:
            await self._load()
            saved = self._saved
            if saved is None or saved.token is None or saved.token.refresh_token is None:
                return saved
            now = self._now
            # A later end is of a clock that was wrong.
            is_leased = saved.refreshing_until is not None and now <= saved.refreshing_until <= now + 2 * LEASE
            is_good = not (saved.token.has_expired(now) if is_leased else saved.token.is_due(now))
            if saved.token != refused and is_good:
                return replace(saved, refreshing_until=None)
            if is_leased:
                await sleep(LEASE_POLL)
                continue
            claim = replace(saved, refreshing_until=now + LEASE)
            with CancelScope(shield=True):  # others wait for a lease, even for one that was cancelled
                if await self._save(claim):
                    return claim

    async def _load(self) -> None:
        self._text = await self._auth._store.load(self._key)
        self._saved = None
        if self._text is not None:
            try:
                self._saved = _SAVED.validate_json(self._text)
            except ValidationError:  # of another version, or not ours: a login replaces it
                self.steps.add("store", self.url, "what is kept cannot be read")
        if self._saved is not None and self._saved.key is not None:
            self._proofs = self._proofs or Proofs(self._saved.key)
        self._loaded = True

    async def _save(self, saved: Saved | None) -> bool:
        """Keep *saved* in the place of what was loaded. False if the store has something else meanwhile."""
        text = None if saved is None else _SAVED.dump_json(saved).decode()
        kept = await self._auth._store.swap(self._key, self._text, text)
        if kept:
            self._text, self._saved = text, saved
        return kept

    async def saved(self) -> Saved | None:
        async with self._lock:
            await self._load()
            return self._saved

    async def forget(self) -> bool:
        """Whether the token that is forgotten is revoked."""
        async with self._lock:
            await self._load()
            saved = self._saved
            while not await self._save(None):  # another process has gotten the next token meanwhile
                await self._load()
                saved = self._saved
            self._new = self._renewed = self._needed = self._proofs = None
            if saved is None or saved.token is None:
                return False
            return await self._endpoint(saved).revoke(saved.client, saved.token)
