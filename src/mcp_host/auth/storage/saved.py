"""What a store keeps of an authorization, and what is known of it before a login."""

from __future__ import annotations

from dataclasses import dataclass, field

from pydantic import TypeAdapter

from mcp_host.auth.grants import Token
from mcp_host.auth.registration import OAuthClient
from mcp_host.auth.requests.metadata import AuthorizationServer, Resource
from mcp_host.secret import PrivateJwk


@dataclass(frozen=True, slots=True)
class Saved:
    """The authorization of one user for one resource. A client and a token are never shown to another issuer."""

    resource: Resource
    server: AuthorizationServer
    client: OAuthClient
    token: Token | None = None
    scopes: tuple[str, ...] = ()
    """All that were asked for."""
    key: PrivateJwk | None = field(default=None, repr=False)
    """The private key that the token is bound to, if it is (a JWK)."""
    refreshing_until: float | None = None
    """A process refreshes the token until then, in seconds since 1970."""
    login: str = ""
    """Which login it is of. Refreshed tokens are of the same one, and so are those of a machine."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a login is for, before its client is known."""

    url: str
    """Of the MCP server."""
    resource: Resource
    server: AuthorizationServer
    scopes: tuple[str, ...]
    login: str
    """As in `Saved`."""
    key: PrivateJwk | None = field(repr=False)
    """The private key that the token is to be bound to, if it is (a JWK)."""

    def by(self, client: OAuthClient) -> Saved:
        return Saved(self.resource, self.server, client, None, self.scopes, self.key, login=self.login)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the authorization of an MCP server is kept."""

    resource: str
    issuer: str
    server: str | None = None
    """The URL of the only server that it is for. None for the resource itself, and for those that share it."""

    @property
    def name(self) -> str:
        """Its name in the keys of a store."""
        return " ".join([self.resource, self.issuer, *([] if self.server is None else [self.server])])


@dataclass(frozen=True, slots=True)
class Wants:
    """Which authorization an MCP server wants."""

    place: Place
    at: str
    """The URL that wants it: that of the server, or one that it redirects to."""


SAVED = TypeAdapter(Saved)
WANTS = TypeAdapter(Wants)
CLIENT = TypeAdapter(OAuthClient)
