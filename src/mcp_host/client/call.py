"""One call of the application's, before any revision has a say in how it is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mcp_host.client.exchange import OnReport, Patience
from mcp_host.protocol.jsonrpc import Params

READS = frozenset(
    {
        *("tools/list", "resources/list", "resources/templates/list", "prompts/list"),
        *("resources/read", "prompts/get", "completion/complete"),
    }
)
"""Requests that change nothing, so that making one twice does no harm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What is wanted, and how long it may take."""

    method: str
    params: Params
    patience: Patience
    on_report: OnReport | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    """Parameters that HTTP headers repeat (`x-mcp-header`)."""
    idempotent: bool = False
    """Whether the server says that running it twice does no harm."""

    @property
    def repeatable(self) -> bool:
        return self.idempotent or self.method in READS
