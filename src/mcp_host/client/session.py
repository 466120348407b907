"""What one handshake settled. Never changed, only replaced as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mcp_host.client.inputs import SessionInputs
from mcp_host.protocol.eras import Era
from mcp_host.types import InitializeResult


@dataclass(frozen=True, slots=True)
class Session:
    """One handshake's outcome. A re-initialized connection has a new one with the next *epoch*."""

    epoch: int
    era: Era
    result: InitializeResult
    capabilities: Mapping[str, Any]
    """The server's, as it wrote them: a capability we have no name for counts, too."""
    inputs: SessionInputs
