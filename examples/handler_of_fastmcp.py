"""Use a sampling handler written for fastmcp, here its own for OpenAI (``pip install 'fastmcp[openai]'``)."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
from fastmcp.client.sampling.handlers.openai import OpenAISamplingHandler

from mcp_host import Client, Sampling, always
from mcp_host.sampling import from_fastmcp

SERVER = Path(__file__).with_name("calculator_server.py")


async def main() -> None:
    handler = OpenAISamplingHandler(default_model="gpt-5-mini")  # its client reads OPENAI_API_KEY
    sampling = Sampling(with_tools=from_fastmcp(handler), approve=always)
    async with Client([sys.executable, SERVER], sampling=sampling) as client:
        print((await client.call_tool("solve", {"problem": "Six dogs and three ants: how many legs?"})).text)


if __name__ == "__main__":
    anyio.run(main)
