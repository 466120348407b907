"""The models that the command can offer to a server."""

from __future__ import annotations

from collections.abc import Mapping

from mcp_host.cli.arithmetic import arithmetic
from mcp_host.sampling import Handler

MODELS: Mapping[str, Handler] = {"arithmetic": arithmetic}
