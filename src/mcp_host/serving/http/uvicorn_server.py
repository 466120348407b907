"""The ASGI application under uvicorn, in a thread.

uvicorn runs on asyncio only, and your tests may run on trio: a thread with an event loop serves both.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from threading import Event, Thread, current_thread, main_thread
from types import FrameType

from anyio import CancelScope, to_thread

from mcp_host.concurrency import signals
from mcp_host.serving.http.app import HttpApp
from mcp_host.serving.http.asgi import Receive, Scope, Send

try:
    import uvicorn
except ModuleNotFoundError as exc:
    raise ImportError("serving over HTTP needs uvicorn: pip install 'mcp-host[testing]'") from exc

LOOPBACK = "127.0.0.1"
HANGUP = [signal.SIGHUP] if hasattr(signal, "SIGHUP") else []  # not on Windows
SHUTDOWN_TIMEOUT = 1  # seconds for open responses to end; every session has been closed before
SHUTDOWN_STEP = 0.001  # seconds by which each pause between looks at whether they have is longer than the one before


class UvicornServer(uvicorn.Server):
    """A uvicorn server that waits for `stop` instead of polling ten times a second, and that closes every connection.

    Once it accepts no more connections, it calls *end*, to end the streams that uvicorn would wait for.
    """

    def __init__(self, app: Callable[..., Awaitable[None]], end: Callable[[], Awaitable[None]] | None = None) -> None:
        super().__init__(
            uvicorn.Config(
                _alone_with_headers(app),
                interface="asgi3",  # uvicorn does not see that a method is one
                http="h11",
                ws="none",
                lifespan="off",
                proxy_headers=False,  # nothing depends on the address of a client
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=SHUTDOWN_TIMEOUT,
            )
        )
        self.up = Event()
        self.signals: list[int] = []
        """Those that ended it, in order."""
        self._end = end
        self._loop: asyncio.AbstractEventLoop
        self._stopping: asyncio.Event

    def start(self, listener: socket.socket) -> Thread:
        """Serve in a new thread until `stop`. *up* is set once it serves, or cannot."""
        thread = Thread(target=self._run, args=(listener,), name="uvicorn", daemon=True)
        thread.start()
        return thread

    def _run(self, listener: socket.socket) -> None:
        try:
            asyncio.run(self.serve([listener]))
        finally:
            self.up.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, with SIGHUP too if the program has a handler for it.

        uvicorn raises the signals again while the event loop still runs, which what they raise would cut off: `run` does it later.
        """
        with super().capture_signals():
            signals = HANGUP if current_thread() is main_thread() else []
            taken = {each: before for each in signals if callable(before := signal.getsignal(each))}
            for each in taken:
                signal.signal(each, self.handle_exit)
            try:
                yield
            finally:
                for each, before in taken.items():
                    signal.signal(each, before)
                self.signals.extend(self._captured_signals)
                self._captured_signals.clear()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self.stop()

    async def main_loop(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        await self.on_tick(0)
        self.up.set()
        await self._stopping.wait()
        await self._stop_accepting()
        if self._end is not None:
            await self._end()

    async def _stop_accepting(self) -> None:
        """Accept no more: the clients of the streams that end now come back at once.

        asyncio forgets a connection that it has accepted and not yet set up when its server closes, with an open
        socket: python/cpython#109564. So they are set up first.
        """
        for server in self.servers:
            for listener in server.sockets:
                with suppress(NotImplementedError):  # on Windows
                    self._loop.remove_reader(listener)
        for _ in range(2):  # the transport is made, then the protocol
            await asyncio.sleep(0)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, which waits in steps of 0.1 seconds."""
        for server in self.servers:
            server.close()
        for listener in sockets or ():
            listener.close()
        state = self.server_state
        for connection in list(state.connections):
            connection.shutdown()
        end, pause = self._loop.time() + (self.config.timeout_graceful_shutdown or 0), 0.0
        while (state.connections or state.tasks) and not self.force_exit and self._loop.time() < end:
            await asyncio.sleep(pause)
            pause = min(pause + SHUTDOWN_STEP, 0.1)
        for task in state.tasks:
            task.cancel()
        while state.connections:
            for connection in state.connections:
                connection.transport.abort()
            await asyncio.sleep(0)

    def stop(self) -> None:
        """Stop serving. Call it from any thread, once *up* is set."""
        self._loop.call_soon_threadsafe(self._stopping.set)


def _alone_with_headers(app: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """*app*, where uvicorn does not keep the headers of a request to the end of its response, which may take hours."""

    def call(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        own = {**scope, "headers": [*scope["headers"]]}
        scope["headers"].clear()
        return app(own, receive, send)

    return call


def run(app: HttpApp, listener: socket.socket, host: str = LOOPBACK) -> None:
    """Print the URL, which names *host*, and serve *app* in this thread until a signal ends it."""
    print(url_of(listener, host), flush=True)
    server = UvicornServer(app, app.aclose)
    with suppress(KeyboardInterrupt):
        signals.run(server.serve, [listener])
        list(map(signal.raise_signal, server.signals[-1:]))  # none if it could not start


@asynccontextmanager
async def serve(app: HttpApp, uds: str | None = None) -> AsyncIterator[str]:
    """Serve *app* in a thread, on 127.0.0.1 or at the unix socket *uds*; the value is the URL.

    On leaving, the thread has ended.
    """
    with listen(0) if uds is None else _listen_at(uds) as listener:
        async with serve_at(listener, app) as url:
            yield url


@asynccontextmanager
async def serve_at(listener: socket.socket, app: HttpApp) -> AsyncIterator[str]:
    """As `serve`, for connections to *listener*."""
    server = UvicornServer(app, app.aclose)
    thread = server.start(listener)
    await to_thread.run_sync(server.up.wait)
    if not server.started:
        raise RuntimeError("uvicorn did not start; its log says why")
    try:
        yield url_of(listener)
    finally:
        with CancelScope(shield=True):  # bounded by uvicorn's shutdown timeout
            server.stop()
            await to_thread.run_sync(thread.join)


def listen(port: int, host: str = LOOPBACK) -> socket.socket:
    [(family, *_, address), *_] = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    listener = socket.create_server(address, family=family)
    # Connections inherit this. asyncio sets it only on sockets that name their protocol, which these do not,
    # and without it the end of each response waits for the client's kernel to acknowledge the beginning: 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


@contextmanager
def _listen_at(uds: str) -> Iterator[socket.socket]:
    """A new unix socket, which is removed in the end."""
    if sys.platform == "win32":
        raise OSError("asyncio serves no unix sockets on Windows")
    with socket.socket(socket.AF_UNIX) as listener:
        with socket.socket(socket.AF_UNIX) as probe:
            _remove_stale(uds, probe)
        listener.bind(uds)
        try:
            yield listener
        finally:
            with suppress(FileNotFoundError):
                os.unlink(uds)


def _remove_stale(uds: str, probe: socket.socket) -> None:
    """Remove the socket of a server that was killed: *probe* cannot connect to it."""
    with suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.stat(uds).st_mode):
            try:
                probe.connect(uds)
            except ConnectionRefusedError:
                os.unlink(uds)


def url_of(listener: socket.socket, host: str = LOOPBACK) -> str:
    """Where clients find an `HttpApp` that *listener* is for, at *host*."""
    name = listener.getsockname()
    if not isinstance(name, tuple):
        return "http://localhost/mcp"  # at a unix socket
    return f"http://{f'[{host}]' if ':' in host else host}:{name[1]}/mcp"
