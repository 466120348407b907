"""The server's own tools, run by the client inside the server's sampling requests."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from anyio import fail_after

from mcp_host import (
    Client,
    Sampling,
    Stdio,
    StreamableHttp,
    ToolCall,
    always,
)
from mcp_host.middleware import ClientRequest
from mcp_host.sampling import SamplingRequest
from mcp_host.testing import Context, ScriptedModel, Server
from mcp_host.testing.model import ScriptedTurn
from mcp_host.transports.base import Transport
from mcp_host.types import Tool, ToolResultContent

SECRET = Tool(name="secret", input_schema={"type": "object"})
"""A tool that the server offers to the model, and does not list."""

server = Server("calculator")


@server.tool
def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


@server.tool
def multiply(a: float, b: float) -> float:
    """Multiply two numbers."""
    return a * b


@server.tool
async def solve(problem: str, ctx: Context, required: bool = False) -> str:
    """Ask the model once, with two tools that are listed and one that is not."""
    choice: Literal["required", "auto"] = "required" if required else "auto"
    answer = await ctx.sample(problem, tools=[add, multiply, SECRET], tool_choice=choice)
    return ", ".join(f"{call.name}: {call.arguments}" for call in answer.tool_calls) or answer.text


@asynccontextmanager
async def reached(how: str) -> AsyncIterator[Transport]:
    """The server above, over one of the transports."""
    if how == "stdio":
        yield Stdio([sys.executable, "-m", "tests.client.test_own_tools"], cwd=Path(__file__).parent.parent.parent)
    elif how == "in-process":
        yield server.in_process()
    else:
        async with server.http() as url:
            yield StreamableHttp(url)


everywhere = pytest.mark.parametrize("how", ["stdio", "http", "in-process"])
in_both_eras = pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])


def sampling(*turns: ScriptedTurn, **options: Any) -> Sampling:
    return Sampling(with_tools=ScriptedModel(*turns), **{"approve": always, **options})


def results(request: SamplingRequest) -> list[tuple[str, bool]]:
    """The results of tools at the end of a request: their text, and whether they are errors."""
    blocks = request.messages[-1].content
    assert all(isinstance(block, ToolResultContent) for block in blocks)
    return [(block.text, bool(block.is_error)) for block in blocks if isinstance(block, ToolResultContent)]


@everywhere
@in_both_eras
async def test_the_server_gets_the_text_after_its_tools_were_called(how: str, version: str) -> None:
    model = ScriptedModel(
        [ToolCall("multiply", {"a": 6, "b": 7}), ToolCall("multiply", {"a": 2, "b": 4})],
        ToolCall("add", {"a": 42, "b": 8}),
        "it is 50",
    )
    with fail_after(20):
        async with (
            reached(how) as transport,
            Client(
                transport, era=version, sampling=Sampling(with_tools=model, approve=always), run_own_tools=True
            ) as client,
        ):
            result = await client.call_tool("solve", {"problem": "6 * 7 + 2 * 4"})

    assert result.text == "it is 50"
    first, second, third = model.requests
    assert [len(request.messages) for request in model.requests] == [1, 3, 5]
    assert (results(second), results(third)) == ([("42.0", False), ("8.0", False)], [("50.0", False)])
    assert [tool.name for tool in third.tools] == ["add", "multiply", "secret"]
    assert first.outer is not None
    assert (first.outer.name, second.outer, third.outer) == ("solve", first.outer, first.outer)


@everywhere
@in_both_eras
@pytest.mark.parametrize(
    "calls",
    [[ToolCall("secret")], [ToolCall("add", {"a": 1, "b": 2}), ToolCall("secret")]],
    ids=["alone", "beside one that it lists"],
)
async def test_an_answer_that_names_a_tool_that_the_server_did_not_list_goes_to_it_whole(
    how: str, version: str, calls: list[ToolCall]
) -> None:
    model = ScriptedModel(calls)
    called: list[str] = []

    async def note(request: Any, call_next: Any) -> Any:
        if isinstance(request, ClientRequest):
            called.append(request.method)
        return await call_next(request)

    with fail_after(20):
        async with (
            reached(how) as transport,
            Client(
                transport,
                era=version,
                sampling=Sampling(with_tools=model, approve=always),
                run_own_tools=True,
                middleware=[note],
            ) as client,
        ):
            result = await client.call_tool("solve", {"problem": "?"})

    assert result.text == ", ".join(f"{call.name}: {call.arguments}" for call in calls)
    assert [method for method in called if method.startswith("tools/")] == ["tools/call", "tools/list"]


if __name__ == "__main__":
    server.run_stdio()
