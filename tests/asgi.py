"""ASGI applications of tests behind a real HTTP server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from anyio.from_thread import start_blocking_portal

from mcp_host.serving.http.uvicorn_server import UvicornServer, listen
from mcp_host.testing import Server


@contextmanager
def serving(app: Callable[..., Awaitable[None]]) -> Iterator[str]:
    """Serve *app* under uvicorn in another thread, for tests on asyncio and on trio; the value is the origin."""
    with listen(0) as listener:
        server = UvicornServer(app)
        thread = server.start(listener)
        assert server.up.wait(25)
        assert server.started
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.stop()
            thread.join(25)


@contextmanager
def serving_mcp(server: Server, **options: Any) -> Iterator[str]:
    """Serve *server* in another thread, for programs that are not async; the value is its URL."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(server.http(**options)) as url:
        yield url
