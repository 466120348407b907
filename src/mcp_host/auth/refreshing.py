"""Refreshing: the next token is gotten before the old one ends, once for all requests and processes."""

from __future__ import annotations

import logging
import math
from dataclasses import replace

from anyio import CancelScope, sleep

from mcp_host.auth.clients import UNKNOWN_CLIENT
from mcp_host.auth.credentials import Credentials
from mcp_host.auth.errors import AuthError, TokenRequestFailed
from mcp_host.auth.grants import Token, refresh_grant
from mcp_host.auth.registration import Dynamic, OAuthClient
from mcp_host.auth.requests.urls import shown
from mcp_host.auth.settings import Settings
from mcp_host.auth.shared_work import Uncancelled
from mcp_host.auth.storage.saved import Saved

logger = logging.getLogger(__name__)

INVALID_GRANT = "invalid_grant"

LEASE = 60.0  # seconds for one refresh, after which another process may try: twice the `REQUEST_TIME` of a token
LEASE_POLL = 0.2  # seconds between looks at another process's refresh
RETRY_TIME = 10.0  # seconds from a refresh that failed to the next, while the token is good or if it was refused


class Refresher:
    """Refreshes the token of *credentials*. A machine asks for a new one instead.

    What must not be cancelled is inside *uncancelled*.
    """

    def __init__(
        self,
        credentials: Credentials,
        settings: Settings,
        uncancelled: Uncancelled,
    ) -> None:
        self._credentials = credentials
        self._entry = credentials.entry
        self._clients = credentials.clients
        self._clock = settings.clock
        self._machine = settings.machine
        self._uncancelled = uncancelled
        self._retry_at = -math.inf
        self._refused: Token | None = None
        """The server has refused to refresh this one, which is not tried again before `_refused_until`."""
        self._refused_until = -math.inf

    @property
    def is_due(self) -> bool:
        token = self._credentials.token
        if token is None or not token.is_due(now := self._clock()):
            return False
        return now >= self._retry_at or token.has_expired(now)

    async def token(self) -> Token | None:
        """The token, which is refreshed if that is due. None if there is no good one.

        Raises:
            AuthError: It cannot be refreshed now, and is not good any more; or the store cannot be used.
        """
        credentials = self._credentials
        if not self._entry.is_loaded:
            await self._entry.load()
        if self.is_due:
            self._retry_at = self._clock() + RETRY_TIME
            try:
                await self.refresh()
            except AuthError:
                if not credentials.is_good:
                    raise
        return credentials.token if credentials.is_good else None

    async def refresh(self, refused: Token | None = None) -> Token | None:
        """Another good token than the *refused* one: a new one, if that is due. None if a login has to give it.

        Raises:
            TokenRequestFailed: The server gave none, and a login would give none either.
            TokensError: The store cannot be used.
        """
        waits = False
        while True:
            saved, now = await self._entry.load(), self._clock()
            if saved is None or saved.token is None:
                return None
            token = saved.token
            is_good = token != refused and not token.has_expired(now)
            left = -1.0 if saved.refreshing_until is None else saved.refreshing_until - now
            is_claimed = 0 <= left <= 2 * LEASE  # a later end is of a clock that was wrong
            if is_good and (is_claimed or not token.is_due(now)):
                return token
            if is_claimed:  # by another process
                if not waits:
                    waits = True
                    logger.info(
                        "another process refreshes the token for %s: waiting for it, for %.0f s at most",
                        shown(saved.resource.identifier),
                        left,
                    )
                await sleep(LEASE_POLL)
                continue
            machine = self._machine
            if machine is not None and machine.issuer in (None, saved.server.issuer) and token.is_due(now):
                # Unless another process has logged out.
                renewed = replace(saved, client=machine.client_at(saved.server), token=None)
                return await self._credentials.obtain(renewed, machine.token, lambda stored: stored is not None)
            client = self._clients.current(saved)
            is_refused = token == self._refused and now < self._refused_until
            if client is None or token.refresh_token is None or is_refused:
                return token if is_good else None
            async with self._uncancelled():  # the refresh token may work only once
                claimed = await self._claim(saved)
                if claimed is not None:
                    return await self._refresh(claimed, token, token.refresh_token, client)

    async def _claim(self, saved: Saved) -> Saved | None:
        """*saved* with a lease, which is stored and leaves time for a token request. None if another process was first."""
        while True:
            until = self._clock() + LEASE
            claimed = replace(saved, refreshing_until=until)
            if not await self._entry.save(claimed):
                return None
            if until - self._clock() >= LEASE / 2:  # a keyring may have waited for its person
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
            new = await self._credentials.endpoint(claimed).request(client, refresh_grant(refresh_token))
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
            self._refused, self._refused_until = old, self._clock() + RETRY_TIME
        finally:
            with CancelScope(shield=True):
                await self._entry.keep(kept, replaces)
        if new is not None:
            await self._credentials.note(claimed, client, new, is_of_login=False)
        return self._credentials.token if self._credentials.token != old else None
