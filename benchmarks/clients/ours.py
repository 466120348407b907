"""mcp-host, as its tutorial uses it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from benchmarks.clients.drive import Think, main
from mcp_host import Client, Sampling, SamplingRequest, Stdio, StreamableHttp, always
from mcp_host.types import CreateMessageResult, ProgressNotificationParams


class Session:
    def __init__(self, client: Client) -> None:
        self._client = client

    @property
    def server(self) -> str:
        return self._client.server_info.name

    async def call(
        self, tool: str, arguments: dict[str, object], on_progress: Callable[[float], None] | None = None
    ) -> str:
        if on_progress is None:
            return (await self._client.call_tool(tool, arguments)).text

        async def report(params: ProgressNotificationParams) -> None:
            on_progress(params.progress)

        return (await self._client.call_tool(tool, arguments, on_progress=report)).text

    async def list_tools(self) -> list[str]:
        return [tool.name for tool in await self._client.list_tools()]


@asynccontextmanager
async def open(server: str | list[str], think: Think | None) -> AsyncIterator[Session]:
    transport = StreamableHttp(server) if isinstance(server, str) else Stdio(server)
    async with Client(transport, sampling=sampling(think)) as client:
        yield Session(client)


def sampling(think: Think | None) -> Sampling | None:
    if think is None:
        return None

    async def model(request: SamplingRequest) -> CreateMessageResult:
        return request.reply(think(len(request.tools)))

    return Sampling(with_tools=model, approve=always)


if __name__ == "__main__":
    main(open)
