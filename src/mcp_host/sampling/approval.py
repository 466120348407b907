"""Whether a server may use the model for a request: the host's say, before any token is spent."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Literal, TypeAlias, get_args
from weakref import WeakKeyDictionary

from anyio import CancelScope
from pydantic_core import to_json

from mcp_host.errors import InputRefused
from mcp_host.handlers import call_handler
from mcp_host.protocol.jsonrpc import INTERNAL_ERROR, USER_REJECTED
from mcp_host.sampling.request import REJECTION, SamplingRequest
from mcp_host.types import Tool

logger = logging.getLogger(__name__)

FAILED = "this client failed to ask for approval"  # what a server is told, and nothing of the reason


MOST_GRANTS = 64  # sets of tools allowed for one call or one connection; past it the oldest is forgotten

Scope: TypeAlias = Literal["request", "call", "session"]
SCOPES = frozenset(get_args(Scope))

Tools: TypeAlias = frozenset[str]
"""Digests of the tools that a request offers."""


@dataclass(frozen=True, slots=True)
class Allow:
    """The request may go to the model, as it is.

    *scope* is how long that holds: for this "request" alone, for the whole "call" that it belongs
    to (`SamplingRequest.outer`), or for this connection to the server (its "session"). Further
    requests are then allowed without asking, as long as they offer the same tools or fewer. A tool
    that is new, or says something else of itself, asks again. Messages, prompt,
    tokens and model preferences may differ: `SamplingLimits` bound them.

    Where the call is not known, "call" holds for the request alone. A connection that is opened
    anew, and a session that begins anew after it was lost, ask again.

    Raises:
        ValueError: *scope* is something else.
    """

    scope: Scope = "request"

    def __post_init__(self) -> None:
        if self.scope not in SCOPES:
            raise ValueError(f"scope is one of {', '.join(sorted(SCOPES))}, not {self.scope!r}")


@dataclass(frozen=True, slots=True)
class Deny:
    """The request is refused. The server is told *reason*, with the code -1."""

    reason: str = REJECTION


Approve: TypeAlias = Callable[[SamplingRequest], Awaitable[Allow | Deny] | Allow | Deny]
"""Decides on one request. A plain function runs in a thread. An approver that fails has not allowed anything: the server is told -32603."""

AsyncApprove: TypeAlias = Callable[[SamplingRequest], Awaitable[Allow | Deny]]


async def always(request: SamplingRequest, /) -> Allow:
    """Allow every request: for servers that may spend the host's tokens without asking anybody.

    "There SHOULD always be a human in the loop with the ability to deny sampling requests"
    (client/sampling); this is the explicit way to do without.
    """
    return Allow()


class Approvals:
    """Has *approve* decide on the requests of one connection, unless an earlier decision holds.

    What goes wrong is logged under *subject*.
    """

    def __init__(self, approve: AsyncApprove, *, subject: str) -> None:
        self._approve = approve
        self._subject = subject
        self._session = _Grants()
        self._calls: WeakKeyDictionary[object, _Grants] = WeakKeyDictionary()  # by what lives as long as each call
        self._asking: dict[CancelScope, SamplingRequest] = {}

    async def require(self, request: SamplingRequest) -> None:
        """Return if the request is allowed. A question is withdrawn when the answer to another one allows it.

        Raises:
            InputRefused: The approver denies the request, failed, or returned neither `Allow` nor `Deny`.
        """
        if self._is_granted(request):
            return
        decision: object = None
        with CancelScope() as scope:
            self._asking[scope] = request
            try:
                decision = await call_handler(partial(self._approve, request), subject=self._subject, failed=FAILED)
            finally:
                del self._asking[scope]
        if scope.cancelled_caught:
            return
        match decision:
            case Allow():
                self._grant(decision.scope, request)
            case Deny(reason=reason):
                raise InputRefused(USER_REJECTED, reason)
            case _:  # True, say, which must not pass for a yes that nobody gave
                kind = type(decision).__name__
                logger.error("%s: the approver returned %s, no Allow or Deny", self._subject, kind)
                raise InputRefused(INTERNAL_ERROR, FAILED)

    def _is_granted(self, request: SamplingRequest) -> bool:
        call = None if request.outer is None else self._calls.get(request.outer.lifetime)
        grants = [each for each in (self._session, call) if each]
        if not grants:
            return False
        tools = _tools(request)
        return any(each.cover(tools) for each in grants)

    def _grant(self, scope: Scope, request: SamplingRequest) -> None:
        if scope == "session":
            grants = self._session
        elif scope == "call" and request.outer is not None:
            grants = self._calls.setdefault(request.outer.lifetime, _Grants())
        else:
            return
        grants.append(_tools(request))
        for asking, other in self._asking.items():
            if self._is_granted(other):
                asking.cancel()


class _Grants(deque[Tools]):
    """Each set of tools that was allowed together: to combine two of them was not."""

    def __init__(self) -> None:
        super().__init__(maxlen=MOST_GRANTS)

    def cover(self, tools: Tools) -> bool:
        return any(tools <= allowed for allowed in self)


def _tools(request: SamplingRequest) -> Tools:
    return frozenset(map(_digest, request.tools))


def _digest(tool: Tool) -> str:
    """What a tool says of itself. As `Tool.fingerprint`, but a hundred times as fast, and keys in another order differ."""
    try:
        said = to_json([{**vars(tool), "meta": None}, tool.model_extra])
    except ValueError:  # half of a surrogate pair, which only small requests get as far as this with
        return tool.fingerprint
    return sha256(said).hexdigest()
