"""ASGI applications of tests behind a real HTTP server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from mcp_host.testing._http.serving import UvicornServer, listen


@contextmanager
def serving(app: Callable[..., Awaitable[None]]) -> Iterator[str]:
    """Serve *app* under uvicorn in another thread, for tests on asyncio and on trio; the value is the origin."""
    with listen(0) as listener:
        server = UvicornServer(app)
        thread = server.start(listener)
        assert server.up.wait(10)
        assert server.started
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.stop()
            thread.join(10)
