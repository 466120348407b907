"""Our client over server objects of the official SDK and of FastMCP, in this process; what came of it, as JSON.

Run by the Python that has the SDK in question: in_process.py KIND BACKEND, where KIND is "low-level", "sdk" or "fastmcp".
"""

# mypy: ignore-errors
# The SDK is not installed where the types are checked: its dependencies would tie ours down.

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel

from mcp_host import Client, Sampling, always
from mcp_host.errors import McpError
from mcp_host.testing import ScriptedModel

lifespan_log: list[str] = []


@asynccontextmanager
async def lifespan(server: Any) -> AsyncIterator[dict[str, Any]]:
    lifespan_log.append("entered")
    try:
        yield {}
    finally:
        await anyio.lowlevel.checkpoint()  # it may take its time
        lifespan_log.append("left")


@asynccontextmanager
async def failing_lifespan(server: Any) -> AsyncIterator[dict[str, Any]]:
    raise RuntimeError("no database")
    yield {}


def low_level(lifespan: Any) -> Any:
    from mcp import types
    from mcp.server.lowlevel import Server

    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
    if not hasattr(Server, "call_tool"):  # version 2, which takes functions instead of decorating them

        async def list_tools(ctx: Any, params: Any) -> Any:
            return types.ListToolsResult(tools=[types.Tool(name="add", input_schema=schema)])

        async def call_tool(ctx: Any, params: Any) -> Any:
            total = params.arguments["a"] + params.arguments["b"]
            return types.CallToolResult(content=[types.TextContent(type="text", text=str(total))])

        return Server("calculator", lifespan=lifespan, on_list_tools=list_tools, on_call_tool=call_tool)

    server = Server("calculator", lifespan=lifespan)

    @server.list_tools()
    async def listed() -> Any:
        return [types.Tool(name="add", inputSchema=schema)]

    @server.call_tool()
    async def called(name: str, arguments: Any) -> Any:
        return [types.TextContent(type="text", text=str(arguments["a"] + arguments["b"]))]

    return server


def high_level(kind: str, lifespan: Any) -> Any:
    if kind == "fastmcp":
        from fastmcp import FastMCP as Kind
    else:
        try:
            from mcp.server.mcpserver import MCPServer as Kind
        except ImportError:
            from mcp.server.fastmcp import FastMCP as Kind

    server = Kind("calculator", lifespan=lifespan)

    @server.tool()
    async def add(a: int, b: int) -> str:
        return str(a + b)

    if kind == "sdk":
        ask_the_model(server)
    return server


def ask_the_model(server: Any) -> None:
    """Give *server* a tool that asks its client's model, as servers do until 2025-11-25."""
    from mcp import types

    try:
        from mcp.server.mcpserver import Context
    except ImportError:
        from mcp.server.fastmcp import Context

    async def ask(ctx: Any) -> str:
        question = types.SamplingMessage(role="user", content=types.TextContent(type="text", text="Why?"))
        answer = await ctx.session.create_message(messages=[question], max_tokens=10)
        return str(answer.content.text)

    ask.__annotations__ = {"ctx": Context, "return": str}  # by which the SDK finds out who wants a context
    server.tool()(ask)


def make(kind: str, lifespan: Any) -> Any:
    return low_level(lifespan) if kind == "low-level" else high_level(kind, lifespan)


async def seen(kind: str, era: str) -> dict[str, Any]:
    """What a client sees that is pinned to *era*."""
    lifespan_log.clear()
    sampling = Sampling(with_tools=ScriptedModel("Because."), approve=always)
    try:
        async with Client(make(kind, lifespan), era=era, sampling=sampling) as client:
            sum = (await client.call_tool("add", {"a": 1, "b": 2})).text
            asked = (await client.call_tool("ask")).text if kind == "sdk" and era == "legacy" else None
            told = {"version": client.protocol_version, "server": client.server_info.name, "sum": sum, "asked": asked}
    except McpError as exc:
        told = {"error": type(exc).__name__}
    return {**told, "lifespan": [*lifespan_log]}


async def main(kind: str) -> None:
    report: dict[str, Any] = {era: await seen(kind, era) for era in ("auto", "legacy", "modern")}
    try:
        await Client(make(kind, failing_lifespan), era="legacy").connect()
    except McpError as exc:
        report["failing"] = f"{type(exc).__name__}: {exc}"
    print(json.dumps(report))


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], backend=sys.argv[2])
