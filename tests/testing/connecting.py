"""A test server over every transport that is in this process, in both eras."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeAlias

import pytest

from mcp_host import StreamableHttp
from mcp_host.testing import Server
from mcp_host.transports.base import Transport

ConnectBy: TypeAlias = Callable[[Server], AbstractAsyncContextManager[Transport]]


MODERN = ("2026-07-28",)
HANDSHAKE = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")


@asynccontextmanager
async def in_process(server: Server) -> AsyncIterator[Transport]:
    yield server.in_process()


@asynccontextmanager
async def over_http(server: Server, *, json_response: bool = False) -> AsyncIterator[Transport]:
    async with server.http(json_response=json_response) as url:
        yield StreamableHttp(url)


def over_http_in_json(server: Server) -> AbstractAsyncContextManager[Transport]:
    return over_http(server, json_response=True)


@pytest.fixture(params=[in_process, over_http, over_http_in_json], ids=lambda connect_by: connect_by.__name__)
def connect_by(request: pytest.FixtureRequest) -> ConnectBy:
    chosen: ConnectBy = request.param
    return chosen


@pytest.fixture(params=[MODERN, HANDSHAKE], ids=["2026", "2025"])
def versions(request: pytest.FixtureRequest) -> Sequence[str]:
    chosen: Sequence[str] = request.param
    return chosen
