"""The authorization of one user for one resource: how its token is gotten, refreshed, and kept.

https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from anyio import CancelScope, move_on_after, sleep

from mcp_host.asking import asking_person, is_unattended
from mcp_host.auth.clients import Clients
from mcp_host.auth.errors import AuthError, AuthorizationNeeded, DiscoveryFailed, LoginFailed, TokenRequestFailed
from mcp_host.auth.grants import OFFLINE_ACCESS, AuthorizationRequest, Token, TokenEndpoint, code_grant, refresh_grant
from mcp_host.auth.keys import ES256, Proofs, new_key
from mcp_host.auth.login.device import OnDevice
from mcp_host.auth.login.limits import LoginLimits
from mcp_host.auth.registration import Dynamic, OAuthClient
from mcp_host.auth.requests.challenges import Challenge
from mcp_host.auth.requests.client import AuthClient
from mcp_host.auth.requests.discovery import AuthorizationServer, Resource, Steps, shown
from mcp_host.auth.settings import Settings
from mcp_host.auth.shared_work import SharedWork
from mcp_host.auth.storage.pending import NEEDED_TIME, PendingLogins
from mcp_host.auth.storage.saved import SAVED, Entry, Pending, Place, Saved, Wanted
from mcp_host.errors import excerpt

INVALID_GRANT = "invalid_grant"
UNKNOWN_CLIENT = frozenset({"invalid_client", "unauthorized_client"})

LEASE = 60.0  # seconds for one refresh, after which another process may try: twice the `REQUEST_TIME` of a token
LEASE_POLL = 0.2  # seconds between looks at another process's refresh
MOST_SCOPES = 8192  # characters of the scopes of one login; they are a part of its URL
EARLY_WAIT = 2.0  # seconds that a request with a good token waits for the next one, before the `GRACE` of `shared_work`
RETRY_TIME = 10.0  # seconds from a refresh that failed to the next, while the token is good
NEW_TIME = 60.0  # seconds after a login in which a server that refuses its token gets no other


@dataclass(frozen=True, slots=True)
class _Untried:
    """A new token that the server has not accepted yet."""

    token: Token
    is_of_login: bool
    since: float


class Authorization:
    """The authorization of one user for the resource and by the authorization server of *place*. Several URLs may share it.

    *http* is for one of them.
    """

    def __init__(
        self, settings: Settings, place: Place, http: AuthClient, steps: Steps, login_limits: LoginLimits
    ) -> None:
        self.place = place
        self._settings = settings
        self._http = http
        self._steps = steps
        self._login_limits = login_limits
        self._entry = Entry(settings.store, f"token {place.resource} {place.issuer}", SAVED)
        self._clients = Clients(settings, place.issuer, http, steps)
        self._pending = PendingLogins(settings.store, place, settings.clock)
        self._work = SharedWork()
        self._last_proofs: Proofs | None = None
        self._untried: _Untried | None = None
        self._retry_at = -math.inf

    # For each request

    def ready(self, method: str, url: str) -> Mapping[str, str] | None:
        """The headers of a request with a good token. None if something has to be done first, or after the response."""
        if not self._entry.is_loaded or self._should_refresh or self._is_untried:
            return None
        if self._key is not None:
            return None  # any response may have the nonce of the next proof: RFC 9449, section 8.2
        return self.headers(self._token, method, url)

    async def token(self) -> Token | None:
        """The token to send, which is refreshed if that is due. None if there is no good one: then the server says what it wants.

        Raises:
            AuthError: It cannot be refreshed now, and is not good any more; or the store cannot be used.
        """
        if self._entry.is_loaded:
            if not self._should_refresh:
                return self._token
            if self._is_good and not self._work.is_busy:  # no other request gets the next one already
                with move_on_after(EARLY_WAIT):
                    await self._work.do("refresh", self._in_time)
            if self._is_good:
                return self._token
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
        if self._untried is not None and self._untried.token == token:
            self._untried = None

    # For a request that was refused

    def is_new(self, token: Token | None) -> bool:
        """Whether *token* is of a login just now. If it is refused, another login is no better."""
        new = self._untried
        return new is not None and new.token == token and new.is_of_login and self._now < new.since + NEW_TIME

    async def other(self, refused: Token | None) -> Token | None:
        """A good token that another request, or another process, has gotten meanwhile."""
        return await self._work.do(("other", refused), lambda: self._other(refused))

    async def _other(self, refused: Token | None) -> Token | None:
        if self._token == refused or not self._is_good:
            await self._entry.load()
        return self._token if self._token != refused and self._is_good else None

    async def renew(
        self,
        url: str,
        refused: Token | None,
        resource: Resource,
        server: AuthorizationServer,
        challenge: Challenge,
        *,
        wants_more: bool,
    ) -> Token | None:
        """Another token than the *refused* one, for the server at *url*. None if there is no better one. *wants_more* is of scopes.

        Raises:
            AuthError: There is none. The text says why.
        """

        async def renew() -> Token | None:
            if (token := await self._other(refused)) is not None:
                return token
            asked = () if self._saved is None else self._saved.scopes
            if wants_more and set(challenge.scopes or resource.scopes or ()) <= set(asked):
                return None  # the server refuses what it has asked for
            new = self._untried
            is_refreshed = new is not None and new.token == refused and not new.is_of_login
            if not wants_more and not is_refreshed and (token := await self._refreshed(refused)) is not None:
                return token
            wanted = self._wanted(url, resource, server, challenge)
            try:
                return await self._log_in(wanted)
            except LoginFailed as exc:
                if wants_more:
                    exc.scopes = tuple([scope for scope in wanted.scopes if scope not in asked])
                raise

        return await self._work.do((wants_more, challenge.scopes, is_unattended()), renew)

    async def log_in(self, url: str, resource: Resource, server: AuthorizationServer, challenge: Challenge) -> None:
        """Get another token by a login, for the server at *url*. The one that there is stays until then."""

        async def log_in() -> None:
            await self._entry.load()
            self._login_limits.forget(url)
            await self._log_in(self._wanted(url, resource, server, challenge))

        await self._work.do("log in", log_in)

    async def finish(self, pending: Pending, redirected: str) -> None:
        """Finish the login of a web host."""

        async def finish() -> None:
            await self._exchange(pending.saved, pending.request, redirected)

        await self._work.do(pending.request.state, finish)

    async def saved(self) -> Saved | None:
        """What is kept of it."""
        return await self._entry.peek()

    async def forget(self) -> bool:
        """Forget the token and the client, and give up a login. Returns whether the token is revoked."""
        given_up = LoginFailed(f"{shown(self.place.resource)}: logged out before there was a token")
        return await self._work.do_instead("forget", self._forget, given_up)

    async def _forget(self) -> bool:
        async with self._work.uncancelled():  # what is forgotten can be revoked only now
            await self._pending.forget()  # may fail: before anything is lost that a second logout would revoke
            saved = await self._entry.load()
            while not await self._entry.save(None):  # another process has gotten the next token meanwhile
                saved = await self._entry.load()
            self._untried = None
            self._login_limits.forget(self.place.resource)
            await self._clients.forget()
            if saved is None or saved.token is None:
                return False
            client = self._clients.current(saved) or saved.client
            return await self._endpoint(saved).revoke(client, saved.token)

    # What it has

    @property
    def _saved(self) -> Saved | None:
        return self._entry.value

    @property
    def _token(self) -> Token | None:
        saved = self._entry.value
        return None if saved is None else saved.token

    @property
    def _key(self) -> dict[str, Any] | None:
        saved = self._entry.value
        return None if saved is None else saved.key

    @property
    def _now(self) -> float:
        """Seconds since 1970."""
        return self._settings.clock()

    @property
    def _should_refresh(self) -> bool:
        token = self._token
        if token is None or not token.is_due(now := self._now):
            return False
        return now >= self._retry_at or token.has_expired(now)

    @property
    def _is_good(self) -> bool:
        token = self._token
        return token is not None and not token.has_expired(self._now)

    @property
    def _is_untried(self) -> bool:
        return self._untried is not None and self._untried.token == self._token

    def _proofs(self, key: dict[str, Any] | None) -> Proofs | None:
        """The proofs by *key*: the same for the same key, since they remember nonces."""
        if key is None:
            return None
        if self._last_proofs is None or self._last_proofs.jwk != key:
            self._last_proofs = Proofs(key)
        return self._last_proofs

    def _endpoint(self, saved: Saved) -> TokenEndpoint:
        holder = self._clients.holder(saved)
        key = None if holder is None else holder.key
        scopes = saved.scopes if saved.token is None else saved.token.scopes
        return TokenEndpoint(
            self._http, saved.server, saved.resource.identifier, scopes, self._steps, key, self._proofs(saved.key)
        )

    async def _obtain(
        self,
        saved: Saved,
        ask: Callable[[TokenEndpoint], Awaitable[Token]],
        replaces: Callable[[Saved | None], bool] = lambda _: True,
    ) -> Token | None:
        """Get a token by *ask*, and keep it in the place of what it *replaces*. Returns the token that is kept."""
        try:
            token = await ask(self._endpoint(saved))
        except TokenRequestFailed as exc:
            if exc.code in UNKNOWN_CLIENT:
                await self._clients.discard(saved.client)  # a registration may end at any time
            raise
        with CancelScope(shield=True):
            await self._entry.keep(replace(saved, token=token, refreshing_until=None), replaces)
        self._note(token, is_of_login=True)
        return self._token

    def _note(self, new: Token, *, is_of_login: bool) -> None:
        if self._token == new:  # otherwise another process has logged out or in
            self._untried = _Untried(new, is_of_login, self._now)

    # Logging in

    def _wanted(self, url: str, resource: Resource, server: AuthorizationServer, challenge: Challenge) -> Wanted:
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
            raise LoginFailed(f"{shown(url)} wants {length:,} characters of scopes, and {MOST_SCOPES:,} are the most")
        key = self._key if self._settings.dpop else None
        if self._settings.dpop and key is None:
            if ES256 not in server.dpop_algorithms:
                raise DiscoveryFailed(f"{excerpt(server.issuer)} does not offer DPoP with {ES256}")
            key = new_key()
        return Wanted(url, resource, server, scopes, key)

    async def _log_in(self, wanted: Wanted) -> Token | None:
        if (machine := self._settings.machine) is not None:
            return await self._obtain(wanted.by(machine.client), machine.token)
        if is_unattended():
            raise LoginFailed(f"{shown(wanted.url)} needs a login, and no one waits for this request")
        known = await self._clients.registered()
        try:
            return await self._log_in_by_person(wanted, known)
        except TokenRequestFailed as exc:
            if exc.code not in UNKNOWN_CLIENT or known is None:
                raise
            return await self._log_in_by_person(wanted, await self._clients.registered())  # registered again, once

    async def _log_in_by_person(self, wanted: Wanted, known: OAuthClient | None) -> Token | None:
        """Log in, if possible with the redirect URI that the client *known* is registered with."""
        login = self._settings.login
        if login is None:
            raise await self._authorization_needed(wanted)
        self._login_limits.count(wanted.url)
        if isinstance(login, OnDevice):
            client = await self._clients.client(wanted, None)
            return await self._obtain(wanted.by(client), lambda endpoint: login.token(endpoint, client))
        preferred = known.redirect_uris[0] if known is not None and known.redirect_uris else None
        async with login.open(preferred) as redirection:
            saved, request = await self._asking(wanted, redirection.redirect_uri)
            with asking_person():
                redirected = await redirection.authorize(request.url, request.state, server=shown(wanted.url))
        return await self._exchange(saved, request, redirected)

    async def _authorization_needed(self, wanted: Wanted) -> AuthorizationNeeded | LoginFailed:
        redirect_uri = self._settings.redirect_uri
        if redirect_uri is None:
            return LoginFailed(f"{shown(wanted.url)} needs a login, and no one can log in: pass login=in_browser()")
        pending = await self._pending.newest(wanted.scopes, redirect_uri)
        if pending is None:
            self._login_limits.count(wanted.url)
            pending = Pending(wanted.url, *await self._asking(wanted, redirect_uri), self._now + NEEDED_TIME)
            await self._pending.add(pending)
        request = pending.request
        return AuthorizationNeeded(
            f"{shown(wanted.url)} needs a login at {excerpt(wanted.server.issuer)}", request.url, request.state
        )

    async def _asking(self, wanted: Wanted, redirect_uri: str) -> tuple[Saved, AuthorizationRequest]:
        """What a person is to authorize, and by which request."""
        client = await self._clients.client(wanted, redirect_uri)
        resource = wanted.resource.identifier
        request = AuthorizationRequest.to(wanted.server, client, redirect_uri, resource, wanted.scopes)
        return wanted.by(client), request

    async def _exchange(self, saved: Saved, request: AuthorizationRequest, redirected: str) -> Token | None:
        """The token for the code in *redirected*."""
        grant = code_grant(request, request.code_in(redirected))
        async with self._work.uncancelled():  # a code works only once
            return await self._obtain(saved, lambda endpoint: endpoint.request(saved.client, grant))

    # Refreshing

    async def _in_time(self) -> Token | None:
        if not self._entry.is_loaded:
            await self._entry.load()
        if self._should_refresh:
            self._retry_at = self._now + RETRY_TIME
            try:
                await self._refreshed()
            except AuthError:
                if not self._is_good:
                    raise
        return self._token if self._is_good else None

    async def _refreshed(self, refused: Token | None = None) -> Token | None:
        """Another good token than the *refused* one: a new one, if that is due. None if a login has to give it.

        Raises:
            TokenRequestFailed: The server gave none, and a login would give none either.
            TokensError: The store cannot be used.
        """
        while True:
            saved, now = await self._entry.load(), self._now
            if saved is None or saved.token is None:
                return None
            token = saved.token
            is_good = token != refused and not token.has_expired(now)
            # A later end is of a clock that was wrong.
            is_claimed = saved.refreshing_until is not None and now <= saved.refreshing_until <= now + 2 * LEASE
            if is_good and (is_claimed or not token.is_due(now)):
                return token
            if is_claimed:  # by another process
                await sleep(LEASE_POLL)
                continue
            machine = self._settings.machine
            if machine is not None and machine.issuer in (None, self.place.issuer) and token.is_due(now):
                # Unless another process has logged out.
                renewed = replace(saved, client=machine.client, token=None)
                return await self._obtain(renewed, machine.token, lambda stored: stored is not None)
            client = self._clients.current(saved)
            if client is None or token.refresh_token is None:
                return token if is_good else None
            async with self._work.uncancelled():  # the refresh token may work only once
                claimed = await self._claim(saved)
                if claimed is not None:
                    return await self._refresh(claimed, token, token.refresh_token, client)

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
        """Another token than the *old* one. None if the server has refused to refresh that: then a login may give one."""
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
            is_unknown = exc.code in UNKNOWN_CLIENT
            # The wrong secret of a client that was registered by hand can be mended.
            if exc.code == INVALID_GRANT or (is_unknown and isinstance(self._clients.holder(claimed), Dynamic)):
                kept = replace(kept, token=None)
            if is_unknown:
                await self._clients.discard(claimed.client)
            if not exc.refused:
                raise
        finally:
            with CancelScope(shield=True):
                await self._entry.keep(kept, replaces)
        if new is not None:
            self._note(new, is_of_login=False)
        return self._token if self._token != old else None
