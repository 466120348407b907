"""What a server verifies: proofs (RFC 9449), assertions of clients (RFC 7523), PKCE (RFC 7636), and the state of a login.

What is wrong raises an AssertionError that says so. A client, or the server's thread, may keep that from the test, so it
is also noted: `raise_refused` raises it again.
"""

from __future__ import annotations

import json
import re
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

ASYMMETRIC = ["ES256", "ES384", "ES512", "RS256", "PS256", "Ed25519"]
ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
PROOF_AGE = 60.0  # seconds, on a busy machine
ASSERTION_TIME = 600.0  # seconds that an assertion may be good for
RANDOM = re.compile(r"[A-Za-z0-9_-]{22,}")  # 128 bits at least, as base64url
VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}")  # RFC 7636, section 4.1
CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")

refused: list[str] = []
seen: set[str] = set()
"""The ``jti`` of all proofs and assertions, at any server."""
logins: dict[str, str] = {}
"""Of each state its challenge, and of each challenge its state. A URL may be visited twice."""


def check(holds: object, problem: str) -> None:
    if not holds:
        refused.append(problem)
        raise AssertionError(problem)


def raise_refused() -> None:
    """Fail if anything was refused since the last time."""
    found = [*refused]
    refused.clear()
    assert found == [], "a server has refused this"


def verify_proof(proofs: Sequence[str], method: str, url: str, *, token: str | None = None) -> str:
    """RFC 9449, section 4.3: the thumbprint of the key of the only one of *proofs*, with *token*."""
    from joserfc.jwk import JWKRegistry

    check(len(proofs) == 1, f"a request has {len(proofs)} proofs")
    header = unverified(proofs[0])[0]
    check(header["typ"] == "dpop+jwt", f"the typ of a proof is {header['typ']}")
    check("d" not in header["jwk"], "a proof has the private key in it")
    key = JWKRegistry.import_key(header["jwk"])
    claims = verified(proofs[0], key)
    check(claims["htm"] == method, f"the proof of a {method} is for a {claims['htm']}")
    target = re.split("[?#]", url)[0]
    check(claims["htu"] == target, f"the proof for {target} is for {claims['htu']}")
    age = time.time() - claims["iat"]
    check(-1 <= age <= PROOF_AGE, f"a proof is {age:.0f} seconds old")
    unseen(claims["jti"])
    check(claims.get("ath") == (token and hashed(token)), "the ath of a proof is not the hash of its token")
    thumbprint: str = key.thumbprint()
    return thumbprint


def verify_assertion(fields: Mapping[str, str], client_id: str, issuer: str, keys: Sequence[Mapping[str, Any]]) -> str:
    """RFC 7523, section 3: the ``kid`` of the one of the client's *keys* (JWKs) by which it authenticates at *issuer*."""
    from joserfc.jwk import JWKRegistry

    given = fields["client_assertion"]
    check(fields["client_assertion_type"] == ASSERTION_TYPE, "an assertion has another type than jwt-bearer")
    kid: str = unverified(given)[0]["kid"]
    registered = [key for key in keys if key["kid"] == kid]
    check(registered, f"the key {kid} is not one of {client_id}")
    claims = verified(given, JWKRegistry.import_key(dict(registered[0])))
    for name in ("iss", "sub"):
        check(claims[name] == client_id, f"the {name} of an assertion is {claims[name]}, not {client_id}")
    check(claims["aud"] == issuer, f"an assertion for {issuer} has the aud {claims['aud']}")
    left = claims["exp"] - time.time()
    check(0 < left <= ASSERTION_TIME, f"an assertion ends in {left:.0f} seconds")
    check(claims["iat"] <= time.time(), "an assertion was issued in the future")
    unseen(claims["jti"])
    return kid


def verify_login(query: Mapping[str, str]) -> None:
    """RFC 6749, section 10.10, and RFC 7636, section 4.2: the state and the challenge are new for each login."""
    state, challenge = query["state"], query["code_challenge"]
    check(RANDOM.fullmatch(state), f"a state of {len(state)} characters can be guessed")
    check(CHALLENGE.fullmatch(challenge), "a code_challenge is no SHA-256 as base64url")
    check(logins.setdefault(state, challenge) == challenge, "two logins have one state")
    check(logins.setdefault(challenge, state) == state, "two logins have one code_challenge")


def verify_code(verifier: str, challenge: str) -> None:
    """RFC 7636, section 4.6."""
    check(VERIFIER.fullmatch(verifier), f"a code_verifier of {len(verifier)} characters is not one of RFC 7636")
    check(hashed(verifier) == challenge, "a code_verifier is not that of the code_challenge")


def hashed(text: str) -> str:
    """SHA-256, as base64url."""
    return urlsafe_b64encode(sha256(text.encode()).digest()).rstrip(b"=").decode()


def unverified(jwt: str) -> list[Any]:
    """The header and the claims."""
    return [json.loads(urlsafe_b64decode(part + "==")) for part in jwt.split(".")[:2]]


def verified(jwt: str, key: Any) -> dict[str, Any]:
    """The claims of *jwt*, which *key* has signed by an asymmetric algorithm."""
    import joserfc.jwt
    from joserfc.errors import JoseError

    try:
        return dict(joserfc.jwt.decode(jwt, key, algorithms=ASYMMETRIC).claims)
    except JoseError as exc:
        check(False, f"the signature of a JWT is not valid: {exc}")
        raise


def unseen(jti: str) -> None:
    check(RANDOM.fullmatch(jti), f"a jti of {len(jti)} characters can be guessed")
    check(jti not in seen, "a jti comes twice")
    seen.add(jti)
