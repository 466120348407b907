"""A server over stdio whose process ends in a call of its first life."""

from __future__ import annotations

import os

from mcp_host.testing import Server

server = Server("crashing")


@server.tool
async def crash() -> None:
    os._exit(3)


@server.tool
async def live() -> str:
    return "alive"


@server.resource("mem://menu")
async def menu() -> str:
    return "soup"


if __name__ == "__main__":
    server.run_stdio()
