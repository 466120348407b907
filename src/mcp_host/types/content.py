"""Content blocks: the pieces that messages, prompts and tool results are made of."""

from collections.abc import Iterable
from typing import Annotated, Literal, TypeAlias, assert_never

from pydantic import AfterValidator, Field

from mcp_host.types.base import Array, Meta, Model, Number
from mcp_host.types.revisions import SINCE_2025_06_18, SINCE_2025_11_25

# fmt: off
__all__ = [
    "Annotations", "AudioContent", "BaseMetadata", "BlobResourceContents", "ContentBlock", "EmbeddedResource", "Icon",
    "Icons", "ImageContent", "ReceivedContent", "Resource", "ResourceContents", "ResourceLink", "Role", "TextContent",
    "TextResourceContents", "UnknownContent",
]
# fmt: on

Role: TypeAlias = Literal["user", "assistant"]


class Icon(Model, since="2025-11-25"):
    """An image to show beside a name; *src* is an HTTP(S) URL or a ``data:`` URI, *sizes* are like ``48x48``."""

    src: str
    mime_type: str | None = None
    sizes: Array[str] | None = None
    theme: Literal["light", "dark"] | None = None


class Icons(Model, since="2025-11-25"):
    """What can be shown with icons."""

    icons: Annotated[Array[Icon] | None, SINCE_2025_11_25] = None


class BaseMetadata(Model, since="2025-06-18"):
    """What has a *name* for programs and perhaps a *title* for people."""

    name: str
    title: Annotated[str | None, SINCE_2025_06_18] = None


class Annotations(Model):
    """Hints for the host: whom content is meant for, how much it matters (0 to 1), when it changed (ISO 8601)."""

    audience: Array[Role] | None = None
    priority: Number | None = None
    last_modified: Annotated[str | None, SINCE_2025_06_18] = None


class TextContent(Model):
    """Text."""

    type: Literal["text"] = "text"
    text: str
    annotations: Annotations | None = None
    meta: Annotated[Meta, SINCE_2025_06_18] = None


def words(blocks: Iterable[object]) -> str:
    """The text blocks among *blocks*, one after the other on lines of their own; "" where there are none."""
    return "\n".join(block.text for block in blocks if isinstance(block, TextContent))


class ImageContent(Model):
    """An image; *data* is base64."""

    type: Literal["image"] = "image"
    data: str
    mime_type: str
    annotations: Annotations | None = None
    meta: Annotated[Meta, SINCE_2025_06_18] = None


class AudioContent(Model, since="2025-03-26"):
    """Sound; *data* is base64."""

    type: Literal["audio"] = "audio"
    data: str
    mime_type: str
    annotations: Annotations | None = None
    meta: Annotated[Meta, SINCE_2025_06_18] = None


class ResourceContents(Model):
    """What was read from a resource, or a part of it."""

    uri: str
    mime_type: str | None = None
    meta: Annotated[Meta, SINCE_2025_06_18] = None


class TextResourceContents(ResourceContents):
    """Text that was read from a resource."""

    text: str


class BlobResourceContents(ResourceContents):
    """Bytes that were read from a resource; *blob* is base64."""

    blob: str


TextOrBlob: TypeAlias = Annotated[TextResourceContents | BlobResourceContents, Field(union_mode="left_to_right")]


class EmbeddedResource(Model):
    """The contents of a resource, carried along."""

    type: Literal["resource"] = "resource"
    resource: TextOrBlob
    annotations: Annotations | None = None
    meta: Annotated[Meta, SINCE_2025_06_18] = None


class Resource(BaseMetadata, Icons):
    """Something the server can be asked to read; *size* is in bytes, before any encoding."""

    uri: str
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    annotations: Annotations | None = None
    meta: Annotated[Meta, SINCE_2025_06_18] = None


class ResourceLink(Resource, since="2025-06-18"):
    """A resource that is pointed to, and not necessarily among those the server lists."""

    type: Literal["resource_link"] = "resource_link"


ContentBlock: TypeAlias = Annotated[
    TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource, Field(discriminator="type")
]
"""The blocks of tool results and prompt messages, as the schema's union of that name."""


KNOWN_TYPES = frozenset({"text", "image", "audio", "resource_link", "resource"})


def _refuse_known(block_type: str) -> str:
    """Runs only after the union of known blocks has failed: then a known type was malformed."""
    if block_type in KNOWN_TYPES:
        raise ValueError("malformed")
    return block_type


class UnknownContent(Model):
    """A block of a type that none of our revisions has: kept with all its fields (``model_extra``), never dropped."""

    type: Annotated[str, AfterValidator(_refuse_known)]


ReceivedContent: TypeAlias = Annotated[ContentBlock | UnknownContent, Field(union_mode="left_to_right")]
"""What a server may send as content: the schema's blocks, or one that is newer than this library."""


def in_words(block: ReceivedContent) -> str:
    """The text of a block; of anything else, what it is and how large: for a screen that can show nothing else."""
    match block:
        case TextContent(text=text):
            return text
        case ImageContent(mime_type=kind, data=data) | AudioContent(mime_type=kind, data=data):
            return f"[{kind}, {len(data)} characters of base64]"
        case EmbeddedResource(resource=resource):
            return _contents_in_words(resource)
        case ResourceLink(uri=uri):
            return f"[link to {uri}]"
        case UnknownContent(type=kind):
            return f"[{kind}, which this version does not know]"
    assert_never(block)


def _contents_in_words(contents: TextOrBlob) -> str:
    match contents:
        case TextResourceContents(text=text):
            return text
        case BlobResourceContents(uri=uri, blob=data):
            return f"[contents of {uri}, {len(data)} characters of base64]"
    assert_never(contents)
