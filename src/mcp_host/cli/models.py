"""The models that the command can offer to a server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from mcp_host.cli.arithmetic import arithmetic
from mcp_host.sampling import SamplingRequest
from mcp_host.types import CreateMessageResult

Model: TypeAlias = Callable[[SamplingRequest], Awaitable[CreateMessageResult]]

MODELS: Mapping[str, Model] = {"arithmetic": arithmetic}
