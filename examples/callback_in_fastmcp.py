"""Keep fastmcp's `Client`, of version 3 or 4 (``pip install fastmcp``)."""

from __future__ import annotations

from pathlib import Path

import anyio
import fastmcp
from sampling_with_tools import model

from mcp_host import Sampling, always

SERVER = Path(__file__).with_name("calculator_server.py")


async def main() -> None:
    sampling = Sampling(with_tools=model, approve=always)
    async with fastmcp.Client(SERVER, **sampling.for_fastmcp(server="calculator")) as client:
        result = await client.call_tool("solve", {"problem": "Six dogs and three ants: how many legs?"})
        print(*(block.text for block in result.content))


if __name__ == "__main__":
    anyio.run(main)
