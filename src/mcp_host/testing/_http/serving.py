"""An ASGI application under uvicorn, on a port of its own, in a thread of its own.

uvicorn runs on asyncio only, and the tests of a host may run on trio. A thread
with an event loop serves both alike.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from threading import Event, Thread
from types import FrameType

import uvicorn
from anyio import CancelScope, to_thread

from mcp_host.testing._http.app import HttpApp

STOPPING = 1  # seconds for open responses to end; every session has been ended before


class _Uvicorn(uvicorn.Server):
    """uvicorn, told when to stop instead of asking ten times a second."""

    def __init__(self, app: HttpApp) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http="h11",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=STOPPING,
            )
        )
        self.up = Event()
        self._app = app
        self._loop: asyncio.AbstractEventLoop
        self._stopping: asyncio.Event

    def run_to_the_end(self, listener: socket.socket) -> None:
        """Serve until *stop*; in a thread."""
        try:
            asyncio.run(self.serve([listener]))
        finally:
            self.up.set()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self.stop()

    async def main_loop(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        await self.on_tick(0)
        self.up.set()
        await self._stopping.wait()
        await self._app.aclose()  # which ends the streams that uvicorn would wait for

    def stop(self) -> None:
        """From any thread, once *up*."""
        self._loop.call_soon_threadsafe(self._stopping.set)


def run(app: HttpApp, port: int, announce: Callable[[int], None]) -> None:
    """Serve *app* on 127.0.0.1 in this very thread until a signal ends it; *announce* hears the port."""
    with _listening(port) as listener:
        announce(listener.getsockname()[1])
        with suppress(KeyboardInterrupt):  # uvicorn passes a signal on when it has ended
            asyncio.run(_Uvicorn(app).serve([listener]))


@asynccontextmanager
async def serve(app: HttpApp) -> AsyncIterator[int]:
    """Serve *app* on 127.0.0.1; the port. When this is left, everything has ended."""
    with _listening(0) as listener:
        port: int = listener.getsockname()[1]
        server = _Uvicorn(app)
        thread = Thread(target=server.run_to_the_end, args=(listener,), name="uvicorn", daemon=True)
        thread.start()
        await to_thread.run_sync(server.up.wait)
        if not server.started:
            raise RuntimeError("uvicorn did not start; its log says why")
        try:
            yield port
        finally:
            with CancelScope(shield=True):  # bounded by uvicorn's own deadline
                server.stop()
                await to_thread.run_sync(thread.join)


def _listening(port: int) -> socket.socket:
    listener = socket.create_server(("127.0.0.1", port))
    # Connections inherit this. asyncio sets it only on sockets that name their protocol, which these do not,
    # and without it the end of each response waits for the client's kernel to acknowledge the beginning: 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
