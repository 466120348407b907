"""A host of the servers in a user's file: each line of its input is a turn of one conversation."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterable

import anyio

from mcp_host import Allow, ClientGroup, ProposedCall, ProposedServer, Sampling, ServerStatus, always, run_tool_loop
from mcp_host.sampling import SamplingRequest, ToolCall
from mcp_host.types import CreateMessageResult, SamplingMessage, ToolResultContent, UserMessage


async def model(request: SamplingRequest) -> CreateMessageResult:
    """A real host calls its model here. This one calls what it reads, like ``clock__tell {"zone": "UTC"}; clock__ring {}``."""
    last = request.messages[-1]
    if results := [block.text for block in last.content if isinstance(block, ToolResultContent)]:
        return request.reply("\n".join(results))
    if "__" not in last.text:
        return request.reply("What shall I call?")
    calls = [call.split(maxsplit=1) for call in last.text.split("; ")]
    return request.calls(*[ToolCall(name, json.loads(arguments)) for name, arguments in calls])


async def approve(asked: ProposedCall | ProposedServer) -> Allow:
    """Allow everything, and say what. `ask_in_terminal` asks a person instead."""
    print(f"allowed: {asked.name}")
    return Allow("session")


async def show(status: ServerStatus) -> None:
    print(f"{status.name} is {status.state}")


async def main(path: str, prompts: AsyncIterable[str]) -> None:
    sampling = Sampling(with_tools=model, approve=always)
    messages: list[SamplingMessage] = []
    group = ClientGroup.from_file(path, sampling=sampling, approve=approve, approve_servers=approve, on_status=show)
    async with group:
        async for prompt in prompts:
            messages.append(UserMessage(content=prompt))
            result = await run_tool_loop(model, messages=messages, tools=[group], system_prompt=group.instructions)
            messages = [*result.messages]
            print(result.text)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], anyio.wrap_file(sys.stdin))
