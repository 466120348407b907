"""Writing messages for the negotiated revision: newer fields are left out, newer content is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mcp_host.errors import CallerError
from mcp_host.protocol.jsonrpc import INVALID_PARAMS, RESOURCE_NOT_FOUND
from mcp_host.protocol.negotiation import VERSIONS
from mcp_host.types.base import Model
from mcp_host.types.revisions import ShapeSince, Since, first_unknown, marks


def given(**fields: object) -> dict[str, Any]:
    """The fields that are not None. The types write a field that was set to None as null."""
    return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True, slots=True)
class RevisionWriter:
    """What a server does differently in one revision, and how it writes messages there."""

    version: str

    @property
    def bad_arguments_are_results(self) -> bool:
        """ "Input validation errors" are tool execution errors (SEP-1303); before, they were -32602."""
        return self.version >= "2025-11-25"

    @property
    def primes_streams(self) -> bool:
        """ "The server SHOULD immediately send an SSE event consisting of an event ID and an empty data field"."""
        return self.version >= "2025-11-25"

    @property
    def has_batches(self) -> bool:
        """Only one revision has batches."""
        return self.version == "2025-03-26"

    @property
    def declares_context(self) -> bool:
        """Whether `includeContext` needs the capability `sampling.context`."""
        return self.version >= "2025-11-25"

    @property
    def asks_in_results(self) -> bool:
        """Whether input is requested in results, and a missing client capability is an error."""
        return self.version >= "2026-07-28"

    @property
    def has_elicitation_ids(self) -> bool:
        """Whether an elicitation by URL has an id, and a notification when it is complete."""
        return self.version < "2026-07-28"

    @property
    def resource_not_found(self) -> int:
        """ "-32002 — resource not found (2025-11-25 and earlier; replaced by -32602)" (2026-07-28, basic)."""
        return INVALID_PARAMS if self.asks_in_results else RESOURCE_NOT_FOUND

    def write(self, message: Model) -> dict[str, Any]:
        """Write *message* without the fields that this revision does not have.

        Raises:
            CallerError: It holds content that this revision does not have, like audio in 2024-11-05.
        """
        if problem := first_unknown(message, self.version):
            raise CallerError(f"{problem}; this conversation is in {self.version}")
        return (message if self.version == VERSIONS[0] else _as_of(message, self.version)).to_wire()


def _as_of(model: Model, revision: str) -> Model:
    """A copy without the fields that came after *revision*, at any depth."""
    newer = {name for name in model.model_fields_set if _since(model, name) > revision}
    copy = model.model_copy(
        update={name: _value_as_of(getattr(model, name), revision) for name in model.model_fields_set - newer}
    )
    copy.model_fields_set.difference_update(newer)  # only the fields in this set are written
    return copy


def _since(model: Model, name: str) -> str:
    """The revision that the field came with; if its value is None, the first that allows null."""
    kinds = (Since, ShapeSince) if getattr(model, name) is None else Since
    return max([mark.revision for mark in marks(type(model)).get(name, ()) if isinstance(mark, kinds)], default="")


def _value_as_of(value: object, revision: str) -> object:
    match value:
        case Model():
            return _as_of(value, revision)
        case [Model(), *_]:
            return [_value_as_of(item, revision) for item in value]
        case _:
            return value
