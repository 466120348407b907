"""Sampling: a server's request to the host's model, with or without tools, and the model's answer.

The types are those of the final SEP-1577. Some servers still use its drafts. Their differences are
understood when reading, and never written:

    ================================================  ==============================================
    in a draft                                        read as
    ================================================  ==============================================
    one block to a message                            parallel calls, and their results, in one turn;
                                                      see `mcp_host.protocol.conversation`
    ``tool_choice``                                   ``toolChoice``, which wins if both are there
    ``{"type": "required"}`` as tool choice           ``mode``, which wins if both are there
    ``{"type": "tool", "name": "add"}``               ``required``, and `ToolChoice.tool`
    ``disable_parallel_tool_use``, in the tool        an extension field, kept; see
    choice or beside it                               ``CreateMessageRequestParams``
    a ``tool_result`` whose ``content`` is an object  ``structuredContent``, and its JSON as text,
                                                      unless it is a whole content block
    … a text; … null or absent                        one text block; an empty list
    ``stopReason`` of ``refusal`` or ``other``        themselves: the field is an open string
    ================================================  ==============================================

A server of the first draft gets answers of one block: see `mcp_host.protocol.eras.lone_block`.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self, TypeAlias, get_args, overload

from pydantic import (
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema, to_json

from mcp_host.base_errors import quoted
from mcp_host.types.base import DECIDES, Array, Item, JSONObject, Meta, Model, Number
from mcp_host.types.content import (
    AudioContent,
    ContentBlock,
    ImageContent,
    Role,
    TextContent,
    UnknownContent,
    as_text,
    joined_text,
)
from mcp_host.types.messages import TaskAugmentedRequestParams
from mcp_host.types.revisions import NOT_AN_OBJECT, SINCE_2025_11_25, ShapeSince
from mcp_host.types.tools import CallToolResult, Tool

# fmt: off
__all__ = [
    "END_TURN", "MAX_TOKENS", "STOP_SEQUENCE", "TOOL_USE", "AssistantContentBlock", "AssistantMessage",
    "CreateMessageRequestParams", "CreateMessageResult", "ModelHint", "ModelPreferences", "SamplingMessage",
    "SamplingMessageContentBlock", "ToolChoice", "ToolResultContent", "ToolUseContent", "UserContentBlock",
    "UserMessage",
]
# fmt: on


ToolOutput: TypeAlias = CallToolResult | str | Mapping[str, Any] | ContentBlock | Sequence[ContentBlock]
"""What `ToolResultContent.of` accepts as the result of a tool."""


class ToolUseContent(Model, since="2025-11-25"):
    """The model calls a tool; a `ToolResultContent` with the same id has the result."""

    type: Literal["tool_use"] = "tool_use"
    id: str
    name: str
    input: JSONObject
    meta: Meta = None


class ToolResultContent(Model, since="2025-11-25"):
    """The result of a tool, for the model.

    Unlike a `CallToolResult` it has no unknown blocks, because a model could not read them.
    """

    type: Literal["tool_result"] = "tool_result"
    tool_use_id: str
    content: Array[ContentBlock]
    structured_content: Annotated[object, NOT_AN_OBJECT] = None
    is_error: Annotated[bool | None, DECIDES] = None
    meta: Meta = None

    @classmethod
    def of(cls, tool_use: ToolUseContent, result: ToolOutput, *, is_error: bool | None = None) -> Self:
        """The block that answers *tool_use* with the *result* of the tool.

        A `CallToolResult` keeps its structured content and *is_error*. A mapping becomes
        structured content, and its JSON text. An unknown block becomes a line of text that
        names its type.
        """
        fields: dict[str, Any] = {} if is_error is None else {"is_error": is_error}
        match result:
            case CallToolResult():
                given = {"structured_content", "is_error"} & result.model_fields_set
                fields = {name: getattr(result, name) for name in given} | fields
                content = [
                    TextContent(text=as_text(block)) if isinstance(block, UnknownContent) else block
                    for block in result.content
                ]
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
        """The text blocks of *content*, joined by newlines."""
        return joined_text(self.content)

    @model_validator(mode="before")
    @classmethod
    def _read_draft(cls, value: object) -> object:
        """SEP-1577 had ``content: object`` until October 2025; some servers send a string or nothing."""
        if not isinstance(value, dict) or isinstance(given := value.get("content"), list):
            return value
        match given:
            case None:
                return {**value, "content": []}
            case str(text):
                return {**value, "content": [{"type": "text", "text": text}]}
            case dict(content):
                with suppress(ValidationError):  # it is data, which may have a ``type``, too
                    return {
                        **value,
                        "content": [_content_block().validate_python(content, by_alias=True, by_name=False)],
                    }
                text = to_json(content).decode()
                return {"structuredContent": content, **value, "content": [{"type": "text", "text": text}]}
        return value


@cache
def _content_block() -> TypeAdapter[ContentBlock]:
    return TypeAdapter(ContentBlock)


class _ByType(NamedTuple):
    """Marks the blocks of one role, which are told apart by their ``type``.

    A block of the type *misplaced* belongs to the other role, and gets *problem* as its error.
    """

    misplaced: str
    problem: str

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        blocks = {kind: block for block in get_args(source) for kind in get_args(block.model_fields["type"].annotation)}
        choices = {kind: handler.generate_schema(block) for kind, block in blocks.items()}
        choices[self.misplaced] = core_schema.custom_error_schema(
            core_schema.none_schema(), custom_error_type="misplaced", custom_error_message=self.problem
        )
        return core_schema.tagged_union_schema(choices, discriminator="type")


UserContentBlock: TypeAlias = Annotated[
    TextContent | ImageContent | AudioContent | ToolResultContent,
    _ByType("tool_use", "it is a tool_use in a user message; only the assistant asks for tools"),
]
"""The blocks of a `UserMessage`."""

AssistantContentBlock: TypeAlias = Annotated[
    TextContent | ImageContent | AudioContent | ToolUseContent,
    _ByType("tool_result", "it is a tool_result in an assistant message; results come from the user"),
]
"""The blocks of an `AssistantMessage`, and of a model's answer."""

SamplingMessageContentBlock: TypeAlias = Annotated[
    TextContent | ImageContent | AudioContent | ToolUseContent | ToolResultContent, Field(discriminator="type")
]
"""The blocks of a sampling message. Unknown ones are rejected, because the model would miss a part."""


def _bare_if_alone(blocks: list[Model]) -> object:
    return blocks[0] if len(blocks) == 1 else blocks


class _Blocks(NamedTuple):
    """Marks a list of blocks: a block alone is read as a list of one.

    A list of one is written as the block, because revisions before 2025-11-25 do not have lists. *check* validates the
    blocks of a list. The two are told apart by `type` itself: a function in Python would take longer than the rest.
    """

    check: Callable[[list[Any]], list[Any]] | None = None

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        blocks: Any = {**handler(source), "fail_fast": True}
        after = core_schema.no_info_after_validator_function
        alone = after(lambda block: [block], blocks["items_schema"])
        return core_schema.tagged_union_schema(
            {list: after(self.check, blocks) if self.check else blocks, dict: alone},
            discriminator=type,
            custom_error_type="blocks",
            custom_error_message="Input should be a block or a list of blocks",
            serialization=core_schema.plain_serializer_function_ser_schema(_bare_if_alone),
        )


LISTS_SINCE = ShapeSince("2025-11-25", "a list of blocks", lambda blocks: isinstance(blocks, list) and len(blocks) != 1)
OneOrMore: TypeAlias = Annotated[list[Item], _Blocks(), LISTS_SINCE]


class _HasBlocks(Model):
    """What messages and answers have in common."""

    role: Role
    content: OneOrMore[SamplingMessageContentBlock]

    def __init__(self, /, **data: object) -> None:
        if "content" in data and type(content := data["content"]) is not list:
            data["content"] = list(content) if isinstance(content, Sequence) else [content]
        super().__init__(**data)

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]  # as `Model.__init__`

    @property
    def text(self) -> str:
        """The text blocks of *content*, joined by newlines."""
        return joined_text(self.content)

    @property
    def tool_uses(self) -> list[ToolUseContent]:
        """The tool calls in *content*, in order."""
        return [block for block in self.content if isinstance(block, ToolUseContent)]


class SamplingMessage(_HasBlocks):
    """One message of a sampling conversation: a `UserMessage` if its *role* is "user", else an `AssistantMessage`.

    So is a message that was received. A single block may be given without a list.

    Raises:
        ValueError: It has a block that a message of its role cannot have.
    """

    meta: Annotated[Meta, SINCE_2025_11_25] = None

    if TYPE_CHECKING:

        @overload
        def __init__(
            self,
            *,
            role: Literal["user"],
            content: UserContentBlock | Sequence[UserContentBlock],
            meta: Meta = None,
        ) -> None: ...
        @overload
        def __init__(
            self,
            *,
            role: Literal["assistant"],
            content: AssistantContentBlock | Sequence[AssistantContentBlock],
            meta: Meta = None,
        ) -> None: ...
        def __init__(self, **data: object) -> None: ...

    else:

        def __init__(self, /, **data: object) -> None:
            super().__init__(**data)
            if type(self) is SamplingMessage:  # pydantic would call a `__new__` for each message that it reads, too
                object.__setattr__(self, "__class__", UserMessage if self.role == "user" else AssistantMessage)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        if cls is not SamplingMessage:
            return schema
        both = {"user": UserMessage, "assistant": AssistantMessage}
        own: Any = handler.resolve_ref_schema(schema)  # to write both: that takes less time than to look for the role
        return core_schema.tagged_union_schema(
            {role: handler.generate_schema(message) for role, message in both.items()},
            discriminator="role",
            custom_error_type="role",
            custom_error_message="its role should be 'user' or 'assistant'",
            serialization=own,
        )


def _unmixed(blocks: list[UserContentBlock]) -> list[UserContentBlock]:
    if len(blocks) > 1 and len({isinstance(block, ToolResultContent) for block in blocks}) > 1:
        raise PydanticCustomError(
            "mixed", "tool results are mixed with other content; a message with tool results holds nothing else"
        )
    return blocks


class UserMessage(SamplingMessage):
    """A message of the user: text, images and audio, or tool results. Text may be given as a `str`.

    Raises:
        ValueError: It has a tool use, or tool results mixed with other content.
    """

    role: Literal["user"] = "user"
    content: Annotated[list[UserContentBlock], _Blocks(_unmixed), LISTS_SINCE]  # type: ignore[assignment]  # never appended to

    def __init__(self, content: str | UserContentBlock | Sequence[UserContentBlock], *, meta: Meta = None) -> None:
        super().__init__(role="user", **_fields(content, meta))

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]  # as `Model.__init__`


class AssistantMessage(SamplingMessage):
    """A message of the model: text, images, audio and tool uses. Text may be given as a `str`.

    Raises:
        ValueError: It has a tool result.
    """

    role: Literal["assistant"] = "assistant"
    content: OneOrMore[AssistantContentBlock]  # type: ignore[assignment]  # never appended to

    def __init__(
        self, content: str | AssistantContentBlock | Sequence[AssistantContentBlock], *, meta: Meta = None
    ) -> None:
        super().__init__(role="assistant", **_fields(content, meta))

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]  # as `Model.__init__`


def _fields(content: object, meta: Meta) -> dict[str, Any]:
    fields = {"content": TextContent(text=content) if isinstance(content, str) else content}
    return fields if meta is None else {**fields, "meta": meta}


END_TURN = "endTurn"
STOP_SEQUENCE = "stopSequence"
MAX_TOKENS = "maxTokens"
TOOL_USE = "toolUse"


def _whole(number: object) -> object:
    """JSON has one kind of number: some writers send 1000.0 for 1000."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


WholeNumber: TypeAlias = Annotated[int, Field(strict=True)]  # also in a tolerant class: it is not read from a text
Integer: TypeAlias = Annotated[
    WholeNumber | Annotated[WholeNumber, BeforeValidator(_whole)], Field(union_mode="left_to_right")
]


class ModelHint(Model):
    """A model's name or a part of it, "claude-3-5-sonnet" or "claude"."""

    name: str | None = None

    @classmethod
    def _mended(cls, value: object) -> object:
        """Some servers send the name itself."""
        return {"name": value} if isinstance(value, str) else super()._mended(value)


class ModelPreferences(Model):
    """The server's preferences: *hints*, best first, and the importance of cost, speed and intelligence (0 to 1)."""

    hints: Array[ModelHint] | None = None
    cost_priority: Number | None = None
    speed_priority: Number | None = None
    intelligence_priority: Number | None = None


class ToolChoice(Model, since="2025-11-25"):
    """Whether the model may (``auto``, the default), must or must not use tools."""

    mode: Annotated[Literal["auto", "required", "none"] | None, DECIDES] = None

    @property
    def tool(self) -> str | None:
        """The tool that the model must use, if the server names one: an extension of ``required`` in a draft."""
        name = (self.model_extra or {}).get("name")
        return name if self.mode == "required" and isinstance(name, str) else None

    @model_validator(mode="before")
    @classmethod
    def _read_draft(cls, value: object) -> object:
        """Early SDKs have ``type`` for ``mode``, and a fourth mode: ``{"type": "tool", "name": "add"}``. Anthropic's "any" is
        "required".
        """
        if not isinstance(value, dict):
            return value
        if value.get("mode") is None and value.get("type") is not None:
            kind = value["type"]
            if kind not in ("auto", "required", "none", "any", "tool"):
                raise _no_choice(f"type is {quoted(kind)}, and must be auto, required, none, any or tool")
            rest = {key: field for key, field in value.items() if key != "type"}
            value = {**rest, "mode": kind}
        if value.get("mode") == "any":
            return {**value, "mode": "required"}
        if value.get("mode") != "tool":
            return value
        if not isinstance(value.get("name"), str):
            raise _no_choice("a single tool is required, and the name is missing")
        return {**value, "mode": "required"}


def _no_choice(problem: str) -> PydanticCustomError:
    return PydanticCustomError("tool_choice", "{problem}", {"problem": problem})


class CreateMessageRequestParams(TaskAugmentedRequestParams, tolerant=True):
    """The params of ``sampling/createMessage``."""

    messages: Array[SamplingMessage]
    max_tokens: Integer
    model_preferences: ModelPreferences | None = None
    system_prompt: Annotated[str | None, DECIDES] = None
    include_context: Literal["none", "thisServer", "allServers"] | None = None
    temperature: Number | None = None
    stop_sequences: Annotated[Array[str] | None, DECIDES] = None
    metadata: JSONObject | None = None
    tools: Annotated[Array[Tool] | None, SINCE_2025_11_25, DECIDES] = None
    tool_choice: Annotated[ToolChoice | None, SINCE_2025_11_25, DECIDES] = None

    @model_validator(mode="before")
    @classmethod
    def _read_draft(cls, value: object) -> object:
        """SEP-1577 had ``tool_choice`` until October 2025."""
        if not isinstance(value, dict) or "tool_choice" not in value:
            return value
        rest = {key: field for key, field in value.items() if key != "tool_choice"}
        return {"toolChoice": value["tool_choice"], **rest}

    @property
    def disable_parallel_tool_use(self) -> bool:
        """Whether the model should make one tool call at a time: an extension in a draft."""
        name = "disable_parallel_tool_use"
        choice = (self.tool_choice and self.tool_choice.model_extra) or {}
        return choice.get(name) is True or (self.model_extra or {}).get(name) is True


class CreateMessageResult(_HasBlocks):
    """The model's answer; a single block may be given without a list.

    *stop_reason* is any string; the specification names ``endTurn``, ``stopSequence``,
    ``maxTokens`` and ``toolUse``.
    """

    role: Literal["assistant"] = "assistant"
    content: OneOrMore[AssistantContentBlock]  # type: ignore[assignment]  # never appended to
    model: str
    stop_reason: str | None = None
    meta: Meta = None

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            content: AssistantContentBlock | Sequence[AssistantContentBlock],
            model: str,
            role: Literal["assistant"] = "assistant",
            stop_reason: str | None = None,
            meta: Meta = None,
        ) -> None: ...
