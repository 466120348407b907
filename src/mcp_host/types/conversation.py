"""A sampling conversation: tool uses, their results, and the turns of the two sides.

What drafts of SEP-1577 spelled differently is listed in `mcp_host.types.sampling`.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeAlias

from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationError,
    WrapSerializer,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError, to_json

from mcp_host.types.base import (
    FIRST_ERROR_ONLY,
    NOT_AN_OBJECT,
    SINCE_2025_11_25,
    Array,
    JSONObject,
    Meta,
    Model,
    ShapeSince,
)
from mcp_host.types.content import (
    KNOWN_TYPES,
    AudioContent,
    ContentBlock,
    ImageContent,
    ReceivedContent,
    Role,
    TextContent,
    UnknownContent,
    in_words,
    words,
)
from mcp_host.types.tools import CallToolResult

ToolOutput: TypeAlias = CallToolResult | str | Mapping[str, Any] | ContentBlock | Sequence[ContentBlock]
"""What a tool may have returned, for `ToolResultContent.of`."""


def _told(block: ReceivedContent) -> ContentBlock:
    return TextContent(text=in_words(block)) if isinstance(block, UnknownContent) else block


@cache
def _block_reader() -> TypeAdapter[ContentBlock]:
    return TypeAdapter(ContentBlock)


def _is_block(content: JSONObject) -> bool:
    """Whether it is a content block, and no data that has a ``type`` of its own."""
    if content.get("type") not in KNOWN_TYPES:
        return False
    try:
        _block_reader().validate_python(content, by_alias=True, by_name=False)
    except ValidationError:
        return False
    return True


class ToolUseContent(Model, since="2025-11-25"):
    """The model asks for a tool; a `ToolResultContent` answers it under the same id."""

    type: Literal["tool_use"] = "tool_use"
    id: str
    name: str
    input: JSONObject
    meta: Meta = None


class ToolResultContent(Model, since="2025-11-25"):
    """What a tool returned, as the server tells the model.

    Unlike a `CallToolResult` it takes no unknown blocks: a model could not be told what they say.
    """

    type: Literal["tool_result"] = "tool_result"
    tool_use_id: str
    content: Array[ContentBlock]
    structured_content: Annotated[object, NOT_AN_OBJECT] = None
    is_error: bool | None = None
    meta: Meta = None

    @classmethod
    def of(cls, tool_use: ToolUseContent, result: ToolOutput, *, is_error: bool | None = None) -> Self:
        """The block that answers *tool_use* with what the tool returned.

        A `CallToolResult` keeps its structured content and whether it is an error. An object
        is structured content, and its JSON as text. A block that this version does not know
        becomes a line of text that names its type.
        """
        fields: dict[str, Any] = {} if is_error is None else {"is_error": is_error}
        match result:
            case CallToolResult():
                given = {"structured_content", "is_error"} & result.model_fields_set
                fields = {name: getattr(result, name) for name in given} | fields
                content = [_told(block) for block in result.content]
            case str(text):
                content = [TextContent(text=text)]
            case Mapping():
                fields["structured_content"] = dict(result)
                content = [TextContent(text=to_json(result).decode())]
            case Model():
                content = [result]
            case blocks:
                content = list(blocks)
        return cls(tool_use_id=tool_use.id, content=content, **fields)

    @property
    def text(self) -> str:
        """The words among *content*: its text blocks, on lines of their own."""
        return words(self.content)

    @model_validator(mode="before")
    @classmethod
    def _read_draft(cls, value: object) -> object:
        """SEP-1577 had ``content: object`` until October 2025; servers in use send texts, and none at all."""
        if not isinstance(value, dict):
            return value
        match value.get("content"):
            case None:
                return {**value, "content": []}
            case str(text):
                return {**value, "content": [{"type": "text", "text": text}]}
            case dict(content) if _is_block(content):
                return {**value, "content": [content]}
            case dict(content):
                text = to_json(content).decode()
                return {"structuredContent": content, **value, "content": [{"type": "text", "text": text}]}
        return value


SamplingMessageContentBlock: TypeAlias = Annotated[
    TextContent | ImageContent | AudioContent | ToolUseContent | ToolResultContent, Field(discriminator="type")
]
"""The blocks of a sampling message. An unknown one is refused: the model would answer half a question."""


MediaBlock: TypeAlias = TextContent | ImageContent | AudioContent
"""The blocks that either side may send."""


def _as_list(content: object) -> object:
    if isinstance(content, list):
        return content
    return list(content) if isinstance(content, tuple) else [content]


def _bare_if_alone(blocks: list[Model], write: SerializerFunctionWrapHandler) -> object:
    wire = write(blocks)
    return wire[0] if len(wire) == 1 else wire


# One block or several: in Python always several, on the wire one travels bare,
# because revisions before 2025-11-25 know nothing else.
OneOrMore: TypeAlias = Annotated[
    list[SamplingMessageContentBlock],
    FIRST_ERROR_ONLY,
    BeforeValidator(_as_list),
    WrapSerializer(_bare_if_alone),
    ShapeSince("2025-11-25", "a list of blocks", lambda blocks: isinstance(blocks, list) and len(blocks) != 1),
]


class HasBlocks:
    """What a message and an answer tell of their *content*."""

    if TYPE_CHECKING:
        role: Role
        content: OneOrMore

    @property
    def text(self) -> str:
        """The words among *content*: its text blocks, on lines of their own."""
        return words(self.content)

    @property
    def tool_uses(self) -> list[ToolUseContent]:
        """The tool calls among *content*, in their order."""
        return [block for block in self.content if isinstance(block, ToolUseContent)]


class SamplingMessage(HasBlocks, Model):
    """One turn of a sampling conversation; a lone block may be given bare."""

    role: Role
    content: OneOrMore
    meta: Annotated[Meta, SINCE_2025_11_25] = None

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            role: Role,
            content: SamplingMessageContentBlock | Sequence[SamplingMessageContentBlock],
            meta: Meta = None,
        ) -> None: ...

    def __eq__(self, other: object) -> bool:
        """A `UserMessage` is equal to the message that says the same."""
        if not isinstance(other, SamplingMessage):
            return NotImplemented
        return (self.__dict__, self.model_extra) == (other.__dict__, other.model_extra)


class UserMessage(SamplingMessage):
    """A turn of the user, for those who write conversations: words, images and sound, or the results of tools.

    A text may be given as a `str`. A server's messages are read as `SamplingMessage`.

    Raises:
        ValueError: It holds a tool use, or tool results beside something else.
    """

    role: Literal["user"] = "user"

    def __init__(
        self,
        content: str | MediaBlock | ToolResultContent | Sequence[MediaBlock | ToolResultContent],
        *,
        meta: Meta = None,
    ) -> None:
        super().__init__(role="user", content=_blocks(content), **_given(meta))

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]  # as `Model.__init__`

    @field_validator("content")
    @classmethod
    def _check(cls, blocks: list[SamplingMessageContentBlock]) -> list[SamplingMessageContentBlock]:
        kinds = set(map(type, blocks))
        if ToolUseContent in kinds:
            raise PydanticCustomError("content", "only the assistant uses tools")
        if ToolResultContent in kinds and len(kinds) > 1:
            raise PydanticCustomError("content", "tool results stand alone")
        return blocks


class AssistantMessage(SamplingMessage):
    """A turn of the model, for those who write conversations: words, images, sound and tool uses.

    A text may be given as a `str`. A server's messages are read as `SamplingMessage`.

    Raises:
        ValueError: It holds a tool result.
    """

    role: Literal["assistant"] = "assistant"

    def __init__(
        self,
        content: str | MediaBlock | ToolUseContent | Sequence[MediaBlock | ToolUseContent],
        *,
        meta: Meta = None,
    ) -> None:
        super().__init__(role="assistant", content=_blocks(content), **_given(meta))

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]  # as `Model.__init__`

    @field_validator("content")
    @classmethod
    def _check(cls, blocks: list[SamplingMessageContentBlock]) -> list[SamplingMessageContentBlock]:
        if ToolResultContent in map(type, blocks):
            raise PydanticCustomError("content", "only the user has results of tools")
        return blocks


def _blocks(
    content: str | SamplingMessageContentBlock | Sequence[SamplingMessageContentBlock],
) -> SamplingMessageContentBlock | Sequence[SamplingMessageContentBlock]:
    return TextContent(text=content) if isinstance(content, str) else content


def _given(meta: Meta) -> dict[str, Meta]:
    return {} if meta is None else {"meta": meta}
