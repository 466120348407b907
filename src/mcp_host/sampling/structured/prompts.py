"""Messages and tools, as authors of servers write them, read as the protocol's types.

A conversation is a list of `SamplingMessage`, of messages of prompts, of dicts in MCP's shape, or of dicts in the shape
of OpenAI's chat completions; they may be mixed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel
from pydantic_core import from_json

from mcp_host.errors import ProtocolError, excerpt, quoted
from mcp_host.functions import AnyFunction, FunctionTool
from mcp_host.protocol import conversation
from mcp_host.sampling.loop.results import block_text
from mcp_host.sampling.structured.inlining import inlined
from mcp_host.sampling.structured.output_schema import OutputSchema, check_schema
from mcp_host.types import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    PromptMessage,
    ReceivedContent,
    ResourceLink,
    SamplingMessage,
    TextContent,
    TextResourceContents,
    Tool,
    ToolChoice,
    UserMessage,
)
from mcp_host.types.base import Model, given
from mcp_host.types.content import file_as_text

logger = logging.getLogger(__name__)

Message: TypeAlias = SamplingMessage | Mapping[str, Any] | BaseModel
"""A message of a conversation, or of a prompt. A dict is in MCP's shape, or in the shape of OpenAI's chat completions.

So are the messages of their SDKs, which are pydantic's.
"""

SamplingTool: TypeAlias = Tool | AnyFunction | FunctionTool | type[BaseModel] | Mapping[str, Any] | BaseModel
"""A tool for the model: a definition, a typed function, or a pydantic model that a call's arguments are parsed into.

A dict is a definition in MCP's shape, whose ``inputSchema`` may be a pydantic model, or in that of OpenAI's chat
completions. So is a ``Tool`` of the official SDK.
"""

Choice: TypeAlias = Literal["auto", "required", "none"] | str | ToolChoice
"""Whether the model may, must or must not call a tool; or the name of the one tool that it must call."""

SYSTEM = ("system", "developer")
NOT_MCP = frozenset(  # fields of OpenAI's messages; `_read_dict` reads some of them
    {"annotations", "audio", "function_call", "name", "refusal", "tool_call_id", "tool_calls"}
)
AUDIO = {"wav": "audio/wav", "mp3": "audio/mpeg"}  # OpenAI's formats of ``input_audio``
DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,(.*)", re.DOTALL)
UNSAFE = re.compile(r"[^a-zA-Z0-9_.-]+")  # characters that providers of models do not take in the name of a tool
INDEX = re.compile(r"messages\[(\d+)\]")


# Messages


def read_conversation(prompt: object, messages: object) -> tuple[list[SamplingMessage], str | None]:
    """The conversation, and the system prompt if *messages* has one.

    Raises:
        TypeError: There is not exactly one of the two, or it is of another type.
        ValueError: A message cannot be read, or breaks a rule of conversations. The text names its index.
    """
    if (prompt is None) == (messages is None):
        raise TypeError("give either a prompt or messages" + (", not both" if prompt is not None else ""))
    if messages is None:
        if not isinstance(prompt, str):
            raise TypeError(
                f"the prompt must be a str, not {type(prompt).__name__}; a conversation is given as messages="
            )
        return [UserMessage(prompt)], None
    if isinstance(messages, str) or not isinstance(messages, Sequence):
        raise TypeError(f"messages must be a list of messages, not {type(messages).__name__}")
    return _read_messages(messages)


def _read_messages(messages: Sequence[object]) -> tuple[list[SamplingMessage], str | None]:
    read: list[SamplingMessage] = []
    indexes: list[int] = []  # of each message that was read, in *messages*
    system: list[str] = []
    in_results = False
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        if isinstance(message, PromptMessage):
            message = {"role": message.role, "content": _of_prompt(message.content)}
        message = dumped(message)
        if not isinstance(message, SamplingMessage | Mapping):
            raise TypeError(f"{where} must be a SamplingMessage or a dict, not {type(message).__name__}")
        role = message.get("role") if isinstance(message, Mapping) else None
        if isinstance(message, Mapping) and role in SYSTEM:
            if read:
                raise ValueError(f"{where}: a {role} message has to come before all others")
            said = _read_dict({**message, "role": "user"}, where)
            if others := [block.type for block in said.content if not isinstance(block, TextContent)]:
                raise ValueError(f"{where}: a {role} message has to be a text, and this has a block of {others[0]}")
            system += filter(None, [said.text])
            continue
        one = _read_dict(message, where) if isinstance(message, Mapping) else message
        if role == "tool" and in_results:  # OpenAI has a message for each result, MCP has one for all
            read[-1] = read[-1].model_copy(update={"content": [*read[-1].content, *one.content]})
        else:
            read.append(one)
            indexes.append(index)
        in_results = role == "tool"
    try:
        return conversation.check_and_merge(read), "\n\n".join(system) if system else None
    except ProtocolError as exc:
        raise ValueError(INDEX.sub(lambda found: f"messages[{indexes[int(found[1])]}]", str(exc))) from None


def _read_dict(message: Mapping[str, Any], where: str) -> SamplingMessage:
    wire = {name: value for name, value in message.items() if name not in NOT_MCP}
    for name in ("audio", "function_call"):
        if message.get(name) is not None:
            raise ValueError(f"{where}: {name} has no counterpart in MCP")
    blocks = _blocks(message.get("content"), where)
    if message.get("role") == "tool":
        wire = {"role": "user"}
        blocks = [{"type": "tool_result", "toolUseId": message.get("tool_call_id"), "content": blocks}]
    if message.get("refusal") is not None:
        blocks.append({"type": "text", "text": message["refusal"]})
    calls = message.get("tool_calls") or ()
    if not isinstance(calls, list | tuple):
        raise TypeError(f"{where}: tool_calls must be a list, not {type(calls).__name__}")
    blocks += [_tool_use(call, f"{where}: tool_calls[{n}]") for n, call in enumerate(calls)]
    try:
        return SamplingMessage.from_wire({**wire, "content": list(map(_without_resource, blocks))})
    except ProtocolError as exc:
        raise ValueError(f"{where}: {_problem(exc)}") from None


def dumped(value: object) -> object:
    """The dict of an object of another SDK; anything else as it is."""
    if isinstance(value, BaseModel) and not isinstance(value, Model):
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    return value


def _problem(exc: ProtocolError) -> str:
    """The text without the name of the class."""
    return str(exc).partition(": ")[2]


def _blocks(content: object, where: str) -> list[object]:
    match content:
        case None | "":  # as OpenAI writes it beside tool calls; models take no empty text
            return []
        case str():
            return [{"type": "text", "text": content}]
        case Mapping() | BaseModel():
            return [_block(content, where)]
        case Sequence() if not isinstance(content, bytes | bytearray | memoryview):
            return [_block(part, f"{where}: content[{index}]") for index, part in enumerate(content)]
    raise TypeError(f"{where}: content must be a str, a block or a list of blocks, not {type(content).__name__}")


def _block(part: object, where: str) -> object:
    """A block in MCP's shape, made of a block or of a content part of OpenAI's."""
    match part := dumped(part):
        case Model():
            return part.to_wire()
        case {"type": "refusal", "refusal": text}:
            return {"type": "text", "text": text}
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            if not (found := DATA_URL.fullmatch(url)):
                raise ValueError(f"{where}: the image must be a data URL in base64, because nothing is fetched")
            return {"type": "image", "mimeType": found[1], "data": found[2]}
        case {"type": "input_audio", "input_audio": {"data": data, "format": name}}:
            if name not in AUDIO:
                raise ValueError(f"{where}: the format of audio must be {' or '.join(AUDIO)}, not {quoted(name)}")
            return {"type": "audio", "mimeType": AUDIO[name], "data": data}
    return part


def _without_resource(block: object) -> object:
    """*block* of a message, which has no resources: those in results of tools are blocks of the result."""
    match block:
        case {"type": "resource"}:
            return _of_prompt(EmbeddedResource.from_wire(block)).to_wire()
        case {"type": "resource_link"}:
            return _of_prompt(ResourceLink.from_wire(block)).to_wire()
    return block


def _of_prompt(block: ReceivedContent) -> TextContent | ImageContent | AudioContent:
    """A block of a prompt as one of a conversation: of a resource the text, the image or the audio, else what names it."""
    match block:
        case TextContent() | ImageContent() | AudioContent():
            return block
        case EmbeddedResource(resource=TextResourceContents(uri=uri, text=text)):
            return TextContent(text=file_as_text(uri, text))
        case EmbeddedResource(resource=BlobResourceContents(blob=data, mime_type=str(kind))):
            if kind.startswith("image/"):
                return ImageContent(data=data, mime_type=kind)
            if kind.startswith("audio/"):
                return AudioContent(data=data, mime_type=kind)
    text = block_text(block)
    if not isinstance(block, ResourceLink):
        logger.warning("a model gets a text in the place of what no message can have: %s", excerpt(text))
    return TextContent(text=text)


def _tool_use(call: object, where: str) -> object:
    match call:
        case {"id": id, "function": {"name": name, "arguments": (str() | Mapping()) as arguments}}:
            return {"type": "tool_use", "id": id, "name": name, "input": _arguments(arguments, where)}
    raise ValueError(f"{where} must have an id and a function, with a name and arguments, an object or its JSON")


def _arguments(arguments: str | Mapping[str, object], where: str) -> dict[str, object]:
    """OpenAI writes them as a text. Templates and servers that speak its API often have the object itself."""
    if not isinstance(arguments, str):
        return dict(arguments)
    try:
        decoded = from_json(arguments, allow_inf_nan=False)
    except ValueError as exc:
        raise ValueError(f"{where}: the arguments are not JSON: {exc}") from None
    if not isinstance(decoded, dict):
        raise ValueError(f"{where}: the arguments must be a JSON object, not {quoted(arguments)}")
    return decoded


# Tools


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool for the model: its definition, and what its calls are run with or parsed into, if that is known."""

    definition: Tool
    function: FunctionTool | None = None
    arguments: OutputSchema[BaseModel] | None = None


def read_tools(tools: Sequence[SamplingTool]) -> dict[str, OfferedTool]:
    """The tools by their names.

    Raises:
        TypeError: One is of another type, or cannot be described by a JSON Schema. The text names its index.
        ValueError: One is malformed, or has the name of another.
    """
    if isinstance(tools, str | Mapping) or not isinstance(tools, Sequence):
        raise TypeError(f"tools must be a list of tools, not {type(tools).__name__}")
    read = [_read_tool(tool, f"tools[{index}]") for index, tool in enumerate(tools)]
    try:
        conversation.check_tools([tool.definition for tool in read], None)
    except ProtocolError as exc:
        raise ValueError(str(exc)) from None
    return {tool.definition.name: tool for tool in read}


def _read_tool(tool: object, where: str) -> OfferedTool:
    try:
        offered = _offered(tool)
        definition = offered.definition.model_copy(update={"input_schema": inlined(offered.definition.input_schema)})
        if offered.function is None and offered.arguments is None:  # the schemas of types are valid
            _check_schema(definition)
    except TypeError as exc:
        raise TypeError(f"{where}: {exc}") from None
    except ValueError as exc:
        raise ValueError(f"{where}: {exc}") from None
    return replace(offered, definition=definition)


def _offered(tool: object) -> OfferedTool:
    match tool := dumped(tool):
        case Tool():
            return OfferedTool(tool)
        case FunctionTool():
            return OfferedTool(tool.definition, tool)
        case type() if issubclass(tool, BaseModel):
            return _of_model(tool, {"name": UNSAFE.sub("_", tool.__name__.rstrip("]"))})  # "Page[int]" is generic
        case {"type": "function", "function": Mapping() as function}:  # in the shape of OpenAI's chat completions
            schema = function.get("parameters", {"type": "object", "properties": {}})
            fields = given(name=function.get("name"), description=function.get("description"), inputSchema=schema)
            return _offered(fields)
        case Mapping():
            model = tool.get("inputSchema")
            if isinstance(model, type) and issubclass(model, BaseModel):
                return _of_model(model, tool)
            return OfferedTool(_definition(tool))
        case Callable():
            made = FunctionTool(tool)
            return OfferedTool(made.definition, made)
    raise TypeError(f"a {type(tool).__name__} is no tool, function, pydantic model or dict")


def _check_schema(tool: Tool) -> None:
    where = f"the inputSchema of {quoted(tool.name)}"
    if tool.input_schema.get("type") != "object":
        raise ValueError(f'{where} has to be that of an object, with "type": "object"')
    check_schema(tool.input_schema, where)


def _of_model(model: type[BaseModel], wire: Mapping[str, Any]) -> OfferedTool:
    arguments = OutputSchema[BaseModel](model, what="the call")
    description = given(description=arguments.description)
    return OfferedTool(_definition({**description, **wire, "inputSchema": arguments.schema}), arguments=arguments)


def _definition(wire: Mapping[str, Any]) -> Tool:
    try:
        return Tool.from_wire(dict(wire))
    except ProtocolError as exc:
        raise ValueError(_problem(exc)) from None


def read_choice(choice: Choice | None, tools: Mapping[str, OfferedTool]) -> ToolChoice | None:
    """The choice among *tools*.

    Raises:
        ValueError: No tool has that name, or a tool is required where there is none.
    """
    match choice:
        case "auto" | "required" | "none":
            choice = ToolChoice(mode=choice)
        case str():
            choice = ToolChoice.from_wire({"mode": "required", "name": choice})
        case None | ToolChoice():
            pass
        case _:
            raise TypeError(f"tool_choice must be a str or a ToolChoice, not {type(choice).__name__}")
    try:
        conversation.check_tools([tool.definition for tool in tools.values()], choice)
    except ProtocolError as exc:
        raise ValueError(str(exc)) from None
    return choice
