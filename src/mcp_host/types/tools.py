"""Tools: what a server offers, and what calling one returns."""

import json
from collections.abc import Iterator
from hashlib import sha256
from typing import Annotated, Literal

from mcp_host.types.base import DECIDES, Array, JSONObject, Meta, Model, wire_name
from mcp_host.types.content import BaseMetadata, Icons, ReceivedContent, all_malformed, joined_text, mended_block
from mcp_host.types.messages import Result
from mcp_host.types.revisions import NOT_AN_OBJECT, SINCE_2025_03_26, SINCE_2025_06_18, SINCE_2025_11_25

# fmt: off
__all__ = [
    "CallToolResult", "Tool", "ToolAnnotations", "ToolExecution",
]
# fmt: on


class ToolAnnotations(Model, since="2025-03-26"):
    """Hints about a tool. Do not trust them unless you trust the server."""

    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


class ToolExecution(Model, since="2025-11-25"):
    """Whether a tool must, may or cannot be called as a task (the default)."""

    task_support: Literal["forbidden", "optional", "required"] | None = None


class Tool(BaseMetadata, Icons, tolerant=True):
    """A tool. Its two JSON Schemas are plain dicts, exactly as the server sent them."""

    description: str | None = None
    input_schema: JSONObject
    output_schema: Annotated[JSONObject | None, SINCE_2025_06_18] = None
    annotations: Annotated[ToolAnnotations | None, SINCE_2025_03_26] = None
    execution: Annotated[ToolExecution | None, SINCE_2025_11_25] = None
    meta: Annotated[Meta, SINCE_2025_06_18] = None

    @property
    def fingerprint(self) -> str:
        """A hash of the whole definition without ``_meta``. It is stable, so you can store it.

        A "rug pull" changes a tool after it was approved. Keep this with an approval to
        notice that; `mcp_host.ToolPins` does so for all tools of a client.
        """
        digest = sha256()
        for piece in _spelled(self.model_copy(update={"meta": None})):
            digest.update(piece.encode())
        return digest.hexdigest()


_write = json.JSONEncoder().encode


def _spelled(value: object) -> Iterator[str]:
    """A text, in pieces, that is the same for two values exactly if their JSON is equivalent. It does not recurse."""
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
    """What a tool returned. If it ran and failed, *is_error* is set and *content* has the reason.

    *structured_content* follows the tool's output schema: an object, or, since revision
    2026-07-28, any JSON value.
    """

    content: Array[ReceivedContent]
    structured_content: Annotated[object, SINCE_2025_06_18, NOT_AN_OBJECT, DECIDES] = None
    is_error: Annotated[bool | None, DECIDES] = None

    @classmethod
    def _mended(cls, value: object) -> object:
        """Some servers send a text or one block as *content*, or *structured_content* without *content*, which is empty then."""
        match value:
            case {"content": list(blocks), **fields}:
                return {**fields, "content": [*map(mended_block, blocks)]}
            case {"content": str() | dict() as block, **fields}:
                return {**fields, "content": [mended_block(block)] if block != {} else []}  # {}: an empty list of Lua
            case {"structuredContent": structured, **fields}:
                return {"content": [], **fields, "structuredContent": structured}
        return super()._mended(value)

    def _is_unread(self) -> bool:
        return self.structured_content is None and all_malformed(self.content)

    @property
    def text(self) -> str:
        """The text blocks of *content*, joined by newlines."""
        return joined_text(self.content)
