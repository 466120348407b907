"""What was seen of a host: what it declared, how it answered, and what it sent on its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from mcp_host.errors import excerpt
from mcp_host.protocol.jsonrpc import Id, Notification, Params, Response


class Refused(NamedTuple):
    """The host answered a request with an error."""

    code: int
    message: str

    def __str__(self) -> str:
        return f"error {self.code}: {excerpt(self.message)}"


Answer: TypeAlias = Params | Refused | None
"""The result of a request, the error, or None if no answer came."""


@dataclass(slots=True, kw_only=True)
class Host:
    """The host in one revision, over all its calls of the tool."""

    name: str
    version: str
    revision: str
    stateless: bool
    """Whether it answers in retries of its call (since 2026-07-28)."""
    capabilities: Params
    initialized: bool = True
    tokens: list[object] = field(default_factory=list)
    """The progress tokens of its calls."""
    retries: list[tuple[Id, Id]] = field(default_factory=list)
    """Since 2026-07-28: the ids of a request and of its retry."""
    retries_without_state: int = 0
    """Retries without the `requestState`."""
    notifications: list[Notification] = field(default_factory=list)
    unexpected: list[Response] = field(default_factory=list)
    """Responses to no open request."""

    def declares(self, capability: str) -> bool:
        """Whether it declared a capability, such as "sampling" or "sampling.tools"."""
        name, _, part = capability.partition(".")
        declared = self.capabilities.get(name)
        if not isinstance(declared, dict):
            return False
        if capability == "elicitation.form":  # "an empty capabilities object is equivalent to [...] `form` mode only"
            return part in declared or not declared
        return not part or declared.get(part) is not None


@dataclass(slots=True)
class Seen:
    """What the host did in one exchange."""

    host: Host
    answers: list[Answer]
    """In the order of the requests."""
    answered_by: list[Id] = field(default_factory=list)
    """The request that brought each answer: since 2026-07-28 the retry."""
    unexpected_before: int = 0
    """How many responses to no open request there were when it began."""
    unexpected_at_end: int | None = None
    """How many there were when the last answer came."""
    notifications_at_end: int | None = None
    """How many notifications there were then."""
