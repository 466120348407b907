"""Connect to a server by its URL, and handle the errors."""

from __future__ import annotations

import anyio
from hello_server import server

from mcp_host import Client, McpError, StreamableHttp
from mcp_host.errors import ConnectFailed, ServerError


async def greet(url: str, tool: str) -> str:
    """The server's answer, or what went wrong."""
    try:
        async with Client(StreamableHttp(url, headers={"Authorization": "Bearer a-token-of-yours"})) as client:
            result = await client.call_tool(tool, {"name": "Grace"}, timeout=10)
    except ConnectFailed:
        return "the server cannot be reached"
    except ServerError as exc:
        return f"the server refused: {exc}"
    except McpError as exc:  # every other error of this library
        return f"it failed: {exc}"
    return result.text


async def main() -> None:
    async with server.http() as url:  # stands for a remote server
        print(await greet(url, "greet"))
        print(await greet(url, "insult"))
    print(await greet(url, "greet"))


if __name__ == "__main__":
    anyio.run(main)
