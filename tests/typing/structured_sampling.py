"""What `ServerSampling.sample` returns for which arguments, and which arguments exclude each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, assert_type

from pydantic import BaseModel, TypeAdapter

from mcp_host import ServerSampling
from mcp_host.sampling import Step
from mcp_host.sampling.structured import (
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
from mcp_host.testing import Context
from mcp_host.types import SamplingMessage, Tool, ToolChoice, UserMessage


class Move(BaseModel):
    row: int
    column: int


@dataclass
class Point:
    x: int


def add(a: int, b: int) -> int:
    return a + b


async def look(place: str) -> str:
    return place


async def a_plain_answer(sampling: ServerSampling) -> None:
    answer = await sampling.sample("?", max_tokens=9, system_prompt="!", model_preferences=["claude", "gpt"])
    assert_type(answer, SamplingResult)
    assert_type(answer.text, str)
    assert_type(answer.model, str)
    assert_type(answer.stop_reason, str | None)
    assert_type(answer.messages, list[SamplingMessage])


async def messages_of_all_kinds(sampling: ServerSampling) -> None:
    await sampling.sample(messages=[UserMessage("?"), {"role": "user", "content": "?"}])
    await sampling.sample(messages=[{"role": "user", "content": [{"type": "text", "text": "?"}]}])
    await sampling.sample(messages=["?"])  # type: ignore[list-item]
    await sampling.sample(b"?")  # type: ignore[call-overload]
    await sampling.sample("?", max_token=9)  # type: ignore[call-overload]
    await sampling.sample("?", temperature="hot")  # type: ignore[call-overload]


async def the_type_of_a_schema_is_that_of_what_is_parsed(sampling: ServerSampling) -> None:
    answer = await sampling.sample("?", schema=Move)
    assert_type(answer, ParsedResult[Move] | UnparsedResult)
    assert_type(answer.parsed, Move | None)
    assert_type(answer.parse_error, ParseError | None)
    if answer.parse_error is None:
        assert_type(answer.parsed, Move)
    else:
        assert_type(answer.parsed, None)
        assert_type(answer.parse_error.raw_text, str)


async def a_match_tells_the_two_apart(sampling: ServerSampling) -> str:
    match await sampling.sample("?", schema=Move):
        case ParsedResult(parsed=move):
            assert_type(move, Move)
            return ""
        case UnparsedResult(parse_error=problem):
            return problem.message


async def schemas_of_all_kinds(sampling: ServerSampling, json_schema: Mapping[str, Any]) -> None:
    assert_type((await sampling.sample("?", schema=list[int])).parsed, list[int] | None)
    assert_type((await sampling.sample("?", schema=Point, retries=0)).parsed, Point | None)
    assert_type((await sampling.sample("?", schema=bool)).parsed, bool | None)
    side: TypeAdapter[Literal["left", "right"]] = TypeAdapter(Literal["left", "right"])
    assert_type((await sampling.sample("?", schema=side)).parsed, Literal["left", "right"] | None)
    assert_type(await sampling.sample("?", schema=json_schema), ParsedResult[Any] | UnparsedResult)
    await sampling.sample("?", schema="int")  # type: ignore[call-overload]
    await sampling.sample("?", schema=Move(row=1, column=1))  # type: ignore[call-overload]


async def tools_of_all_kinds(sampling: ServerSampling, tool: Tool) -> None:
    answer = await sampling.sample("?", tools=[Move, add, look, tool, {"name": "t", "inputSchema": Move}])
    assert_type(answer, ToolCallsResult)
    assert_type(answer.tool_calls, tuple[RequestedCall, ...])
    assert_type(answer.tool_calls[0].parsed, BaseModel | None)
    assert_type(answer.answered(dict.fromkeys(answer.tool_calls, 3)), list[SamplingMessage])
    for choice in ("auto", "add", ToolChoice(mode="none")):
        await sampling.sample("?", tools=[add], tool_choice=choice)
    await sampling.sample("?", tools=[3])  # type: ignore[list-item]
    await sampling.sample("?", tools=[add], tool_choice=3)  # type: ignore[call-overload]
    answer.answered({"1": 3})  # type: ignore[dict-item]


async def what_excludes_each_other(sampling: ServerSampling) -> None:
    await sampling.sample("?", schema=Move, tools=[add])  # type: ignore[call-overload]
    await sampling.sample("?", schema=Move, tool_choice="auto")  # type: ignore[call-overload]
    await sampling.sample("?", tool_choice="auto")  # type: ignore[call-overload]
    await sampling.sample("?", tools=[add], retries=1)  # type: ignore[call-overload]
    await sampling.sample("?", retries=1)  # type: ignore[call-overload]


async def what_a_loop_returns(sampling: ServerSampling) -> None:
    async def on_turn(turn: Step) -> None: ...

    def plain_turn(turn: Step) -> None: ...

    done = await sampling.sample_loop(
        "?", tools=[add, Move], tool_choice="add", max_turns=3, timeout=9, on_turn=on_turn
    )
    assert_type(done, ServerLoopResult)
    assert_type(done.text, str)
    assert_type(done.open_calls, ToolCallsResult | None)
    shaped = await sampling.sample_loop("?", tools=[add], schema=list[int], retries=2)
    assert_type(shaped, ParsedLoopResult[list[int]] | UnparsedLoopResult)
    if shaped.parse_error is None:
        assert_type(shaped.parsed, list[int])
    else:
        assert_type(shaped.parse_error, ParseError)
    await sampling.sample_loop("?")  # type: ignore[call-overload]
    await sampling.sample_loop("?", tools=[add], retries=2)  # type: ignore[call-overload]
    await sampling.sample_loop("?", tools=[add], on_turn=plain_turn)
    await sampling.sample_loop("?", tools=[add], on_turn=5)  # type: ignore[call-overload]


async def the_context_of_a_test_server_is_one(context: Context) -> None:
    assert_type(await context.sample("?", schema=list[int]), ParsedResult[list[int]] | UnparsedResult)
