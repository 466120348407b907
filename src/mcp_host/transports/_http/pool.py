"""Connections to one origin: one for each request in flight, idle ones kept for the next."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from time import monotonic

import h11
import httpx
from anyio.lowlevel import checkpoint

from mcp_host.errors import ConnectFailed, ConnectionClosed
from mcp_host.transports._http.connection import Connection, connect

KEEPALIVE = 4.0  # seconds; uvicorn and Node close idle connections after 5, and a race with that loses requests
MAX_IDLE = 1000  # kept-alive connections: more than are in flight at once in nearly any host
EARLY_CLOSE = 1.0  # seconds after its first response: a server that closes by then does not keep connections
MAX_EARLY_CLOSES = 2  # of these in a row; then no connection is kept any more


class Pool:
    """The connections to the origin of *url*. *name* is the URL for error messages.

    Requests in flight are not bounded here: streams stay open for hours, and a request
    must not wait for them. `HttpChannel` bounds calls. *tls* makes the context for https
    when it is first needed.
    """

    def __init__(
        self,
        url: httpx.URL,
        name: str,
        tls: Callable[[], ssl.SSLContext],
        *,
        connect_timeout: float | None = None,
        write_timeout: float | None = None,
        max_idle: int = MAX_IDLE,
        keepalive: float = KEEPALIVE,
    ) -> None:
        self.closed = False
        self._host = url.raw_host.decode("ascii")
        self._port = url.port or {"http": 80, "https": 443}[url.scheme]
        self._tls = tls if url.scheme == "https" else None
        self._name = name
        self._connect_timeout = connect_timeout
        self._write_timeout = write_timeout
        self._max_idle = max_idle
        self._keepalive = keepalive
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()
        self._early_closes = 0
        """How many kept connections in a row the server has closed right after their first response."""

    async def request(self, request: h11.Request, body: bytes, *, repeatable: bool) -> tuple[h11.Response, PoolBody]:
        """Send *request*; return the head of the response, and its body, which has to be read or closed.

        If a kept connection breaks before any of the response arrives, a *repeatable*
        request is sent once more over a new connection.

        Raises:
            ConnectFailed, ConnectionClosed: As `connect` and `Connection`.
        """
        connection = await self._take()
        used = connection.responses > 0
        try:
            head = await connection.request(request, body, self._write_timeout)
        except BaseException as exc:
            await self._discard(connection)
            timed_out = isinstance(exc.__cause__, TimeoutError)
            if (
                not used
                or connection.response_begun
                or self.closed
                or timed_out
                or not isinstance(exc, ConnectionClosed)
            ):
                raise
            # Perhaps the server had closed the connection before the request came, perhaps it has read
            # the request: only a request that does no harm twice is sent again.
            await self._count_closed(connection)
            if not repeatable:
                raise
            connection, head = await self._repeat(request, body, exc)
        else:
            if used:
                self._early_closes = 0
        stream = PoolBody(self, connection)
        await stream.parse(connection)
        return head, stream

    async def _repeat(
        self, request: h11.Request, body: bytes, broken: ConnectionClosed
    ) -> tuple[Connection, h11.Response]:
        try:
            connection = await self._open()
        except ConnectionClosed:
            raise broken from broken.__cause__  # the request may have been read, which a `ConnectFailed` would deny
        try:
            return connection, await connection.request(request, body, self._write_timeout)
        except BaseException:
            await self._discard(connection)
            raise

    async def aclose(self) -> None:
        """Close every connection, those in use too."""
        self.closed = True
        connections = [*self._idle, *self._busy]
        self._idle.clear()
        for connection in connections:
            await connection.close()

    async def _take(self) -> Connection:
        """The idle connection that was used last, if it is still good; else a new one."""
        closed_early = False
        while self._idle:
            connection = self._idle.pop()
            self._busy.add(connection)
            left = connection.expires - monotonic()
            if left > 0 and not connection.stale:
                return connection
            closed_early |= connection.responses == 1 and left > max(0.0, self._keepalive - EARLY_CLOSE)
            await self._discard(connection)
        if closed_early:
            self._early_closes += 1
        return await self._open()

    async def _count_closed(self, connection: Connection) -> None:
        """The server has closed one kept *connection*, so probably all: the next request gets a new one."""
        # If more than one was in use, only the first counts.
        if connection.responses == 1 and connection.early_closes == self._early_closes:
            self._early_closes += 1
        while self._idle:
            idle = self._idle.pop()
            self._busy.add(idle)
            await self._discard(idle)

    async def _open(self) -> Connection:
        try:
            tls = None if self._tls is None else self._tls()
        except OSError as exc:
            text = f"{self._name}: the certificates to trust cannot be read: {exc}"
            raise ConnectFailed(text, may_have_run=False) from exc
        connection = await connect(self._host, self._port, tls, self._connect_timeout, self._name)
        if self.closed:  # now or in the meantime
            await connection.close()
            raise ConnectionClosed(f"{self._name}: the client was closed", may_have_run=False)
        connection.early_closes = self._early_closes
        self._busy.add(connection)
        return connection

    async def release(self, connection: Connection) -> None:
        """Keep a connection whose response has been read, or close it."""
        keep = not self.closed and len(self._idle) < self._max_idle and self._early_closes < MAX_EARLY_CLOSES
        if not keep or not connection.reusable:
            await self._discard(connection)
            return
        self._busy.discard(connection)
        connection.reset()
        now = monotonic()
        connection.expires = now + self._keepalive
        self._idle.append(connection)
        while self._idle and self._idle[0].expires < now:  # the oldest first
            await self._discard(self._idle.pop(0))

    async def _discard(self, connection: Connection) -> None:
        self._busy.discard(connection)
        await connection.close()


class PoolBody:
    """The body of one response. Its connection is released as soon as the end has arrived, read or not."""

    def __init__(self, pool: Pool, connection: Connection) -> None:
        self._pool = pool
        self._connection: Connection | None = connection
        self._pieces: list[bytes | bytearray] = []
        self._more_to_parse: bool = False
        self._failure: ConnectionClosed | None = None

    @property
    def complete(self) -> bool:
        """Whether nothing more arrives."""
        return self._connection is None

    async def read(self) -> bytes:
        """What has arrived next; empty at the end."""
        while not self._pieces:
            connection = self._connection
            if connection is None:
                return b""
            try:
                if self._failure is not None:
                    raise self._failure
                if self._more_to_parse:
                    await checkpoint()
                else:
                    await connection.read()
                await self.parse(connection)
            except BaseException:
                await self.close()
                raise
        piece = b"".join(self._pieces)
        self._pieces.clear()
        return piece

    async def close(self) -> None:
        """Discard the body; if its end has not arrived, close the connection."""
        self._pieces.clear()
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await self._pool._discard(connection)

    async def parse(self, connection: Connection) -> None:
        """Take what has arrived already."""
        try:
            ended = connection.parse_body(self._pieces)
        except ConnectionClosed as exc:
            self._failure, ended = exc, False  # what came before it is good
        self._more_to_parse = ended is None
        if ended:
            self._connection = None
            await self._pool.release(connection)
