"""The authorization of one user for one resource: how its token is gotten, refreshed, and kept.

https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from anyio import CancelScope, sleep

from mcp_host.auth.challenges import Challenge
from mcp_host.auth.client import AuthClient
from mcp_host.auth.device import OnDevice
from mcp_host.auth.discovery import AuthorizationServer, Resource, Steps, shown
from mcp_host.auth.errors import (
    AuthorizationNeeded,
    DiscoveryFailed,
    LoginFailed,
    RegistrationFailed,
    TokenRequestFailed,
    TokensError,
)
from mcp_host.auth.grants import OFFLINE_ACCESS, AuthorizationRequest, Token, TokenEndpoint, code_grant, refresh_grant
from mcp_host.auth.keys import ES256, Proofs, new_key
from mcp_host.auth.login import Login
from mcp_host.auth.machines import Machine
from mcp_host.auth.registration import Dynamic, OAuthClient, Registration
from mcp_host.auth.saved import CLIENT, PENDING, SAVED, Entry, Pending, Place, Saved
from mcp_host.auth.shared_work import SharedWork
from mcp_host.auth.stores import TokenStore
from mcp_host.errors import excerpt
from mcp_host.transports._http.backend import AnyClient

INVALID_GRANT = "invalid_grant"
UNKNOWN_CLIENT = frozenset({"invalid_client", "unauthorized_client"})

LEASE = 60.0  # seconds for one refresh, after which another process may try: twice the `REQUEST_TIME` of a token
LEASE_POLL = 0.2  # seconds between looks at another process's refresh
NEEDED_TIME = 600.0  # seconds in which a person may visit a URL; RFC 6749 recommends as many for a code

MOST_LOGINS = 5  # that the servers of one origin may want of a person in LOGINS_TIME
LOGINS_TIME = 600.0  # seconds
MOST_SCOPES = 8192  # characters of the scopes of one login; they are a part of its URL
NEW_TIME = 60.0  # seconds after a login in which a server that refuses its token gets no other


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a host has chosen, see `OAuth`."""

    store: TokenStore
    registrations: tuple[Registration, ...]
    login: Login | OnDevice | None
    machine: Machine | None
    redirect_uri: str | None
    issuer_aliases: Mapping[str, str]
    scopes: tuple[str, ...]
    dpop: bool
    client: AnyClient | None
    clock: Callable[[], float]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a login is for, before its client is known. *key* is what the token is to be bound to, if it is (a JWK)."""

    resource: Resource
    server: AuthorizationServer
    scopes: tuple[str, ...]
    key: dict[str, Any] | None

    def by(self, client: OAuthClient) -> Saved:
        return Saved(self.resource, self.server, client, None, self.scopes, self.key)


class LoginLimit:
    """Bounds how often the servers of one origin have a person log in. Each time, a page opens in a browser."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._times: deque[float] = deque(maxlen=MOST_LOGINS)

    def count(self, url: str) -> None:
        """Count a login for the server at *url*.

        Raises:
            LoginFailed: It is one too many.
        """
        now = self._clock()
        if len(self._times) == MOST_LOGINS and 0 <= now - self._times[0] < LOGINS_TIME:
            wait = self._times[0] + LOGINS_TIME - now
            raise LoginFailed(
                f"{shown(url)} wants yet another login, after {MOST_LOGINS} within {LOGINS_TIME / 60:.0f} minutes: "
                f"refused for the next {wait:.0f} s"
            )
        self._times.append(now)


class Authorization:
    """The authorization of one user for the resource and by the authorization server of *place*.

    *url* is that of the MCP server that wanted it first. Others may share it.
    """

    def __init__(self, settings: Settings, place: Place, url: str, steps: Steps, logins: LoginLimit) -> None:
        self.place = place
        self._settings = settings
        self._url = url
        self._steps = steps
        self._logins = logins
        self._entry = Entry(settings.store, f"token {place.resource} {place.issuer}", SAVED)
        self._client_entry = Entry(settings.store, f"client {place.issuer}", CLIENT)
        self._work = SharedWork()
        self._last_proofs: Proofs | None = None
        self._needed: Pending | None = None
        self._replaced: list[Pending] = []
        """Logins that no one may have finished. They are deleted when they have ended."""
        self._new: Token | None = None
        """What a login gave, until the server accepts it."""
        self._new_until = 0.0
        self._renewed: Token | None = None
        """What a refresh gave, until the server accepts it: if it is refused, another refresh is no better."""

    # For each request

    def ready(self, method: str, url: str) -> Mapping[str, str] | None:
        """The headers of a request, if they are known at once."""
        if not self._entry.is_loaded or self._is_due or self._new is not None or self._renewed is not None:
            return None
        if self._key is not None:
            return None  # any response may have the nonce of the next proof: RFC 9449, section 8.2
        return self.headers(self._token, method, url)

    async def token(self) -> Token | None:
        """The token to send: none that has ended, and in time a new one."""
        if self._entry.is_loaded and (not self._is_due or (self._work.is_busy and self._is_good)):
            return self._token  # it still is good, even if another request gets the next one
        return await self._work.do("refresh", self._in_time)

    def headers(self, token: Token | None, method: str, url: str) -> dict[str, str]:
        """The headers for *token* (RFC 6750, section 2.1; RFC 9449, section 7.1)."""
        if token is None:
            return {}
        proofs = self._proofs(self._key)
        if proofs is None:
            return {"Authorization": f"Bearer {token.access_token}"}
        return {"Authorization": f"DPoP {token.access_token}", **proofs.header(method, url, token.access_token)}

    def heard(self, url: str, headers: Mapping[str, str]) -> bool:
        """Look for a nonce in the headers of a response. Returns whether there is a new one."""
        proofs = self._proofs(self._key)
        return proofs is not None and proofs.heard(url, headers)

    def accepted(self, token: Token | None) -> None:
        """The server has taken *token*."""
        if token == self._new:
            self._new = None
        if token == self._renewed:
            self._renewed = None

    # For a request that was refused

    def is_new(self, token: Token | None) -> bool:
        """Whether *token* is of a login just now. If it is refused, another login is no better."""
        return token is not None and token == self._new and self._now < self._new_until

    async def other(self, refused: Token | None) -> Token | None:
        """A good token that another request, or another process, has gotten meanwhile."""
        return await self._work.do(("other", refused), lambda: self._other(refused))

    async def _other(self, refused: Token | None) -> Token | None:
        if self._token == refused or not self._is_good:
            await self._entry.load()
        return self._token if self._token != refused and self._is_good else None

    async def renew(
        self,
        refused: Token | None,
        resource: Resource,
        server: AuthorizationServer,
        challenge: Challenge,
        *,
        wants_more: bool,
    ) -> Token | None:
        """Another token than the *refused* one. None if there is no better one. *wants_more* is of scopes.

        Raises:
            AuthError: There is none. The text says why.
        """

        async def renew() -> Token | None:
            if (token := await self._other(refused)) is not None:
                return token
            asked = () if self._saved is None else self._saved.scopes
            if wants_more and set(challenge.scopes or resource.scopes or ()) <= set(asked):
                return None  # the server refuses what it has asked for
            if not wants_more and (token := await self._refreshed_instead(refused)) is not None:
                return token
            return await self._log_in(self._wanted(resource, server, challenge))

        return await self._work.do((wants_more, challenge.scopes), renew)

    async def finish(self, pending: Pending, redirected: str) -> None:
        """Finish the login of a web host."""
        saved, request = pending.saved, pending.request

        async def finish() -> None:
            self._needed = None
            await self._exchange(saved, request, redirected)

        await self._work.do(request.state, finish)

    async def saved(self) -> Saved | None:
        """What is kept of it."""
        return await self._entry.peek()

    async def forget(self) -> bool:
        """Forget the token and the client, and give up a login. Returns whether the token is revoked."""
        given_up = LoginFailed(f"{shown(self._url)}: logged out before there was a token")
        return await self._work.do_instead("forget", self._forget, given_up)

    async def _forget(self) -> bool:
        async with self._work.uncancelled():  # what is forgotten can be revoked only now
            await self._entry.load()
            saved = self._saved
            while not await self._entry.save(None):  # another process has gotten the next token meanwhile
                await self._entry.load()
                saved = self._saved
            await self._client_entry.keep(None)
            endpoint = None if saved is None else self._endpoint(saved)
            self._new = self._renewed = self._needed = None
            if saved is None or saved.token is None or endpoint is None:
                return False
            return await endpoint.revoke(saved.client, saved.token)

    # What it has

    @property
    def _saved(self) -> Saved | None:
        return self._entry.value

    @property
    def _token(self) -> Token | None:
        saved = self._entry.value
        return None if saved is None else saved.token

    @property
    def _now(self) -> float:
        """Seconds since 1970."""
        return self._settings.clock()

    @property
    def _is_due(self) -> bool:
        token = self._token
        return token is not None and token.is_due(self._now)

    @property
    def _is_good(self) -> bool:
        token = self._token
        return token is not None and not token.has_expired(self._now)

    @property
    def _key(self) -> dict[str, Any] | None:
        saved = self._entry.value
        return None if saved is None else saved.key

    def _proofs(self, key: dict[str, Any] | None) -> Proofs | None:
        """The proofs by *key*: the same for the same key, since they remember nonces."""
        if key is None:
            return None
        if self._last_proofs is None or self._last_proofs.jwk != key:
            self._last_proofs = Proofs(key)
        return self._last_proofs

    def _http(self) -> AuthClient:
        return AuthClient(self._url, client=self._settings.client, clock=self._settings.clock)

    def _endpoint(self, saved: Saved) -> TokenEndpoint:
        key = None if self._settings.machine is None else self._settings.machine.key
        for registration in self._settings.registrations:
            if isinstance(registration, Dynamic):
                continue
            client = registration.client(saved.server, None)
            if client is not None and client.id == saved.client.id:
                key = registration.key
        scopes = saved.scopes if saved.token is None else saved.token.scopes
        return TokenEndpoint(
            self._http(), saved.server, saved.resource.identifier, scopes, self._steps, key, self._proofs(saved.key)
        )

    async def _obtain(self, saved: Saved, ask: Callable[[TokenEndpoint], Awaitable[Token]]) -> Token:
        """Get a token by *ask*, and keep it."""
        try:
            token = await ask(self._endpoint(saved))
        except TokenRequestFailed as exc:
            if exc.code in UNKNOWN_CLIENT:
                await self._client_entry.keep(None)  # a registration may end at any time
            raise
        with CancelScope(shield=True):
            await self._entry.keep(replace(saved, token=token, refreshing_until=None))
        self._new, self._new_until = token, self._now + NEW_TIME
        return token

    # Logging in

    def _wanted(self, resource: Resource, server: AuthorizationServer, challenge: Challenge) -> Wanted:
        """The scopes are those of the challenge, else those of the resource; with all that were asked for before.

        Raises:
            LoginFailed: They are too many.
            DiscoveryFailed: The server does not offer DPoP.
        """
        asked = self._saved.scopes if self._saved is not None else ()
        named = challenge.scopes or resource.scopes or ()
        # Alone, it would be asked for in the place of what the server gives by default.
        offline = (OFFLINE_ACCESS,) if OFFLINE_ACCESS in server.scopes and named else ()
        scopes = tuple(dict.fromkeys([*asked, *self._settings.scopes, *named, *offline]))
        if (length := len(" ".join(scopes))) > MOST_SCOPES:
            raise LoginFailed(
                f"{shown(self._url)} wants {length:,} characters of scopes, and {MOST_SCOPES:,} are the most"
            )
        key = self._key if self._settings.dpop else None
        if self._settings.dpop and key is None:
            if ES256 not in server.dpop_algorithms:
                raise DiscoveryFailed(f"{excerpt(server.issuer)} does not offer DPoP with {ES256}")
            key = new_key()
        return Wanted(resource, server, scopes, key)

    async def _log_in(self, wanted: Wanted) -> Token:
        if (machine := self._settings.machine) is not None:
            return await self._obtain(wanted.by(machine.client), machine.token)
        known = await self._client_entry.load()
        try:
            return await self._log_in_by_person(wanted)
        except TokenRequestFailed as exc:
            if exc.code not in UNKNOWN_CLIENT or known is None:
                raise
            return await self._log_in_by_person(wanted)  # registered again, once

    async def _log_in_by_person(self, wanted: Wanted) -> Token:
        login = self._settings.login
        if login is None:
            raise await self._authorization_needed(wanted)
        self._logins.count(self._url)
        if isinstance(login, OnDevice):
            client = await self._client(wanted, None)
            return await self._obtain(wanted.by(client), lambda endpoint: login.token(endpoint, client))
        known = self._client_entry.value
        async with login.open(
            known.redirect_uris[0] if known is not None and known.redirect_uris else None
        ) as redirection:
            saved, request = await self._asking(wanted, redirection.redirect_uri)
            redirected = await redirection.authorize(request.url, request.state, server=shown(self._url))
        return await self._exchange(saved, request, redirected)

    async def _asking(self, wanted: Wanted, redirect_uri: str) -> tuple[Saved, AuthorizationRequest]:
        """What a person is to authorize, and by which request."""
        client = await self._client(wanted, redirect_uri)
        resource = wanted.resource.identifier
        request = AuthorizationRequest.to(wanted.server, client, redirect_uri, resource, wanted.scopes)
        return wanted.by(client), request

    async def _authorization_needed(self, wanted: Wanted) -> AuthorizationNeeded | LoginFailed:
        redirect_uri = self._settings.redirect_uri
        if redirect_uri is None:
            return LoginFailed(f"{shown(self._url)} needs a login, and no one can log in: pass login=in_browser()")
        needed = await self._still_needed()
        if needed is None or needed.until - NEEDED_TIME / 2 < self._now or needed.saved.scopes != wanted.scopes:
            self._logins.count(self._url)
            needed = Pending(self._url, *await self._asking(wanted, redirect_uri), self._now + NEEDED_TIME)
            if not await self._pending(needed).save(needed):
                raise TokensError("the store has kept no login")
            for replaced in self._replaced:
                if replaced.until < self._now:
                    await self._pending(replaced).take()
            self._replaced = [replaced for replaced in self._replaced if replaced.until >= self._now] + [needed]
            self._needed = needed
        request = needed.request
        return AuthorizationNeeded(
            f"{shown(self._url)} needs a login at {excerpt(wanted.server.issuer)}", request.url, request.state
        )

    async def _still_needed(self) -> Pending | None:
        """The login that waits for its redirect. None if it has been finished, in any process."""
        return None if self._needed is None else await self._pending(self._needed).load()

    def _pending(self, needed: Pending) -> Entry[Pending]:
        return Entry(self._settings.store, f"login {needed.request.state}", PENDING)

    async def _exchange(self, saved: Saved, request: AuthorizationRequest, redirected: str) -> Token:
        """The token for the code in *redirected*."""
        grant = code_grant(request, request.code_in(redirected))
        async with self._work.uncancelled():  # a code works only once
            return await self._obtain(saved, lambda endpoint: endpoint.request(saved.client, grant))

    async def _client(self, wanted: Wanted, redirect_uri: str | None) -> OAuthClient:
        """The client at the server: the first that a registration gives."""
        server = wanted.server
        for registration in self._settings.registrations:
            if isinstance(registration, Dynamic):
                scopes = (*wanted.scopes, *(wanted.resource.scopes or ()))
                client = await self._registered(registration, server, redirect_uri, scopes)
            else:
                client = registration.client(server, redirect_uri)
                outcome = "known there" if client is not None else "not for that server"
                self._steps.add("registration", server.issuer, f"{registration!r} is {outcome}")
            if client is not None:
                return client
        raise RegistrationFailed(
            f"{excerpt(server.issuer)} takes none of {', '.join(map(repr, self._settings.registrations))}"
        )

    async def _registered(
        self, registration: Dynamic, server: AuthorizationServer, redirect_uri: str | None, scopes: Sequence[str]
    ) -> OAuthClient | None:
        """The client of before, if it can still be used, or a new one."""
        client = await self._client_entry.load()
        if client is None or not client.can_be_used(redirect_uri, self._now):
            scopes = tuple(dict.fromkeys(scopes))
            client = await registration.register(self._http(), server, redirect_uri, scopes, self._steps)
            if client is not None:
                with CancelScope(shield=True):
                    await self._client_entry.keep(client)
        return client

    # Refreshing

    async def _in_time(self) -> Token | None:
        if not self._entry.is_loaded:
            await self._entry.load()
        if not self._is_due:
            return self._token
        try:
            return await self._refreshed()
        except (TokenRequestFailed, TokensError) as exc:
            if self._is_good:
                return self._token
            if self._settings.machine is not None or not isinstance(exc, TokenRequestFailed) or not exc.refused:
                raise
            return None  # a request without a token tells what the server wants

    async def _refreshed_instead(self, refused: Token | None) -> Token | None:
        """A refreshed token. None if a login is left."""
        if refused is not None and refused == self._renewed:
            return None
        try:
            token = await self._refreshed(refused)
        except TokenRequestFailed as exc:
            if self._settings.machine is not None or not exc.refused:
                raise  # a login is no better
            return None
        return None if token == refused else token

    async def _refreshed(self, refused: Token | None = None) -> Token | None:
        """A token for the refresh token, or another than the *refused* one that still is good. None if there is none.

        Raises:
            TokenRequestFailed: The server gave none.
            TokensError: The store cannot be used.
        """
        while True:
            saved = await self._unclaimed(refused)
            if saved is None or saved.token is None:
                return None
            machine = self._settings.machine
            if machine is not None and machine.issuer in (None, self.place.issuer) and saved.token.is_due(self._now):
                return await self._obtain(replace(saved, token=None), machine.token)
            client = self._refreshing_client(saved)
            is_left = saved.refreshing_until is not None  # to another process
            is_other = saved.token != refused and (is_left or not saved.token.is_due(self._now))
            if client is None or saved.token.refresh_token is None or is_other:
                return None if saved.token.has_expired(self._now) else saved.token
            async with self._work.uncancelled():  # the refresh token may work only once
                claimed = await self._claim(saved)
                if claimed is not None:
                    return await self._refresh(claimed, saved.token, saved.token.refresh_token, client)

    async def _unclaimed(self, refused: Token | None) -> Saved | None:
        """What the store has, once no other process refreshes its token; or before, if it is good and not the *refused* one.

        One process refreshes at a time: a refresh token may work only once.
        """
        while True:
            await self._entry.load()
            saved, now = self._saved, self._now
            if saved is None or saved.token is None or saved.refreshing_until is None:
                return saved
            # A later end is of a clock that was wrong.
            if not now <= saved.refreshing_until <= now + 2 * LEASE:
                return replace(saved, refreshing_until=None)
            if saved.token != refused and not saved.token.has_expired(now):
                return saved
            await sleep(LEASE_POLL)

    async def _claim(self, saved: Saved) -> Saved | None:
        """*saved* with a lease, which has been stored with time left for a token request. None if another process was first."""
        while True:
            until = self._now + LEASE
            claimed = replace(saved, refreshing_until=until)
            if not await self._entry.save(claimed):
                return None
            if until - self._now >= LEASE / 2:  # a keyring may have waited for its person
                return claimed

    async def _refresh(self, claimed: Saved, old: Token, refresh_token: str, client: OAuthClient) -> Token | None:
        kept = replace(claimed, refreshing_until=None)
        new: Token | None = None

        def replaces(stored: Saved | None) -> bool:
            if new is None:
                return stored == claimed
            # The other process of a lease that has ended may have been refused. All else is of a logout or a login.
            return stored is not None and stored.token in (None, old)

        try:
            new = await self._endpoint(claimed).request(client, refresh_grant(refresh_token))
            if new.refresh_token is None:
                new = replace(new, refresh_token=refresh_token)
            kept = replace(kept, token=new)
        except TokenRequestFailed as exc:
            if exc.code == INVALID_GRANT or exc.code in UNKNOWN_CLIENT:
                kept = replace(kept, token=None)
            if exc.code in UNKNOWN_CLIENT:
                await self._client_entry.keep(None)
            raise
        finally:
            with CancelScope(shield=True):
                await self._entry.keep(kept, replaces)
        if self._token == new:
            self._renewed = new
        return self._token

    def _refreshing_client(self, saved: Saved) -> OAuthClient | None:
        """The client that the token of *saved* belongs to, with the secret that the host passes now. None without one."""
        if self._settings.machine is not None:
            return None  # it asks for a new token instead
        for registration in self._settings.registrations:
            if isinstance(registration, Dynamic):
                continue
            client = registration.client(saved.server, None)
            if client is not None and client.id == saved.client.id:
                return client
        return saved.client if any(isinstance(each, Dynamic) for each in self._settings.registrations) else None
