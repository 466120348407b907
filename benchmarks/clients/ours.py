"""mcp-host, as its tutorial uses it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from benchmarks.clients.drive import Model, main
from benchmarks.job import Server
from mcp_host import Client, ClientGroup, Sampling, SamplingLimits, SamplingRequest, Stdio, StreamableHttp, always
from mcp_host.types import CreateMessageResult, ProgressNotificationParams

if TYPE_CHECKING:
    import httpx

    from mcp_host import Handler
    from mcp_host.auth import OAuth
    from mcp_host.middleware import Middleware

LIMITS = SamplingLimits(messages=512)  # the default is 256, and one row has more


class Session:
    def __init__(self, client: Client) -> None:
        self.client = client

    @property
    def server(self) -> str:
        return self.client.server_info.name

    async def call(
        self, tool: str, arguments: dict[str, object], on_progress: Callable[[float], None] | None = None
    ) -> str:
        if on_progress is None:
            return (await self.client.call_tool(tool, arguments)).text

        async def report(params: ProgressNotificationParams) -> None:
            on_progress(params.progress)

        return (await self.client.call_tool(tool, arguments, on_progress=report)).text

    async def list_tools(self) -> list[str]:
        return [tool.name for tool in await self.client.list_tools()]


class Group:
    def __init__(self, group: ClientGroup) -> None:
        self._group = group

    async def call(self, tool: str, arguments: dict[str, object]) -> str:
        return (await self._group.call_tool(tool, arguments)).text

    async def list_tools(self) -> list[str]:
        return [tool.name for tool in await self._group.list_tools()]


def function(model: Model) -> Handler:
    async def handler(request: SamplingRequest) -> CreateMessageResult:
        return request.reply(model(len(request.tools), len(request.messages)))

    return handler


@asynccontextmanager
async def open(
    server: Server,
    model: Model | None,
    *,
    handler: Callable[[Model], Handler] = function,
    middleware: Sequence[Middleware] = (),
    client: httpx.AsyncClient | None = None,
    auth: OAuth | None = None,
) -> AsyncIterator[Session]:
    transport = StreamableHttp(server, client=client, auth=auth) if isinstance(server, str) else Stdio(server)
    sampling = None if model is None else Sampling(with_tools=handler(model), approve=always, limits=LIMITS)
    async with Client(transport, sampling=sampling, middleware=middleware) as connected:
        yield Session(connected)


@asynccontextmanager
async def open_group(servers: Mapping[str, Server]) -> AsyncIterator[Group]:
    async with ClientGroup(servers) as group:
        yield Group(group)


if __name__ == "__main__":
    main(open, open_group)
