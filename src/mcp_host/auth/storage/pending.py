"""Logins of web hosts, which wait for their redirects in any process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from pydantic import TypeAdapter

from mcp_host.auth.errors import LoginFailed, TokensError
from mcp_host.auth.login.authorization_request import AuthorizationRequest
from mcp_host.auth.storage.entry import Entry
from mcp_host.auth.storage.saved import Place, Saved
from mcp_host.auth.storage.stores import TokenStore
from mcp_host.secret import Secret, SecretText

NEEDED_TIME = 600.0  # seconds in which a person may visit a URL; RFC 6749 recommends as many for a code


@dataclass(frozen=True, slots=True)
class PendingLogin:
    """A login of a web host that waits for its redirect."""

    url: str
    """Of the MCP server."""
    saved: Saved
    request: AuthorizationRequest
    until: float
    """When it ends, in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class ListedLogin:
    """A `PendingLogin` in the list of its authorization."""

    state: SecretText = field(repr=False)
    until: float


PENDING_LOGIN = TypeAdapter(PendingLogin)
LISTED_LOGINS = TypeAdapter(tuple[ListedLogin, ...])


class PendingLogins:
    """The logins that one authorization has wanted, in all processes. The newest is for all who want the same.

    A login is listed before it is stored: then none is left that is not listed, wherever this is cancelled.
    """

    def __init__(self, store: TokenStore, place: Place, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._listed = Entry(store, f"logins {place.name}", LISTED_LOGINS)

    async def newest(self, scopes: tuple[str, ...], redirect_uri: str) -> PendingLogin | None:
        """A login for *scopes* that can be finished for a while. None if there is none, or it has been finished."""
        for login in reversed(await self._listed.load() or ()):
            if login.until - NEEDED_TIME / 2 < self._clock():
                continue
            pending = await _entry(self._store, login.state).load()
            if pending is not None and (pending.saved.scopes, pending.request.redirect_uri) == (scopes, redirect_uri):
                return pending
        return None

    async def take_ended(self) -> Sequence[PendingLogin]:
        """Those that no one has finished in time, which are deleted.

        Raises:
            TokensError: The store cannot be used.
        """
        taken: list[PendingLogin] = []
        is_saved = False
        while not is_saved:
            listed, now = await self._listed.load() or (), self._clock()
            taken += await self._take([login for login in listed if login.until < now])
            left = tuple([login for login in listed if login.until >= now])
            is_saved = left == listed or await self._listed.save(left)
        return taken

    async def add(self, pending: PendingLogin) -> None:
        """Store a login.

        Raises:
            TokensError: The store cannot be used.
        """
        state, is_saved = pending.request.state, False
        while not is_saved:
            listed = await self._listed.load() or ()
            is_saved = await self._listed.save((*listed, ListedLogin(state, pending.until)))
        if not await _entry(self._store, state).save(pending):
            raise TokensError("the store has kept no login")

    async def forget(self) -> None:
        """Let none of them be finished any more.

        Raises:
            TokensError: The store cannot be used.
        """
        while listed := await self._listed.load():
            if await self._listed.save(None):
                await self._take(listed)

    async def _take(self, logins: Iterable[ListedLogin]) -> list[PendingLogin]:
        """Delete *logins*. Returns those that no one has finished."""
        taken = [await _entry(self._store, login.state).take() for login in logins]
        return [pending for pending in taken if pending is not None]


async def take_login(store: TokenStore, state: str, redirected: str, clock: Callable[[], float]) -> PendingLogin:
    """The login with *state*, which is finished once. It stays if *redirected* is not the answer to it.

    Raises:
        LoginFailed: There is no such login, or that is not its answer.
    """
    entry = _entry(store, state)
    pending = await entry.load()
    if pending is not None:
        pending.request.answer_in(redirected)  # anyone can send a browser to the host's route
        pending = await entry.take()
    if pending is None:
        raise LoginFailed("no login waits with this state: it has ended, or is another user's: begin again")
    if pending.until < clock():
        raise LoginFailed("this login took too long: begin again")
    return pending


def _entry(store: TokenStore, state: str) -> Entry[PendingLogin]:
    return Entry(store, Secret(f"login {state}"), PENDING_LOGIN)
