"""Give the tools of Google's Agent Development Kit sampling (``pip install 'google-adk[mcp]'``)."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
from google.adk.tools.mcp_tool import McpToolset, StdioConnectionParams
from mcp import StdioServerParameters
from sampling_with_tools import model

from mcp_host import Sampling, always

SERVER = Path(__file__).with_name("calculator_server.py")


async def main() -> None:
    sampling = Sampling(with_tools=model, approve=always)
    server = StdioServerParameters(command=sys.executable, args=[str(SERVER)])
    connection = StdioConnectionParams(server_params=server)
    toolset = McpToolset(connection_params=connection, **sampling.for_sdk(server="calculator"))
    [solve] = await toolset.get_tools()  # for an agent; here it is called without one
    result = await solve.run_async(args={"problem": "Six dogs and three ants: how many legs?"}, tool_context=None)
    print(result["content"][0]["text"])
    await toolset.close()


if __name__ == "__main__":
    anyio.run(main)
