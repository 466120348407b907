"""A server on the official SDK or on fastmcp, of any version, whose tools sample with `ServerSampling`.

Runs in the environments that `run.py` installs: ``sampling.py sdk|fastmcp stdio|http PORT MARK``.
"""

# mypy: ignore-errors
# Neither is installed where the types are checked: their dependencies would tie ours down.

import random
import sys

import anyio
from pydantic import BaseModel

from mcp_host.errors import NotDeclared
from mcp_host.sampling.structured import ServerSampling, sampling_for_fastmcp, sampling_for_sdk

KIND, TRANSPORT, PORT, _ = sys.argv[1:]

if KIND == "fastmcp":
    from fastmcp import Context, FastMCP

    server, sampled = FastMCP("sampling"), sampling_for_fastmcp
else:
    try:
        from mcp.server import MCPServer
        from mcp.server.mcpserver import Context
    except ImportError:
        from mcp.server.fastmcp import Context
        from mcp.server.fastmcp import FastMCP as MCPServer

    server, sampled = MCPServer("sampling"), sampling_for_sdk


class Pet(BaseModel):
    name: str
    legs: int


@server.tool()
@sampled
async def describe(what: str, sampling: ServerSampling, retries: int = 1) -> Pet:
    """Sample an object."""
    result = await sampling.sample(f"Describe {what}", schema=Pet, retries=retries, system_prompt="Be brief.")
    return Pet(name=result.parse_error.message, legs=0) if result.parsed is None else result.parsed


@server.tool()
@sampled
async def legs(pets: list[str], sampling: ServerSampling) -> str:
    """Sample in a loop, with a tool that must not run twice for one call."""
    counted = []

    async def count(pet: str) -> int:
        """The legs of a pet."""
        counted.append(pet)
        return random.randrange(1000, 10**9)

    result = await sampling.sample_loop(f"Count the legs of {pets}", tools=[count])
    return f"{result.ended}: {result.text}"


@server.tool()
@sampled
async def poll(question: str, ctx: Context, sampling: ServerSampling) -> dict[str, str]:
    """Sample three times at once, and once more."""
    said = {}

    async def ask(name: str) -> None:
        said[name] = (await sampling.sample(f"{name}: {question}")).text

    async with anyio.create_task_group() as tasks:
        for name in ("Ann", "Bob", "Cy"):
            tasks.start_soon(ask, name)
    await ctx.report_progress(1, 2)
    await ask("Di")
    return {name: said[name] for name in sorted(said)}


@server.tool()
@sampled
async def toss(sampling: ServerSampling) -> bool:
    """Whether the model was asked about what was decided by chance before."""
    side = await sampling.once("side", draw)
    return (await sampling.sample(f"side {side}")).text == f"You said: side {side}"


@server.tool()
@sampled
async def drift(sampling: ServerSampling) -> str:
    """Ask something else whenever it runs."""
    await sampling.sample(f"side {draw()}")
    return "drifted"


def draw() -> int:
    return random.randrange(1000, 10**9)


@server.tool()
@sampled
async def careful(sampling: ServerSampling) -> str:
    """Do without a model that takes no tools."""
    try:
        result = await sampling.sample("Call it for 'Ann' and 'Bob'.", tools=[greet])
    except NotDeclared as exc:
        return str(exc)
    return ", ".join(f"{call.name} {call.arguments}" for call in result.tool_calls)


def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}."


@server.prompt()
@sampled
async def ode(to: str, sampling: ServerSampling) -> str:
    """A prompt that the model completes."""
    return f"An ode to {to}: {(await sampling.sample(f'A rhyme on {to}')).text}"


@server.resource("ode://{to}")
@sampled
async def ode_resource(to: str, sampling: ServerSampling) -> str:
    """A resource that the model completes."""
    return f"An ode to {to}: {(await sampling.sample(f'A rhyme on {to}')).text}"


if __name__ == "__main__":
    if TRANSPORT == "stdio":
        server.run()
    elif KIND == "fastmcp":
        server.run(transport="http", host="127.0.0.1", port=int(PORT), show_banner=False)
    elif MCPServer.__name__ == "FastMCP":
        server.settings.host, server.settings.port = "127.0.0.1", int(PORT)
        server.run("streamable-http")
    else:
        server.run("streamable-http", host="127.0.0.1", port=int(PORT))
