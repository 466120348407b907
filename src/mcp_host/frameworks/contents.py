"""The content of a result in parts that every framework has a form for: texts and files."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass

from mcp_host.errors import excerpt
from mcp_host.sampling.loop.results import block_text, json_text, texts_repeat
from mcp_host.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ReceivedContent,
    TextContent,
)
from mcp_host.types.content import as_text

NO_TYPE = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class File:
    """An image, audio, or a resource that is no text: the *data*, and its *base64*."""

    mime_type: str
    data: bytes
    base64: str

    @property
    def kind(self) -> str:
        """The first half of the type, such as "image"."""
        return self.mime_type.partition("/")[0].lower()

    @property
    def description(self) -> str:
        """What is in its place where files of its kind have no form."""
        return f"[{excerpt(self.mime_type)}: {len(self.data)} bytes are left out]"


def parts_of(content: Sequence[ReceivedContent]) -> list[str | File]:
    """A part for each block. A link is the JSON of its fields; a block that cannot be read is a text that names it."""
    return list(map(_part, content))


def _part(block: ReceivedContent) -> str | File:
    match block:
        case ImageContent(data=data, mime_type=kind) | AudioContent(data=data, mime_type=kind):
            pass
        case EmbeddedResource(resource=BlobResourceContents(blob=data, mime_type=kind)):
            pass
        case _:
            return block_text(block)
    try:
        return File(kind or NO_TYPE, b64decode(data), data)
    except ValueError:
        return as_text(block)


def repeats_structured(result: CallToolResult) -> bool:
    """Whether there is structured content, and the texts say the same."""
    if result.structured_content is None:
        return False
    texts = [block.text for block in result.content if isinstance(block, TextContent)]
    return texts_repeat(texts, result.structured_content)


def all_parts_of(result: CallToolResult) -> list[str | File]:
    """The content blocks, and the JSON of the structured content if no text repeats it. An error has one part at least."""
    parts = parts_of(result.content)
    if result.structured_content is not None and not repeats_structured(result):
        parts.append(json_text(result.structured_content))
    if result.is_error and not parts:
        parts.append("the tool failed")
    return parts


def error_text(result: CallToolResult) -> str:
    """The text of an error."""
    return "\n".join([part if isinstance(part, str) else part.description for part in all_parts_of(result)])
