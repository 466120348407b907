"""Several servers in one agent loop: two that answer, and one that is down, which costs the others nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from mcp_host import Allow, ClientGroup, Deny, ProposedCall, SamplingRequest, ToolCall, run_tool_loop
from mcp_host.testing import Server
from mcp_host.types import CreateMessageResult

HELLO = Path(__file__).with_name("hello_server.py")

clock = Server("a clock", instructions="Ask for the time once.")


@clock.tool
async def tell_time() -> str:
    """Tell the time."""
    return "It is tea time."


async def model(request: SamplingRequest) -> CreateMessageResult:
    """A real host calls its model here, with the request's messages, tools and system prompt."""
    if len(request.messages) == 1:
        return request.calls(ToolCall("greeter__greet", {"name": "Alan"}), ToolCall("clock__tell_time"))
    return request.reply("It is tea time, Alan.")


async def approve(call: ProposedCall) -> Allow | Deny:
    """Allow each tool once and for all. `ask_in_terminal` asks a person instead."""
    print(f"may {call.server} run {call.name}?")
    return Allow("session")


async def main() -> None:
    async with ClientGroup(
        {"clock": clock, "greeter": [sys.executable, HELLO], "files": ["no-such-program"]}, approve=approve, wait="all"
    ) as group:
        for prompt in ("Greet Alan.", "Once more."):
            result = await run_tool_loop(model, prompt, tools=[group], system_prompt=group.instructions)
            print(result.text)
        print({name: status.state for name, status in group.status().items()})


if __name__ == "__main__":
    anyio.run(main)
