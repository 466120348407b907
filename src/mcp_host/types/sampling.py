"""Sampling: what a server asks of the host's model, with or without tools, and what the model answers.

The shapes are those SEP-1577 settled on. Its earlier drafts are still spoken by servers
that were written against them; what differs there is understood on reading and never written:

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
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, model_validator
from pydantic_core import PydanticCustomError

from mcp_host.errors import quoted
from mcp_host.types.base import SINCE_2025_11_25, Array, JSONObject, Meta, Model, Number
from mcp_host.types.content import Role
from mcp_host.types.conversation import HasBlocks, OneOrMore, SamplingMessage, SamplingMessageContentBlock
from mcp_host.types.messages import InputCall, TaskAugmentedRequestParams
from mcp_host.types.tools import Tool

END_TURN = "endTurn"
STOP_SEQUENCE = "stopSequence"
MAX_TOKENS = "maxTokens"
TOOL_USE = "toolUse"


def _whole(number: object) -> object:
    """JSON has one kind of number: to some writers 1000 is 1000.0."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


Integer: TypeAlias = Annotated[int, BeforeValidator(_whole)]


class ModelHint(Model):
    """A model's name or a part of it, "claude-3-5-sonnet" or "claude"."""

    name: str | None = None


class ModelPreferences(Model):
    """Which model the server would like: *hints*, best first, then how much each of three things matters (0 to 1)."""

    hints: Array[ModelHint] | None = None
    cost_priority: Number | None = None
    speed_priority: Number | None = None
    intelligence_priority: Number | None = None


class ToolChoice(Model, since="2025-11-25"):
    """Whether the model may (``auto``, also where *mode* is absent), must or must not use tools."""

    mode: Literal["auto", "required", "none"] | None = None

    @property
    def tool(self) -> str | None:
        """The one tool that the model must use, where the server named it: a draft's extension of ``required``."""
        name = (self.model_extra or {}).get("name")
        return name if self.mode == "required" and isinstance(name, str) else None

    @model_validator(mode="before")
    @classmethod
    def _read_draft(cls, value: object) -> object:
        """Early SDKs have ``type`` for ``mode``, and one more of it: ``{"type": "tool", "name": "add"}``."""
        if not isinstance(value, dict):
            return value
        if value.get("mode") is None and value.get("type") is not None:
            kind = value["type"]
            if kind not in ("auto", "required", "none", "tool"):
                raise _no_choice(f"type is {quoted(kind)}, and must be auto, required, none or tool")
            rest = {key: field for key, field in value.items() if key != "type"}
            value = {**rest, "mode": kind}
        if value.get("mode") != "tool":
            return value
        if not isinstance(value.get("name"), str):
            raise _no_choice("a single tool is required, and the name is missing")
        return {**value, "mode": "required"}


def _no_choice(problem: str) -> PydanticCustomError:
    return PydanticCustomError("tool_choice", "{problem}", {"problem": problem})


class CreateMessageRequestParams(TaskAugmentedRequestParams):
    """A server asks the host's model for a completion."""

    messages: Array[SamplingMessage]
    max_tokens: Integer
    model_preferences: ModelPreferences | None = None
    system_prompt: str | None = None
    include_context: Literal["none", "thisServer", "allServers"] | None = None
    temperature: Number | None = None
    stop_sequences: Array[str] | None = None
    metadata: JSONObject | None = None
    tools: Annotated[Array[Tool] | None, SINCE_2025_11_25] = None
    tool_choice: Annotated[ToolChoice | None, SINCE_2025_11_25] = None

    @model_validator(mode="before")
    @classmethod
    def _read_draft(cls, value: object) -> object:
        """SEP-1577 spelled it ``tool_choice`` until October 2025."""
        if not isinstance(value, dict) or "tool_choice" not in value:
            return value
        rest = {key: field for key, field in value.items() if key != "tool_choice"}
        return {"toolChoice": value["tool_choice"], **rest}

    @property
    def disable_parallel_tool_use(self) -> bool:
        """Whether the server wants one tool call at a time: a draft's extension, in the tool choice or beside it."""
        choice = self.tool_choice.model_extra if self.tool_choice else None
        places = (choice or {}, self.model_extra or {})
        return any(place.get("disable_parallel_tool_use") is True for place in places)


class CreateMessageRequest(InputCall):
    """The request ``sampling/createMessage``."""

    method: Literal["sampling/createMessage"] = "sampling/createMessage"
    params: CreateMessageRequestParams


class CreateMessageResult(HasBlocks, Model):
    """What the model answered; a lone block may be given bare.

    *stop_reason* is any string; the specification names ``endTurn``, ``stopSequence``,
    ``maxTokens`` and ``toolUse``.
    """

    role: Role = "assistant"
    content: OneOrMore
    model: str
    stop_reason: str | None = None
    meta: Meta = None

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            content: SamplingMessageContentBlock | Sequence[SamplingMessageContentBlock],
            model: str,
            role: Role = "assistant",
            stop_reason: str | None = None,
            meta: Meta = None,
        ) -> None: ...
