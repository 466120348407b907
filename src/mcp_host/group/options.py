"""Options of a group, of one of its servers, and of a request; and why a server is not started."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

from mcp_host.transports.infer import Connectable

if TYPE_CHECKING:
    from mcp_host.client.client import OnProgress
    from mcp_host.client.pins import ToolPins
    from mcp_host.client.tool_policy import ToolPolicy
    from mcp_host.elicitation import Elicitation
    from mcp_host.group.status import OnStatus
    from mcp_host.limits import Limits
    from mcp_host.middleware import Middleware
    from mcp_host.protocol.negotiation import EraCache
    from mcp_host.roots import RootLike, RootsHandler
    from mcp_host.sampling import Approvals, ApproveProposal, Sampling
    from mcp_host.sampling.limits import OwnTools
    from mcp_host.session.changes import Change
    from mcp_host.types import Implementation, LoggingMessageNotificationParams

Wait: TypeAlias = Literal["first", "all", "none"]
OnServerLog: TypeAlias = "Callable[[str, LoggingMessageNotificationParams], Awaitable[None] | None]"
OnServerChange: TypeAlias = "Callable[[str, Change], Awaitable[None] | None]"
OnServerStderr: TypeAlias = Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """A server of a `ClientGroup` that needs more than its address: ``ServerOptions(["npx", "files"], tools=ToolPolicy(...))``.

    *server* is what `Client` takes. *tools* and *limits* are as for `Client`; *limits* replace those of the group. One
    that is not *enabled* is not started before `ClientGroup.enable`.
    """

    server: Connectable = field(repr=False)  # its arguments may be secret
    tools: ToolPolicy | None = None
    limits: Limits | None = None
    enabled: bool = True


class GroupOptions(TypedDict, total=False):
    """The arguments of `ClientGroup` without its servers."""

    sampling: Sampling | None
    elicitation: Elicitation | None
    roots: Sequence[RootLike] | RootsHandler | None
    approve: ApproveProposal | Approvals | None
    on_status: OnStatus | None
    on_log: OnServerLog | None
    on_change: OnServerChange | None
    on_stderr: OnServerStderr | None
    client_info: Implementation | None
    limits: Limits | None
    pins: ToolPins | None
    era_cache: EraCache | None
    middleware: Sequence[Middleware]
    ping_interval: float | None
    run_own_tools: bool | OwnTools
    wait: Wait | float


class RequestOptions(TypedDict, total=False):
    """The options of every request of a `Client`."""

    timeout: float | None
    idle_timeout: float | None


class CallOptions(RequestOptions, total=False):
    """The options of a request within which the server may report progress and ask for input."""

    on_progress: OnProgress | None
    caller: object


class ToolCallOptions(CallOptions, total=False):
    """The options of `Client.call_tool`."""

    meta: Mapping[str, Any] | None


class NotStarted(Exception):
    """A server cannot be started: the text says why. No caller of this package sees it."""

    def __init__(self, state: Literal["needs_consent", "disabled"], reason: str) -> None:
        super().__init__(reason)
        self.state: Literal["needs_consent", "disabled"] = state
