"""What a group is told about one server besides its name, and why a server is not started."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from mcp_host.transports.infer import Connectable

if TYPE_CHECKING:
    from mcp_host.client.tool_policy import ToolPolicy
    from mcp_host.limits import Limits


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """A server of a `ClientGroup` that needs more than its address: ``ServerOptions(["npx", "files"], tools=ToolPolicy(...))``.

    *server* is what `Client` takes. *tools* and *limits* are as for `Client`; *limits* are in the place of the group's. One
    that is not *enabled* is not started before `ClientGroup.enable`.
    """

    server: Connectable = field(repr=False)  # its arguments may be secret
    tools: ToolPolicy | None = None
    limits: Limits | None = None
    enabled: bool = True


class NotStarted(Exception):
    """A server cannot be started as it is: the text says why. It does not leave this package."""

    def __init__(self, state: Literal["needs_consent", "disabled"], reason: str) -> None:
        super().__init__(reason)
        self.state: Literal["needs_consent", "disabled"] = state
