"""How a test server writes for the revision it agreed on: what is newer is left out, or refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mcp_host.errors import CallerError
from mcp_host.protocol.jsonrpc import INVALID_PARAMS, RESOURCE_NOT_FOUND
from mcp_host.protocol.negotiation import VERSIONS
from mcp_host.types.base import Model
from mcp_host.types.revisions import ShapeSince, Since, first_unknown, marks


def given(**fields: object) -> dict[str, Any]:
    """The fields that are not None: to the types, a field that was never given is not written at all."""
    return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True, slots=True)
class RevisionWriter:
    """One revision, from a server's point of view."""

    version: str

    @property
    def bad_arguments_are_results(self) -> bool:
        """ "Input validation errors" are among the tool execution errors (SEP-1303); before, they were -32602."""
        return self.version >= "2025-11-25"

    @property
    def primes_streams(self) -> bool:
        """ "The server SHOULD immediately send an SSE event consisting of an event ID and an empty data field"."""
        return self.version >= "2025-11-25"

    @property
    def has_batches(self) -> bool:
        """Batches came with one revision and left with the next."""
        return self.version == "2025-03-26"

    @property
    def declares_context(self) -> bool:
        """Whether asking for context takes a capability of its own, `sampling.context`."""
        return self.version >= "2025-11-25"

    @property
    def asks_in_results(self) -> bool:
        """Whether the client is asked inside results, and what it cannot do is an error of its request."""
        return self.version >= "2026-07-28"

    @property
    def names_elicitations(self) -> bool:
        """Whether an elicitation by URL has an id, and a notification that says when it is done."""
        return self.version < "2026-07-28"

    @property
    def resource_not_found(self) -> int:
        """ "-32002 — resource not found (2025-11-25 and earlier; replaced by -32602)" (2026-07-28, basic)."""
        return INVALID_PARAMS if self.asks_in_results else RESOURCE_NOT_FOUND

    def write(self, message: Model) -> dict[str, Any]:
        """*message* without the fields that this revision does not have.

        Raises:
            CallerError: It holds something that cannot be left out, like audio in 2024-11-05.
        """
        if problem := first_unknown(message, self.version):
            raise CallerError(f"{problem}; this conversation is in {self.version}")
        return (message if self.version == VERSIONS[0] else _as_of(message, self.version)).to_wire()


def _as_of(model: Model, revision: str) -> Model:
    """A copy without what came after *revision*, all the way down."""
    newer = {name for name in model.model_fields_set if _since(model, name) > revision}
    copy = model.model_copy(
        update={name: _inside(getattr(model, name), revision) for name in model.model_fields_set - newer}
    )
    copy.model_fields_set.difference_update(newer)  # what is not in that set is not written
    return copy


def _since(model: Model, name: str) -> str:
    """The revision that the field came with; if it is None, the first that has a null there."""
    kinds = (Since, ShapeSince) if getattr(model, name) is None else Since
    return max([mark.revision for mark in marks(type(model)).get(name, ()) if isinstance(mark, kinds)], default="")


def _inside(value: object, revision: str) -> object:
    match value:
        case Model():
            return _as_of(value, revision)
        case [Model(), *_]:
            return [_inside(item, revision) for item in value]
        case _:
            return value
