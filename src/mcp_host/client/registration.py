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
    advertise_tools: bool = True
    """Turned off for good by a server that stumbles over `sampling.tools`."""

    @property
    def advertises_tools(self) -> bool:
        return self.advertise_tools and self.inputs.offers_sampling_tools

    def give_up_tools(self, server: str) -> None:
        """This server is too strict for `sampling.tools`: never advertise it to it again."""
        self.advertise_tools = False
        self.warn(
            f"{server} failed the handshake that advertised sampling.tools and passed it without: plain sampling only"
        )

    def warn(self, text: str) -> None:
        """Something the application should know, though nothing failed."""
        logger.warning("%s", text)
        if len(self.warnings) < MAX_WARNINGS:
            self.warnings.append(text)
