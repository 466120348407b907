"""A person logs in to the server whose URL is given; without a URL, a server that wants no login is begun."""

from __future__ import annotations

import sys
from contextlib import nullcontext

import anyio

from mcp_host import Client, OAuth, StreamableHttp
from mcp_host.auth import AuthError, Dynamic, FileTokens, in_browser
from mcp_host.testing import Server

server = Server("open to all")


@server.tool
def tides() -> str:
    """Ask for the tides."""
    return "high at noon"


async def main() -> None:
    auth = OAuth(
        tokens=FileTokens("~/.my-host/tokens.json"),  # a later run needs no login
        registration=Dynamic("My host"),  # the name that people see where they log in
        login=in_browser(),
    )
    async with nullcontext(sys.argv[1]) if len(sys.argv) > 1 else server.http() as url:
        try:
            async with Client(StreamableHttp(url, auth=auth)) as client:
                for tool in await client.list_tools():
                    print(f"{tool.name}: {tool.description}")
        except AuthError as exc:
            print(f"there is no login: {exc}")
        for step in auth.steps:
            print(f"{step.action}: {step.outcome}")


if __name__ == "__main__":
    anyio.run(main)
