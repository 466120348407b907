"""What `run_tool_loop` takes: models, tools, approvers and callbacks, async or plain."""

from __future__ import annotations

from typing import assert_type

from mcp_host import (
    Allow,
    Client,
    Deny,
    FunctionTool,
    LoopResult,
    ProposedCall,
    SamplingRequest,
    always,
    ask_in_terminal,
    run_tool_loop,
)
from mcp_host.sampling import ApproveProposal, Cut, LoopTool, Step, head_and_tail
from mcp_host.types import CallToolResult, CreateMessageResult, ToolUseContent, UserMessage


def model(request: SamplingRequest) -> str:
    return "done"


def add(a: int, b: int) -> int:
    return a + b


async def look(place: str) -> str:
    return place


async def ask(call: ProposedCall) -> Allow | Deny:
    return await ask_in_terminal(call)


def truth(call: ProposedCall) -> bool:
    return True


def shorten(result: CallToolResult, max_bytes: int) -> CallToolResult:
    return result


async def follow(step: Step) -> None: ...


TOOLS: list[LoopTool] = [Client("https://server.example/mcp"), add, look, FunctionTool(add, name="sum")]
NO_TOOL: LoopTool = "add"  # type: ignore[assignment]
APPROVERS: list[ApproveProposal] = [ask_in_terminal, ask, lambda call: Deny(call.name)]
NO_APPROVER: ApproveProposal = truth  # type: ignore[assignment]
ALWAYS_IS_FOR_SAMPLING: ApproveProposal = always  # type: ignore[assignment]
CUTS: list[Cut] = [head_and_tail, shorten]


async def loops(client: Client) -> None:
    steps: list[Step] = []
    result = await run_tool_loop(
        model, "hello", tools=[client, add], approve=ask_in_terminal, cut=shorten, on_turn=steps.append
    )
    assert_type(result, LoopResult)
    assert_type(result.text, str)
    assert_type(result.answer, CreateMessageResult | None)
    assert_type(result.tool_uses, list[ToolUseContent])
    await run_tool_loop(model, messages=[*result.messages, UserMessage("and then?")], tools=TOOLS, on_turn=follow)
    await run_tool_loop(model, messages=[{"role": "user", "content": "hello"}], tool_choice="add", tools=[add])
    await run_tool_loop(model, "hello", approve=truth)  # type: ignore[arg-type]
