"""Clients that are recorded, and the ways to reach the server of `servers.py`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from inspect import isfunction
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from mcp_host import Client, Stdio, StreamableHttp
from mcp_host.middleware import Middleware
from mcp_host.testing import ScriptedPeer
from mcp_host.transports.base import Transport
from tests.client.support import connected
from tests.telemetry.recorder import Recorder
from tests.telemetry.servers import server


@asynccontextmanager
async def reached(how: str) -> AsyncIterator[Transport]:
    """The server above, over one of the transports."""
    if how == "stdio":
        yield Stdio([sys.executable, "-m", "tests.telemetry.servers"], cwd=Path(__file__).parents[2])
    elif how == "in-process":
        yield server.in_process()
    else:
        async with server.http() as url:
            yield StreamableHttp(url)


def called(tool: str, version: str = "2025-11-25", id: str | None = "2", **more: object) -> dict[str, Any]:
    """The attributes of our span of a call."""
    call = {"mcp.method.name": "tools/call", "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
    return {**call, "mcp.protocol.version": version, **({} if id is None else {"jsonrpc.request.id": id}), **more}


def network(transport: Transport) -> dict[str, Any]:
    """The attributes of both sides' spans that say how the server is reached."""
    match transport:
        case Stdio():
            return {"network.transport": "pipe"}
        case StreamableHttp():
            return {"network.transport": "tcp", "network.protocol.name": "http"}
        case _:
            return {}


def address(transport: Transport) -> dict[str, Any]:
    """The attributes of our spans that say where the server is."""
    if isinstance(transport, StreamableHttp):
        return {"server.address": "127.0.0.1", "server.port": urlsplit(transport.url).port}
    return {}


@asynccontextmanager
async def recorded(
    recorder: Recorder, to: Any, *, record_content: bool = False, inside: Sequence[Middleware] = (), **options: Any
) -> AsyncIterator[Client]:
    """A client of a server, or of the script of a peer, that is recorded. *inside* is middleware after the recorder's."""
    both: list[Middleware] = [recorder.middleware(record_content=record_content), *inside]
    server = ScriptedPeer(to) if isfunction(to) else to
    async with connected(server, middleware=both, **options) as client:
        yield client


def answering(
    answer: Callable[[ScriptedPeer, dict[str, Any]], Awaitable[object]],
) -> Callable[[ScriptedPeer], Awaitable[None]]:
    """The script of a peer of 2025-11-25 that does *answer* when a tool is called."""

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"tools": {}})
        await answer(peer, await peer.receive("tools/call"))

    return script


everywhere = pytest.mark.parametrize(
    ("how", "era", "version"),
    [
        ("stdio", "modern", "2026-07-28"),
        *(
            (how, *era)
            for how in ("http", "in-process")
            for era in (("legacy", "2025-11-25"), ("modern", "2026-07-28"))
        ),
    ],
)
in_both_eras = pytest.mark.parametrize(
    ("era", "version"), [("legacy", "2025-11-25"), ("modern", "2026-07-28")], ids=["2025-11-25", "2026-07-28"]
)
