"""The authorization request: the URL that a person visits to log in, and the code in its answer (RFC 6749, section 4.1)."""

from __future__ import annotations

import secrets
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from mcp_host.auth.errors import DiscoveryFailed, LoginFailed
from mcp_host.auth.login.redirects import read_redirect
from mcp_host.auth.registration import OAuthClient
from mcp_host.auth.requests.error_codes import ACCESS_DENIED, plain_code
from mcp_host.auth.requests.metadata import S256, AuthorizationServer
from mcp_host.errors import excerpt
from mcp_host.secret import Secret, SecretText, SecretValues

OFFLINE_ACCESS = "offline_access"
RESERVED_PARAMS = frozenset(
    {
        *("response_type", "client_id", "redirect_uri", "state", "scope"),  # RFC 6749, section 4.1.1
        *("code_challenge", "code_challenge_method"),  # RFC 7636, section 4.3
        *("resource",),  # RFC 8707, section 2
    }
)
"""The parameters that `AuthorizationRequest` sets itself: an application cannot pass them."""


@dataclass(frozen=True, slots=True)
class AuthorizationRequest:
    """What a person visits, and what its answer is checked against. Kept until the answer comes."""

    url: SecretText = field(repr=False)
    state: SecretText = field(repr=False)
    verifier: SecretText = field(repr=False)
    redirect_uri: str
    issuer: str
    sends_issuer: bool

    @classmethod
    def to(
        cls,
        server: AuthorizationServer,
        client: OAuthClient,
        redirect_uri: str,
        resource: str,
        scopes: Iterable[str],
        params: Mapping[str, str],
    ) -> AuthorizationRequest:
        """A request for a code, with PKCE (RFC 7636), the resource (RFC 8707), and *params*, but none of `RESERVED_PARAMS`.

        Raises:
            DiscoveryFailed: The server does not offer it.
        """
        endpoint = server.authorization_endpoint
        if endpoint is None:
            raise DiscoveryFailed(f"{excerpt(server.issuer)} has no authorization_endpoint: no person can log in there")
        if S256 not in server.code_challenge_methods:
            # "MCP clients MUST verify the presence of code_challenge_methods_supported [...]. If the field is absent,
            # MCP clients MUST refuse to proceed."
            raise DiscoveryFailed(
                f"{excerpt(server.issuer)} does not offer PKCE with S256, without which no code is safe"
            )
        verifier, state = Secret(secrets.token_urlsafe(48)), Secret(secrets.token_urlsafe(24))
        fields = {
            "response_type": "code",
            "client_id": client.id,
            "redirect_uri": redirect_uri,
            "state": state,
            "code_challenge": urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode(),
            "code_challenge_method": S256,
            "resource": resource,
        }
        scopes = tuple(scopes)
        if scopes:
            fields["scope"] = " ".join(scopes)
        if OFFLINE_ACCESS in scopes:
            fields["prompt"] = "consent"  # without it, it "MUST [be] ignored" (OpenID Connect Core, section 11)
        fields.update(params)
        parts = urlsplit(endpoint)
        # "Request and response parameters MUST NOT be included more than once" (RFC 6749, section 3.1).
        of_endpoint = [pair for pair in parse_qsl(parts.query, keep_blank_values=True) if pair[0] not in fields]
        query = Secret(urlencode([*of_endpoint, *fields.items()]))
        url = Secret(urlunsplit((parts.scheme, parts.netloc, parts.path, query, "")))
        return cls(url, state, verifier, redirect_uri, server.issuer, server.sends_issuer)

    def answer_in(self, redirected: str) -> dict[str, str]:
        """The parameters of the URL that the authorization server redirected to.

        Raises:
            LoginFailed: It is not the answer to this request.
        """
        where = self._answer_name
        try:  # any number of parameters: the web framework that calls `OAuth.finish` has its own limit
            parameters = read_redirect(redirected, self.state, max_fields=None)
        except ValueError as exc:
            raise LoginFailed(f"{where} {exc}") from None
        if any(len(values) > 1 for values in parameters.values()):
            raise LoginFailed(f"{where} has a parameter twice")
        return SecretValues({name: value for name, [value] in parameters.items()})

    def code_in(self, redirected: str) -> str:
        """The code in the URL that the authorization server redirected to.

        Raises:
            LoginFailed: There is none, or the URL is not the answer to this request.
        """
        where, answer = self._answer_name, self.answer_in(redirected)
        issuer = answer.get("iss")
        # RFC 9207, section 2.4: "simple string comparison", before anything of the response is used or shown
        if issuer is None and self.sends_issuer:
            raise LoginFailed(f"{where} has no iss, which the server's metadata promise: refused")
        if issuer is not None and issuer != self.issuer:
            raise LoginFailed(f"{where} comes from another issuer: refused")
        if "error" in answer:
            code = plain_code(answer["error"])
            if code == ACCESS_DENIED:
                raise LoginFailed(f"{excerpt(self.issuer)}: the login was denied", code)
            raise LoginFailed(f"{where} is an error{f': {code}' if code else ''}", code)
        if not (code := answer.get("code")):
            raise LoginFailed(f"{where} has no code")
        return Secret(code)

    @property
    def _answer_name(self) -> str:
        return f"the authorization response of {excerpt(self.issuer)}"


def code_grant(request: AuthorizationRequest, code: str) -> dict[str, str]:
    """The fields for a code."""
    return {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": request.redirect_uri,
        "code_verifier": request.verifier,
    }
