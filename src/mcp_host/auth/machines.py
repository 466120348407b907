"""Machines: grants without a person.

https://modelcontextprotocol.io/extensions/auth/oauth-client-credentials
https://modelcontextprotocol.io/extensions/auth/enterprise-managed-authorization
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

from mcp_host.auth.grants import Token, TokenEndpoint, authenticated
from mcp_host.auth.keys import PrivateKey
from mcp_host.auth.registration import OAuthClient, TokenAuthMethod, checked_text, method_with_secret
from mcp_host.auth.requests.metadata import AuthorizationServer
from mcp_host.handlers import as_async
from mcp_host.secret import Secret, as_secret

CLIENT_CREDENTIALS = "client_credentials"
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"
ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"

GetJwt: TypeAlias = Callable[[str], Awaitable[str] | str]
"""Gives a JWT for an audience. A plain function runs in a thread."""


class Machine(ABC):
    """Gets a token without a person."""

    issuer: str | None
    """The authorization server that knows it. None if that is not known: then it is the first that a server names."""
    client: OAuthClient
    key: PrivateKey | None = None
    """What it authenticates with, instead of a secret."""
    _chooses = False
    """Whether the metadata of the server choose how it authenticates with its secret."""

    def client_at(self, server: AuthorizationServer) -> OAuthClient:
        """The client, as it authenticates at *server*."""
        return replace(self.client, method=method_with_secret(server)) if self._chooses else self.client

    @abstractmethod
    async def token(self, endpoint: TokenEndpoint) -> Token:
        """A new token.

        Raises:
            TokenRequestFailed: There is none.
        """

    async def _request(self, endpoint: TokenEndpoint, grant: Mapping[str, str]) -> Token:
        """The token for a *grant*, with the scopes of *endpoint*."""
        scope = {"scope": " ".join(endpoint.scopes)} if endpoint.scopes else {}
        return await endpoint.request(self.client_at(endpoint.server), {**grant, **scope})


class ClientSecret(Machine):
    """A client with a secret, which acts for itself. With *issuer* it is used at that authorization server only: pass it.

    *method* is how it authenticates at the token endpoint. By default that is "client_secret_basic", or
    "client_secret_post" where the server offers only that.
    """

    def __init__(
        self, id: str, secret: str, *, issuer: str | None = None, method: TokenAuthMethod | None = None
    ) -> None:
        self._chooses = method is None
        self.client = OAuthClient(
            checked_text("id", id), Secret(checked_text("secret", secret)), method or "client_secret_basic"
        )
        self.issuer = issuer

    def __repr__(self) -> str:
        return f"ClientSecret({self.client.id!r})"

    async def token(self, endpoint: TokenEndpoint) -> Token:
        return await self._request(endpoint, {"grant_type": CLIENT_CREDENTIALS})


class PrivateKeyJwt(Machine):
    """A client with a private key, which acts for itself (RFC 7523, section 2.2). *key* is as `PrivateKey` has it."""

    def __init__(self, id: str, key: PrivateKey, *, issuer: str | None = None) -> None:
        self.client = OAuthClient(checked_text("id", id), method="private_key_jwt")
        self.key = key
        self.issuer = issuer

    def __repr__(self) -> str:
        return f"PrivateKeyJwt({self.client.id!r})"

    async def token(self, endpoint: TokenEndpoint) -> Token:
        return await self._request(endpoint, {"grant_type": CLIENT_CREDENTIALS})


class Workload(Machine):
    """A workload whose platform gives it a JWT for the authorization server (RFC 7523, section 2.1).

    *get_jwt* is called for each token, with the issuer of the authorization server. A JWT that is refused is not
    tried again.
    """

    def __init__(self, get_jwt: GetJwt, *, client_id: str, issuer: str | None = None) -> None:
        self.client = OAuthClient(checked_text("client_id", client_id))
        self._get_jwt = as_async(get_jwt, argument="get_jwt", shape="(audience: str) -> str")
        self.issuer = issuer

    def __repr__(self) -> str:
        return f"Workload(client_id={self.client.id!r})"

    async def token(self, endpoint: TokenEndpoint) -> Token:
        assertion = _text(await self._get_jwt(endpoint.server.issuer), "get_jwt")
        return await self._request(endpoint, {"grant_type": JWT_BEARER, "assertion": assertion})


class EnterpriseManaged(Machine):
    """A client of an enterprise, whose identity provider decides which servers its people may use.

    *id* and *secret* are those of the client at the authorization server. *idp_token_endpoint* and *idp_client_id* are the
    identity provider's, and *get_id_token* gives the ID token of the person, who has logged in there with that client id.
    """

    _chooses = True

    def __init__(
        self,
        id: str,
        secret: str,
        *,
        idp_token_endpoint: str,
        idp_client_id: str,
        get_id_token: GetJwt,
        idp_client_secret: str | None = None,
        issuer: str | None = None,
    ) -> None:
        self.client = OAuthClient(checked_text("id", id), Secret(checked_text("secret", secret)), "client_secret_basic")
        method: TokenAuthMethod = "client_secret_post" if idp_client_secret else "none"
        idp_secret = None if idp_client_secret is None else Secret(idp_client_secret)
        self._idp_client = OAuthClient(checked_text("idp_client_id", idp_client_id), idp_secret, method)
        self._idp_token_endpoint = idp_token_endpoint
        self._get_id_token = as_async(get_id_token, argument="get_id_token", shape="(audience: str) -> str")
        self.issuer = issuer

    def __repr__(self) -> str:
        return f"EnterpriseManaged({self.client.id!r})"

    async def token(self, endpoint: TokenEndpoint) -> Token:
        assertion = await self._id_jag(endpoint)
        return await self._request(endpoint, {"grant_type": JWT_BEARER, "assertion": assertion})

    async def _id_jag(self, endpoint: TokenEndpoint) -> str:
        """The identity provider's assertion for the authorization server (RFC 8693)."""
        fields = {
            "grant_type": TOKEN_EXCHANGE,
            "requested_token_type": ID_JAG,
            "audience": endpoint.server.issuer,
            "resource": endpoint.resource,
            "subject_token": _text(await self._get_id_token(self._idp_client.id), "get_id_token"),
            "subject_token_type": ID_TOKEN,
        }
        if endpoint.scopes:
            fields["scope"] = " ".join(endpoint.scopes)
        url = self._idp_token_endpoint
        fields, headers = authenticated(self._idp_client, fields, url)
        answer = await endpoint.http.post_form(url, fields, headers)
        assertion: str | None = None
        if answer.json is not None and answer.status == 200 and answer.json.get("issued_token_type") == ID_JAG:
            assertion = as_secret(answer.json.get("access_token"))
        if assertion is None:
            raise endpoint.failed("token exchange", url, answer, "no assertion")
        endpoint.steps.add("token exchange", url, "an assertion")
        return assertion


def _text(jwt: object, function: str) -> str:
    if not isinstance(jwt, str):
        raise TypeError(f"{function} returns a JWT as text, not {type(jwt).__name__}")
    return Secret(jwt)
