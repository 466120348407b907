"""The `requestState` of results that require input: authenticated, and checked before it is read."""

from __future__ import annotations

import hmac
import json
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from hashlib import sha256
from secrets import token_bytes, token_urlsafe
from typing import NamedTuple

from mcp_host.protocol.eras import OF_A_RETRY
from mcp_host.protocol.jsonrpc import INVALID_PARAMS, Request
from mcp_host.serving.errors import RequestError

KEY_SIZE = 32  # bytes: "less than L bytes is strongly discouraged" (RFC 2104), which is the size of the hash
MAC_SIZE = 64  # hexadecimal digits
MAX_USED = 10_000  # states that are remembered because they are used up; beyond that, the oldest are forgotten


class RequestState(NamedTuple):
    """What is in a state. JSON has its members in this order."""

    id: str
    worker: str | None
    """Where the call waits; None if it is not suspended, but continued by the server behind."""
    inner: str | None
    """The state of the server behind, if that has given one."""
    expires: float
    """Seconds since 1970."""
    digest: str
    """Of the owner, the method and the params: a state is good for a retry of the same request."""


class RequestStates:
    """Writes and reads the states of one connection or HTTP endpoint, each good for one retry within *lifetime* seconds.

    All that have the same *key* can read them; with None they are read here only. *owner* is whose requests these are.
    """

    def __init__(
        self,
        key: bytes | None,
        owner: str,
        lifetime: float,
        *,
        clock: Callable[[], float] = time.time,
        max_used: int = MAX_USED,
    ) -> None:
        self._key = token_bytes(KEY_SIZE) if key is None else key
        self._owner = owner
        self._lifetime = lifetime
        self._clock = clock
        self._max_used = max_used
        self._worker = token_urlsafe(9)
        self._used: dict[str, float] = {}
        """When those expire that were used here, by their ids. A suspended call is forgotten when its state is used."""

    def write_suspended(self, request: Request) -> tuple[str, str]:
        """A state for a call that is suspended here; and its id."""
        id = token_urlsafe(16)
        return self._write(request, id, self._worker, None), id

    def write_inner(self, request: Request, inner: str | None) -> str:
        """A state with that of the server behind in it."""
        return self._write(request, token_urlsafe(16), None, inner)

    def read(self, request: Request) -> RequestState:
        """The state that is in a retry, which is used up.

        Raises:
            RequestError: It is not valid here.
        """
        given = request.params["requestState"]
        given = given if isinstance(given, str) else ""
        mac, text = given[:MAC_SIZE], given[MAC_SIZE:]
        if not hmac.compare_digest(_encoded(mac), _encoded(self._mac(text))):
            raise unknown_state()
        state = RequestState(*json.loads(urlsafe_b64decode(text)))
        if state.digest != self._digest(request):
            raise RequestError(INVALID_PARAMS, "requestState belongs to another request")
        now = self._clock()
        if now >= state.expires:
            raise RequestError(INVALID_PARAMS, "requestState has expired")
        if state.worker is None:
            self._use(state, now)
        elif state.worker != self._worker:
            where = "in another process, or for another connection"
            raise RequestError(INVALID_PARAMS, f"the call of this requestState waits {where}: make the call again")
        return state

    def _use(self, state: RequestState, now: float) -> None:
        if state.id in self._used:
            raise unknown_state()
        self._used[state.id] = state.expires
        while len(self._used) > self._max_used or next(iter(self._used.values())) <= now:  # this one has not expired
            del self._used[next(iter(self._used))]

    def _write(self, request: Request, id: str, worker: str | None, inner: str | None) -> str:
        state = RequestState(id, worker, inner, self._clock() + self._lifetime, self._digest(request))
        text = urlsafe_b64encode(json.dumps(state).encode()).decode()
        return self._mac(text) + text

    def _mac(self, text: str) -> str:
        return hmac.new(self._key, _encoded(text), sha256).hexdigest()

    def _digest(self, request: Request) -> str:
        params = {key: value for key, value in request.params.items() if key not in ("_meta", *OF_A_RETRY)}
        params["arguments"] = params.get("arguments") or {}
        same: Sequence[object] = (self._owner, request.method, params)
        return sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()


def unknown_state() -> RequestError:
    return RequestError(INVALID_PARAMS, "requestState is unknown, or has been used already")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # a client may send anything
