"""The authorization of one user for one resource: when its token is refreshed, and how a login gets one.

https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from secrets import token_urlsafe

from anyio import CancelScope, move_on_after

from mcp_host.auth.clients import MAX_SCOPES, needs_registration, with_more
from mcp_host.auth.credentials import Credentials
from mcp_host.auth.errors import AuthorizationNeeded, DiscoveryFailed, LoginFailed, TokenRequestFailed
from mcp_host.auth.grants import Token
from mcp_host.auth.keys import ES256, new_key
from mcp_host.auth.login.authorization_request import OFFLINE_ACCESS, AuthorizationRequest, code_grant
from mcp_host.auth.login.device import OnDevice
from mcp_host.auth.login.limits import LoginLimits
from mcp_host.auth.refreshing import Refresher
from mcp_host.auth.registration import OAuthClient
from mcp_host.auth.requests.challenges import Challenge
from mcp_host.auth.requests.client import AuthClient
from mcp_host.auth.requests.error_codes import ACCESS_DENIED, INVALID_SCOPE
from mcp_host.auth.requests.metadata import AuthorizationServer, Resource
from mcp_host.auth.requests.steps import Steps
from mcp_host.auth.requests.urls import shown
from mcp_host.auth.settings import Settings
from mcp_host.auth.shared_work import SharedWork
from mcp_host.auth.storage.pending import NEEDED_TIME, PendingLogin, PendingLogins
from mcp_host.auth.storage.saved import Place, Saved, Wanted
from mcp_host.concurrency.asking import asking_person, is_unattended
from mcp_host.errors import excerpt
from mcp_host.secret import Secret
from mcp_host.transports._http.authorization import AuthorizedBy
from mcp_host.transports.base import AuthorizationContext

LOGIN_BYTES = 12  # of `Saved.login`: no two logins are ever the same
EARLY_WAIT = 2.0  # seconds that a request with a good token waits for its refresh


@dataclass(frozen=True, slots=True)
class _Ready:
    """The *headers* of requests *until* a time, as long as *saved* is what is stored: most requests need no more."""

    saved: Saved | None
    until: float
    headers: Mapping[str, str]


class Authorization:
    """The authorization of one user for the resource and by the authorization server of *place*.

    Several URLs may share it. *http* and *steps* are those of the first.
    """

    def __init__(
        self, settings: Settings, place: Place, http: AuthClient, steps: Steps, login_limits: LoginLimits
    ) -> None:
        self.place = place
        self.credentials = Credentials(settings, place, http, steps)
        self._settings = settings
        self._login_limits = login_limits
        self._pending = PendingLogins(settings.store, place, settings.clock)
        self._work = SharedWork()
        self._ready: _Ready | None = None
        self._not_granted: set[str] = set()
        """Scopes that a request needs, and that a login for it has not given."""
        self._refresher = Refresher(self.credentials, settings, self._work.uncancelled)

    @property
    def authorized_by(self) -> AuthorizedBy:
        """What requests are authorized by now."""
        saved = self.credentials.entry.value
        login = (self.place, None if saved is None else saved.login)
        if saved is None or saved.token is None:
            return AuthorizedBy(AuthorizationContext(None, login))
        return AuthorizedBy(AuthorizationContext(login, saved.token.scopes), saved.token)

    # For each request

    def ready(self, method: str, url: str) -> Mapping[str, str] | None:
        """The headers of a request with a good token. None if something has to be done first, or after the response."""
        credentials, ready = self.credentials, self._ready
        saved = credentials.entry.value
        if ready is None or ready.saved is not saved or self._settings.clock() >= ready.until:
            if not credentials.entry.is_loaded or credentials.is_untried or self._refresher.is_due:
                return None
            if credentials.key is not None:
                return None  # any response may have the nonce of the next proof: RFC 9449, section 8.2
            token = credentials.token
            until = math.inf if token is None or token.refresh_at is None else token.refresh_at
            ready = self._ready = _Ready(saved, until, credentials.headers(token, method, url))
        return {**ready.headers}  # the caller's own

    async def token(self) -> Token | None:
        """The token to send, which is refreshed if that is due. None if there is no good one.

        Raises:
            AuthError: It cannot be refreshed now, and is not good any more; or the store cannot be used.
        """
        credentials = self.credentials
        if credentials.entry.is_loaded:
            if not self._refresher.is_due:
                return credentials.token
            if credentials.is_good and not self._work.is_busy:  # no other request gets the next one already
                with move_on_after(EARLY_WAIT):
                    await self._work.do("refresh", self._refresher.token)
            if credentials.is_good:
                return credentials.token
        return await self._work.do("refresh", self._refresher.token)

    # For a request that was refused

    async def other(self, refused: Token | None) -> Token | None:
        """A good token that another request, or another process, has gotten meanwhile."""
        return await self._work.do(("other", refused), lambda: self.credentials.other(refused))

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
        """Another token than the *refused* one, for the server at *url*. None if there is no better one.

        *wants_more* says that a request needs scopes which the refused token does not have.

        Raises:
            AuthError: There is none. The text says why.
        """

        async def renew() -> Token | None:
            if (token := await self.credentials.other(refused)) is not None:
                return token
            scopes = challenge.scopes or resource.scopes or ()
            if wants_more:
                needed = set(scopes)
                if self._are_refused(needed):
                    return None
                return await self._step_up(self._wanted(url, resource, server, scopes), needed)
            if not self.credentials.is_refreshed(refused):
                token = await self._refresher.refresh(refused)
                if token is not None:
                    return token
            return await self._log_in(self._wanted(url, resource, server, scopes))

        step_up_of = url if wants_more else None  # a denial is of one URL: the others ask themselves
        return await self._work.do((step_up_of, challenge.scopes, is_unattended()), renew)

    async def log_in(self, url: str, resource: Resource, server: AuthorizationServer) -> None:
        """Get another token by a login, for the server at *url*. The one that there is stays until then."""

        async def log_in() -> None:
            await self.credentials.entry.load()
            self._forget_logins(url)
            await self._log_in(self._wanted(url, resource, server, resource.scopes or ()))

        await self._work.do("log in", log_in)

    async def finish(self, pending: PendingLogin, redirected: str) -> None:
        """Finish the login of a web host."""

        async def finish() -> None:
            await self._exchange(pending.saved, pending.request, redirected)

        await self._work.do(pending.request.state, finish)

    async def saved(self) -> Saved | None:
        """What is kept of it."""
        return await self.credentials.entry.peek()

    async def forget(self, url: str) -> bool:
        """Forget the token and the client, and give up a login, for the server at *url*.

        Returns whether the token is revoked.
        """

        async def forget() -> bool:
            async with self._work.uncancelled():  # what is forgotten can be revoked only now
                await self._pending.forget()  # may fail: before anything is lost that a second logout would revoke
                self._forget_logins(url)
                return await self.credentials.revoke()

        given_up = LoginFailed(f"{shown(self.place.resource)}: logged out before there was a token")
        return await self._work.do_instead("forget", forget, given_up)

    # Logging in

    def _forget_logins(self, url: str) -> None:
        """Let earlier logins no longer count: the application logs out, or asks for a login itself."""
        self._login_limits.forget(url)
        self._not_granted.clear()

    def _are_refused(self, scopes: Set[str]) -> bool:
        """Whether *scopes* have been asked for, and another login would not give them."""
        if not scopes <= set(self.credentials.asked_scopes):
            return False
        # A person may have left out some, which no request needed then. A web host would redirect them without end.
        return self._settings.login is None or scopes <= {*self.credentials.granted_scopes, *self._not_granted}

    def _wanted(self, url: str, resource: Resource, server: AuthorizationServer, needed: Sequence[str]) -> Wanted:
        """The scopes are those that are *needed*, with all that were asked for before, or were given by default.

        Raises:
            LoginFailed: They are too many.
            DiscoveryFailed: The server does not offer DPoP.
        """
        asked = self.credentials.asked_scopes
        scopes = tuple(dict.fromkeys([*asked, *self._settings.scopes, *needed]))
        if (length := len(" ".join(scopes))) > MAX_SCOPES:
            raise LoginFailed(f"{shown(url)} wants {length:,} characters of scopes, and {MAX_SCOPES:,} are the most")
        if scopes:  # without any, the server gives what it gives by default
            is_wanted = OFFLINE_ACCESS in server.scopes and self._settings.machine is None
            # Some servers grant scopes by names that cannot be asked for.
            given = () if asked else self.credentials.granted_scopes
            scopes = with_more(scopes, given, (OFFLINE_ACCESS,) if is_wanted else ())
        key = self.credentials.key if self._settings.dpop else None
        if self._settings.dpop and key is None:
            if ES256 not in server.dpop_algorithms:
                raise DiscoveryFailed(f"{excerpt(server.issuer)} does not offer DPoP with {ES256}")
            key = new_key()
        login = "" if self._settings.machine is not None else token_urlsafe(LOGIN_BYTES)
        return Wanted(url, resource, server, scopes, login, key)

    async def _step_up(self, wanted: Wanted, needed: Set[str]) -> Token | None:
        """Log in for the scopes that are *needed*, unless they have lately been denied."""
        granted, asked = set(self.credentials.granted_scopes), set(self.credentials.asked_scopes)
        missing = needed - (granted & asked)  # not empty: see `_are_refused`
        saved = self.credentials.entry.value
        login = wanted.login if saved is None or saved.token is None else saved.login
        wanted = replace(wanted, login=login)  # the session at the server goes on with the person who has a token
        try:
            self._login_limits.check(wanted.url, missing)
            token = await self._log_in(wanted)
        except LoginFailed as exc:
            exc.scopes = tuple([scope for scope in wanted.scopes if scope not in (granted or asked)])
            if exc.code in (ACCESS_DENIED, INVALID_SCOPE):
                self._login_limits.deny(wanted.url, missing)
            raise
        self._not_granted |= needed - set(self.credentials.granted_scopes)
        return token

    async def _log_in(self, wanted: Wanted) -> Token | None:
        """Get a token from the machine, or by a login. If the server does not know the client, by another login."""
        if (machine := self._settings.machine) is not None:
            return await self.credentials.obtain(wanted.by(machine.client_at(wanted.server)), machine.token)
        if is_unattended():
            raise LoginFailed(f"{shown(wanted.url)} needs a login, and no one waits for this request")
        clients = self.credentials.clients
        known = await clients.registered()
        try:
            return await self._log_in_by_person(wanted, known)
        except (LoginFailed, TokenRequestFailed) as exc:
            # A client that was registered for this login, or by hand, is not replaced at once.
            if known is None or known != clients.last or not needs_registration(known, exc.code):
                raise
            return await self._log_in_by_person(wanted, await clients.registered())

    async def _log_in_by_person(self, wanted: Wanted, known: OAuthClient | None) -> Token | None:
        """Log in, if possible with the redirect URI that the client *known* is registered with."""
        login = self._settings.login
        if login is None:
            raise await self._authorization_needed(wanted)
        self._login_limits.count(wanted.url)
        if isinstance(login, OnDevice):
            client = await self.credentials.clients.client(wanted, None)
            return await self.credentials.obtain(
                wanted.by(client),
                lambda endpoint: login.token(endpoint, client, self._work.uncancelled, server=shown(wanted.url)),
            )
        preferred = known.redirect_uris[0] if known is not None and known.redirect_uris else None
        async with login.open(preferred) as redirection:
            saved, request = await self._asking(wanted, redirection.redirect_uri)
            try:
                with asking_person():
                    redirected = Secret(
                        await redirection.authorize(request.url, request.state, server=shown(wanted.url))
                    )
            except BaseException:  # no answer: the page may have said that it does not know the client
                if saved.client == known:
                    with CancelScope(shield=True):
                        await self.credentials.clients.note_failure(known)
                raise
        return await self._exchange(saved, request, redirected)

    async def _authorization_needed(self, wanted: Wanted) -> AuthorizationNeeded | LoginFailed:
        """The error that tells a web host where to send its user. Without a redirect URI, no one can log in."""
        redirect_uri = self._settings.redirect_uri
        if redirect_uri is None:
            return LoginFailed(f"{shown(wanted.url)} needs a login, and no one can log in: pass login=in_browser()")
        pending = await self._pending.newest(wanted.scopes, redirect_uri)
        if pending is None:
            self._login_limits.count(wanted.url)
            for unanswered in await self._pending.take_ended():
                await self.credentials.clients.note_failure(unanswered.saved.client)
            pending = PendingLogin(
                wanted.url, *await self._asking(wanted, redirect_uri), self._settings.clock() + NEEDED_TIME
            )
            await self._pending.add(pending)
        request = pending.request
        return AuthorizationNeeded(
            f"{shown(wanted.url)} needs a login at {excerpt(wanted.server.issuer)}", request.url, request.state
        )

    async def _asking(self, wanted: Wanted, redirect_uri: str) -> tuple[Saved, AuthorizationRequest]:
        """What a person is to authorize, and by which request."""
        client = await self.credentials.clients.client(wanted, redirect_uri)
        resource = wanted.resource.identifier
        params = self._settings.authorization_params
        request = AuthorizationRequest.to(wanted.server, client, redirect_uri, resource, wanted.scopes, params)
        return wanted.by(client), request

    async def _exchange(self, saved: Saved, request: AuthorizationRequest, redirected: str) -> Token | None:
        """The token for the code in *redirected*."""
        try:
            grant = code_grant(request, request.code_in(redirected))
        except LoginFailed as exc:
            await self.credentials.clients.refused(saved.client, exc.code)
            raise
        async with self._work.uncancelled():  # a code works only once
            return await self.credentials.obtain(saved, lambda endpoint: endpoint.request(saved.client, grant))
