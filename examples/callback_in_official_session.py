"""Keep the official Python SDK's `ClientSession`, of version 1 or 2 (``pip install mcp``)."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from sampling_with_tools import model

from mcp_host import Sampling, always

SERVER = Path(__file__).with_name("calculator_server.py")


async def main() -> None:
    # Version 1 of the SDK does not keep the server's name.
    sampling = Sampling(with_tools=model, approve=always).for_sdk(server="calculator")
    server = StdioServerParameters(command=sys.executable, args=[str(SERVER)])
    async with stdio_client(server) as (read, write), ClientSession(read, write, **sampling) as session:
        await session.initialize()
        result = await session.call_tool("solve", {"problem": "Six dogs and three ants: how many legs?"})
        print(*(block.text for block in result.content))


if __name__ == "__main__":
    anyio.run(main)
