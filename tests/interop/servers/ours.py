"""Our own test server, for the clients of others: ``ours.py stdio`` or ``ours.py http PORT MARK``."""

from __future__ import annotations

import sys

from anyio import create_task_group

from mcp_host.testing import Context, Server
from mcp_host.types import JSONObject

server = Server("ours", version="1.0.0", instructions="For interoperability tests.", ttl=3600.0)


def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


@server.tool
async def calculate(question: str, context: Context) -> str:
    """Have the client's model answer with our calculator."""
    answer = await context.sample_loop(question, tools=[add])
    return answer.text


@server.tool
async def gather(what: str, context: Context) -> JSONObject:
    """Ask for all three kinds of input at once."""
    heard: JSONObject = {}

    async def ask_user() -> None:
        schema: JSONObject = {"type": "object", "properties": {"size": {"type": "string"}}, "required": ["size"]}
        heard["order"] = (await context.elicit(f"Which {what}?", schema)).content

    async def ask_model() -> None:
        heard["opinion"] = (await context.sample(f"Is {what} any good?")).text

    async def ask_for_roots() -> None:
        heard["roots"] = [root.uri for root in await context.list_roots()]

    async with create_task_group() as tasks:
        for ask in (ask_user, ask_model, ask_for_roots):
            tasks.start_soon(ask)
    return heard


@server.tool
async def count(to: int, context: Context) -> int:
    """Report progress from 1 to *to*, with a line of log each."""
    for step in range(1, to + 1):
        await context.report_progress(step, to, f"step {step}")
        await context.log("info", f"at {step}")
    return to


@server.tool
async def offer(name: str) -> str:
    """Add a tool of that name, and tell everybody."""
    server.tool(name=name)(count)
    await server.notify_tools_changed()
    return name


@server.resource("note://today")
async def note() -> str:
    """What to remember."""
    return "Buy milk."


if __name__ == "__main__":
    server.run_stdio() if sys.argv[1] == "stdio" else server.run_http(int(sys.argv[2]))
