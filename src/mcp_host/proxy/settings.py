"""What a proxy was made with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from mcp_host.elicitation import Elicitation
from mcp_host.limits import Limits
from mcp_host.middleware import Middleware
from mcp_host.protocol.negotiation import EraCache
from mcp_host.sampling import Sampling
from mcp_host.transports.base import Transport

if TYPE_CHECKING:
    from mcp_host.client.tool_policy import ToolPolicy

SamplingChoice: TypeAlias = Literal["auto", "always", "never"]
"""Whether the proxy's model answers: if the host cannot, always, or never."""


@dataclass(frozen=True, slots=True, weakref_slot=True, kw_only=True)
class Settings:
    """What a `Proxy` was made with."""

    server: Transport
    name: str | None
    """What the application calls the server; None if it does not. Pins are kept under it, or else under the identity of the transport."""
    sampling: Sampling | None
    sampling_choice: SamplingChoice
    models: tuple[str, ...]
    elicitation: Elicitation | None
    tools: ToolPolicy | None
    era: str
    era_cache: EraCache
    middleware: tuple[Middleware, ...]
    limits: Limits
    state_key: bytes | None
    """What authenticates the states of calls, if other processes may continue those."""
    shared: bool = False
    """Whether the host sees others as one with it: then its forms name it, and lists are whole."""

    @property
    def shown_name(self) -> str:
        """The server in log lines, and to hosts as long as it has not said what it is called."""
        return self.server.name if self.name is None else self.name
