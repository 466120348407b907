"""`Context.sample` and `Context.sample_loop` in a server, with our client as the host, in both eras."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

import pytest
from anyio import fail_after
from pydantic import BaseModel, Field, TypeAdapter

from mcp_host import Client, Sampling, ToolCall, always
from mcp_host.testing import Context, ScriptedModel, Server
from mcp_host.types import UserMessage

VERSIONS = ["2025-11-25", "2026-07-28"]
in_both_eras = pytest.mark.parametrize("version", VERSIONS)
Tool = Callable[[Context], Any]


class Attack(BaseModel):
    """Win as soon as possible."""

    why: str


class Defend(BaseModel):
    """Do not lose."""

    against: int


class Move(BaseModel):
    square: Annotated[int, Field(ge=1, le=9)]


OUTCOME: TypeAdapter[Literal["win", "draw"]] = TypeAdapter(Literal["win", "draw"])


@asynccontextmanager
async def host(tool: Tool, version: str, model: ScriptedModel, *, with_tools: bool = True) -> AsyncIterator[Client]:
    server = Server("s", versions=[version])
    server.tool(tool)
    sampling = Sampling(**{"with_tools" if with_tools else "basic": model}, approve=always)  # type: ignore[arg-type]
    with fail_after(25):
        async with Client(server.in_process(), sampling=sampling) as client:
            assert client.protocol_version == version
            yield client


@in_both_eras
async def test_a_decision_tree_swaps_its_tools_at_each_level_and_ends_with_a_schema(version: str) -> None:
    async def play(context: Context) -> str:
        first = await context.sample("Your strategy?", tools=[Attack, Defend], tool_choice="required")
        (strategy,) = first.tool_calls
        second = await context.sample(
            messages=first.answered({strategy: {"threats": [4]}}), tools=[Move], tool_choice="Move"
        )
        (move,) = second.tool_calls
        third = await context.sample(messages=second.answered({move: "Played."}), schema=OUTCOME, retries=0)
        return f"{strategy.parsed!r} {move.parsed!r} {third.parsed!r}"

    model = ScriptedModel(
        ToolCall("Defend", {"against": 4}), ToolCall("Move", {"square": 4}), ToolCall("answer", {"result": "draw"})
    )
    async with host(play, version, model) as client:
        result = await client.call_tool("play")

    assert result.text == "Defend(against=4) Move(square=4) 'draw'"
    assert [[tool.name for tool in request.tools] for request in model.requests] == [
        ["Attack", "Defend"],
        ["Move"],
        ["answer"],
    ]
    assert [len(request.messages) for request in model.requests] == [1, 3, 5]


@in_both_eras
@pytest.mark.parametrize("with_tools", [True, False], ids=["by a tool", "by the prompt"])
async def test_a_schema_reaches_a_host_with_and_without_tools(version: str, with_tools: bool) -> None:
    async def play(context: Context) -> int | str:
        answer = await context.sample("Your move?", schema=Move)
        return answer.parsed.square if answer.parse_error is None else answer.parse_error.message

    wrong, right = {"square": 10}, {"square": 5}
    turns = (
        [ToolCall("answer", wrong), ToolCall("answer", right)] if with_tools else ['{"square": 10}', '{"square": 5}']
    )
    model = ScriptedModel(*turns)
    async with host(play, version, model, with_tools=with_tools) as client:
        result = await client.call_tool("play")

    assert result.text == "5"
    assert [len(request.messages) for request in model.requests] == [1, 3]


@in_both_eras
async def test_a_text_in_place_of_a_forced_call_is_parsed_or_asked_for_again(
    version: str, subtests: pytest.Subtests
) -> None:
    """Valid JSON counts; anything else is what the `parse_error` has, after all tries."""

    async def play(context: Context, retries: int = 1) -> list[object]:
        move = await context.sample("Your move?", schema=Move, retries=retries)
        if move.parse_error is None:
            return [move.parsed.square, move.text]
        return [move.parsed, move.parse_error.raw_text]

    async def decide(context: Context) -> list[object]:
        outcome = await context.sample("And?", schema=OUTCOME)
        calls = await context.sample("Your strategy?", tools=[Attack, Defend], tool_choice="required")
        return [outcome.parsed, [call.name for call in calls.tool_calls], calls.text]

    words, said = "I take the middle.", '{"square": 5}'
    fenced = f"```json\n{said}\n```"
    table: list[tuple[Tool, dict[str, object], list[str], list[object]]] = [
        (play, {}, [words, words], [None, words]),
        (play, {}, [words, said], [5, said]),
        (play, {"retries": 0}, [fenced], [5, fenced]),
        (decide, {}, ['"win"', "I attack."], ["win", [], "I attack."]),  # not wrapped in an object
    ]
    for tool, arguments, turns, outcome in table:
        with subtests.test(turns=turns):
            model = ScriptedModel(*turns)
            async with host(tool, version, model) as client:
                result = await client.call_tool(tool.__name__, arguments)

            assert result.structured_content == {"result": outcome}
            assert [request.must_use_tools for request in model.requests] == [True] * len(turns)


@in_both_eras
async def test_a_loop_runs_functions_with_the_context_and_shapes_its_answer(version: str) -> None:
    """A plain function gets the context in a thread; an async one asks with it."""

    def where(port: str, context: Context) -> str:
        return f"{port} {context.client_info.name} {threading.current_thread() is threading.main_thread()}"

    async def ask(context: Context, about: str) -> str:
        return (await context.sample(f"And {about}?")).text

    async def play(context: Context) -> dict[str, object]:
        done = await context.sample_loop(messages=[UserMessage("?")], tools=[where, ask], schema=list[str])
        results = [call.result.text for step in done.steps for call in step.calls]
        return {"parsed": done.parsed, "ended": done.ended, "turns": len(done.steps), "results": results}

    model = ScriptedModel(
        [ToolCall("where", {"port": "Brest"}), ToolCall("ask", {"about": "tides"})],
        *("They rise.", "So it is.", ToolCall("answer", {"result": ["high", "low"]})),
    )
    async with host(play, version, model) as client:
        result = await client.call_tool("play")

    assert result.structured_content == {
        "parsed": ["high", "low"],
        "ended": "answered",
        "turns": 3,
        "results": ["Brest mcp-host False", "They rise."],
    }
    assert [request.messages[0].text for request in model.requests] == ["?", "And tides?", "?", "?"]
