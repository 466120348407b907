"""The clients of an application at one authorization server."""

from __future__ import annotations

from collections.abc import Sequence

from anyio import CancelScope

from mcp_host.auth.errors import RegistrationFailed
from mcp_host.auth.machines import Machine
from mcp_host.auth.registration import Cimd, Dynamic, OAuthClient, Registered, Registration
from mcp_host.auth.requests.client import AuthClient
from mcp_host.auth.requests.discovery import AuthorizationServer, Steps
from mcp_host.auth.settings import Settings
from mcp_host.auth.storage.saved import CLIENT, Entry, Saved, Wanted
from mcp_host.errors import excerpt


class Clients:
    """The clients at the authorization server *issuer*: those that the application passes, and the one that is registered."""

    def __init__(self, settings: Settings, issuer: str, http: AuthClient, steps: Steps) -> None:
        self._settings = settings
        self._http = http
        self._steps = steps
        self._entry = Entry(settings.store, f"client {issuer}", CLIENT)

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
                scopes = (*wanted.scopes, *(wanted.resource.scopes or ()))
                client = await self._register(registration, server, redirect_uri, scopes)
            else:
                client = registration.client(server, redirect_uri)
                outcome = "known there" if client is not None else "not for that server"
                self._steps.add("registration", server.issuer, f"{registration!r} is {outcome}")
            if client is not None:
                return client
        passed = [repr(each) for each in self._settings.registrations if not isinstance(each, Dynamic)]
        problems = [f"takes none of {', '.join(passed)}"] if passed else []
        if len(passed) < len(self._settings.registrations):
            problems.append("registers no clients by itself")
        raise RegistrationFailed(
            f"{excerpt(server.issuer)} {' and '.join(problems)}: register a client there by hand, and pass Registered(...)"
        )

    def holder(self, saved: Saved) -> Machine | Registration | None:
        """What the application passes that has the client of *saved*. None if it passes that no more."""
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
        """The client of *saved*, with the secret that the application passes now. None if it passes that no more."""
        match self.holder(saved):
            case Dynamic():
                return saved.client
            case Registered() | Cimd() as holder:
                return holder.client(saved.server, None)
            case _:
                return None  # a machine asks for a new token instead

    async def discard(self, client: OAuthClient) -> None:
        """Forget *client*, which the server does not know any more. Another process may have registered a new one: it stays."""
        await self._entry.keep(None, lambda stored: stored == client)

    async def forget(self) -> None:
        """Forget the client that is registered."""
        await self._entry.keep(None)

    async def _register(
        self, registration: Dynamic, server: AuthorizationServer, redirect_uri: str | None, scopes: Sequence[str]
    ) -> OAuthClient | None:
        """The client that is registered, if it can still be used, or a new one."""
        client = await self._entry.load()
        if client is None or not client.can_be_used(redirect_uri, self._settings.clock()):
            scopes = tuple(dict.fromkeys(scopes))
            client = await registration.register(self._http, server, redirect_uri, scopes, self._steps)
            if client is not None:
                with CancelScope(shield=True):
                    await self._entry.keep(client)
        return client
