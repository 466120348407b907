"""The server that most of these tests talk to: ``python -m tests.telemetry.servers`` for stdio."""

from __future__ import annotations

from mcp_host.testing import ClientError, Context, Server, ToolError
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


if __name__ == "__main__":
    server.run_stdio()
