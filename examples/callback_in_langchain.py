"""Give the tools of LangChain's MCP adapters sampling (``pip install langchain-mcp-adapters``)."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
from langchain_mcp_adapters.client import MultiServerMCPClient
from sampling_with_tools import model

from mcp_host import Sampling, always

SERVER = Path(__file__).with_name("calculator_server.py")


async def main() -> None:
    sampling = Sampling(with_tools=model, approve=always)
    calculator = {
        "transport": "stdio",
        "command": sys.executable,
        "args": [str(SERVER)],
        "session_kwargs": sampling.for_sdk(server="calculator"),
    }
    client = MultiServerMCPClient({"calculator": calculator})
    [solve] = await client.get_tools()  # for an agent; here it is called without one
    print((await solve.ainvoke({"problem": "Six dogs and three ants: how many legs?"}))[0]["text"])


if __name__ == "__main__":
    anyio.run(main)
