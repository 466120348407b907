"""Tools: what a server offers, and what calling one returns."""

import json
from collections.abc import Iterator
from hashlib import sha256
from typing import Annotated, Literal

from mcp_host.types.base import Array, JSONObject, Meta, Model, wire_name
from mcp_host.types.content import BaseMetadata, Icons, ReceivedContent, words
from mcp_host.types.messages import CacheableResult, NotificationParams, PaginatedResult, Result, TypedNotification
from mcp_host.types.revisions import NOT_AN_OBJECT, SINCE_2025_03_26, SINCE_2025_06_18, SINCE_2025_11_25

# fmt: off
__all__ = [
    "CallToolResult", "ListToolsResult", "Tool", "ToolAnnotations", "ToolExecution", "ToolListChangedNotification",
]
# fmt: on


class ToolAnnotations(Model, since="2025-03-26"):
    """What a tool says of itself: hints, which a host must not trust unless it trusts the server."""

    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


class ToolExecution(Model, since="2025-11-25", until="2025-11-25"):
    """Whether a tool must, may or cannot be called as a task (the default)."""

    task_support: Literal["forbidden", "optional", "required"] | None = None


class Tool(BaseMetadata, Icons):
    """A tool. Its two JSON Schemas are plain dicts, exactly as the server wrote them."""

    description: str | None = None
    input_schema: JSONObject
    output_schema: Annotated[JSONObject | None, SINCE_2025_06_18] = None
    annotations: Annotated[ToolAnnotations | None, SINCE_2025_03_26] = None
    execution: Annotated[ToolExecution | None, SINCE_2025_11_25] = None
    meta: Annotated[Meta, SINCE_2025_06_18] = None

    @property
    def fingerprint(self) -> str:
        """The same for two tools exactly when they say the same of themselves, ``_meta`` aside; safe to store.

        "Rug pulls" change a tool after it was approved. A host that keeps this with an
        approval notices, in this process or in the next.
        """
        digest = sha256()
        for piece in _spelled(self.model_copy(update={"meta": None})):
            digest.update(piece.encode())
        return digest.hexdigest()


_write = json.JSONEncoder().encode


def _spelled(value: object) -> Iterator[str]:
    """A text that two values share exactly when their JSON says the same, in pieces. They may nest without end."""
    todo = [value]
    while todo:
        match todo.pop():
            case Model() as model:
                fields = {wire_name(name): getattr(model, name) for name in type(model).model_fields}
                todo.append({**fields, **(model.model_extra or {})})  # no extra has the wire name of a field
            case dict() as members:
                yield f"{{{len(members)} "
                for name in sorted(members, reverse=True):
                    todo += [members[name], name]
            case list() as items:
                yield f"[{len(items)} "
                todo += reversed(items)
            case int() as number if not isinstance(number, bool):
                yield f"{number:#x} "  # str() refuses numbers of more than 4,300 digits
            case other:
                yield f"{_write(other)} "


class CallToolResult(Result):
    """What a tool returned. One that ran and failed has *is_error* set, and says why in *content*.

    *structured_content* is what the tool's output schema describes: an object,
    or, from revision 2026-07-28, any JSON value.
    """

    content: Array[ReceivedContent]
    structured_content: Annotated[object, SINCE_2025_06_18, NOT_AN_OBJECT] = None
    is_error: bool | None = None

    @property
    def text(self) -> str:
        """The words among *content*: its text blocks, on lines of their own."""
        return words(self.content)


class ListToolsResult(PaginatedResult, CacheableResult):
    """One page of tools."""

    tools: Array[Tool]


class ToolListChangedNotification(TypedNotification):
    """The server offers other tools now."""

    method: Literal["notifications/tools/list_changed"] = "notifications/tools/list_changed"
    params: NotificationParams | None = None
