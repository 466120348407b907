"""MCP servers: which authorization each of them wants."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from mcp_host.auth.authorization import Authorization
from mcp_host.auth.errors import LoginFailed
from mcp_host.auth.grants import Token
from mcp_host.auth.login.device import OnDevice
from mcp_host.auth.machines import Machine
from mcp_host.auth.registration import Registered
from mcp_host.auth.requests.challenges import NO_CHALLENGE, Challenge
from mcp_host.auth.requests.discovery import discover
from mcp_host.auth.requests.metadata import AuthorizationServer, Resource
from mcp_host.auth.requests.steps import Steps
from mcp_host.auth.requests.urls import covers, is_shared, shown, url_of
from mcp_host.auth.settings import Settings
from mcp_host.auth.shared_work import SharedWork
from mcp_host.auth.storage.entry import Entry
from mcp_host.auth.storage.saved import WANTS, Place, Saved, Wants
from mcp_host.concurrency.asking import is_unattended
from mcp_host.transports._http.authorization import AuthorizedBy
from mcp_host.transports.base import AuthorizationContext

AuthorizationOf: TypeAlias = Callable[[Place, "Server"], Authorization]
"""Gives the authorization of a place, which the server has named. Several servers may share it."""


def no_authorization(changes: int) -> AuthorizedBy:
    """What a server's requests are authorized by while it wants no authorization, after so many *changes* of that."""
    return AuthorizedBy(AuthorizationContext(None, changes))


class Server:
    """The MCP server at *url*, which may name a unix socket, and the authorization that it wants. It may redirect, within its origin."""

    def __init__(self, settings: Settings, url: str, authorization_of: AuthorizationOf) -> None:
        self.url = url
        self.steps = Steps()
        self.authorization: Authorization | None = None
        self._at = url
        """The URL that wants it: that of the server, or one that it redirects to."""
        self._settings = settings
        self._authorization_of = authorization_of
        self._entry = Entry(settings.store, f"server {url}", WANTS)
        self._work = SharedWork()
        self._changes = 0

    @property
    def authorized_by(self) -> AuthorizedBy:
        """What requests to it are authorized by. Without an authorization it is the same until there has been one."""
        return no_authorization(self._changes) if self.authorization is None else self.authorization.authorized_by

    def place(self, resource: str, issuer: str) -> Place:
        """Where its authorization for *resource* is kept: apart from those of other servers, unless the host shares it.

        The servers of one origin may have several owners, and any of them may name the resource of another.
        """
        is_for_all = resource == self.url or is_shared(resource, self._settings.shared_resources)
        return Place(resource, issuer, None if is_for_all else self.url)

    async def find(self) -> Authorization | None:
        """The authorization that it wanted last, in any process. Unlike `load`, this waits for the store only."""
        if self.authorization is None and (wants := await self._entry.peek()) is not None:
            return self._authorization_that(wants)
        return self.authorization

    async def load(self, url: str) -> Authorization | None:
        """The authorization for a request to *url*, in any process. None if none was wanted there."""
        if self.authorization is None and not self._entry.is_loaded:
            await self._work.do("load", self._entry.load)
            if self._entry.value is not None and self.authorization is None:
                self.authorization = self._authorization_that(self._entry.value)
                self._at = self._entry.value.at
        return self.authorization_at(url)

    def authorization_at(self, url: str) -> Authorization | None:
        """The authorization for a request to *url*. A server that has a token may redirect it within its resource."""
        wanted = self.authorization
        if wanted is None or self._at == url or (self._at == self.url and covers(wanted.place.resource, url_of(url))):
            return wanted
        return None

    async def keep(self, authorization: Authorization | None, at: str | None = None) -> None:
        """*authorization* is what it wants, *at* another URL than before, if given."""
        self._changes += 1
        self.authorization = authorization
        self._at = at or self._at
        await self._entry.keep(None if authorization is None else Wants(authorization.place, self._at))

    async def log_in(self) -> Saved | None:
        """Log in. Returns what is kept then. None if no metadata name an authorization server."""
        await self.load(self.url)
        return await self._work.do("log in", self._log_in)

    async def _log_in(self) -> Saved | None:
        known, at = self.authorization, self._at
        saved = None if known is None else await known.saved()
        self.steps.clear()
        self.steps.add("request", self.url, "a login is asked for")
        if known is not None and saved is not None and self._issuer in (None, known.place.issuer):
            resource, server = saved.resource, saved.server  # only a challenge may say where their metadata are
        else:
            at = self.url
            resource, server = await self._discover(at, NO_CHALLENGE)
            if server.is_assumed:
                return None
            known = self._authorization_of(self.place(resource.identifier, server.issuer), self)
        await known.log_in(self.url, resource, server)
        await self.keep(known, at)
        return await known.saved()

    async def forget(self) -> bool:
        """Forget what it wants, and give up a login. Returns whether the token is revoked."""
        given_up = LoginFailed(f"{shown(self.url)}: logged out before there was a token")
        return await self._work.do_instead("forget", self._forget, given_up)

    async def _forget(self) -> bool:
        async with self._work.uncancelled():
            authorization = await self.find()
            if authorization is None:
                return False
            revoked = await authorization.forget(self.url)
            await self.keep(None, self.url)
            return revoked

    async def renew(
        self, url: str, refused: Token | None, challenge: Challenge, *, wants_more: bool
    ) -> tuple[Authorization, Token] | None:
        """Another token than the *refused* one, for *url*. None if there is no better one. *wants_more* is of scopes.

        Raises:
            AuthError: There is none. The text says why.
        """
        while True:
            renewed = await self._work.do(
                (url, wants_more, challenge.scopes, is_unattended()),
                lambda: self._renew(url, refused, challenge, wants_more=wants_more),
            )
            # It may be the work of a request that was refused with an older token, which has given it this one.
            if renewed is None or renewed[1] != refused:
                return renewed

    async def _renew(
        self, url: str, refused: Token | None, challenge: Challenge, *, wants_more: bool
    ) -> tuple[Authorization, Token] | None:
        known = self.authorization_at(url)
        if known is not None:
            if (token := await known.other(refused)) is not None:
                return known, token
            if known.credentials.is_of_new_login(refused) and not wants_more:
                return None
        self.steps.clear()
        self.steps.add(
            "request", url, "403, it wants more scopes" if wants_more else f"401, it wants {challenge.wanted}"
        )
        resource, server = await self._discover(url, challenge)
        authorization = self._authorization_of(self.place(resource.identifier, server.issuer), self)
        await self.keep(authorization, url)
        token = await authorization.renew(self.url, refused, resource, server, challenge, wants_more=wants_more)
        return None if token is None else (authorization, token)

    def _authorization_that(self, wants: Wants) -> Authorization:
        """The authorization that it *wants*, by what the host shares now."""
        return self._authorization_of(self.place(wants.place.resource, wants.place.issuer), self)

    async def _discover(self, url: str, challenge: Challenge) -> tuple[Resource, AuthorizationServer]:
        settings = self._settings
        return await discover(
            settings.http(url_of(url)),
            url_of(url),
            challenge,
            self.steps,
            issuer=self._issuer,
            aliases=settings.issuer_aliases,
            shared=settings.shared_resources,
            for_person=settings.machine is None and not isinstance(settings.login, OnDevice),
        )

    @property
    def _issuer(self) -> str | None:
        """The only authorization server that the client's credentials are for. None if it is not known yet, or there are others."""
        settings = self._settings
        holder = settings.machine or (settings.registrations[0] if len(settings.registrations) == 1 else None)
        if holder is None or holder.issuer is not None or self.authorization is None:
            return None if holder is None else holder.issuer
        return self.authorization.place.issuer if isinstance(holder, Machine | Registered) else None
