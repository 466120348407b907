"""`ServerSampling`: the model of the host, for the authors of servers."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict, TypeVar, Unpack, overload

from pydantic import TypeAdapter

from mcp_host.errors import NotDeclared
from mcp_host.limits import check_count
from mcp_host.sampling.structured.output_schema import Misfit, OutputSchema
from mcp_host.sampling.structured.prompts import (
    Choice,
    Message,
    OfferedTool,
    SamplingTool,
    read_choice,
    read_conversation,
    read_tools,
)
from mcp_host.sampling.structured.results import (
    ParsedResult,
    ParseError,
    RequestedCall,
    SamplingResult,
    ToolCallsResult,
    UnparsedResult,
)
from mcp_host.types import (
    AssistantMessage,
    CreateMessageRequestParams,
    CreateMessageResult,
    JSONObject,
    ModelHint,
    ModelPreferences,
    SamplingMessage,
    TextContent,
    ToolChoice,
    ToolResultContent,
    UserMessage,
)
from mcp_host.types.base import given
from mcp_host.types.sampling import MAX_TOKENS

T = TypeVar("T")

CreateMessage: TypeAlias = Callable[[dict[str, Any]], Awaitable[Mapping[str, Any]]]
"""Sends ``sampling/createMessage`` with these parameters, and returns its result, both as on the wire."""

TOKENS = 1024  # of an answer, by default
ANSWER = "answer"  # the tool that carries a schema
RETRIES = 1  # a model that is told what was wrong mostly mends it at once
REFUSALS = frozenset({"refusal", "content_filter"})  # stop reasons of a draft of SEP-1577, and of OpenAI's API


class SamplingOptions(TypedDict, total=False):
    """What any request to the model may have.

    *max_tokens* is 1,024 by default. *model_preferences* may be the name of a model or
    a part of it, or a list of them, best first. *system_prompt* comes from the messages if they have one.
    """

    system_prompt: str | None
    max_tokens: int
    model_preferences: ModelPreferences | str | Sequence[str] | None
    temperature: float | None
    stop_sequences: Sequence[str] | None
    metadata: JSONObject | None
    include_context: Literal["none", "thisServer", "allServers"] | None


class ServerSampling:
    """The model of the host that called a server.

    *create_message* sends the request to the client: it gets the parameters of ``sampling/createMessage``
    as a dict, and returns the result as a dict. *with_tools* says whether the client declared ``sampling.tools``.
    """

    def __init__(self, create_message: CreateMessage, *, with_tools: bool) -> None:
        self._create_message = create_message
        self._with_tools = with_tools

    @overload
    async def sample(
        self,
        prompt: str | None = None,
        *,
        messages: Sequence[Message] | None = None,
        **options: Unpack[SamplingOptions],
    ) -> SamplingResult: ...
    @overload
    async def sample(
        self,
        prompt: str | None = None,
        *,
        messages: Sequence[Message] | None = None,
        schema: type[T] | TypeAdapter[T],
        retries: int = RETRIES,
        **options: Unpack[SamplingOptions],
    ) -> ParsedResult[T] | UnparsedResult: ...
    @overload
    async def sample(
        self,
        prompt: str | None = None,
        *,
        messages: Sequence[Message] | None = None,
        schema: Mapping[str, Any],
        retries: int = RETRIES,
        **options: Unpack[SamplingOptions],
    ) -> ParsedResult[Any] | UnparsedResult: ...
    @overload
    async def sample(
        self,
        prompt: str | None = None,
        *,
        messages: Sequence[Message] | None = None,
        tools: Sequence[SamplingTool],
        tool_choice: Choice | None = None,
        **options: Unpack[SamplingOptions],
    ) -> ToolCallsResult: ...
    async def sample(
        self,
        prompt: str | None = None,
        *,
        messages: Sequence[Message] | None = None,
        schema: object = None,
        retries: int = RETRIES,
        tools: Sequence[SamplingTool] | None = None,
        tool_choice: Choice | None = None,
        **options: Unpack[SamplingOptions],
    ) -> SamplingResult:
        """Ask the host's model for one answer: a text, a value of *schema*, or calls of *tools*.

        Give either a *prompt* or *messages*. With *schema* the result has ``parsed`` or a ``parse_error``; it is
        asked for again, up to *retries* times, with what was wrong. With *tools* the result has ``tool_calls``.

        Raises:
            TypeError, ValueError: The arguments are wrong; nothing was sent.
            NotDeclared: There are *tools*, and the client takes none.
            ProtocolError: The client's result is malformed.
        """
        if schema is not None and tools is not None:
            raise TypeError(
                "schema and tools exclude each other: sample with the tools first, then with the schema"
                " and the conversation that `answered` returns"
            )
        if tool_choice is not None and tools is None:
            raise TypeError("tool_choice needs tools")
        conversation, system_prompt = read_conversation(prompt, messages)
        fields = _fields(options, system_prompt)
        if schema is not None:
            check_count("retries", retries, least=0)
            return await self._sample_schema(conversation, OutputSchema[Any](schema), retries, fields)
        if tools is None:
            answer = await self._ask(conversation, fields)
            return SamplingResult(answer, _continued(conversation, answer))
        return await self._sample_tools(conversation, *read_choice(tool_choice, read_tools(tools)), fields)

    @overload
    async def once(self, name: str, function: Callable[[], Awaitable[T]]) -> T: ...
    @overload
    async def once(self, name: str, function: Callable[[], T]) -> T: ...
    async def once(self, name: str, function: Callable[[], object]) -> object:
        """Call *function*, which returns a JSON value.

        Since revision 2026-07-28, servers on the official SDK and on fastmcp run a tool again from its start for each
        answer of the client. What the tool does here, it does the first time only: then this returns the same value
        again. Use it for what is decided by chance, by a clock or elsewhere, and for what must not be done twice.
        Calls with the same *name* are told apart by their order. Other servers just call *function*.
        """
        result = function()
        return await result if isinstance(result, Awaitable) else result

    async def _sample_tools(
        self,
        conversation: list[SamplingMessage],
        tools: Mapping[str, OfferedTool],
        choice: ToolChoice | None,
        fields: dict[str, Any],
    ) -> ToolCallsResult:
        if not self._with_tools:
            raise NotDeclared("sampling", "tools")
        offered = [tool.definition for tool in tools.values()]
        answer = await self._ask(conversation, fields | given(tools=offered, tool_choice=choice))
        calls = tuple([_call(use.id, use.name, use.input, tools.get(use.name)) for use in answer.tool_uses])
        return ToolCallsResult(answer, _continued(conversation, answer), calls)

    async def _sample_schema(
        self, conversation: list[SamplingMessage], schema: OutputSchema[T], retries: int, fields: dict[str, Any]
    ) -> ParsedResult[T] | UnparsedResult:
        asked = conversation
        if self._with_tools:
            fields = fields | {"tools": [schema.tool(ANSWER)], "tool_choice": ToolChoice(mode="required")}
        else:
            asked = _instructed(conversation, schema.instruction)
        while True:
            answer = await self._ask(asked, fields)
            raw_text = _raw_text(answer)
            try:
                value = _read(schema, answer)
            except Misfit as exc:
                if retries == 0 or answer.stop_reason in REFUSALS:
                    return UnparsedResult(answer, _with_text(conversation, raw_text), ParseError(str(exc), raw_text))
                retries -= 1
                asked = [*_continued(asked, answer), _correction(answer, str(exc))]
            else:
                return ParsedResult(answer, _with_text(conversation, raw_text), value)

    async def _ask(self, conversation: list[SamplingMessage], fields: dict[str, Any]) -> CreateMessageResult:
        params = CreateMessageRequestParams(messages=conversation, **fields)
        return CreateMessageResult.from_wire(await self._create_message(params.to_wire()))


def _fields(options: SamplingOptions, system_prompt: str | None) -> dict[str, Any]:
    """The options as fields of the request."""
    if unknown := options.keys() - SamplingOptions.__annotations__.keys():
        raise TypeError(f"{min(unknown)!r} is no argument of a request to the model")
    fields = given(**options)
    if system_prompt is not None:
        if "system_prompt" in fields:
            raise ValueError("the system prompt is given twice: as an argument, and in the messages")
        fields["system_prompt"] = system_prompt
    match fields.get("model_preferences"):
        case None | ModelPreferences():
            pass
        case str(name):
            fields["model_preferences"] = ModelPreferences(hints=[ModelHint(name=name)])
        case names:
            fields["model_preferences"] = ModelPreferences(hints=[ModelHint(name=name) for name in names])
    if "stop_sequences" in fields:
        fields["stop_sequences"] = list(fields["stop_sequences"])
    return {"max_tokens": TOKENS, **fields}


def _continued(conversation: list[SamplingMessage], answer: CreateMessageResult) -> list[SamplingMessage]:
    """The conversation with the answer, unless that is empty: models take no empty messages."""
    if not (answer.text or any(not isinstance(block, TextContent) for block in answer.content)):
        return conversation
    return [*conversation, SamplingMessage(role="assistant", content=answer.content)]


def _with_text(conversation: list[SamplingMessage], text: str) -> list[SamplingMessage]:
    return [*conversation, AssistantMessage(text)] if text else conversation


def _call(id: str, name: str, arguments: JSONObject, tool: OfferedTool | None) -> RequestedCall:
    if tool is None or tool.arguments is None:
        return RequestedCall(id, name, arguments)
    try:
        return RequestedCall(id, name, arguments, parsed=tool.arguments.read(arguments))
    except Misfit as exc:
        return RequestedCall(id, name, arguments, parse_error=ParseError(str(exc), json.dumps(arguments)))


# An answer with a schema


def _instructed(conversation: list[SamplingMessage], instruction: str) -> list[SamplingMessage]:
    """The conversation with the instruction at its end: in the last text of the user, if there is just one."""
    match conversation[-1]:
        case SamplingMessage(role="user", content=[TextContent(text=text)]):
            return [*conversation[:-1], UserMessage(f"{text}\n\n{instruction}")]
    return [*conversation, UserMessage(instruction)]


def _raw_text(answer: CreateMessageResult) -> str:
    """What the model wrote: the arguments of its calls, or its text."""
    return "\n".join([json.dumps(use.input) for use in answer.tool_uses]) or answer.text


def _read(schema: OutputSchema[T], answer: CreateMessageResult) -> T:
    """The value of an answer.

    Raises:
        Misfit: It has none.
    """
    if answer.stop_reason in REFUSALS:
        raise Misfit("The model refused to answer.")
    if answer.stop_reason == MAX_TOKENS:
        raise Misfit("The answer was cut off, because it has too many tokens. Give a shorter one.")
    match answer.tool_uses:
        case []:
            if others := [block.type for block in answer.content if not isinstance(block, TextContent)]:
                raise Misfit(f"The answer has to be JSON, without {others[0]}.")
            if not answer.text.strip():
                raise Misfit("The answer is empty.")
            return schema.read_text(answer.text)
        case [use] if use.name == ANSWER:
            return schema.read(use.input)
        case [use]:
            raise Misfit(f"There is no tool {use.name}. Call {ANSWER}.")
        case uses:
            raise Misfit(f"Give one answer, not {len(uses)}.")


def _correction(answer: CreateMessageResult, problem: str) -> SamplingMessage:
    """What follows on an answer that does not fit: error results for its calls, or a message of the user."""
    if not (uses := answer.tool_uses):
        return UserMessage(f"{problem.removesuffix('.')}. Answer again.")
    return UserMessage([ToolResultContent.of(use, problem, is_error=True) for use in uses])
