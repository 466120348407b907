"""A server written with the official TypeScript SDK, which asks for sampling with tools."""

from __future__ import annotations

import pytest
from anyio import fail_after

from mcp_host import Client, Sampling, Stdio, ToolCall, always
from mcp_host.errors import ServerError
from mcp_host.testing import ScriptedModel
from mcp_host.types import SamplingMessage, TextContent, ToolResultContent, ToolUseContent
from tests.interop.processes import typescript_sdk

IN_TIME = 30.0  # seconds for a test; each takes one at most when the machine is idle


async def test_two_parallel_tool_calls_lead_to_the_final_text(mark: str) -> None:
    model = ScriptedModel(
        [ToolCall("add", {"a": 2, "b": 3}), ToolCall("multiply", {"a": 4, "b": 5})], "5 and 20.", name="a-model"
    )
    with fail_after(IN_TIME):
        async with Client(Stdio(typescript_sdk(mark)), sampling=Sampling(with_tools=model, approve=always)) as client:
            result = await client.call_tool("calculate", {"question": "2+3 and 4*5?"})

    first, second = model.requests
    assert [tool.name for tool in first.tools] == ["add", "multiply"]
    one, other = [block.id for block in second.messages[1].content if isinstance(block, ToolUseContent)]
    assert second.messages[2] == SamplingMessage(
        role="user",
        content=[
            ToolResultContent(tool_use_id=one, content=[TextContent(text="5")]),
            ToolResultContent(tool_use_id=other, content=[TextContent(text="20")]),
        ],
    )
    assert result.structured_content == {
        "capabilities": {"sampling": {"tools": {}}},
        "answers": [
            {
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": one, "name": "add", "input": {"a": 2, "b": 3}},
                    {"type": "tool_use", "id": other, "name": "multiply", "input": {"a": 4, "b": 5}},
                ],
                "model": "a-model",
                "stopReason": "toolUse",
            },
            {
                "role": "assistant",
                "content": {"type": "text", "text": "5 and 20."},
                "model": "a-model",
                "stopReason": "endTurn",
            },
        ],
    }


async def test_tools_for_a_basic_handler_reach_no_model(mark: str) -> None:
    model = ScriptedModel("never")
    with fail_after(IN_TIME):
        async with Client(Stdio(typescript_sdk(mark)), sampling=Sampling(basic=model, approve=always)) as client:
            with pytest.raises(ServerError, match="sampling tools"):
                await client.call_tool("calculate", {"question": "2+3?"})

    assert model.requests == []
