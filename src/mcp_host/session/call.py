"""One call of the application's, before any revision has a say in how it is made."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from itertools import count

from mcp_host.handlers import in_handler
from mcp_host.protocol.eras import NAMED_BY, READS
from mcp_host.protocol.jsonrpc import Id, Params
from mcp_host.sampling import OuterCall
from mcp_host.session.pending import OnReport
from mcp_host.session.timeouts import CallTimeouts

_nesting: ContextVar[int] = ContextVar("mcp_host.nesting", default=0)


def _current_nesting() -> int:
    """In how many handlers the caller runs. A task that has outlived its handler runs in none."""
    nesting = _nesting.get()
    return nesting if nesting and in_handler() else 0


@dataclass(slots=True, kw_only=True, eq=False, weakref_slot=True)
class Call:
    """What is wanted, how long it may take, and for whom it is made.

    Replaced, and never changed. To freeze it would more than double what it takes to make one.
    """

    method: str
    params: Params
    timeouts: CallTimeouts
    on_report: OnReport | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    """Parameters that HTTP headers repeat (`x-mcp-header`)."""
    idempotent: bool = False
    """Whether the server says that running it twice does no harm."""
    caller: object = field(default=None, repr=False)
    """What the application knows the caller by: for its own handlers, and for nothing else."""
    call_id: int = field(default_factory=count(1).__next__)
    """The same however often the call is sent; counted by the process."""
    context: Context = field(default_factory=copy_context, repr=False)
    """The context variables of the caller. Handlers run in copies of it."""
    nesting: int = field(default_factory=_current_nesting)
    """In how many handlers it is made: 0 for a call that no handler makes."""

    def outer(self, request_id: Id, *, inferred: bool) -> OuterCall:
        """What handlers are told of this call, which was sent under *request_id*."""
        return OuterCall(
            self.method,
            self.params.get(NAMED_BY.get(self.method, "")),
            request_id,
            call_id=self.call_id,
            inferred=inferred,
            caller=self.caller,
            lifetime=self,
        )

    @property
    def repeatable(self) -> bool:
        return self.idempotent or self.method in READS


def enter_handler(nesting: int) -> None:
    """Count the calls that this task makes from here on as made in a handler, which answers calls of this *nesting*."""
    _nesting.set(nesting + 1)
