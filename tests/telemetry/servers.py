"""The server that most of these tests talk to, over each transport: ``python -m tests.telemetry.servers`` for stdio."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from mcp_host import Stdio, StreamableHttp
from mcp_host.testing import ClientError, Context, Server, ToolError
from mcp_host.transports.base import Transport
from mcp_host.types import ModelHint, ModelPreferences

server = Server("weather")


@server.tool
async def forecast(city: str, ctx: Context) -> str:
    """The traceparent that came with the call."""
    if city == "Atlantis":
        raise ToolError("no such city: Atlantis")
    return str(ctx.meta.get("traceparent"))


@server.prompt
def greet(name: str) -> str:
    return f"Greet {name}."


@server.resource("notes://today")
def today() -> str:
    return "rain"


@server.tool
async def ask(ctx: Context) -> str:
    """Ask the model."""
    answer = await ctx.sample(
        "capital?",
        max_tokens=50,
        temperature=0.5,
        stop_sequences=["\n"],
        model_preferences=ModelPreferences(hints=[ModelHint(name="claude"), ModelHint(name="gpt")]),
    )
    return answer.text


@server.tool
async def ask_simply(ctx: Context) -> str:
    try:
        return (await ctx.sample("capital?", max_tokens=50)).text
    except ClientError:
        return "refused"


@server.tool
async def fill(ctx: Context) -> str:
    answer = await ctx.elicit("Your name?", {"type": "object", "properties": {"name": {"type": "string"}}})
    return answer.action


@server.tool
async def roots(ctx: Context) -> str:
    return str(len(await ctx.list_roots()))


@server.tool
async def send(method: str, ctx: Context) -> str:
    """Send a request without parameters."""
    try:
        await ctx.request(method, {})
    except ClientError:
        return "refused"
    return "answered"


@asynccontextmanager
async def reached(how: str) -> AsyncIterator[Transport]:
    """The server above, over one of the transports."""
    if how == "stdio":
        yield Stdio([sys.executable, "-m", "tests.telemetry.servers"], cwd=Path(__file__).parents[2])
    elif how == "in-process":
        yield server.in_process()
    else:
        async with server.http() as url:
            yield StreamableHttp(url)


def network(transport: Transport) -> dict[str, Any]:
    """The attributes of both sides' spans that say how the server is reached."""
    match transport:
        case Stdio():
            return {"network.transport": "pipe"}
        case StreamableHttp():
            return {"network.transport": "tcp", "network.protocol.name": "http"}
        case _:
            return {}


def address(transport: Transport) -> dict[str, Any]:
    """The attributes of our spans that say where the server is."""
    if isinstance(transport, StreamableHttp):
        return {"server.address": "127.0.0.1", "server.port": urlsplit(transport.url).port}
    return {}


everywhere = pytest.mark.parametrize("how", ["stdio", "http", "in-process"])
in_both_eras = pytest.mark.parametrize(
    ("era", "version"), [("legacy", "2025-11-25"), ("modern", "2026-07-28")], ids=["2025-11-25", "2026-07-28"]
)

if __name__ == "__main__":
    server.run_stdio()
