"""The clients of an application at one authorization server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from anyio import CancelScope

from mcp_host.auth.errors import RegistrationFailed
from mcp_host.auth.machines import Machine
from mcp_host.auth.registration import BY_HAND, Cimd, Dynamic, OAuthClient, Registered, Registration
from mcp_host.auth.requests.client import AuthClient
from mcp_host.auth.requests.error_codes import INVALID_SCOPE
from mcp_host.auth.requests.steps import Steps
from mcp_host.auth.settings import Settings
from mcp_host.auth.storage.entry import Entry
from mcp_host.auth.storage.saved import CLIENT, Saved, Wanted
from mcp_host.errors import excerpt

UNKNOWN_CLIENT = frozenset({"invalid_client", "unauthorized_client"})
"""Error codes of a token endpoint that does not know the client (RFC 6749, section 5.2)."""

MAX_SCOPES = 8192  # characters of the scopes of one login, or one registration; they are a part of a URL


def needs_registration(client: OAuthClient, code: str | None) -> bool:
    """Whether a login with *client* that failed with the error *code* is tried again at once, with a new registration."""
    # With scopes that are known, it was registered with all those of the login: the person is not asked again for nothing.
    return code in UNKNOWN_CLIENT or (code == INVALID_SCOPE and client.scopes is None)


def with_more(scopes: Sequence[str], *others: Sequence[str] | None) -> tuple[str, ...]:
    """*scopes*, with each of the *others* that does not make them longer than `MAX_SCOPES`."""
    for other in others:
        union = tuple(dict.fromkeys([*scopes, *(other or ())]))
        if len(" ".join(union)) <= MAX_SCOPES:
            scopes = union
    return tuple(scopes)


class Clients:
    """The clients at the authorization server *issuer*: those that the application passes, and the one that is registered."""

    def __init__(self, settings: Settings, issuer: str, http: AuthClient, steps: Steps) -> None:
        self._settings = settings
        self._http = http
        self._steps = steps
        self._entry = Entry(settings.store, f"client {issuer}", CLIENT)
        self.last: OAuthClient | None = None
        """The client of the last login."""

    async def registered(self) -> OAuthClient | None:
        """The client that is registered. None if there is none."""
        return await self._entry.load()

    async def client(self, wanted: Wanted, redirect_uri: str | None) -> OAuthClient:
        """The client for a login: the first that a registration gives.

        Raises:
            RegistrationFailed: There is none.
        """
        server = wanted.server
        for registration in self._settings.registrations:
            if isinstance(registration, Dynamic):
                client = await self._register(registration, wanted, redirect_uri)
            else:
                client = registration.client(server, redirect_uri)
                outcome = "known there" if client is not None else "not for that server"
                self._steps.add("registration", server.issuer, f"{registration!r} is {outcome}")
            if client is not None:
                self.last = client
                return client
        passed = [repr(each) for each in self._settings.registrations if not isinstance(each, Dynamic)]
        problems = [f"takes none of {', '.join(passed)}"] if passed else []
        if len(passed) < len(self._settings.registrations):
            problems.append("registers no clients by itself")
        raise RegistrationFailed(f"{excerpt(server.issuer)} {' and '.join(problems)}: {BY_HAND}")

    def holder(self, saved: Saved) -> Machine | Registration | None:
        """The machine or registration that the client of *saved* is from. None if the application no longer passes it."""
        if self._settings.machine is not None:
            return self._settings.machine
        dynamic = None
        for registration in self._settings.registrations:
            if isinstance(registration, Dynamic):
                dynamic = registration
            elif (client := registration.client(saved.server, None)) is not None and client.id == saved.client.id:
                return registration
        return dynamic

    def current(self, saved: Saved) -> OAuthClient | None:
        """The client of *saved*, with the secret that the application passes now. None if it no longer passes it."""
        match self.holder(saved):
            case Dynamic():
                return saved.client
            case Registered() | Cimd() as holder:
                return holder.client(saved.server, None)
            case _:
                return None  # a machine asks for a new token instead

    async def discard(self, client: OAuthClient) -> None:
        """Forget *client*, which is of no use any more. Another process may have registered a new one: it stays."""
        await self._entry.keep(None, lambda stored: stored == client)

    async def note_failure(self, client: OAuthClient) -> None:
        """A login with *client* has failed. The next one registers another, and uses *client* if that cannot be."""
        await self._entry.keep(replace(client, has_failed=True), lambda stored: stored == client)

    async def refused(self, client: OAuthClient, code: str | None) -> None:
        """The server has refused *client* with the error *code*. The next login registers another.

        A registration may end at any time, and the server may allow more scopes by then.
        """
        if code in UNKNOWN_CLIENT:
            await self.discard(client)
        elif code == INVALID_SCOPE:
            await self.note_failure(client)

    async def forget(self) -> None:
        """Forget the client that is registered."""
        await self._entry.keep(None)

    async def _register(self, registration: Dynamic, wanted: Wanted, redirect_uri: str | None) -> OAuthClient | None:
        """The client that is registered, if it can be used for the login, or a new one."""

        def is_usable(client: OAuthClient) -> bool:
            return client.can_be_used(redirect_uri, self._settings.clock())

        def is_good(client: OAuthClient | None) -> bool:
            if client is None or client.has_failed:
                return False
            return is_usable(client) and client.may_ask_for(wanted.scopes)

        stored = await self._entry.load()
        if is_good(stored):
            return stored
        server = wanted.server
        old = stored if stored is not None and is_usable(stored) else None
        if old is not None:
            why = "has failed in its last login" if old.has_failed else "is registered without some of the scopes"
            self._steps.add("registration", server.issuer, f"the client {why}")
        # Other resources may still need the scopes of the client before.
        scopes = with_more(wanted.scopes, wanted.resource.scopes, None if stored is None else stored.scopes)
        try:
            client = await registration.register(self._http, server, redirect_uri, scopes, self._steps)
        except RegistrationFailed:
            if old is None:
                raise
            client = None
        if client is None:
            return old  # it may still be known, and many servers do not mind with which scopes it was registered
        with CancelScope(shield=True):
            await self._entry.keep(client, lambda found: not is_good(found))  # processes agree on the first
        return self._entry.value
