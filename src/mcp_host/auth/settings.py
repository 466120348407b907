"""What an application has chosen for an `OAuth`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mcp_host.auth.login.device import OnDevice
from mcp_host.auth.login.ways import Login
from mcp_host.auth.machines import Machine
from mcp_host.auth.registration import Registration
from mcp_host.auth.requests.client import AuthClient
from mcp_host.auth.storage.stores import TokenStore
from mcp_host.transports._http.backend import AnyClient


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The arguments of `OAuth`."""

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

    def http(self, server_url: str) -> AuthClient:
        """For OAuth's own requests for the MCP server at *server_url*."""
        return AuthClient(server_url, client=self.client, clock=self.clock)
