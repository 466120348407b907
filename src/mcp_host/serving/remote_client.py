"""The client of a server: what it declared, and how messages are written for its revision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, get_args

from mcp_host.errors import CallerError
from mcp_host.protocol.jsonrpc import Params, Request
from mcp_host.types import ClientCapabilities, Implementation, LoggingLevel
from mcp_host.types.base import Model
from mcp_host.types.revisions import ShapeSince, Since, first_unknown, marks

SEVERITY: Mapping[str, int] = {level: rank for rank, level in enumerate(get_args(LoggingLevel))}

Notify: TypeAlias = Callable[[str, Params], None]


def meta_of(params: Params) -> dict[str, Any]:
    """The ``_meta`` of a request or result; empty if it has none."""
    meta = params.get("_meta")
    return meta if isinstance(meta, dict) else {}


@dataclass(slots=True)
class RemoteClient:
    """The client, as its handshake or its request describes it, and what differs in its revision."""

    info: Implementation
    capabilities: ClientCapabilities
    version: str
    min_severity: int = 0
    """The rank of the least severe log level to send. "The server MAY decide" where the client has not: all."""

    @property
    def bad_arguments_are_results(self) -> bool:
        """ "Input validation errors" are tool execution errors (SEP-1303); before, they were -32602."""
        return self.version >= "2025-11-25"

    @property
    def primes_streams(self) -> bool:
        """ "The server SHOULD immediately send an SSE event consisting of an event ID and an empty data field"."""
        return self.version >= "2025-11-25"

    @property
    def declares_context(self) -> bool:
        """Whether `includeContext` needs the capability `sampling.context`."""
        return self.version >= "2025-11-25"

    @property
    def stateless(self) -> bool:
        """Whether each request stands for itself, and input is requested in results."""
        return self.version >= "2026-07-28"

    def write(self, message: Model) -> dict[str, Any]:
        """Write *message* without the fields that this revision does not have.

        Raises:
            CallerError: It holds content that this revision does not have, like audio in 2024-11-05.
        """
        if problem := first_unknown(message, self.version):
            raise CallerError(f"{problem}; this conversation is in {self.version}")
        wire: dict[str, Any] = _as_of(message, self.version).to_wire()
        return wire


@dataclass(slots=True)
class ReceivedRequest:
    """One request of the client. In 2026-07-28 a retry replaces *request* and *client*."""

    request: Request
    client: RemoteClient
    notify: Notify
    continuing: Params | None = None
    """What a retry adds to the params for the server behind, if that continues the call: the answers, and its own state."""


def _as_of(value: Any, revision: str) -> Any:
    """A copy without the fields that came after *revision*, at any depth."""
    match value:
        case Model():
            kept = {name for name in value.model_fields_set if _since(value, name) <= revision}
            copy = value.model_copy(update={name: _as_of(getattr(value, name), revision) for name in kept})
            copy.model_fields_set.intersection_update(kept)  # only the fields in this set are written
            return copy
        case [Model(), *_]:
            return [_as_of(item, revision) for item in value]
    return value


def _since(model: Model, name: str) -> str:
    """The first revision that allows the field with its value.

    Only None is a value of another shape here: a field such as ``structuredContent`` was an object until
    2026-07-28, so earlier revisions refuse null, and its `ShapeSince` counts. `first_unknown` has refused the others.
    """
    kinds = (Since, ShapeSince) if getattr(model, name) is None else Since
    return max([mark.revision for mark in marks(type(model)).get(name, ()) if isinstance(mark, kinds)], default="")
