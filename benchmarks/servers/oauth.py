"""What a client reads and asks before it has a token: metadata, and the token endpoint, which agrees to all."""

from __future__ import annotations

from itertools import count

from benchmarks.servers.replies import encode

RESOURCE = "/.well-known/oauth-protected-resource"
SERVER = "/.well-known/oauth-authorization-server"
TOKEN = "/token"
LIFETIME = 3600  # seconds

numbers = count(1)


def metadata(path: str, origin: str) -> bytes | None:
    """The document at *path*, if there is one."""
    if path.startswith(RESOURCE):
        return encode({"resource": origin + path.removeprefix(RESOURCE), "authorization_servers": [origin]})
    if path != SERVER:
        return None
    endpoints = {"authorization_endpoint": f"{origin}/authorize", "token_endpoint": origin + TOKEN}
    return encode({"issuer": origin, **endpoints, "code_challenge_methods_supported": ["S256"]})


def token() -> bytes:
    """The answer to a token request. Each access token is the number of such requests so far."""
    lasts = {"token_type": "Bearer", "expires_in": LIFETIME, "refresh_token": "again"}
    return encode({"access_token": f"{next(numbers):040}", **lasts})
