"""What opening a connection settled. Never changed, only replaced as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mcp_host.protocol.eras import Era
from mcp_host.session.features import SessionFeatures
from mcp_host.types import Implementation, ServerCapabilities


@dataclass(frozen=True, slots=True)
class Session:
    """What holds until the next handshake, which settles another one with the next *epoch*.

    A stateless server knows of no session. What it said of itself once holds as long as the connection.
    """

    epoch: int
    era: Era
    server_info: Implementation
    server_capabilities: ServerCapabilities
    capabilities: Mapping[str, Any]
    """The server's, as it wrote them: a capability we have no name for counts, too."""
    instructions: str | None
    inputs: SessionFeatures
