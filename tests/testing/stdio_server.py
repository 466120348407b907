"""A server to be started as a child process: ``python -m tests.testing.stdio_server [backend]``."""

from __future__ import annotations

import os
import subprocess
import sys

from anyio import sleep_forever

from mcp_host.serving.stdio import MAX_WAITING
from mcp_host.testing import Context, Server

server = Server("child")


@server.tool
async def ask(ctx: Context, question: str) -> str:
    """Ask the host's model."""
    return (await ctx.sample(question)).text


@server.tool
def shout(text: str) -> str:
    """Print in every way there is, and return the text."""
    print(text)
    os.write(1, text.encode())
    subprocess.run([sys.executable, "-c", "import sys; print(sys.stdin.read() or 'nothing to read')"], check=True)
    return text


@server.tool
def echo(text: str) -> str:
    """Return the text."""
    return text


@server.tool
async def flood(ctx: Context, count: int = 2 * MAX_WAITING, size: int = 0) -> str:
    """Log faster than anyone reads."""
    for number in range(count):
        await ctx.notify("notifications/message", {"level": "info", "data": number, "logger": "x" * size})
    print("flooded", file=sys.stderr, flush=True)
    return "done"


@server.tool
async def wait() -> None:
    """Never return."""
    await sleep_forever()


if __name__ == "__main__":
    server.run_stdio(backend="trio" if "trio" in sys.argv else "asyncio")
