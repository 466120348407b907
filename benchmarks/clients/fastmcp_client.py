"""fastmcp's client, as its documentation uses it."""

# mypy: ignore-errors
# It is not installed where the types are checked: its dependencies would tie ours down.

import sys
from contextlib import asynccontextmanager

from fastmcp import Client
from fastmcp.client.group import ClientGroup
from fastmcp.client.transports import StdioTransport
from mcp_types import SamplingCapability, SamplingToolsCapability

from benchmarks.clients.drive import main


class Session:
    def __init__(self, client):
        self._client = client

    @property
    def server(self):
        return self._client.server_info.name

    async def call(self, tool, arguments, on_progress=None):
        if on_progress is None:
            return (await self._client.call_tool(tool, arguments)).content[0].text

        async def report(progress, total, message):
            on_progress(progress)

        return (await self._client.call_tool(tool, arguments, progress_handler=report)).content[0].text

    async def list_tools(self):
        return [tool.name for tool in await self._client.list_tools()]


@asynccontextmanager
async def open(server, model):
    target = server if isinstance(server, str) else StdioTransport(server[0], server[1:], keep_alive=False)
    async with Client(target, **sampling(model)) as client:
        yield Session(client)


def sampling(model):
    if model is None:
        return {}

    async def handler(messages, params, context):
        return model(len(params.tools or []), len(messages))

    capabilities = SamplingCapability(tools=SamplingToolsCapability())
    return {"sampling_handler": handler, "sampling_capabilities": capabilities}


@asynccontextmanager
async def open_group(servers):
    async with ClientGroup.from_config(config(servers)) as group:
        yield Session(group)


@asynccontextmanager
async def open_config(servers):
    async with Client(config(servers)) as client:
        yield Session(client)


def config(servers):
    return {"mcpServers": {name: entry(server) for name, server in servers.items()}}


def entry(server):
    if isinstance(server, str):
        return {"url": server, "transport": "http"}
    return {"command": server[0], "args": server[1:], "keep_alive": False}


if __name__ == "__main__":
    main(open, open_config if sys.argv[1:] == ["config"] else open_group)
