"""What each request to the web application needs: an end when its browser leaves, and a status for an error."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from starlette.requests import Request

from mcp_host.errors import ConnectionClosed, ConnectTimeout, InputNotGiven, McpError, RequestTimeout


@asynccontextmanager
async def until_the_browser_leaves(request: Request) -> AsyncIterator[None]:
    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        tasks.cancel_scope.cancel()

    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        try:
            yield
        except Exception as exc:
            failure = exc
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure  # here, because the task group would wrap it in an ExceptionGroup


def http_status(error: McpError) -> int:
    if isinstance(error, InputNotGiven):  # before 2026-07-28 the server is told, and its result says so
        return 403
    if isinstance(error, ConnectionClosed | ConnectTimeout | RequestTimeout) and not error.may_have_run:
        return 503
    return 504 if isinstance(error, RequestTimeout) else 502
