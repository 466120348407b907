"""Grants: what a client gives to a token endpoint, and the tokens that it gets."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, assert_never
from urllib.parse import quote

from anyio import move_on_after

from mcp_host.auth.errors import AuthError, TokenRequestFailed
from mcp_host.auth.keys import PrivateKey, Proofs
from mcp_host.auth.registration import OAuthClient
from mcp_host.auth.requests.error_codes import INVALID_REQUEST
from mcp_host.auth.requests.metadata import AuthorizationServer
from mcp_host.auth.requests.steps import Steps
from mcp_host.auth.requests.urls import shown
from mcp_host.secret import Secret, SecretText, as_secret

if TYPE_CHECKING:
    from mcp_host.auth.requests.client import Answer, AuthClient

ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
USE_DPOP_NONCE = "use_dpop_nonce"
REQUEST_TIME = 30.0  # seconds for a token, with the second request of a server that wants its nonce
REVOCATION_TIME = 10.0  # seconds for both tokens: a logout waits for it
BUSY_CODES = frozenset({"server_error", "temporarily_unavailable"})

MARGIN = 30.0  # seconds before its end in which a token is refreshed: clocks differ, and a request may take a while
MARGIN_PART = 0.1  # of a short lifetime
MAX_SECONDS = 10 * 365 * 24 * 3600.0  # a later expiry is none


@dataclass(frozen=True, slots=True)
class Token:
    """An access token. *expires_at* is in seconds since 1970; None if the server did not say."""

    access_token: SecretText = field(repr=False)
    expires_at: float | None = None
    refresh_token: SecretText | None = field(default=None, repr=False)
    scopes: tuple[str, ...] = ()
    """What it was asked for, or what the server said that it has instead."""
    refresh_at: float | None = None
    """When to refresh it: before it expires, so that no request has to be sent twice.

    Without a refresh token, when it expires.
    """

    def has_expired(self, now: float) -> bool:
        return self.expires_at is not None and self.expires_at <= now

    def is_due(self, now: float) -> bool:
        """Whether it is to be refreshed."""
        return self.refresh_at is not None and self.refresh_at <= now


def refresh_grant(refresh_token: str) -> dict[str, str]:
    """The fields for a refresh token. Without a scope the server keeps that of the token (RFC 6749, section 6)."""
    return {"grant_type": "refresh_token", "refresh_token": refresh_token}


@dataclass(frozen=True, slots=True)
class TokenEndpoint:
    """Where *server* gives tokens for *resource* with *scopes*.

    *key* is what the client authenticates with, *proofs* what tokens are bound to, if they are.
    """

    http: AuthClient
    server: AuthorizationServer
    resource: str
    scopes: Sequence[str]
    steps: Steps
    key: PrivateKey | None = None
    proofs: Proofs | None = None

    async def request(self, client: OAuthClient, grant: Mapping[str, str]) -> Token:
        """The token for a *grant*.

        Raises:
            TokenRequestFailed: The server gave none.
        """
        action, url = f"token request ({grant['grant_type']})", self.server.token_endpoint
        try:
            token = read_token(await self._answer(client, grant), self.scopes, bound=self.proofs is not None)
        except TokenRequestFailed as exc:
            self.steps.add(action, url, str(exc))
            raise TokenRequestFailed(
                f"{action} at {shown(url)}: {exc}", exc.code, refused=exc.refused
            ) from exc.__cause__
        self.steps.add(action, url, "a token")
        return token

    def failed(self, action: str, url: str, answer: Answer, problem: str) -> TokenRequestFailed:
        """The error for an *answer* that has a *problem*, which becomes a step."""
        outcome = f"{answer.problem}, and {problem}{f' ({answer.code})' if answer.code else ''}"
        self.steps.add(action, url, outcome)
        return TokenRequestFailed(f"{action} at {shown(url)}: {outcome}", answer.code)

    async def revoke(self, client: OAuthClient, token: Token) -> bool:
        """Ask the server to revoke *token*, and what refreshes it (RFC 7009). Returns whether it has done so."""
        url = self.server.revocation_endpoint
        if url is None:
            self.steps.add("revocation", self.server.issuer, "not offered")
            return False
        tokens = {"refresh_token": token.refresh_token, "access_token": token.access_token}
        with move_on_after(REVOCATION_TIME):
            return all(
                [await self._revoke(client, url, kind, text) for kind, text in tokens.items() if text is not None]
            )
        self.steps.add("revocation", url, f"no answer within {REVOCATION_TIME:g} seconds")
        return False

    async def _revoke(self, client: OAuthClient, url: str, kind: str, text: str) -> bool:
        given = {"token": text, "token_type_hint": kind}
        try:
            fields, headers = authenticated(client, given, self.server.issuer, self.key)
            answer = await self.http.post_form(url, fields, headers)
            if client.method == "none" and answer.code == INVALID_REQUEST:
                # Servers of the official SDK want this field of public clients, too: FastMCP's proxy has no others.
                answer = await self.http.post_form(url, {**fields, "client_secret": ""}, headers)
        except AuthError as exc:
            is_revoked, outcome = False, str(exc)
        else:
            is_revoked = answer.status == 200
            outcome = "revoked" if is_revoked else answer.outcome
        self.steps.add(f"revocation ({kind})", url, outcome)
        return is_revoked

    async def _answer(self, client: OAuthClient, grant: Mapping[str, str]) -> Answer:
        with move_on_after(REQUEST_TIME):
            answer = await self._post(client, grant)
            nonce = self.proofs is not None and self.proofs.heard(self.server.token_endpoint, answer.headers)
            if nonce and answer.code == USE_DPOP_NONCE:  # RFC 9449, section 8
                answer = await self._post(client, grant)
            return answer
        raise TokenRequestFailed(f"no answer within {REQUEST_TIME:g} seconds")

    async def _post(self, client: OAuthClient, grant: Mapping[str, str]) -> Answer:
        url = self.server.token_endpoint
        fields, headers = authenticated(client, {**grant, "resource": self.resource}, self.server.issuer, self.key)
        if self.proofs is not None:
            headers |= self.proofs.header("POST", url)
        return await self.http.post_form(url, fields, headers)


def authenticated(
    client: OAuthClient, fields: Mapping[str, str], audience: str, key: PrivateKey | None = None
) -> tuple[dict[str, str], dict[str, str]]:
    """*fields* and headers with the client's authentication (RFC 6749, section 2.3.1; RFC 7523, section 2.2)."""
    match client.method:
        case "client_secret_basic":
            pair = f"{quote(client.id, safe='')}:{quote(client.secret or '', safe='')}"  # a space as %20: all read that
            basic = Secret(f"Basic {b64encode(pair.encode()).decode()}")
            # Servers of the official SDK find the client by the field.
            return {**fields, "client_id": client.id}, {"Authorization": basic}
        case "client_secret_post":
            return {**fields, "client_id": client.id, "client_secret": client.secret or ""}, {}
        case "private_key_jwt":
            if key is None:
                raise TokenRequestFailed(
                    "the client was registered with a key, which is not passed any more", refused=True
                )
            assertion = Secret(key.assertion(client.id, audience))
            return {**fields, "client_assertion_type": ASSERTION_TYPE, "client_assertion": assertion}, {}
        case "none":
            return {**fields, "client_id": client.id}, {}
    assert_never(client.method)


def read_token(answer: Answer, scopes: Sequence[str], *, bound: bool = False) -> Token:
    """The token in an answer of a token endpoint (RFC 6749, section 5.1), *bound* to a key or not.

    Raises:
        TokenRequestFailed: There is none. Some servers send an error with the status 200. A token that cannot be used
            is a refusal: what was given for it has been used up.
    """
    document = answer.json
    code = answer.code
    has_error = document is not None and document.get("error") not in (None, "")
    if document is None or not 200 <= answer.status < 300 or has_error:
        refused = (has_error or 400 <= answer.status < 500) and not answer.is_busy and code not in BUSY_CODES
        problem = f"{answer.problem} with an error" if has_error and answer.status == 200 else answer.problem
        raise TokenRequestFailed(f"{problem}{f' ({code})' if code else ''}", code, refused=refused)
    token, kind = as_secret(document.get("access_token")), document.get("token_type")
    if kind is None:
        kind = "bearer"
    if token is None or not token.isascii() or not token.isprintable() or " " in token:
        raise TokenRequestFailed("the answer has no access_token that can be sent", refused=True)
    wanted = "DPoP" if bound else "Bearer"
    if not isinstance(kind, str) or kind.lower() != wanted.lower():
        raise TokenRequestFailed(f"its token_type is not {wanted}", refused=True)
    refresh, scope = as_secret(document.get("refresh_token")), document.get("scope")
    if isinstance(scope, str) and scope.strip():
        scopes = _split(scope, scopes)
    lifetime = _lifetime(document.get("expires_in"))
    if lifetime is None:
        return Token(token, None, refresh, tuple(scopes))
    end = answer.time + lifetime
    margin = min(MARGIN, MARGIN_PART * lifetime) if refresh is not None else 0.0
    return Token(token, end, refresh, tuple(scopes), end - margin)


def _split(scope: str, asked: Sequence[str]) -> list[str]:
    """The scopes in *scope*. GitHub and Slack separate them by commas, but RFC 6749 allows a comma in a scope."""
    words = scope.split()
    scopes: list[str] = []
    for word in words:
        parts = [part for part in word.split(",") if part]
        is_list = len(words) == 1 or len(parts) < 2 or not set(asked).isdisjoint(parts)
        scopes += parts if is_list and word not in asked else [word]
    return scopes


def _lifetime(expires_in: object) -> float | None:
    """Seconds. Some servers write them as a text, or 0 if they do not know."""
    if isinstance(expires_in, str) and expires_in.isascii() and expires_in.isdigit() and len(expires_in) < 12:
        expires_in = int(expires_in)
    if isinstance(expires_in, bool) or not isinstance(expires_in, int | float) or not 0 < expires_in <= MAX_SECONDS:
        return None
    return float(expires_in)
