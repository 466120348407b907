"""A server on the official SDK, of either version, with tools of each kind for the loops of a host.

Runs in the environments that `run.py` installs: ``tools.py stdio|http PORT MARK``.
"""

# mypy: ignore-errors
# The SDK is not installed where the types are checked: its dependencies would tie ours down.

import sys

import anyio
from pydantic import BaseModel

from mcp_host.sampling.structured import ServerSampling, sampling_for_sdk
from mcp_host.types import Tool

try:
    from mcp.server import MCPServer
    from mcp.server.mcpserver import Image
    from mcp.server.mcpserver.exceptions import ToolError
except ImportError:  # version 1
    from mcp.server.fastmcp import FastMCP as MCPServer
    from mcp.server.fastmcp import Image
    from mcp.server.fastmcp.exceptions import ToolError

from mcp.types import CallToolResult, EmbeddedResource, ResourceLink, TextResourceContents, ToolAnnotations

TRANSPORT, PORT, _ = sys.argv[1:]

server = MCPServer("tools")


class Weather(BaseModel):
    city: str
    celsius: float


@server.tool(annotations=ToolAnnotations(readOnlyHint=True))
async def measure(city: str) -> Weather:
    """Measure the weather."""
    return Weather(city=city, celsius=21.5)


@server.tool()
async def draw(what: str) -> list:
    """Draw a picture."""
    return [f"A {what}:", Image(data=what.encode(), format="png")]


@server.tool()
async def look_up(topic: str) -> CallToolResult:
    """Look something up."""
    page = TextResourceContents(uri=f"note://{topic}", mimeType="text/plain", text=f"All about {topic}.")
    link = ResourceLink(type="resource_link", uri="note://more", name="more")
    return CallToolResult(content=[EmbeddedResource(type="resource", resource=page), link])


@server.tool()
async def fail() -> str:
    """Fail."""
    raise ToolError("out of order")


@server.tool()
async def hang() -> str:
    """Never end by itself."""
    try:
        print("hangs", file=sys.stderr, flush=True)
        await anyio.sleep_forever()
    finally:
        print("cancelled", file=sys.stderr, flush=True)


@server.tool()
async def long(words: int) -> str:
    """Say much."""
    return " ".join(["word"] * words)


@server.tool()
@sampling_for_sdk
async def advise(city: str, sampling: ServerSampling, private: bool = False) -> str:
    """Ask the client's model, which is offered a tool of this server; and one that only this call has."""
    listed = Tool(name="measure", input_schema={"type": "object", "properties": {"city": {"type": "string"}}})
    own = Tool(name="remember", input_schema={"type": "object", "properties": {"what": {"type": "string"}}})
    result = await sampling.sample(f"What to wear in {city}?", tools=[listed, own] if private else [listed])
    calls = [f"{call.name} {call.arguments}" for call in result.tool_calls]
    return f"{result.text}; to run here: {calls}"


if __name__ == "__main__":
    if TRANSPORT == "stdio":
        server.run()
    elif MCPServer.__name__ == "FastMCP":
        server.settings.host, server.settings.port = "127.0.0.1", int(PORT)
        server.run("streamable-http")
    else:
        server.run("streamable-http", host="127.0.0.1", port=int(PORT))
