"""Content as text, for a terminal that can show nothing else."""

from __future__ import annotations

from typing import assert_never

from mcp_host.types import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    UnknownContent,
)
from mcp_host.types.content import ReceivedContent


def as_text(block: ReceivedContent) -> str:
    """The text of a block; of anything else, what it is and how large."""
    match block:
        case TextContent(text=text):
            return text
        case ImageContent(mime_type=kind, data=data) | AudioContent(mime_type=kind, data=data):
            return f"[{kind}, {len(data)} characters of base64]"
        case EmbeddedResource(resource=resource):
            return _contents(resource)
        case ResourceLink(uri=uri):
            return f"[link to {uri}]"
        case UnknownContent(type=kind):
            return f"[{kind}, which this version does not know]"
    assert_never(block)


def _contents(resource: TextResourceContents | BlobResourceContents) -> str:
    match resource:
        case TextResourceContents(text=text):
            return text
        case BlobResourceContents(uri=uri, blob=data):
            return f"[contents of {uri}, {len(data)} characters of base64]"
    assert_never(resource)
