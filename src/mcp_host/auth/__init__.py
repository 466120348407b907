"""OAuth for people, for machines and for web hosts: an `httpx.Auth` like any other.

https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization
"""

from mcp_host.auth.errors import (
    AddressRefused,
    AuthError,
    AuthorizationNeeded,
    DiscoveryFailed,
    LoginFailed,
    RegistrationFailed,
    TokenRequestFailed,
    TokensError,
)
from mcp_host.auth.keys import PrivateKey
from mcp_host.auth.login.device import DeviceCode, OnDevice
from mcp_host.auth.login.ways import Login, LoginFunction, Redirection, in_browser, paste
from mcp_host.auth.machines import ClientSecret, EnterpriseManaged, Machine, PrivateKeyJwt, Workload
from mcp_host.auth.oauth import OAuth
from mcp_host.auth.registration import Cimd, Dynamic, Registered, Registration
from mcp_host.auth.requests.steps import Step
from mcp_host.auth.storage.file_tokens import FileTokens
from mcp_host.auth.storage.keyring_tokens import KeyringTokens
from mcp_host.auth.storage.saved import Saved
from mcp_host.auth.storage.stores import MemoryTokens, TokenStore

__all__ = [
    "AddressRefused",
    "AuthError",
    "AuthorizationNeeded",
    "Cimd",
    "ClientSecret",
    "DeviceCode",
    "DiscoveryFailed",
    "Dynamic",
    "EnterpriseManaged",
    "FileTokens",
    "KeyringTokens",
    "Login",
    "LoginFailed",
    "LoginFunction",
    "Machine",
    "MemoryTokens",
    "OAuth",
    "OnDevice",
    "PrivateKey",
    "PrivateKeyJwt",
    "Redirection",
    "Registered",
    "Registration",
    "RegistrationFailed",
    "Saved",
    "Step",
    "TokenRequestFailed",
    "TokenStore",
    "TokensError",
    "Workload",
    "in_browser",
    "paste",
]
