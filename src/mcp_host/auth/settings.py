"""What an application has chosen for an `OAuth`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mcp_host.auth.login.device import OnDevice
from mcp_host.auth.login.ways import Login
from mcp_host.auth.machines import Machine
from mcp_host.auth.registration import Cimd, Dynamic, Registered, Registration
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

    def __post_init__(self) -> None:
        for method in ("load", "swap", "take"):
            _check(
                callable(getattr(self.store, method, None)), "tokens", self.store, "FileTokens or another TokenStore"
            )
        if not self.registrations:
            raise ValueError("registration is empty: pass None for a client that registers itself")
        for registration in self.registrations:
            if isinstance(registration, Machine):
                raise TypeError(f"{type(registration).__name__} is no registration: pass it to OAuth.machine(...)")
            kinds = Registered | Cimd | Dynamic
            _check(isinstance(registration, kinds), "registration", registration, "Registered, Cimd or Dynamic")
        is_way = self.login is None or hasattr(self.login, "open") or isinstance(self.login, OnDevice)
        _check(is_way, "login", self.login, "in_browser(), another Login, OnDevice() or a function")
        _check(
            self.machine is None or isinstance(self.machine, Machine),
            "machine",
            self.machine,
            "ClientSecret or another Machine",
        )
        for name, issuer in self.issuer_aliases.items():
            _check(isinstance(name, str), "a name of issuer_aliases", name, "a text")
            _check(isinstance(issuer, str), "an issuer of issuer_aliases", issuer, "a text")
        for scope in self.scopes:
            _check(isinstance(scope, str), "a scope", scope, "a text")

    def http(self, server_url: str) -> AuthClient:
        """For OAuth's own requests for the MCP server at *server_url*."""
        return AuthClient(server_url, client=self.client, clock=self.clock)


def _check(is_good: bool, name: str, value: object, wanted: str) -> None:
    if not is_good:
        raise TypeError(f"{name} has to be {wanted}, not {type(value).__name__}")
