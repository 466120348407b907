"""Our connections to a real server."""

from __future__ import annotations

import anyio
import pytest

from mcp_host import Client, Sampling, SamplingRequest, always
from mcp_host.testing import Context, Server
from mcp_host.transports._http.pool import Connection, Pool
from mcp_host.types import CreateMessageResult
from tests.transports.http_peers import timed

server = Server("tides")


@server.tool
async def height(context: Context) -> str:
    """Ask the host's model for it."""
    return (await context.sample("How high is the tide?")).text


async def model(request: SamplingRequest) -> CreateMessageResult:
    return request.reply("three metres")


@pytest.mark.parametrize(("era", "most"), [("legacy", 4), ("modern", 2)])
async def test_a_session_with_a_server_that_asks_back_takes_few_connections(
    era: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One for the server's stream, one for a call, one for the answer within it, and one while the handshake ends."""
    opened: list[Pool] = []
    open_connection = Pool._open

    async def counted(pool: Pool) -> Connection:
        opened.append(pool)
        return await open_connection(pool)

    monkeypatch.setattr(Pool, "_open", counted)

    sampling = Sampling(with_tools=model, approve=always)
    with anyio.fail_after(30):
        async with (
            server.http() as url,
            Client(timed(url, max_connections=1, drain_time=60.0), era=era, sampling=sampling) as client,
        ):
            answers = [(await client.call_tool("height")).text for _ in range(20)]

    assert answers == ["three metres"] * 20
    assert 1 <= len(opened) <= most
