"""Our `Sampling`, registered once with a client of another package: ``other_clients.py PACKAGE REVISION ENDS BACKEND MARK [PROXY...]``.

*PROXY* are arguments of Python before the server's, for what is to be in front of it. Connects three times to a server of that *REVISION*, and prints what came of each call, as JSON. *ENDS* is
what ends the model of an abandoned call: that the "call" is cancelled, that the connection is closed ("close"), or
that the task which holds the connection is cancelled ("task").
"""

# mypy: ignore-errors
# The packages are not installed where the types are checked.

import json
import logging
import sys
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path

import anyio

from mcp_host.sampling import Allow, Deny, Sampling, SamplingLimits
from mcp_host.types import ToolResultContent

SERVER = Path(__file__).parents[1] / "servers" / "calculator.py"
PACKAGE, REVISION, ENDS, BACKEND, MARK, *PROXY = sys.argv[1:]
ARGS = [*PROXY, str(SERVER), REVISION, MARK]
IN_TIME = 25.0  # seconds for anything that is waited for, which takes one


# The host of each package: a context with a function that calls the server's tool


@asynccontextmanager
async def official_client(sampling):
    from mcp import Client, StdioServerParameters

    async with Client(StdioServerParameters(command=sys.executable, args=ARGS), **sampling) as client:
        yield calling(client.call_tool)


@asynccontextmanager
async def official_session(sampling):
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    server = StdioServerParameters(command=sys.executable, args=ARGS)
    async with stdio_client(server) as (read, write), ClientSession(read, write, **sampling) as session:
        await session.initialize()
        yield calling(session.call_tool)


def fastmcp_client(sampling):
    import fastmcp
    from fastmcp.client.transports import StdioTransport

    return fastmcp.Client(StdioTransport(sys.executable, ARGS, keep_alive=False), **sampling)


@asynccontextmanager
async def fastmcp(sampling):
    async with fastmcp_client(sampling) as client:
        yield calling(client.call_tool)


@asynccontextmanager
async def pydantic_ai(sampling):
    from pydantic_ai.mcp import MCPToolset

    async with MCPToolset(fastmcp_client(sampling), tool_error_behavior="error") as toolset:
        yield lambda problem: toolset.direct_call_tool("solve", {"problem": problem})


@asynccontextmanager
async def langchain(sampling):
    from langchain_mcp_adapters.client import MultiServerMCPClient
    from langchain_mcp_adapters.tools import load_mcp_tools

    server = {"transport": "stdio", "command": sys.executable, "args": ARGS, "session_kwargs": sampling}
    async with MultiServerMCPClient({"calculator": server}).session("calculator") as session:
        [tool] = await load_mcp_tools(session)

        async def solve(problem):
            content = await tool.ainvoke({"problem": problem})
            return content if isinstance(content, str) else content[0]["text"]

        yield solve


@asynccontextmanager
async def google_adk(sampling):
    from google.adk.tools.mcp_tool import McpToolset, StdioConnectionParams
    from mcp import StdioServerParameters

    server = StdioServerParameters(command=sys.executable, args=ARGS)
    toolset = McpToolset(connection_params=StdioConnectionParams(server_params=server), **sampling)
    [tool] = await toolset.get_tools()

    async def solve(problem):
        result = await tool.run_async(args={"problem": problem}, tool_context=None)
        return result["content"][0]["text"] if "content" in result else json.dumps(result)

    yield solve
    await toolset.close()


def calling(call_tool):
    async def solve(problem):
        return (await call_tool("solve", {"problem": problem})).content[0].text

    return solve


# The application

caller = ContextVar("caller", default="who connected")  # an approver may want to know on whose behalf it is asked


class Application:
    def __init__(self):
        self.asked = []
        self.started, self.ended = anyio.Event(), anyio.Event()

    async def approve(self, request):
        name = request.server if request.server_info is None else request.server_info.name
        self.asked.append(f"{name}, {caller.get()}")
        return Deny("not this one") if request.messages[0].text == "forbidden" else Allow("session")

    async def model(self, request):
        match request.messages[0].text:
            case "broken":
                raise RuntimeError("the key is hunter2")
            case "endless":
                try:
                    self.started.set()
                    await anyio.sleep_forever()
                finally:
                    self.ended.set()
        said = request.messages[-1].content[0]
        return said.text if isinstance(said, ToolResultContent) else request.call("multiply", {"a": 6, "b": 7})

    async def abandon(self, solve, scope=None):
        """Cancel a call, or *scope* around its connection, while the model answers."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(told, solve, "endless")
            await self.started.wait()
            (scope or tasks.cancel_scope).cancel()


async def told(solve, problem):
    """The tool's text, or the exception that the host gets."""
    token = caller.set(f"who asked for {problem}")
    try:
        return await solve(problem)
    except Exception as exc:
        return f"{type(exc).__name__}: {exc}"
    finally:
        caller.reset(token)


async def main():
    logging.disable()  # stderr is for what went wrong in here
    application, report = Application(), {}
    limits = SamplingLimits(at_once=1, waiting=0)  # what is left behind by one request refuses the next
    sampling = Sampling(with_tools=application.model, approve=application.approve, limits=limits)
    arguments = sampling.for_fastmcp() if PACKAGE in ("fastmcp", "pydantic_ai") else sampling.for_sdk()
    connect = partial(globals()[PACKAGE], arguments)

    with anyio.fail_after(IN_TIME):
        async with connect() as solve:
            for problem in ("forbidden", "6 * 7", "broken", "6 * 7 again"):
                report[problem] = await told(solve, problem)
    with anyio.fail_after(IN_TIME):
        with anyio.CancelScope() as scope:
            async with connect() as solve:
                await application.abandon(solve, scope if ENDS == "task" else None)
                if ENDS == "call":
                    await application.ended.wait()
                    report["in the same connection"] = await told(solve, "6 * 7")
        await application.ended.wait()
        async with connect() as solve:
            report["in another connection"] = await told(solve, "6 * 7")
    print(json.dumps({**report, "asked": application.asked}))


if __name__ == "__main__":
    anyio.run(main, backend=BACKEND)
