"""Give an agent of Pydantic AI an MCP server that samples with tools (``pip install 'pydantic-ai-slim[mcp]'``)."""

from __future__ import annotations

from pathlib import Path

import anyio
import fastmcp
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.test import TestModel
from sampling_with_tools import model

from mcp_host import Sampling, always

SERVER = Path(__file__).with_name("calculator_server.py")


async def main() -> None:
    sampling = Sampling(with_tools=model, approve=always)
    # MCPToolset(..., sampling_handler=...) could not declare that we support tools. A ready client does.
    toolset = MCPToolset(fastmcp.Client(SERVER, **sampling.for_fastmcp(server="calculator")))
    agent = Agent(TestModel(), toolsets=[toolset])  # stands for a model: it calls every tool once
    print((await agent.run("Six dogs and three ants: how many legs?")).output)


if __name__ == "__main__":
    anyio.run(main)
