"""What an application has chosen for an `OAuth`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mcp_host.auth.login.authorization_request import RESERVED_PARAMS
from mcp_host.auth.login.device import OnDevice
from mcp_host.auth.login.redirects import check_redirect_uri
from mcp_host.auth.login.ways import Login
from mcp_host.auth.machines import Machine
from mcp_host.auth.registration import Cimd, Dynamic, Registered, Registration
from mcp_host.auth.requests.challenges import check_scope
from mcp_host.auth.requests.client import AuthClient
from mcp_host.auth.requests.urls import covers, shown
from mcp_host.auth.storage.stores import TokenStore
from mcp_host.transports._http.backend import AnyClient, HttpLibrary


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The arguments of `OAuth`."""

    store: TokenStore
    registrations: tuple[Registration, ...]
    login: Login | OnDevice | None
    machine: Machine | None
    redirect_uri: str | None
    authorization_params: Mapping[str, str]
    issuer_aliases: Mapping[str, str]
    shared_resources: tuple[str, ...]
    scopes: tuple[str, ...]
    dpop: bool
    client: AnyClient | None
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        is_store = all(callable(getattr(self.store, method, None)) for method in ("load", "swap", "take"))
        _check(is_store, "tokens", self.store, "FileTokens or another TokenStore")
        self._check_clients()
        is_way = self.login is None or hasattr(self.login, "open") or isinstance(self.login, OnDevice)
        _check(is_way, "login", self.login, "in_browser(), another Login, OnDevice() or a function")
        if self.redirect_uri is not None:
            _check(isinstance(self.redirect_uri, str), "redirect_uri", self.redirect_uri, "a text")
            check_redirect_uri(self.redirect_uri)
        self._check_params()
        _check_texts("issuer_aliases", self.issuer_aliases, "an issuer")
        for resource in self.shared_resources:
            _check(isinstance(resource, str), "a shared resource", resource, "a URL")
            if not covers(resource, resource):
                raise ValueError(f"{shown(resource)} is no URL of a resource: https, without a user and a fragment")
        for scope in self.scopes:
            _check(isinstance(scope, str), "a scope", scope, "a text")
            check_scope(scope)
        if self.client is not None:
            HttpLibrary.of(self.client)

    def _check_clients(self) -> None:
        if not self.registrations:
            raise ValueError("registration is empty: pass None for a client that registers itself")
        for registration in self.registrations:
            if isinstance(registration, Machine):
                raise TypeError(f"{type(registration).__name__} is no registration: pass it to OAuth.machine(...)")
            kinds = Registered | Cimd | Dynamic
            _check(isinstance(registration, kinds), "registration", registration, "Registered, Cimd or Dynamic")
        unbound = [each for each in self.registrations if isinstance(each, Registered) and each.issuer is None]
        if unbound and len(self.registrations) > 1:
            raise ValueError("beside other registrations, Registered needs its issuer")

    def _check_params(self) -> None:
        _check_texts("authorization_params", self.authorization_params, "a value")
        for name in RESERVED_PARAMS & self.authorization_params.keys():
            raise ValueError(f"authorization_params cannot have {name!r}: OAuth sets it")
        if self.authorization_params and isinstance(self.login, OnDevice):
            raise ValueError("authorization_params are for the URL of a login in a browser, which OnDevice has not")

    def http(self, server_url: str) -> AuthClient:
        """For OAuth's own requests for the MCP server at *server_url*."""
        return AuthClient(server_url, client=self.client, clock=self.clock)


def _check(is_good: bool, name: str, value: object, wanted: str) -> None:
    if not is_good:
        raise TypeError(f"{name} has to be {wanted}, not {type(value).__name__}")


def _check_texts(argument: str, mapping: Mapping[str, str], value: str) -> None:
    for key, text in mapping.items():
        _check(isinstance(key, str), f"a name of {argument}", key, "a text")
        _check(isinstance(text, str), f"{value} of {argument}", text, "a text")
