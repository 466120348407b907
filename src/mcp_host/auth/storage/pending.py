"""Logins of web hosts, which wait for their redirects in any process."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mcp_host.auth.errors import LoginFailed, TokensError
from mcp_host.auth.storage.saved import PENDING, Entry, Pending
from mcp_host.auth.storage.stores import TokenStore

NEEDED_TIME = 600.0  # seconds in which a person may visit a URL; RFC 6749 recommends as many for a code


class PendingLogins:
    """The logins that one authorization has wanted. The newest is for all who want the same."""

    def __init__(self, store: TokenStore, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._added: list[Pending] = []

    async def newest(self, scopes: tuple[str, ...]) -> Pending | None:
        """A login for *scopes* that can be finished for a while. None if there is none, or it has been finished."""
        for pending in self._added[-1:]:
            if pending.saved.scopes == scopes and self._clock() <= pending.until - NEEDED_TIME / 2:
                return await _entry(self._store, pending.request.state).load()
        return None

    async def add(self, pending: Pending) -> None:
        """Store a login.

        Raises:
            TokensError: The store cannot be used.
        """
        if not await _entry(self._store, pending.request.state).save(pending):
            raise TokensError("the store has kept no login")
        now = self._clock()
        await self._delete([each for each in self._added if each.until < now])  # no one has finished them
        self._added.append(pending)

    async def forget(self) -> None:
        """Let none of them be finished any more.

        Raises:
            TokensError: The store cannot be used.
        """
        await self._delete([*self._added])

    async def _delete(self, logins: Sequence[Pending]) -> None:
        for pending in logins:
            await _entry(self._store, pending.request.state).take()
            self._added.remove(pending)


async def take_login(store: TokenStore, state: str, clock: Callable[[], float]) -> Pending:
    """The login with *state*, which is finished once.

    Raises:
        LoginFailed: There is no such login.
    """
    pending = await _entry(store, state).take()
    if pending is None:
        raise LoginFailed("no login waits with this state: it has ended, or is another user's: begin again")
    if pending.until < clock():
        raise LoginFailed("this login took too long: begin again")
    return pending


def _entry(store: TokenStore, state: str) -> Entry[Pending]:
    return Entry(store, f"login {state}", PENDING)
