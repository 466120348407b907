"""Access tokens as a server checks them: JWTs that an authorization server has signed (RFC 9068).

The library, joserfc, comes with the extra ``oauth``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from copy import copy
from typing import TYPE_CHECKING, TypeAlias

from mcp_host.auth.errors import AuthError, DiscoveryFailed
from mcp_host.auth.keys import MISSING
from mcp_host.auth.requests.challenges import check_scope
from mcp_host.auth.requests.client import AuthClient
from mcp_host.auth.requests.discovery import discover_server
from mcp_host.auth.requests.urls import canonical, covers, is_web, shown
from mcp_host.auth.shared_work import SharedWork
from mcp_host.errors import excerpt
from mcp_host.types import JSONObject

if TYPE_CHECKING:
    from joserfc.jwk import Key

logger = logging.getLogger(__name__)

ALGORITHMS = (  # asymmetric ones: with HS256, the secret would be a public key
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "Ed25519", "EdDSA"),  # the last is what many issuers still call it (RFC 8037)
)
KEY_TYPES = ("RSA", "EC", "OKP")
TYPES = ("at+jwt", "application/at+jwt", "jwt")  # "typ" of other JWTs of the issuer, such as proofs, is another
LEEWAY = 30  # seconds by which the issuer's clock may differ
KEYS_LIFETIME = 3600.0  # seconds: a key that the issuer has withdrawn is not accepted for longer
KEYS_INTERVAL = 60.0  # seconds between two requests for keys: any token with an unknown key asks for one
RETRY_INTERVAL = 5.0  # seconds, after one that has failed
TIMEOUT = 10.0  # seconds for each of the issuer's documents: the client waits meanwhile

Principal: TypeAlias = tuple[str, str, str]
"""Whose token it is: the issuer, "sub" or "client_id", and its value. A client may be called as a person is."""


class TokenVerifier:
    """Checks that access tokens are of *issuer*, for *resource*, and have all *scopes*.

    *clock* has seconds since 1970.

    Raises:
        ValueError: A URL cannot be used, or a scope is none.
        ImportError: joserfc is not installed.
    """

    def __init__(
        self, issuer: str, resource: str, scopes: Collection[str] = (), *, clock: Callable[[], float] = time.time
    ) -> None:
        try:
            from joserfc.jwk import KeySet
            from joserfc.jws import JWSRegistry
            from joserfc.jwt import JWTClaimsRegistry
        except ImportError as exc:
            raise ImportError(MISSING) from exc
        if not is_web(issuer):
            raise ValueError(f"the issuer is an https URL, not {shown(issuer)}")
        if not covers(resource, resource) or canonical(resource) != resource:
            raise ValueError(f"{shown(resource)} is not the canonical URL of a resource: {shown(canonical(resource))}")
        for scope in scopes:
            check_scope(scope)
        self._scopes = scopes
        self.issuer = issuer
        self.resource = resource
        self._clock = clock
        self._http = AuthClient(issuer, timeout=TIMEOUT)
        self._work = SharedWork()
        self._keys = KeySet([])
        self._fetch_after = self._keys_expire = 0.0
        self._problem = ""
        """Why the keys could not be fetched; empty if they were."""
        # Header parameters "not defined by this specification MUST be ignored when not understood" (RFC 7515, section 4).
        self._tokens = JWSRegistry(algorithms=ALGORITHMS, strict_check_header=False)
        eddsa = copy(JWSRegistry.algorithms["EdDSA"])
        eddsa.security_warning = None  # that RFC 9864 has new names: it is the issuer who chooses
        self._tokens.algorithms = JWSRegistry.algorithms | {"EdDSA": eddsa}
        self._claims = JWTClaimsRegistry(
            now=lambda: int(clock()),
            leeway=LEEWAY,
            iss={"essential": True, "value": issuer},
            aud={"essential": True, "value": resource},
            exp={"essential": True},
        )

    async def verify(self, token: str) -> Principal:
        """Whose *token* it is.

        Raises:
            ValueError: It is not good. The text says why.
            PermissionError: It lacks a scope.
            DiscoveryFailed: Its key is unknown, and the issuer cannot be reached.
        """
        from joserfc.errors import InvalidKeyIdError

        if self._clock() >= self._keys_expire:
            self._keys.keys.clear()
        try:
            return self._principal(token)
        except InvalidKeyIdError:
            await self._fetch_keys()
        try:
            return self._principal(token)
        except InvalidKeyIdError:
            raise ValueError("its key is none of the issuer's") from None

    def _principal(self, token: str) -> Principal:
        from joserfc.errors import InvalidKeyIdError
        from joserfc.jwt import decode

        try:
            decoded = decode(token, self._keys, registry=self._tokens)
            self._claims.validate(decoded.claims)
        except InvalidKeyIdError:
            raise
        except Exception as exc:  # of several libraries: the token may be anything
            raise ValueError(excerpt(str(exc))) from None
        if str(decoded.header.get("typ", "JWT")).lower() not in TYPES:
            raise ValueError("its typ is not that of an access token")
        if "cnf" in decoded.claims:  # sent by others, it would be good for nothing if this were not a bearer token
            raise ValueError("it is bound to a key, and proofs are not checked here")
        for name in ("sub", "client_id"):
            if (value := decoded.claims.get(name)) and isinstance(value, str):
                self._check_scopes(decoded.claims)
                return self.issuer, name, value
        raise ValueError("it has no sub and no client_id")

    def _check_scopes(self, claims: JSONObject) -> None:
        granted = claims.get("scope") or claims.get("scp")  # the latter of Okta, a list, and of Entra ID
        granted = granted.split() if isinstance(granted, str) else granted
        if self._scopes and not (isinstance(granted, list) and all(scope in granted for scope in self._scopes)):
            raise PermissionError("it lacks a scope")

    async def _fetch_keys(self) -> None:
        if self._clock() >= self._fetch_after:
            await self._work.do("keys", self._fetch)
        if self._problem:
            raise DiscoveryFailed(self._problem)

    async def _fetch(self) -> None:
        try:
            self._keys.keys[:] = await self._issuer_keys()
            self._problem = ""
        except AuthError as exc:
            self._problem = str(exc)
            logger.warning("tokens cannot be checked: %s", exc)
        now = self._clock()
        self._fetch_after = now + (RETRY_INTERVAL if self._problem else KEYS_INTERVAL)
        self._keys_expire = self._keys_expire if self._problem else now + KEYS_LIFETIME

    async def _issuer_keys(self) -> list[Key]:
        server = await discover_server(self._http, self.issuer)
        if server.jwks_uri is None:
            raise DiscoveryFailed(f"{shown(self.issuer)}: its metadata have no jwks_uri that can be used")
        answer = await self._http.get_json(server.jwks_uri)
        keys = [] if answer.json is None else read_keys(answer.json)
        if not keys:
            raise DiscoveryFailed(f"{shown(server.jwks_uri)}: {answer.outcome}, no key that can be used")
        return keys


def read_keys(document: JSONObject) -> list[Key]:
    """The keys of a JWK Set (RFC 7517) that are of an asymmetric algorithm. Any other is left out."""
    from joserfc.jwk import import_key

    keys: list[Key] = []
    found = document.get("keys")
    for jwk in found if isinstance(found, list) else ():
        with suppress(Exception):  # of several libraries; "Implementations SHOULD ignore" what they do not understand
            if jwk["kty"] in KEY_TYPES:
                key = import_key(dict(jwk))
                key.ensure_kid()
                keys.append(key)
    return keys
