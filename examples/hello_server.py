"""The smallest useful server: one tool, over stdio when it is started as a program."""

from __future__ import annotations

from mcp_host.testing import Server

server = Server("hello", instructions="Call `greet` with a name.")


@server.tool
async def greet(name: str) -> str:
    """Greet a person by name."""
    return f"Hello, {name}!"


if __name__ == "__main__":
    server.run_stdio()
