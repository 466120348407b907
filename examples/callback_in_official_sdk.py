"""Keep the official Python SDK's `Client` (``pip install mcp``), and answer its sampling requests with this package."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
from mcp import Client, StdioServerParameters
from sampling_with_tools import model

from mcp_host import Sampling, always

SERVER = Path(__file__).with_name("calculator_server.py")


async def main() -> None:
    sampling = Sampling(with_tools=model, approve=always)
    server = StdioServerParameters(command=sys.executable, args=[str(SERVER)])
    async with Client(server, **sampling.for_sdk(server="calculator")) as client:
        result = await client.call_tool("solve", {"problem": "Six dogs and three ants: how many legs?"})
        print(*(block.text for block in result.content))


if __name__ == "__main__":
    anyio.run(main)
