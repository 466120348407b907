"""Answer sampling with tools: the server asks, runs the tools that the model calls, and asks again."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from mcp_host import Client, Sampling, SamplingRequest, ToolCall, always
from mcp_host.types import CreateMessageResult, ToolResultContent

SERVER = Path(__file__).with_name("calculator_server.py")


async def model(request: SamplingRequest) -> CreateMessageResult:
    """Answer once. A real host calls its model here, with the request's messages and tools."""
    latest = request.messages[-1].content
    print(f"{request.server} asks, with {len(request.messages)} messages and {len(request.tools)} tools")
    if not isinstance(latest[0], ToolResultContent):
        return request.calls(ToolCall("multiply", {"a": 6, "b": 4}), ToolCall("multiply", {"a": 3, "b": 6}))
    numbers = [block.text for block in latest if isinstance(block, ToolResultContent)]
    print(f"its tools say {' and '.join(numbers)}")
    if len(numbers) == 2:
        return request.call("add", {"a": float(numbers[0]), "b": float(numbers[1])})
    return request.reply(f"There are {float(numbers[0]):g} legs.")


async def main() -> None:
    # always: this server may use the model without approval. See human_approval.py for an approval by a person.
    sampling = Sampling(with_tools=model, approve=always)
    async with Client([sys.executable, SERVER], name="calculator", sampling=sampling) as client:
        print(f"sampling mode: {client.sampling_mode}")
        result = await client.call_tool("solve", {"problem": "Six dogs and three ants: how many legs?"})
        print(result.text)


if __name__ == "__main__":
    anyio.run(main)
