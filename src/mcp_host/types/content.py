"""Content blocks of messages, prompts and tool results."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal, TypeAlias, assert_never, get_args

from pydantic import AfterValidator, Field

from mcp_host.types.base import Array, JSONObject, Meta, Model, Number, Strictly
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
    """The base of types with icons."""

    icons: Annotated[Array[Icon] | None, SINCE_2025_11_25] = None


class BaseMetadata(Model, since="2025-06-18"):
    """The base of types with a *name* for programs and a *title* for people."""

    name: str
    title: Annotated[str | None, SINCE_2025_06_18] = None


class Annotations(Model):
    """Hints for the host: the audience, the priority (0 to 1), the last change (ISO 8601)."""

    audience: Array[Role] | None = None
    priority: Number | None = None
    last_modified: Annotated[str | None, SINCE_2025_06_18] = None


class TextContent(Model):
    """Text."""

    type: Literal["text"] = "text"
    text: str
    annotations: Annotations | None = None
    meta: Annotated[Meta, SINCE_2025_06_18] = None


def joined_text(blocks: Iterable[object]) -> str:
    """The text blocks among *blocks*, joined by newlines; "" if there are none."""
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
    """The contents of a resource, or a part of them."""

    uri: str
    mime_type: str | None = None
    meta: Annotated[Meta, SINCE_2025_06_18] = None


class TextResourceContents(ResourceContents):
    """Text contents of a resource."""

    text: str


class BlobResourceContents(ResourceContents):
    """Binary contents of a resource; *blob* is base64."""

    blob: str


TextOrBlob: TypeAlias = Annotated[TextResourceContents | BlobResourceContents, Field(union_mode="left_to_right")]


class EmbeddedResource(Model):
    """The contents of a resource, embedded in a message."""

    type: Literal["resource"] = "resource"
    resource: TextOrBlob
    annotations: Annotations | None = None
    meta: Annotated[Meta, SINCE_2025_06_18] = None


class Resource(BaseMetadata, Icons, tolerant=True):
    """A resource that the server can read; *size* is in bytes, before base64 encoding."""

    uri: str
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    annotations: Annotations | None = None
    meta: Annotated[Meta, SINCE_2025_06_18] = None


class ResourceLink(Resource, since="2025-06-18"):
    """A link to a resource, which the server need not list."""

    type: Literal["resource_link"] = "resource_link"


FIELDS_FOR_MODELS = frozenset({"type", "uri", "name", "title", "description", "mimeType", "size"})


def link_fields(link: ResourceLink) -> JSONObject:
    """What a model gets of a link. The other fields, such as ``_meta`` and icons, are for programs and displays."""
    wire = link.to_wire()
    return {name: value for name, value in wire.items() if name in FIELDS_FOR_MODELS and value is not None}


def file_as_text(uri: str, text: str) -> str:
    """What a model reads of a file of text, which may have no URI."""
    return f"Contents of {uri}:\n{text}" if uri else text


ContentBlock: TypeAlias = Annotated[
    TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource, Field(discriminator="type")
]
"""The content blocks of tool results and prompt messages."""

CONTENT_BLOCKS: tuple[type[ContentBlock], ...] = get_args(get_args(ContentBlock)[0])
"""The classes of `ContentBlock`."""

KNOWN_TYPES = frozenset(kind for block in CONTENT_BLOCKS for kind in get_args(block.model_fields["type"].annotation))


def _refuse_known(block_type: str) -> str:
    """Refuse the types of `ContentBlock`. `ReceivedContent` tries its classes first, so such a block is malformed."""
    if block_type in KNOWN_TYPES:
        raise ValueError("malformed")
    return block_type


class UnknownContent(Model):
    """A block of a type that no supported revision has. All its fields are kept (``model_extra``).

    Or a malformed block of a known type, in a result of which something else could be read.
    """

    type: Annotated[str, AfterValidator(Strictly(_refuse_known))]


ReceivedContent: TypeAlias = Annotated[ContentBlock | UnknownContent, Field(union_mode="left_to_right")]
"""Content from a server: the schema's blocks, or one that is newer than this library, or malformed."""


def mended_block(value: object) -> object:
    """The block of a server that wrote its text alone, or no type. What else is no block is the text of a malformed one."""
    match value:
        case {"type": str()}:
            return value
        case {"text": str() as text, **fields}:
            return {**fields, "type": "text", "text": text}
    return {"type": "text", "text": value}


def is_malformed(block: ReceivedContent) -> bool:
    """Whether it is a block of a known type that could not be read."""
    return isinstance(block, UnknownContent) and block.type in KNOWN_TYPES


def all_malformed(blocks: Sequence[ReceivedContent]) -> bool:
    """Whether there are blocks, and none of them could be read."""
    return bool(blocks) and all(map(is_malformed, blocks))


def name_of(file: BlobResourceContents) -> str:
    """What stands for *file*: its URI, and its type if that is known."""
    return ", ".join(filter(None, [f"contents of {file.uri or 'a resource'}", file.mime_type]))


def as_text(block: ReceivedContent) -> str:
    """The text of a block; for other types, a short description for displays that show text only."""
    match block:
        case TextContent(text=text):
            return text
        case ImageContent(mime_type=kind, data=data) | AudioContent(mime_type=kind, data=data):
            return f"[{kind}, {len(data)} characters of base64]"
        case EmbeddedResource(resource=contents):
            if isinstance(contents, TextResourceContents):
                return contents.text
            return f"[{name_of(contents)}, {len(contents.blob)} characters of base64]"
        case ResourceLink(uri=uri):
            return f"[link to {uri}]"
        case UnknownContent(type=kind):
            if is_malformed(block):
                return f"[{kind}, malformed]"
            return f"[{kind}, which this version does not know]"
    assert_never(block)
