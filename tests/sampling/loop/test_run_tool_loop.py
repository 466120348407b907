"""A host's loop: its model, the tools of its servers and its own functions."""

from __future__ import annotations

from typing import Any

import pytest
from anyio import fail_after

from mcp_host import Client, LoopResult, ToolCall, run_tool_loop
from mcp_host.protocol import conversation
from mcp_host.testing import ScriptedModel, Server, ToolError
from mcp_host.types import (
    ToolResultContent,
    UserMessage,
)

pytestmark = pytest.mark.anyio

ONE_AND_TWO = {"a": 1, "b": 2}


@pytest.fixture(params=["2025-11-25", "2026-07-28"])
def era(request: pytest.FixtureRequest) -> str:
    revision: str = request.param
    return revision


def calculator() -> Server:
    server = Server("calculator")

    @server.tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool
    def divide(a: float, b: float) -> float:
        if b == 0:
            raise ToolError("b must not be 0")
        return a / b

    return server


def results(done: LoopResult) -> list[ToolResultContent]:
    """What the model got, of all calls."""
    conversation.check(done.messages)
    return [block for message in done.messages for block in message.content if isinstance(block, ToolResultContent)]


def texts(done: LoopResult) -> list[str]:
    return [("error: " if result.is_error else "") + result.text for result in results(done)]


async def loop(model: ScriptedModel, *tools: Any, **options: Any) -> LoopResult:
    with fail_after(20):
        return await run_tool_loop(model, "What is 1 + 2?", tools=tools, **options)


async def test_the_tools_of_servers_and_functions_run_until_the_model_answers(era: str) -> None:
    def shout(text: str) -> str:
        """Write in capitals."""
        return text.upper()

    model = ScriptedModel([ToolCall("add", ONE_AND_TWO), ToolCall("shout", {"text": "three"})], "It is THREE.")
    async with Client(calculator(), era=era) as client:
        done = await loop(model, client, shout)

    assert (done.ended, done.text, done.model, texts(done)) == ("answered", "It is THREE.", "scripted", ["3", "THREE"])
    [first, last] = model.requests
    assert [(tool.name, tool.description) for tool in first.tools] == [
        ("add", "Add two numbers."),
        ("divide", None),
        ("shout", "Write in capitals."),
    ]
    assert first.messages == [UserMessage("What is 1 + 2?")]
    assert last.messages == done.messages[:-1]
