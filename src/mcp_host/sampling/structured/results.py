"""What a server gets from `ServerSampling.sample`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pydantic import BaseModel
from pydantic_core import to_json, to_jsonable_python

from mcp_host.errors import quoted
from mcp_host.functions import of_sdk
from mcp_host.sampling.loop.engine import LoopResult
from mcp_host.types import (
    CallToolResult,
    CreateMessageResult,
    JSONObject,
    SamplingMessage,
    ToolResultContent,
    ToolUseContent,
    UserMessage,
)
from mcp_host.types.content import CONTENT_BLOCKS
from mcp_host.types.sampling import AssistantContentBlock

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ParseError:
    """Why an answer was not parsed: *message* says what is wrong, *raw_text* is what the model wrote."""

    message: str
    raw_text: str


@dataclass(frozen=True, slots=True)
class RequestedCall:
    """A tool call that the model asks for.

    *parsed* has the arguments of a tool that was given as a pydantic model; it is None for other tools.
    *parse_error* says why the arguments do not fit the model, or that there is no such tool; `answered` tells it the model.
    """

    id: str
    name: str
    arguments: JSONObject = field(hash=False)
    parsed: BaseModel | None = field(default=None, hash=False)
    parse_error: ParseError | None = None


@dataclass(frozen=True, slots=True)
class SamplingResult:
    """An answer of the model.

    *answer* is the whole result, and *messages* the conversation with it, to go on from:
    ``sample(messages=[*result.messages, UserMessage("And then?")])``.
    """

    answer: CreateMessageResult
    messages: list[SamplingMessage] = field(repr=False)

    @property
    def text(self) -> str:
        """The text blocks of the answer, joined by newlines."""
        return self.answer.text

    @property
    def content(self) -> list[AssistantContentBlock]:
        """The blocks of the answer."""
        return self.answer.content

    @property
    def model(self) -> str:
        """The name of the model, as the host gives it."""
        return self.answer.model

    @property
    def stop_reason(self) -> str | None:
        """Why the model stopped: ``endTurn``, ``stopSequence``, ``maxTokens``, ``toolUse``, or any other text."""
        return self.answer.stop_reason


@dataclass(frozen=True, slots=True)
class ParsedResult(SamplingResult, Generic[T]):
    """An answer that fits the schema: *parsed* is its value.

    In *messages* the answer is a text, its JSON; tries that did not fit are left out.
    """

    parsed: T
    parse_error: None = None


@dataclass(frozen=True, slots=True)
class UnparsedResult(SamplingResult):
    """An answer that does not fit the schema, after all tries: *parse_error* says why, and has what the model wrote."""

    parse_error: ParseError
    parsed: None = None


@dataclass(frozen=True, slots=True)
class ToolCallsResult(SamplingResult):
    """An answer that may call tools. *tool_calls* are the calls, in order; there may be none.

    If there are calls, the conversation goes on with `answered`.
    """

    tool_calls: tuple[RequestedCall, ...]

    def answered(self, results: Mapping[RequestedCall, object]) -> list[SamplingMessage]:
        """The conversation with the result of each call, to go on from: ``sample(messages=result.answered({...}))``.

        A result is what `ToolResultContent.of` takes, a pydantic model, any JSON value, or content blocks or a
        ``CallToolResult`` of the official SDK. A `ParseError` becomes an error for the model: so does that of a call
        which has no result here. All results are in one message, as the specification wants it.

        Raises:
            ValueError: A call has no result and no `ParseError`, or a result belongs to no call of this answer.
            TypeError: A result is no JSON, or *results* is no dict.
        """
        if not isinstance(results, Mapping):
            raise TypeError(f"the results must be a dict, with one for each call, not {type(results).__name__}")
        if foreign := [call for call in results if call not in self.tool_calls]:
            raise ValueError(f"{quoted(getattr(foreign[0], 'id', foreign[0]))} is no call of this answer")
        results = {call: call.parse_error for call in self.tool_calls if call.parse_error is not None} | {**results}
        if missing := [call for call in self.tool_calls if call not in results]:
            raise ValueError(f"the call of {quoted(missing[0].name)} ({quoted(missing[0].id)}) has no result")
        if not self.tool_calls:
            return self.messages
        blocks = [_answer(call, results[call]) for call in self.tool_calls]
        return [*self.messages, UserMessage(blocks)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLoopResult(LoopResult):
    """How a loop of a server ended, and what it did.

    *open_calls* are those that ended it, because it has no function for the tool (``ended="tool_calls"``): go on
    with ``sample_loop(messages=result.open_calls.answered({...}))``. None if it ended otherwise.
    """

    open_calls: ToolCallsResult | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedLoopResult(ServerLoopResult, Generic[T]):
    """A loop whose last answer fits the schema: *parsed* is its value."""

    parsed: T
    parse_error: None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnparsedLoopResult(ServerLoopResult):
    """A loop without a value: *parse_error* says why."""

    parse_error: ParseError
    parsed: None = None


def _answer(call: RequestedCall, value: object) -> ToolResultContent:
    try:
        result = _result(ToolUseContent(id=call.id, name=call.name, input=call.arguments), value)
        json.dumps(result.to_wire(), ensure_ascii=False, allow_nan=False).encode()  # raises for half a surrogate pair
    except (TypeError, ValueError) as exc:
        raise TypeError(f"the result of {quoted(call.name)} is no JSON: {exc}") from None
    return result


def _result(use: ToolUseContent, value: object) -> ToolResultContent:
    match value := of_sdk(value):
        case ParseError(message=message):
            return ToolResultContent.of(use, message, is_error=True)
        case str() | CallToolResult():
            return ToolResultContent.of(use, value)
        case _ if isinstance(value, CONTENT_BLOCKS):
            return ToolResultContent.of(use, value)
        case [_, *_] if len(blocks := [item for item in value if isinstance(item, CONTENT_BLOCKS)]) == len(value):
            return ToolResultContent.of(use, blocks)
    data: Any = to_jsonable_python(value, by_alias=True)
    if isinstance(data, dict):
        return ToolResultContent.of(use, data)
    return ToolResultContent.of(use, data if isinstance(data, str) else to_json(data).decode())
