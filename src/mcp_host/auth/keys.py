"""Private keys, by which a client proves who it is (RFC 7523), and that a token is its own (RFC 9449, DPoP).

The library, joserfc, comes with the extra ``oauth``.
"""

from __future__ import annotations

import re
import secrets
import time
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from mcp_host.secret import Secret, SecretValues
from mcp_host.transports._http.response import once

if TYPE_CHECKING:
    from joserfc.jwk import ECKey, Key

ASSERTION_TIME = 300.0  # seconds that an assertion is good for
ES256 = "ES256"
NONCE = re.compile("[!-~]+")
MISSING = "joserfc is not installed: pip install 'mcp-host[oauth]'"


class PrivateKey:
    """A private key of a client, which signs its assertions.

    *pem* is PKCS #8 as PEM, *algorithm* one of JWS, such as "ES256". *id* is the ``kid`` under which the authorization
    server has the public key, if it has several.

    Raises:
        ValueError: It is no such key, or not one for that algorithm.
        ImportError: joserfc is not installed.
    """

    def __init__(self, pem: str | bytes, algorithm: str = ES256, *, id: str | None = None) -> None:
        try:
            from joserfc.jwk import ECKey, OKPKey, RSAKey
        except ImportError as exc:
            raise ImportError(MISSING) from exc
        kinds: dict[str, type[ECKey | RSAKey | OKPKey]] = {"ES": ECKey, "RS": RSAKey, "PS": RSAKey, "Ed": OKPKey}
        try:
            self._key = kinds[algorithm[:2]].import_key(pem)
            self._algorithm = algorithm
            self._id = id
            self.assertion("check", "check")
        except Exception:  # of several libraries; their texts may quote the key
            raise ValueError(f"not the PEM of a private key for {algorithm}") from None

    def __repr__(self) -> str:
        return f"PrivateKey({self._algorithm})"

    def assertion(self, client_id: str, audience: str) -> str:
        """A JWT by which *client_id* authenticates at the issuer *audience*."""
        header = {"alg": self._algorithm} | ({"kid": self._id} if self._id is not None else {})
        now = int(time.time())
        claims = {"iss": client_id, "sub": client_id, "aud": audience, "jti": secrets.token_urlsafe(16)}
        return _signed(header, {**claims, "iat": now, "exp": now + int(ASSERTION_TIME)}, self._key)


def new_key() -> dict[str, Any]:
    """A new private key for `Proofs`.

    Raises:
        ImportError: joserfc is not installed.
    """
    return SecretValues(_ec_key().generate_key("P-256", private=True).as_dict(private=True))


class Proofs:
    """Proofs that the sender of a request has the private key *jwk* of its token."""

    def __init__(self, jwk: Mapping[str, Any]) -> None:
        self.jwk = jwk
        self._key = _ec_key().import_key(dict(jwk))
        self._public = self._key.as_dict(private=False)
        self._nonces: dict[str, str] = {}

    def header(self, method: str, url: str, token: str | None = None) -> dict[str, str]:
        """The header with a fresh proof for a request, and for the *token* in it."""
        scheme, netloc, path, *_ = urlsplit(url)
        claims: dict[str, Any] = {
            "jti": secrets.token_urlsafe(16),
            "htm": method,
            "htu": urlunsplit((scheme, netloc.rpartition("@")[2], path, "", "")),
            "iat": int(time.time()),
        }
        if token is not None:
            claims["ath"] = urlsafe_b64encode(sha256(token.encode()).digest()).rstrip(b"=").decode()
        if (nonce := self._nonces.get(netloc)) is not None:
            claims["nonce"] = nonce
        return {"DPoP": Secret(_signed({"typ": "dpop+jwt", "alg": ES256, "jwk": self._public}, claims, self._key))}

    def heard(self, url: str, headers: Mapping[str, str]) -> bool:
        """Take the nonce of a response for the next requests to its server. Returns whether it is a new one."""
        nonce, place = once(headers.get("dpop-nonce", "")), urlsplit(url).netloc
        if NONCE.fullmatch(nonce) is None or self._nonces.get(place) == nonce:
            return False
        self._nonces[place] = nonce
        return True


def _ec_key() -> type[ECKey]:
    try:
        from joserfc.jwk import ECKey
    except ImportError as exc:
        raise ImportError(MISSING) from exc
    return ECKey


def _signed(header: Mapping[str, Any], claims: Mapping[str, Any], key: Key) -> str:
    from joserfc import jwt

    return jwt.encode(dict(header), dict(claims), key, algorithms=[header["alg"]])
