"""The same good server behind each transport, and what a test calls it by."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from anyio import create_task_group

from mcp_host import Client, Stdio, StreamableHttp
from mcp_host.transports.base import Transport
from tests.faults.http_server import mcp
from tests.faults.stdio_server import server
from tests.transports.http_peers import serving
from tests.transports.legacy_peers import Answer

KINDS = ["stdio", "http"]


@asynccontextmanager
async def standing(kind: str, **answers: Answer) -> AsyncIterator[Transport]:
    """A server that answers every call well; but for *answers*, over HTTP."""
    if kind == "stdio":
        yield Stdio(server("serve_all()"))
    else:
        async with serving(mcp(**answers)) as peer:
            yield StreamableHttp(peer.url)


async def works(client: Client) -> bool:
    """Whether a call finds its answer."""
    return bool((await client.call_tool("tides")).content)


async def elsewhere(run: Any, *args: Any) -> None:
    """Run an async function in a task that ends with it."""
    async with create_task_group() as tasks:
        tasks.start_soon(run, *args)
