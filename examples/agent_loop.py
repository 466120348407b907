"""An agent: a model with the tools of a server and a function of this program, and a rule that approves each call."""

from __future__ import annotations

import anyio

from mcp_host import Allow, Client, Deny, ProposedCall, SamplingRequest, ToolCall, run_tool_loop
from mcp_host.sampling import Step
from mcp_host.testing import Server
from mcp_host.types import CreateMessageResult, ToolAnnotations

shop = Server("shop")


@shop.tool(annotations=ToolAnnotations(read_only_hint=True))
async def find_price(flower: str) -> int:
    """The price of one flower, in cents."""
    return {"rose": 350, "tulip": 120}[flower]


@shop.tool
async def order(flower: str, count: int) -> str:
    return f"{count} of {flower} ordered"


def in_euros(cents: int) -> str:
    """Write a price in euros."""
    return f"{cents / 100:.2f} euros"


async def model(request: SamplingRequest) -> CreateMessageResult:
    """A real host calls its model here, with the request's messages and tools."""
    script = [
        request.calls(ToolCall("find_price", {"flower": "tulip"}), ToolCall("order", {"flower": "tulip", "count": 5})),
        request.call("in_euros", {"cents": 600}),
        request.reply("Five tulips cost 6.00 euros. You may order them."),
    ]
    return script[len(request.messages) // 2]


async def approve(call: ProposedCall) -> Allow | Deny:
    """Allow what only reads, as its server says, and our functions. `ask_in_terminal` asks a person instead."""
    reads = call.tool.annotations is not None and call.tool.annotations.read_only_hint
    return Allow() if reads or call.server == "this program" else Deny("only people may order")


async def show(step: Step) -> None:
    for call in step.calls:
        print(f"{call.use.name}: {call.result.text}")


async def main() -> None:
    async with Client(shop) as client:
        result = await run_tool_loop(model, "Order 5 tulips.", tools=[client, in_euros], approve=approve, on_turn=show)
    print(f"{result.ended} after {len(result.steps)} turns: {result.text}")


if __name__ == "__main__":
    anyio.run(main)
