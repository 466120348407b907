"""What the application registered with a client."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field

from mcp_host.client.inputs import Inputs
from mcp_host.limits import Limits
from mcp_host.types import Implementation

logger = logging.getLogger(__name__)

MAX_WARNINGS = 100  # kept for the application; the log has them all


@dataclass
class Registration:
    """Outlives every connection, so that no reconnect can miss any of it."""

    client_info: Implementation
    inputs: Inputs
    limits: Limits
    warnings: list[str] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)
    tools_welcome: bool = True
    """Whether the server can bear to be told of `sampling.tools`. Some are too strict to."""

    @property
    def offers_tools(self) -> bool:
        return self.tools_welcome and self.inputs.offers_sampling_tools

    def warn(self, text: str) -> None:
        """Something the application should know, though nothing failed."""
        logger.warning("%s", text)
        if len(self.warnings) < MAX_WARNINGS:
            self.warnings.append(text)
