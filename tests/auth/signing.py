"""Access tokens that an authorization server of tests signs (RFC 9068)."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from typing import Any

from joserfc import jwt
from joserfc.errors import SecurityWarning
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey
from joserfc.jws import JWSRegistry
from joserfc.registry import HeaderParameter

from tests.auth.authorization_server import AuthorizationServer

KEY = ECKey.generate_key("P-256", {"kid": "1"}, private=True)
RSA = RSAKey.generate_key(2048, {"kid": "rsa"}, private=True)
ED25519 = OKPKey.generate_key("Ed25519", {"kid": "ed"}, private=True)
EDDSA = OKPKey.generate_key("Ed25519", {"kid": "old", "alg": "EdDSA", "use": "sig"}, private=True)
OTHER_KEY = ECKey.generate_key("P-256", {"kid": "2"}, private=True)


def public(key: Key) -> Mapping[str, object]:
    return dict(key.as_dict(private=False))


def claims(issuer: str, resource: str, **changed: object) -> dict[str, object]:
    """Those of a good token, but for what is *changed*; None leaves one out."""
    good = {"iss": issuer, "aud": resource, "sub": "ada", "exp": int(time.time()) + 600, **changed}
    return {name: value for name, value in good.items() if value is not None}


def signed(claims: Mapping[str, Any], key: Key = KEY, algorithm: str = "ES256", **header: object) -> str:
    registry = JWSRegistry({"vendor": HeaderParameter("of a vendor", "str")}, [algorithm])
    with warnings.catch_warnings(action="ignore", category=SecurityWarning):  # of EdDSA, an old name
        return jwt.encode({"alg": algorithm, "kid": "1", **header}, dict(claims), key, registry=registry)


def signing_server(**options: Any) -> AuthorizationServer:
    """An authorization server with all keys but the other one."""
    return AuthorizationServer(keys=[public(each) for each in (KEY, RSA, ED25519, EDDSA)], **options)
