"""What a client reads and asks before it has a token: metadata, and the token endpoint, which agrees to all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import count
from urllib.parse import parse_qs

from benchmarks.servers.replies import encode

RESOURCE = "/.well-known/oauth-protected-resource"
SERVER = "/.well-known/oauth-authorization-server"
TOKEN = "/token"
LIFETIME = 3600  # seconds

numbers: dict[str, Iterator[int]] = defaultdict(lambda: count(1))  # by client


def metadata(path: str, origin: str) -> bytes | None:
    """The document at *path*, if there is one."""
    if path.startswith(RESOURCE):
        return encode({"resource": origin + path.removeprefix(RESOURCE), "authorization_servers": [origin]})
    if path != SERVER:
        return None
    endpoints = {"authorization_endpoint": f"{origin}/authorize", "token_endpoint": origin + TOKEN}
    return encode({"issuer": origin, **endpoints, "code_challenge_methods_supported": ["S256"]})


def token(request: bytes) -> bytes:
    """The answer to a token *request*. Each access token is the number of such requests of its client so far."""
    [client] = parse_qs(request.decode())["client_id"]
    lasts = {"token_type": "Bearer", "expires_in": LIFETIME, "refresh_token": "again"}
    return encode({"access_token": f"{next(numbers[client]):040}", **lasts})
