"""Use two servers: connect and call them concurrently, close them in any order."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from mcp_host import Client
from mcp_host.testing import Server

SERVER = Path(__file__).with_name("hello_server.py")

clock = Server("clock")


@clock.tool
async def tell_time() -> str:
    """Tell the time."""
    return "It is tea time."


async def show(client: Client, tool: str, arguments: dict[str, str]) -> None:
    result = await client.call_tool(tool, arguments)
    print(f"{client.name}: {result.text}")


async def main() -> None:
    first = Client([sys.executable, SERVER], name="greeter")
    second = Client(clock, name="clock")
    async with anyio.create_task_group() as tasks:  # these tasks end at once
        tasks.start_soon(first.connect)
        tasks.start_soon(second.connect)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(show, first, "greet", {"name": "Alan"})
            tasks.start_soon(show, second, "tell_time", {})
        await first.aclose()  # in another order than `async with` would
        await show(second, "tell_time", {})
    finally:
        await first.aclose()  # does nothing if it is closed
        await second.aclose()


if __name__ == "__main__":
    anyio.run(main)
