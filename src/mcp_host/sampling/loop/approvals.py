"""Approving the calls that a model makes: what is asked about, and what was allowed for the session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from mcp_host.handlers import as_async
from mcp_host.sampling.approval import Allow, CallApprovals, Deny
from mcp_host.types import Implementation, Tool
from mcp_host.types.base import copy_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedCall:
    """A tool call that the model wants to make, for *approve*.

    *server* is `Client.name`, or "this program" for a function. *server_info* is what the server calls itself. *tool* is the definition as
    listed; its annotations are hints of the server. The *arguments* are those of the model, and fit the tool's schema.
    *server_key* is `Client.key`: what is allowed for the session is allowed for the tools of that key; None is *server*.
    """

    server: str
    tool: Tool
    arguments: Mapping[str, Any] = field(repr=False)  # they may be private
    caller: object = field(default=None, repr=False, compare=False)
    server_info: Implementation | None = field(default=None, repr=False, compare=False)
    server_key: str | None = field(default=None, repr=False, compare=False)

    @property
    def name(self) -> str:
        """The name of the tool, as the model knows it."""
        return self.tool.name

    @property
    def params(self) -> Mapping[str, Any]:
        """The parameters of ``tools/call``."""
        return {"name": self.name, "arguments": self.arguments}


ApproveProposal: TypeAlias = Callable[[ProposedCall], Awaitable[Allow | Deny] | Allow | Deny]
"""Decides on one call of the model. A plain function runs in a thread."""


class Approvals:
    """Decides on the calls of models, for several loops: ``run_tool_loop(..., approve=approvals)``.

    *approve* is asked, such as `ask_in_terminal`. ``Allow("session")`` allows further calls of that tool, of that server, for
    that caller, as long as this object lives: until the definition of the tool changes, or `forget`.
    """

    def __init__(self, approve: ApproveProposal) -> None:
        shape = "(call: ProposedCall) -> Allow | Deny"
        ask: Callable[[ProposedCall], Awaitable[Allow | Deny]]
        ask = as_async(approve, argument="approve", shape=shape)
        # A copy, which it may change: later calls are checked with the definition.
        self._calls = CallApprovals[ProposedCall](lambda call: ask(replace(call, tool=copy_of(call.tool))))
        self._sessions: dict[str, _Session] = {}

    async def decide(self, call: ProposedCall) -> Allow | Deny:
        """Decide on *call*. If the answer to another question allows it, its own is withdrawn (cancelled).

        Raises:
            TypeError: The approver returned something else.
            Exception: The approver raised it.
        """
        key = call.server if call.server_key is None else call.server_key
        session = self._sessions.setdefault(key, _Session())
        return await self._calls.decide(call, call.tool, session=session, caller=call.caller)

    def forget(self, server: str | None = None) -> None:
        """Forget what was allowed for the session: of *server*, by its key, or of all. What is being asked about still counts once."""
        if server is None:
            self._sessions.clear()
        else:
            self._sessions.pop(server, None)


class _Session:
    """What is allowed for one server is kept as long as this is."""


def as_approvals(approve: ApproveProposal | Approvals) -> Approvals:
    """*approve* itself, or a new object that asks it."""
    return approve if isinstance(approve, Approvals) else Approvals(approve)
