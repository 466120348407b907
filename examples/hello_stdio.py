"""Start a server as a child process, list its tools, and call one."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from mcp_host import Client

SERVER = Path(__file__).with_name("hello_server.py")


async def main() -> None:
    async with Client([sys.executable, SERVER]) as client:
        print(f"connected to {client.server_info.name}, revision {client.protocol_version}")
        for tool in await client.list_tools():
            print(f"it offers {tool.name}: {tool.description}")

        result = await client.call_tool("greet", {"name": "Ada"})
        print(result.text)


if __name__ == "__main__":
    anyio.run(main)
