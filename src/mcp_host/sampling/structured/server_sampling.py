"""`ServerSampling`: the model of the host, for the authors of servers."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeAlias, TypedDict, TypeVar, Unpack, overload

from anyio import current_time, move_on_after
from pydantic import TypeAdapter

from mcp_host.concurrency.tasks import awaited
from mcp_host.errors import NotDeclared, ProtocolError, quoted
from mcp_host.functions import Injected
from mcp_host.handlers import as_async, check_callable
from mcp_host.limits import check_count
from mcp_host.sampling.loop.engine import (
    MAX_TURNS,
    TIMEOUT,
    OnTurn,
    RunTool,
    Step,
    function_runner,
    read_answer,
    run_loop,
)
from mcp_host.sampling.loop.results import MAX_RESULT_BYTES, for_model, head_and_tail
from mcp_host.sampling.stop_reasons import REFUSALS
from mcp_host.sampling.structured.output_schema import (
    Misfit,
    OutputSchema,
    continued,
    corrected,
    raw_text,
    with_question,
)
from mcp_host.sampling.structured.prompts import (
    Choice,
    Message,
    OfferedTool,
    SamplingTool,
    dumped,
    read_choice,
    read_conversation,
    read_tools,
)
from mcp_host.sampling.structured.results import (
    ParsedLoopResult,
    ParsedResult,
    ParseError,
    RequestedCall,
    SamplingResult,
    ServerLoopResult,
    ToolCallsResult,
    UnparsedLoopResult,
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
    ToolChoice,
    ToolUseContent,
)
from mcp_host.types.base import given

T = TypeVar("T")

CreateMessage: TypeAlias = Callable[[dict[str, Any]], Awaitable[Mapping[str, Any]]]
"""Sends ``sampling/createMessage`` with these parameters, and returns its result, both as on the wire."""

TOKENS = 1024  # of an answer, by default
PREFERENCES = "model_preferences must be a name, a list of names, ModelPreferences or a dict"
RETRIES = 1  # a model that is told what was wrong mostly mends it at once


class SamplingOptions(TypedDict, total=False):
    """What any request to the model may have.

    *max_tokens* is 1,024 by default. *model_preferences* may be the name of a model or
    a part of it, a list of them, best first, or a dict in MCP's shape. *system_prompt* comes from the messages if they have one.
    """

    system_prompt: str | None
    max_tokens: int
    model_preferences: ModelPreferences | str | Sequence[str] | Mapping[str, Any] | None
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
        check_callable(create_message, argument="create_message", shape=None)
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
            ProtocolError, SamplingError: The client's result is malformed.
            Exception: What *create_message* raises, where the host refuses: `ClientError` with a `Context`. Other hosts
                than mcp-host may refuse what their model does, too, such as a text where the request forces a tool.
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
        if tools is not None:
            offered = read_tools(tools)
            params = self._params(conversation, fields, offered, tool_choice)
            return _tool_calls(conversation, read_answer(await self._ask(params), params), offered)
        params = CreateMessageRequestParams(messages=conversation, **fields)
        answer = read_answer(await self._ask(params), params)
        return SamplingResult(answer, continued(conversation, answer))

    @overload
    async def sample_loop(
        self,
        prompt: str | None = None,
        *,
        messages: Sequence[Message] | None = None,
        tools: Sequence[SamplingTool],
        tool_choice: Choice | None = None,
        max_turns: int = MAX_TURNS,
        timeout: float = TIMEOUT,
        max_result_bytes: int = MAX_RESULT_BYTES,
        on_turn: Callable[[Step], Awaitable[None] | None] | None = None,
        **options: Unpack[SamplingOptions],
    ) -> ServerLoopResult: ...
    @overload
    async def sample_loop(
        self,
        prompt: str | None = None,
        *,
        messages: Sequence[Message] | None = None,
        tools: Sequence[SamplingTool],
        tool_choice: Choice | None = None,
        schema: type[T] | TypeAdapter[T],
        retries: int = RETRIES,
        max_turns: int = MAX_TURNS,
        timeout: float = TIMEOUT,
        max_result_bytes: int = MAX_RESULT_BYTES,
        on_turn: Callable[[Step], Awaitable[None] | None] | None = None,
        **options: Unpack[SamplingOptions],
    ) -> ParsedLoopResult[T] | UnparsedLoopResult: ...
    @overload
    async def sample_loop(
        self,
        prompt: str | None = None,
        *,
        messages: Sequence[Message] | None = None,
        tools: Sequence[SamplingTool],
        tool_choice: Choice | None = None,
        schema: Mapping[str, Any],
        retries: int = RETRIES,
        max_turns: int = MAX_TURNS,
        timeout: float = TIMEOUT,
        max_result_bytes: int = MAX_RESULT_BYTES,
        on_turn: Callable[[Step], Awaitable[None] | None] | None = None,
        **options: Unpack[SamplingOptions],
    ) -> ParsedLoopResult[Any] | UnparsedLoopResult: ...
    async def sample_loop(
        self,
        prompt: str | None = None,
        *,
        messages: Sequence[Message] | None = None,
        tools: Sequence[SamplingTool],
        tool_choice: Choice | None = None,
        schema: object = None,
        retries: int = RETRIES,
        max_turns: int = MAX_TURNS,
        timeout: float = TIMEOUT,
        max_result_bytes: int = MAX_RESULT_BYTES,
        on_turn: Callable[[Step], Awaitable[None] | None] | None = None,
        **options: Unpack[SamplingOptions],
    ) -> ServerLoopResult:
        """Ask the host's model, run the *tools* that it calls, send it the results, and so on until it answers.

        The calls in one answer run at the same time. If one fails, or there is no such tool, the model gets an error
        result. A call of a tool without a function ends the loop, see `ServerLoopResult`. In the last of *max_turns*
        the model has to answer. A *tool_choice* other than "auto" holds until the model has obeyed it.

        With *schema* one more turn, without the tools, gives the answer its shape; see `sample` for *retries*.
        *timeout* is in seconds, for the whole loop with that turn. *on_turn* gets each `Step` when it has ended.
        Plain functions run in a thread, which a timeout leaves behind.

        The model gets at most about *max_result_bytes* of text of each result, the head and the tail, with a note of
        how much is left out. The steps have the whole result.

        Raises:
            TypeError, ValueError: The arguments are wrong; nothing was sent.
            NotDeclared: The client takes no tools.
            ProtocolError, SamplingError: The client's result is malformed.
            Exception: What *create_message* raises, where the host refuses: see `sample`. *on_turn* raised it.
        """
        conversation, system_prompt = read_conversation(prompt, messages)
        fields = _fields(options, system_prompt)
        offered = read_tools(tools)
        shape = None if schema is None else OutputSchema[Any](schema)
        check_count("retries", retries, least=0)
        check_count("max_result_bytes", max_result_bytes)
        turn = None if on_turn is None else as_async(on_turn, argument="on_turn", shape="(step: Step) -> None")
        params = self._params(conversation, fields, offered, tool_choice)
        injected = self if isinstance(self, Injected) else None
        runners = {
            name: self._recorded(function_runner(tool.function, injected, timeout=timeout))
            for name, tool in offered.items()
            if tool.function is not None
        }
        began = current_time()
        loop = await run_loop(
            self._ask,
            params,
            tools=runners,
            write_result=partial(for_model, max_bytes=max_result_bytes, cut=head_and_tail),
            max_turns=max_turns,
            timeout=timeout,
            on_turn=turn,
        )
        open_calls = None
        if loop.answer is not None and loop.ended == "tool_calls":
            open_calls = _tool_calls(loop.messages, loop.answer, offered)
        result = ServerLoopResult(
            ended=loop.ended,
            answer=loop.answer,
            messages=loop.messages,
            steps=loop.steps,
            unfinished=loop.unfinished,
            open_calls=open_calls,
        )
        if shape is None:
            return result
        return await self._shape(result, shape, retries, fields, began + timeout - current_time(), turn)

    def _recorded(self, run: RunTool) -> RunTool:
        """The same tool, whose calls are made once each, though this may run again. Here it does not."""
        return run

    async def _shape(
        self,
        loop: ServerLoopResult,
        schema: OutputSchema[T],
        retries: int,
        fields: dict[str, Any],
        seconds: float,
        on_turn: OnTurn | None,
    ) -> ParsedLoopResult[T] | UnparsedLoopResult:
        """Give the answer of a loop its shape, in so many seconds."""
        turns: list[Step] = []
        shaped: ParsedResult[T] | UnparsedResult | None = None

        async def add(turn: Step, result: ParsedResult[T] | UnparsedResult | None) -> None:
            nonlocal shaped
            shaped = result
            turns.append(turn)
            if on_turn is not None:
                await on_turn(turn)

        ended = loop.ended
        if ended not in ("timeout", "tool_calls"):
            with move_on_after(seconds):
                await self._sample_schema(loop.messages, schema, retries, fields, add)
            ended = "timeout" if shaped is None else ended
        steps = (*loop.steps, *turns)
        if isinstance(shaped, ParsedResult):
            return ParsedLoopResult(
                ended=ended, answer=shaped.answer, messages=shaped.messages, steps=steps, parsed=shaped.parsed
            )
        answer, messages = (loop.answer, loop.messages) if shaped is None else (shaped.answer, shaped.messages)
        error = ParseError(f"the loop ended before: {ended}", loop.text) if shaped is None else shaped.parse_error
        return UnparsedLoopResult(
            ended=ended,
            answer=None if ended == "timeout" else answer,
            messages=messages,
            steps=steps,
            unfinished=loop.unfinished,
            open_calls=loop.open_calls,
            parse_error=error,
        )

    @overload
    async def once(self, name: str, function: Callable[[], Awaitable[T]]) -> T: ...
    @overload
    async def once(self, name: str, function: Callable[[], T]) -> T: ...
    async def once(self, name: str, function: Callable[[], object]) -> object:
        """Call *function*, which returns a JSON value, and return that value as JSON: a tuple becomes a list.

        Since revision 2026-07-28, servers on the official SDK and on fastmcp run a tool again from its start for each
        answer of the client. What the tool does here, it does the first time only: then this returns the same value
        again. Use it for what is decided by chance, by a clock or elsewhere, and for what must not be done twice.
        Calls with the same *name* are told apart by their order. Other servers just call *function*.
        A function that raises has no value: then it is called again.

        Raises:
            TypeError: The value is no JSON.
        """
        result = function()
        value = await result if isinstance(result, Awaitable) else result
        try:
            return json.loads(json.dumps(value, allow_nan=False))
        except (TypeError, ValueError, RecursionError) as exc:
            raise TypeError(f"once({name!r}): the function returned a value that is no JSON: {exc}") from exc

    def _params(
        self,
        conversation: list[SamplingMessage],
        fields: dict[str, Any],
        tools: Mapping[str, OfferedTool],
        choice: Choice | None,
    ) -> CreateMessageRequestParams:
        """The request with tools."""
        tool_choice = given(tool_choice=read_choice(choice, tools))
        if not self._with_tools:
            raise NotDeclared("sampling", "tools")
        definitions = [tool.definition for tool in tools.values()]
        return CreateMessageRequestParams(messages=conversation, tools=definitions, **fields, **tool_choice)

    async def _sample_schema(
        self,
        conversation: list[SamplingMessage],
        schema: OutputSchema[T],
        retries: int,
        fields: dict[str, Any],
        on_try: Callable[[Step, ParsedResult[T] | UnparsedResult | None], Awaitable[None]] | None = None,
    ) -> ParsedResult[T] | UnparsedResult:
        """Ask for a value of *schema*. *on_try* gets each answer as a step, and with the last one the result."""
        question = with_question(conversation)
        params = schema.request(CreateMessageRequestParams(messages=question, **fields), by_tool=self._with_tools)
        tries = 0
        while True:
            answer = await self._ask(params)
            said = read_answer(answer, params)
            written = raw_text(answer)
            messages = [*question, AssistantMessage(written)] if written else question
            result: ParsedResult[T] | UnparsedResult | None = None
            try:
                result = ParsedResult(answer, messages, schema.read_answer(answer))
            except Misfit as exc:
                if tries >= retries or answer.stop_reason in REFUSALS:
                    result = UnparsedResult(answer, messages, ParseError(str(exc), written))
                params = corrected(params, said, str(exc))
            if on_try is not None:
                added = () if result is None else tuple(messages[len(conversation) :])
                await on_try(Step(answer, (), added), result)
            if result is not None:
                return result
            tries += 1

    async def _ask(self, params: CreateMessageRequestParams) -> CreateMessageResult:
        """Send the request. The specification has no choice of one named tool: then only that tool is offered."""
        if (choice := params.tool_choice) is not None and choice.tool is not None:
            only = [tool for tool in params.tools or () if tool.name == choice.tool]
            params = params.model_copy(update={"tools": only, "tool_choice": ToolChoice(mode="required")})
        wire = params.to_wire()
        if problem := _json_problem(wire):
            raise ValueError(f"the request cannot be sent: {problem}")
        answer = CreateMessageResult.from_wire(await awaited(self._create_message(wire), "create_message"))
        if problem := _json_problem(answer.to_wire()):  # the next request may have to repeat it
            raise ProtocolError(f"malformed CreateMessageResult: {problem}")
        return answer


def _json_problem(wire: Mapping[str, Any]) -> str | None:
    """Which field is no JSON in UTF-8, and why. Transports treat it in different ways, some by ending the connection."""
    if _why_no_json(wire) is None:
        return None
    parts = [part for name, value in wire.items() for part in _parts(name, value)]
    return next(f"{name}: {problem}" for name, part in parts if (problem := _why_no_json(part)) is not None)


def _why_no_json(value: object) -> str | None:
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError) as exc:
        return str(exc)
    return None


def _parts(name: str, value: object) -> list[tuple[str, object]]:
    """A field, or each item of one that is a list, as deep as in the message."""
    if isinstance(value, list) and value:
        return [(f"{name}[{index}]", {name: [item]}) for index, item in enumerate(value)]
    return [(name, {name: value})]


def _fields(options: SamplingOptions, system_prompt: str | None) -> dict[str, Any]:
    """The options as fields of the request."""
    if unknown := options.keys() - SamplingOptions.__annotations__.keys():
        raise TypeError(f"{min(unknown)!r} is no argument of a request to the model")
    fields = given(**options)
    if system_prompt is not None:
        if "system_prompt" in fields:
            raise ValueError("the system prompt is given twice: as an argument, and in the messages")
        fields["system_prompt"] = system_prompt
    if "model_preferences" in fields:
        fields["model_preferences"] = _preferences(fields["model_preferences"])
    if "stop_sequences" in fields:
        if isinstance(fields["stop_sequences"], str):
            raise TypeError("stop_sequences must be a list of str, not a str")
        fields["stop_sequences"] = list(fields["stop_sequences"])
    return {"max_tokens": TOKENS, **fields}


def _preferences(wanted: object) -> ModelPreferences:
    match dumped(wanted):
        case ModelPreferences() as preferences:
            return preferences
        case str(name):
            return ModelPreferences(hints=[ModelHint(name=name)])
        case Mapping() as wire:
            try:
                read = ModelPreferences.from_wire(dict(wire))
            except ProtocolError as exc:
                raise ValueError(str(exc).replace("malformed ModelPreferences", "model_preferences", 1)) from None
            if read.model_extra:
                raise ValueError(f"model_preferences: there is no {quoted(min(read.model_extra))}")
            return read
        case [*names]:
            hints = [ModelHint(name=name) for name in names if isinstance(name, str)]
            if len(hints) == len(names):
                return ModelPreferences(hints=hints)
    raise TypeError(f"{PREFERENCES}, not {type(wanted).__name__}")


def _tool_calls(
    conversation: list[SamplingMessage], answer: CreateMessageResult, tools: Mapping[str, OfferedTool]
) -> ToolCallsResult:
    calls = tuple([_call(use, tools.get(use.name)) for use in answer.tool_uses])
    return ToolCallsResult(answer, continued(conversation, answer), calls)


def _call(use: ToolUseContent, tool: OfferedTool | None) -> RequestedCall:
    try:
        if tool is None:
            raise Misfit(f"there is no tool {quoted(use.name)}")
        parsed = None if tool.arguments is None else tool.arguments.read(use.input)
    except Misfit as exc:
        return RequestedCall(use.id, use.name, use.input, parse_error=ParseError(str(exc), json.dumps(use.input)))
    return RequestedCall(use.id, use.name, use.input, parsed)
