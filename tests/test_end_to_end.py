"""The main job, end to end: a server asks our model to answer with tools, on every transport and in both eras."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from mcp_host import Allow, Client, Sampling, Stdio, StreamableHttp, ToolCall, always
from mcp_host.sampling import SamplingRequest
from mcp_host.testing import Context, ScriptedModel, Server
from mcp_host.transports.base import Transport
from mcp_host.types import CreateMessageResult, TextContent, ToolResultContent, ToolUseContent

server = Server("calculator")


def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


def multiply(a: float, b: float) -> float:
    """Multiply two numbers."""
    return a * b


@server.tool
async def solve(problem: str, ctx: Context) -> str:
    """Solve a problem with the host's model and a calculator."""
    declared = ctx.client_capabilities.sampling
    assert declared is not None
    assert declared.tools is not None, "the client advertises sampling.tools"
    answer = await ctx.sample_loop(problem, tools=[add, multiply])
    return answer.text


@server.tool
async def count_down(turns: int, ctx: Context) -> int:
    """Ask the model once a turn, all within one call."""
    answer = await ctx.sample_loop(f"{turns}", tools=[add], max_turns=turns + 1)
    return len(answer.steps)


@asynccontextmanager
async def reached(how: str, server: Server = server, module: str = __name__) -> AsyncIterator[Transport]:
    """The *server* of a *module*, over one of the transports."""
    if how == "stdio":
        yield Stdio([sys.executable, "-m", module], cwd=Path(__file__).parent.parent)
    elif how == "in-process":
        yield server.in_process()
    else:
        async with server.http(json_response=how == "http-json") as url:
            yield StreamableHttp(url)


everywhere = pytest.mark.parametrize("how", ["stdio", "http", "in-process"])
in_both_eras = pytest.mark.parametrize(
    ("era", "version"), [("legacy", "2025-11-25"), ("auto", "2026-07-28")], ids=["2025-11-25", "2026-07-28"]
)


@pytest.mark.parametrize("how", ["stdio", "http", "http-json", "in-process"])
@in_both_eras
async def test_our_model_solves_the_servers_problem_with_its_tools(how: str, era: str, version: str) -> None:
    def last_results(request: SamplingRequest) -> list[str]:
        texts = []
        for result in request.messages[-1].content:
            assert isinstance(result, ToolResultContent)
            texts += [block.text for block in result.content if isinstance(block, TextContent)]
        return texts

    def combine(request: SamplingRequest) -> CreateMessageResult:
        first, second = map(float, last_results(request))
        return request.call("add", {"a": first, "b": second})

    def conclude(request: SamplingRequest) -> CreateMessageResult:
        (total,) = last_results(request)
        return request.reply(f"it is {float(total):g}", model="scripted")

    model = ScriptedModel(
        lambda request: request.calls(ToolCall("multiply", {"a": 6, "b": 7}), ToolCall("multiply", {"a": 2, "b": 4})),
        combine,
        conclude,
    )
    with anyio.fail_after(25):
        async with (
            reached(how) as transport,
            Client(transport, era=era, sampling=Sampling(with_tools=model, approve=always)) as client,
        ):
            assert client.protocol_version == version
            assert client.sampling_mode == "with_tools"
            result = await client.call_tool("solve", {"problem": "6 * 7 + 2 * 4"})

    assert result.content == [TextContent(text="it is 50")]
    first, second, third = model.requests
    assert [tool.name for tool in first.tools] == ["add", "multiply"]
    asked = second.messages[-2].content
    answered = second.messages[-1].content
    assert [block.id for block in asked if isinstance(block, ToolUseContent)] == [
        block.tool_use_id for block in answered if isinstance(block, ToolResultContent)
    ]
    assert len(answered) == 2, "parallel results travel in one message"
    assert [message.role for message in third.messages] == ["user", "assistant", "user", "assistant", "user"]
    # In 2025 only a stream of the call's own says whose request it is; since 2026 the result of the call itself asks.
    call = ("tools/call", "solve", era == "legacy" and how != "http")
    outer = third.outer and (third.outer.method, third.outer.name, third.outer.inferred)
    assert outer == (None if (era, how) == ("legacy", "http-json") else call)


@everywhere
@in_both_eras
async def test_a_loop_of_64_turns_completes_with_the_defaults_and_one_approval(
    how: str, era: str, version: str
) -> None:
    """The next call of the same tool asks again."""
    asked: list[int] = []
    turns: list[int] = []

    async def approve(request: SamplingRequest) -> Allow:
        asked.append(len(request.messages))
        return Allow("call")

    async def model(request: SamplingRequest) -> CreateMessageResult:
        turns.append(len(request.messages))
        if len(turns) < 64:
            return request.call("add", {"a": len(turns), "b": 1})
        return request.reply("done", model="m")

    with anyio.fail_after(30):
        async with (
            reached(how) as transport,
            Client(transport, era=era, sampling=Sampling(with_tools=model, approve=approve)) as client,
        ):
            assert client.protocol_version == version
            for most in (64, 1):
                assert (await client.call_tool("count_down", {"turns": most})).is_error is not True

    assert turns == [*range(1, 128, 2), 1]
    assert asked == [1, 1]


if __name__ == "__main__":
    server.run_stdio()
