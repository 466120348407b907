"""The credentials of one user for one resource: the token, as the store keeps it, and the key that it is bound to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from anyio import CancelScope

from mcp_host.auth.clients import Clients
from mcp_host.auth.errors import TokenRequestFailed
from mcp_host.auth.grants import Token, TokenEndpoint
from mcp_host.auth.keys import Proofs
from mcp_host.auth.registration import OAuthClient
from mcp_host.auth.requests.client import AuthClient
from mcp_host.auth.requests.steps import Steps
from mcp_host.auth.settings import Settings
from mcp_host.auth.storage.entry import Entry
from mcp_host.auth.storage.saved import SAVED, Place, Saved
from mcp_host.secret import Secret

NEW_TIME = 60.0  # seconds after a login in which a server that refuses its token gets no other


@dataclass(frozen=True, slots=True)
class _Untried:
    """A new token that the server has not accepted yet."""

    token: Token
    is_of_login: bool
    since: float


class Credentials:
    """What requests for the resource of *place* are sent with. *http* is for one of the URLs of that resource."""

    def __init__(self, settings: Settings, place: Place, http: AuthClient, steps: Steps) -> None:
        self.entry = Entry(settings.store, f"token {place.name}", SAVED)
        self.clients = Clients(settings, place.issuer, http, steps)
        self._clock = settings.clock
        self._http = http
        self._steps = steps
        self._last_proofs: Proofs | None = None
        self._untried: _Untried | None = None

    # What there is

    @property
    def token(self) -> Token | None:
        saved = self.entry.value
        return None if saved is None else saved.token

    @property
    def asked_scopes(self) -> tuple[str, ...]:
        """All scopes that were asked for."""
        saved = self.entry.value
        return () if saved is None else saved.scopes

    @property
    def granted_scopes(self) -> tuple[str, ...]:
        """The scopes of the token: the server may give some by default."""
        return () if self.token is None else self.token.scopes

    @property
    def key(self) -> dict[str, Any] | None:
        saved = self.entry.value
        return None if saved is None else saved.key

    @property
    def is_good(self) -> bool:
        """Whether there is a token that has not expired."""
        token = self.token
        return token is not None and not token.has_expired(self._clock())

    @property
    def is_untried(self) -> bool:
        """Whether the server has not accepted the token yet."""
        return self._untried is not None and self._untried.token == self.token

    def is_refreshed(self, token: Token | None) -> bool:
        """Whether *token* is of a refresh, and untried. If it is refused, another refresh is no better."""
        new = self._untried
        return new is not None and new.token == token and not new.is_of_login

    def is_of_new_login(self, token: Token | None) -> bool:
        """Whether *token* is of a login just now, and untried. If it is refused, another login is no better."""
        new = self._untried
        return new is not None and new.token == token and new.is_of_login and self._clock() < new.since + NEW_TIME

    # Requests

    def headers(self, token: Token | None, method: str, url: str) -> dict[str, str]:
        """The headers for *token* (RFC 6750, section 2.1; RFC 9449, section 7.1)."""
        if token is None:
            return {}
        proofs = self._proofs(self.key)
        if proofs is None:
            return {"Authorization": Secret(f"Bearer {token.access_token}")}
        authorization = Secret(f"DPoP {token.access_token}")
        return {"Authorization": authorization, **proofs.header(method, url, token.access_token)}

    def heard(self, url: str, headers: Mapping[str, str]) -> bool:
        """Look for a nonce in the headers of a response. Returns whether there is a new one."""
        proofs = self._proofs(self.key)
        return proofs is not None and proofs.heard(url, headers)

    def accepted(self, token: Token | None) -> None:
        """The server has taken *token*."""
        if self._untried is not None and self._untried.token == token:
            self._untried = None

    def _proofs(self, key: dict[str, Any] | None) -> Proofs | None:
        """The proofs by *key*: the same for the same key, since they remember nonces."""
        if key is None:
            return None
        if self._last_proofs is None or self._last_proofs.jwk != key:
            self._last_proofs = Proofs(key)
        return self._last_proofs

    # Other tokens

    async def other(self, refused: Token | None) -> Token | None:
        """A good token other than the *refused* one, which another request, or another process, has gotten meanwhile."""
        if self.token == refused or not self.is_good:
            await self.entry.load()
        return self.token if self.token != refused and self.is_good else None

    async def obtain(
        self,
        saved: Saved,
        ask: Callable[[TokenEndpoint], Awaitable[Token]],
        replaces: Callable[[Saved | None], bool] = lambda _: True,
    ) -> Token | None:
        """Get a token by *ask*, and keep it in the place of what it *replaces*. Returns the token that is kept."""
        try:
            token = await ask(self.endpoint(saved))
        except TokenRequestFailed as exc:
            await self.clients.refused(saved.client, exc.code)
            raise
        with CancelScope(shield=True):
            await self.entry.keep(replace(saved, token=token, refreshing_until=None), replaces)
        await self.note(saved, saved.client, token, is_of_login=True)
        return self.token

    async def note(self, saved: Saved, client: OAuthClient, new: Token, *, is_of_login: bool) -> None:
        """Note that *client* has gotten *new* for *saved*. If another process has logged out meanwhile, *new* is revoked."""
        if self.token == new:
            self._untried = _Untried(new, is_of_login, self._clock())
        elif self.entry.value is None:
            await self.endpoint(saved).revoke(client, new)

    async def revoke(self) -> bool:
        """Forget the token and the client, and have the token revoked. Returns whether it is."""
        saved = await self.entry.load()
        while not await self.entry.save(None):  # another process has gotten the next token meanwhile
            saved = await self.entry.load()
        self._untried = None
        await self.clients.forget()
        if saved is None or saved.token is None:
            return False
        client = self.clients.current(saved) or saved.client
        return await self.endpoint(saved).revoke(client, saved.token)

    def endpoint(self, saved: Saved) -> TokenEndpoint:
        holder = self.clients.holder(saved)
        key = None if holder is None else holder.key
        scopes = saved.scopes if saved.token is None else saved.token.scopes
        return TokenEndpoint(
            self._http, saved.server, saved.resource.identifier, scopes, self._steps, key, self._proofs(saved.key)
        )
