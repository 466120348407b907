"""Approval: a person or a policy decides on each request before the model is called."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import Generic, Literal, TypeAlias, TypeVar, get_args
from weakref import WeakKeyDictionary

from anyio import CancelScope
from anyio.lowlevel import checkpoint
from pydantic_core import to_json

from mcp_host.concurrency.tasks import awaited
from mcp_host.errors import InputRefused
from mcp_host.handlers import call_handler
from mcp_host.protocol.callers import caller_key
from mcp_host.protocol.jsonrpc import INTERNAL_ERROR, USER_REJECTED
from mcp_host.sampling.limits import KiB
from mcp_host.sampling.repeated import ReadOnlyTools
from mcp_host.sampling.request import REJECTION, SamplingRequest
from mcp_host.types import Tool
from mcp_host.types.base import copy_of

logger = logging.getLogger(__name__)

APPROVAL_FAILED = "this client failed to ask for approval"  # all that the server is told

MAX_CALL_GRANTS = 1024  # tools that callers allowed for one session; beyond that, the oldest is forgotten
MAX_GRANTS = 64  # sets of tools allowed for one call or one connection; beyond that, the oldest is forgotten
COMPARED_AT_ONCE = 256 * KiB  # of tools, before other tasks run: about 4 ms

Scope: TypeAlias = Literal["request", "call", "session"]
SCOPES = frozenset(get_args(Scope))

CallT = TypeVar("CallT")

ToolDigests: TypeAlias = frozenset[str]
"""One digest of each tool that a request offers."""


@dataclass(frozen=True, slots=True)
class Allow:
    """The request may go to the model.

    *scope* says for how long: for this "request", for the whole "call" that it belongs
    to (`SamplingRequest.outer`), or for the "session", which is this connection to the server. Further
    requests are then allowed without asking, if they offer the same tools or fewer. A new tool, or one
    with another definition, needs a new approval; ``_meta`` is no part of it, as for `ToolPins`, in either scope. Messages, prompt, tokens and model preferences
    may differ within `SamplingLimits`.

    If the call is not known, "call" means the request alone. After a reconnect, after another login, or after an
    expired session is re-initialized, approval is asked for again.

    Raises:
        ValueError: *scope* is something else.
    """

    scope: Scope = "request"

    def __post_init__(self) -> None:
        if self.scope not in SCOPES:
            raise ValueError(f"scope is one of {', '.join(sorted(SCOPES))}, not {self.scope!r}")


@dataclass(frozen=True, slots=True)
class Deny:
    """The request is refused. The server gets *reason*, with the code -1."""

    reason: str = REJECTION


Approve: TypeAlias = Callable[[SamplingRequest], Awaitable[Allow | Deny] | Allow | Deny]
"""Decides on one request, of which it gets a copy. A plain function runs in a thread. If it raises, the request is refused with -32603."""

AsyncApprove: TypeAlias = Callable[[SamplingRequest], Awaitable[Allow | Deny]]


async def always(request: SamplingRequest, /) -> Allow:
    """Allow every request: for servers that may use the model without asking.

    "There SHOULD always be a human in the loop with the ability to deny sampling requests"
    (client/sampling). This is the explicit way to do without.
    """
    return Allow()


class RequestApprovals:
    """Asks *approve* about the requests of one connection, unless an earlier decision applies.

    Failures are logged under *subject*.
    """

    def __init__(self, approve: AsyncApprove, *, subject: str) -> None:
        self._approve = approve
        self._subject = subject
        # By `OuterCall.weak_key`, or by this object for the session. Each set was allowed as a whole:
        # a combination of two sets was not.
        self._grants: WeakKeyDictionary[object, deque[ToolDigests]] = WeakKeyDictionary()
        self._asking: dict[CancelScope, SamplingRequest] = {}
        self._last: tuple[ReadOnlyTools, ToolDigests] | None = None  # a server repeats its tools, and they are many

    async def require(self, request: SamplingRequest) -> None:
        """Return if the request is allowed. If the answer to another question allows it, its own is withdrawn.

        Raises:
            InputRefused: The approver denied the request, failed, or returned neither `Allow` nor `Deny`.
        """
        if self._grants and await self._is_granted(request):
            return
        decision: object = None
        with CancelScope() as scope:
            self._asking[scope] = request
            try:
                shown = replace(request, params=copy_of(request.params))  # it may change, for example redact, its own
                decision = await call_handler(
                    partial(self._approve, shown), subject=self._subject, failed=APPROVAL_FAILED
                )
            finally:
                del self._asking[scope]
        if scope.cancelled_caught:
            return
        match decision:
            case Allow():
                await self._grant(decision.scope, request)
            case Deny(reason=reason):
                raise InputRefused(USER_REJECTED, reason)
            case _:  # such as True, which is no approval
                kind = type(decision).__name__
                logger.error("%s: the approver returned %s, no Allow or Deny", self._subject, kind)
                raise InputRefused(INTERNAL_ERROR, APPROVAL_FAILED)

    async def _is_granted(self, request: SamplingRequest) -> bool:
        if not self._granted(request):
            return False
        asked = await self._digests(request)
        return any(asked <= tools for tools in self._granted(request))  # there may be a new one meanwhile

    def _granted(self, request: SamplingRequest) -> list[ToolDigests]:
        owners: list[object] = [self] if request.outer is None else [self, request.outer.weak_key]
        return [tools for owner in owners for tools in self._grants.get(owner, ())]

    async def _grant(self, scope: Scope, request: SamplingRequest) -> None:
        owners: dict[str, object] = {"session": self, "call": request.outer and request.outer.weak_key}
        if (owner := owners.get(scope)) is None:
            return
        allowed = await self._digests(request)
        self._grants.setdefault(owner, deque(maxlen=MAX_GRANTS)).append(allowed)
        for asking, other in list(self._asking.items()):
            await checkpoint()  # both may have large tools
            if await self._is_granted(other):
                asking.cancel()  # which does nothing if it was answered meanwhile

    async def _digests(self, request: SamplingRequest) -> ToolDigests:
        """One digest of each tool that *request* offers."""
        tools = request.tools
        if self._last is not None and self._last[0] is tools:
            return self._last[1]
        digests = await _digests_of(tools)
        if isinstance(tools, ReadOnlyTools):
            self._last = (tools, digests)
        return digests


class CallApprovals(Generic[CallT]):
    """Asks about tool calls of ours, unless the tool is allowed for the session."""

    def __init__(self, ask: Callable[[CallT], Awaitable[Allow | Deny]]) -> None:
        self._ask = ask
        self._allowed: WeakKeyDictionary[object, dict[Hashable, None]] = WeakKeyDictionary()  # oldest first, by session
        self._asking: dict[
            CancelScope, tuple[object, object, Tool | None]
        ] = {}  # session, caller, tool of each question

    async def decide(self, call: CallT, tool: Tool | None, *, session: object, caller: object = None) -> Allow | Deny:
        """Decide on *call*. If the answer to another question allows it, its own is withdrawn.

        *session* is a key that lives as long as what is allowed for the session; None allows nothing for it.
        What is allowed for one *caller* is allowed for no other.

        Raises:
            TypeError: The approver returned something else.
        """
        if self._is_allowed(session, caller, tool):
            return Allow()
        decision: object = None
        with CancelScope() as question:
            self._asking[question] = (session, caller, tool)
            try:
                decision = await awaited(self._ask(call), "approve")
            finally:
                del self._asking[question]
        if question.cancelled_caught:
            return Allow()
        if not isinstance(decision, Allow | Deny):  # such as True, which is no approval
            raise TypeError(f"approve has to return Allow or Deny, not {type(decision).__name__}")
        if isinstance(decision, Allow) and decision.scope == "session" and tool is not None and session is not None:
            allowed = self._allowed.setdefault(session, {})
            allowed[_grant(caller, tool)] = None
            if len(allowed) > MAX_CALL_GRANTS:
                del allowed[next(iter(allowed))]
            self._withdraw(session)
        return decision

    def _is_allowed(self, session: object, caller: object, tool: Tool | None) -> bool:
        return tool is not None and session in self._allowed and _grant(caller, tool) in self._allowed[session]

    def _withdraw(self, session: object) -> None:
        """Withdraw the questions of this session that are answered. Those of another may be in another thread."""
        for question, (its_session, caller, tool) in list(self._asking.items()):
            if its_session is session and self._is_allowed(session, caller, tool):
                question.cancel()


def _grant(caller: object, tool: Tool) -> Hashable:
    return caller_key(caller), tool.fingerprint


async def _digests_of(tools: Sequence[Tool]) -> ToolDigests:
    """Other tasks can run between large tools."""
    digests: set[str] = set()
    size = 0
    for tool in tools:
        if size > COMPARED_AT_ONCE:
            await checkpoint()
            size = 0
        written = _written(tool)
        size += len(written)
        digests.add(sha256(written).hexdigest())
    return frozenset(digests)


def _written(tool: Tool) -> bytes:
    """The definition. A digest of it is made a hundred times as fast as `Tool.fingerprint`; the order of keys matters."""
    try:
        return to_json([{**vars(tool), "meta": None}, tool.model_extra])
    except ValueError:  # half of a surrogate pair; only small requests get this far with one
        return tool.fingerprint.encode()
