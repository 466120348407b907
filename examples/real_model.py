"""A real model, safely: a server asks for it, you decide in the terminal, and Anthropic's model answers."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
from anthropic import AsyncAnthropic

from mcp_host import Client, Sampling, ask_in_terminal
from mcp_host.providers import AnthropicModel

SERVER = Path(__file__).with_name("calculator_server.py")


async def main() -> None:
    async with AsyncAnthropic() as anthropic:  # reads ANTHROPIC_API_KEY
        model = AnthropicModel(anthropic, "claude-sonnet-5")
        sampling = Sampling(with_tools=model, approve=ask_in_terminal)
        async with Client([sys.executable, SERVER], sampling=sampling) as client:
            result = await client.call_tool("solve", {"problem": "What is (3 + 4) * 6?"})
            print(result.text)


if __name__ == "__main__":
    anyio.run(main)
