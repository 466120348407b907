"""The official Python SDK's client, as its documentation uses it."""

# mypy: ignore-errors
# The SDK is not installed where the types are checked: its dependencies would tie ours down.

from contextlib import asynccontextmanager

from mcp import Client, ClientSessionGroup, StdioServerParameters
from mcp.client.session_group import StreamableHttpParameters
from mcp_types import (
    CreateMessageResult,
    SamplingCapability,
    SamplingToolsCapability,
    TextContent,
)

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

        return (await self._client.call_tool(tool, arguments, progress_callback=report)).content[0].text

    async def list_tools(self):
        return [tool.name for tool in (await self._client.list_tools()).tools]


@asynccontextmanager
async def open(server, model):
    target = server if isinstance(server, str) else StdioServerParameters(command=server[0], args=server[1:])
    async with Client(target, **sampling(model)) as client:
        yield Session(client)


def sampling(model):
    if model is None:
        return {}

    async def callback(context, params):
        text = TextContent(type="text", text=model(len(params.tools or []), len(params.messages)))
        return CreateMessageResult(role="assistant", content=text, model="a-model", stop_reason="endTurn")

    capabilities = SamplingCapability(tools=SamplingToolsCapability())
    return {"sampling_callback": callback, "sampling_capabilities": capabilities}


class Group:
    def __init__(self, group):
        self._group = group

    async def call(self, tool, arguments):
        return (await self._group.call_tool(tool, arguments)).content[0].text

    async def list_tools(self):
        return list(self._group.tools)


@asynccontextmanager
async def open_group(servers):
    connecting = []
    async with ClientSessionGroup(component_name_hook=lambda name, info: f"{connecting[-1]}_{name}") as group:
        for name, server in servers.items():
            connecting.append(name)
            await group.connect_to_server(parameters(server))
        yield Group(group)


def parameters(server):
    if isinstance(server, str):
        return StreamableHttpParameters(url=server)
    return StdioServerParameters(command=server[0], args=server[1:])


if __name__ == "__main__":
    main(open, open_group)
