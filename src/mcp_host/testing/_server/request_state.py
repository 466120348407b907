"""What a client carries back for a suspended function: a handle that it can neither make nor use elsewhere."""

from __future__ import annotations

import json
from hashlib import sha256
from hmac import compare_digest
from hmac import digest as mac_of
from secrets import token_bytes

from mcp_host.protocol.jsonrpc import Request


class BadState(ValueError):
    """The text says what is wrong with the state, for the client to read."""


class StateSigner:
    """Makes request states, and knows its own again.

    "Servers MUST protect its integrity [...] and MUST reject state that fails verification."
    "Servers SHOULD include [...] a short expiry" and "an identifier for the originating
    request, e.g. the method name and a digest of its salient parameters" (basic/patterns/mrtr).
    There are no principals here: a test server authenticates nobody. That each state is used
    once is for whoever keeps what the handles stand for.
    """

    def __init__(self) -> None:
        self._secret = token_bytes(32)

    def close(self, handle: str, request: Request, expires: float) -> str:
        """The state that stands for *handle* in a retry of *request*, until *expires*."""
        sealed = f"{handle}:{expires!r}:{_digest(request)}"
        return f"{sealed}:{self._mac(sealed)}"

    def open(self, state: object, request: Request, now: float) -> str:
        """The handle that *state* stands for.

        Raises:
            BadState: It was not made here, is too old, or belongs to another request.
        """
        sealed, _, mac = state.rpartition(":") if isinstance(state, str) else ("", "", "")
        if not compare_digest(mac.encode(errors="replace"), self._mac(sealed).encode()):
            raise BadState("requestState is none of this server's")
        handle, expires, digest = sealed.split(":")
        if digest != _digest(request):
            raise BadState("requestState belongs to another request")
        if now >= float(expires):
            raise BadState("requestState has expired")
        return handle

    def _mac(self, sealed: str) -> str:
        return mac_of(self._secret, sealed.encode(errors="replace"), "sha256").hex()


def _digest(request: Request) -> str:
    params = request.params
    salient = [request.method, params.get("name"), params.get("uri"), params.get("arguments") or {}]
    return sha256(json.dumps(salient, sort_keys=True).encode()).hexdigest()
