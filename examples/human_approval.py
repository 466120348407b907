"""Ask a person in the terminal before the model is called, and set limits."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from mcp_host import Allow, Client, Deny, Sampling, SamplingLimits, SamplingRequest, ask_in_terminal
from mcp_host.errors import InputNotGiven
from mcp_host.types import CreateMessageResult

SERVER = Path(__file__).with_name("calculator_server.py")
TRUSTED = {"add", "subtract", "multiply", "divide"}


async def model(request: SamplingRequest) -> CreateMessageResult:
    """Stands for your model."""
    return request.reply("Four, I believe.")


async def approve(request: SamplingRequest) -> Allow | Deny:
    """Rules first; then a person decides."""
    if any(tool.name not in TRUSTED for tool in request.tools):
        return Deny("this host lends its model to calculators only")
    return await ask_in_terminal(request)  # denies without a terminal


async def main() -> None:
    limits = SamplingLimits(max_tokens=2000, tools=8, seconds=60)
    sampling = Sampling(with_tools=model, approve=approve, limits=limits)
    async with Client([sys.executable, SERVER], name="calculator", sampling=sampling) as client:
        try:
            result = await client.call_tool("solve", {"problem": "What is 2 + 2?"})
        except InputNotGiven as exc:  # a refusal ends the call; before 2026-07-28 the server gets it
            print("refused:", exc)
        else:
            print("refused:" if result.is_error else "answered:", result.text)


if __name__ == "__main__":
    anyio.run(main)
