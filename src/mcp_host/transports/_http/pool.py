"""Connections to HTTP servers: one for each request in flight, the idle ones kept for the next."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from time import monotonic
from typing import NamedTuple, Self

import h11
import httpx
from anyio.lowlevel import checkpoint

from mcp_host.transports._http.connection import Body, Connection, Request, Timeouts, connect

KEEPALIVE = 4.0  # seconds; uvicorn and Node close idle connections after 5, and a race with that loses requests
MAX_IDLE = 1000  # kept-alive connections: more than are in flight at once in nearly any host
PROMPTLY = 1.0  # seconds after its first answer: a connection that the server closed by then was not meant to be kept
FORGOTTEN = 2  # such connections in a row, after which no connection to that server is kept

PORTS = {"http": 80, "https": 443}
_REPEATABLE = frozenset({b"GET", b"HEAD", b"OPTIONS", b"TRACE", b"PUT", b"DELETE"})  # RFC 9110, section 9.2.2
BROKE_OFF = (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError)


class Place(NamedTuple):
    """Where a connection leads."""

    scheme: str
    host: str
    port: int
    name: str
    """What a certificate has to be for."""


class Pool(httpx.AsyncBaseTransport):
    """A transport for httpx that costs a fraction of httpx's own, and does without proxies and HTTP/2.

    It has no bound on the requests in flight: streams stay open for hours, and one
    more never waits for them. `HttpChannel` has one for calls. *tls* gives the context for https, when it is needed.
    """

    def __init__(
        self, tls: Callable[[], ssl.SSLContext], *, max_idle: int = MAX_IDLE, keepalive: float = KEEPALIVE
    ) -> None:
        self.closed = False
        self._tls = tls
        self._max_idle = max_idle
        self._keepalive = keepalive
        self._idle: list[tuple[Place, Connection]] = []
        self._busy: set[Connection] = set()
        self._forgotten: dict[Place, int] = {}
        """How many kept connections in a row a server has closed after their first answer."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send *request* and return its response, whose body has yet to be read and closed.

        Raises:
            httpx.TransportError: As httpx's own transport would.
        """
        url = request.url
        if url.scheme not in PORTS:
            raise httpx.UnsupportedProtocol(f"{url.scheme or 'no scheme'} is neither http nor https")
        host = url.raw_host.decode("ascii")
        name = request.extensions.get("sni_hostname") or host
        place = Place(url.scheme, host, url.port or PORTS[url.scheme], name)
        head = written(request.method.encode("ascii"), url.raw_path, request.headers.raw)
        return await self.exchange(place, head, _body(request), request.extensions.get("timeout", {}))

    async def exchange(
        self, place: Place, request: Request, body: Body, timeouts: Timeouts, *, repeatable: bool = False
    ) -> httpx.Response:
        """The same, one layer below httpx. *repeatable* says of a POST that sending it twice does no harm."""
        connection = await self._take(place, timeouts)
        used = connection.answered > 0
        try:
            head = await connection.ask(request, body, timeouts)
        except BaseException as exc:
            await self._drop(connection)
            if not used or connection.heard or self.closed or not isinstance(exc, BROKE_OFF):
                raise
            # The connection may have been closed before the request came: then, as a fresh one, it
            # would have answered. Nobody can tell, so only what does no harm twice is sent twice.
            await self._forget(place, connection)
            if not (repeatable or request.method in _REPEATABLE) or not isinstance(body, bytes):
                raise
            connection, head = await self._ask_anew(place, request, body, timeouts, exc)
        else:
            if used and self._forgotten:
                self._forgotten.pop(place, None)
        stream = Stream(self, place, connection, timeouts.get("read"))
        await stream.settle()
        extensions = {"http_version": b"HTTP/" + head.http_version, "reason_phrase": head.reason}
        return httpx.Response(head.status_code, headers=head.headers.raw_items(), stream=stream, extensions=extensions)

    async def _ask_anew(
        self, place: Place, request: Request, body: Body, timeouts: Timeouts, broken: BaseException
    ) -> tuple[Connection, h11.Response]:
        """Send *request* over a new connection, after it was *broken* off over one that had been kept."""
        try:
            connection = await self._open(place, timeouts)
        except httpx.TransportError:
            raise broken from None  # the request may have been read, which that one would deny
        try:
            return connection, await connection.ask(request, body, timeouts)
        except BaseException:
            await self._drop(connection)
            raise

    async def aclose(self) -> None:
        """Close every connection, those in use too."""
        self.closed = True
        idle = [connection for _, connection in self._idle]
        self._idle.clear()
        for connection in (*idle, *self._busy):
            await connection.close()

    async def _take(self, place: Place, timeouts: Timeouts) -> Connection:
        """The idle connection that was used last, if it is still good; or else a new one."""
        forgotten = False
        while (connection := self._kept(place)) is not None:
            left = connection.expires - monotonic()
            if left > 0 and not connection.stale:
                return connection
            forgotten |= connection.answered == 1 and left > max(0.0, self._keepalive - PROMPTLY)
            await self._drop(connection)
        if forgotten:
            self._forgotten[place] = self._forgotten.get(place, 0) + 1
        return await self._open(place, timeouts)

    async def _forget(self, place: Place, connection: Connection) -> None:
        """The server has forgotten one idle *connection*, and so probably all: whoever tries again gets a new one."""
        known = self._forgotten.get(place, 0)
        if connection.answered == 1 and connection.forgotten_before == known:  # else it went with one that was counted
            self._forgotten[place] = known + 1
        while (idle := self._kept(place)) is not None:
            await self._drop(idle)

    def _kept(self, place: Place) -> Connection | None:
        for index in range(len(self._idle) - 1, -1, -1):
            if self._idle[index][0] == place:
                _, connection = self._idle.pop(index)
                self._busy.add(connection)
                return connection
        return None

    async def _open(self, place: Place, timeouts: Timeouts) -> Connection:
        try:
            tls = self._tls() if place.scheme == "https" else None
        except OSError as exc:
            raise httpx.ConnectError(f"the certificates to trust cannot be read: {exc}") from exc
        connection = await connect(place.host, place.port, tls, place.name, timeouts.get("connect"))
        if self.closed:  # now or in the meantime
            await connection.close()
            raise httpx.ConnectError("the pool is closed")
        connection.forgotten_before = self._forgotten.get(place, 0)
        self._busy.add(connection)
        return connection

    async def release(self, place: Place, connection: Connection) -> None:
        """Keep a connection whose response has been read, or close it."""
        if self.closed or not connection.reusable or len(self._idle) >= self._max_idle or self._forgets(place):
            await self._drop(connection)
            return
        self._busy.discard(connection)
        connection.renew()
        now = monotonic()
        connection.expires = now + self._keepalive
        self._idle.append((place, connection))
        while self._idle and self._idle[0][1].expires < now:  # in the order in which they were let go
            await self._drop(self._idle.pop(0)[1])

    def _forgets(self, place: Place) -> bool:
        """Whether the server closes connections without saying so: whatever is sent over a kept one may be lost."""
        return bool(self._forgotten) and self._forgotten.get(place, 0) >= FORGOTTEN

    async def _drop(self, connection: Connection) -> None:
        self._busy.discard(connection)
        await connection.close()


class Stream(httpx.AsyncByteStream):
    """The body of one response. Its connection is let go the moment that its end has arrived, read or not."""

    def __init__(self, pool: Pool, place: Place, connection: Connection, timeout: float | None) -> None:
        self._pool = pool
        self._place = place
        self._connection: Connection | None = connection
        self._timeout = timeout
        self._pieces: list[bytes | bytearray] = []
        self._more: bool = False
        self._fault: httpx.TransportError | None = None

    @property
    def complete(self) -> bool:
        """Whether nothing is left to arrive."""
        return self._connection is None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while not self._pieces:
            if self._connection is None:
                raise StopAsyncIteration
            await self._advance(self._connection)
        piece = b"".join(self._pieces)
        self._pieces.clear()
        return piece

    async def aclose(self) -> None:
        """Be done with the body; if it has not ended, with the connection."""
        self._pieces.clear()
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await self._pool._drop(connection)

    async def settle(self) -> None:
        """Take over what has arrived already."""
        connection = self._connection
        assert connection is not None
        try:
            ended = connection.parse(self._pieces)
        except httpx.TransportError as exc:
            self._fault, ended = exc, False  # what came before it is good
        self._more = ended is None
        if ended:
            self._connection = None
            await self._pool.release(self._place, connection)

    async def _advance(self, connection: Connection) -> None:
        try:
            if self._fault is not None:
                raise self._fault
            if self._more:
                await checkpoint()
            else:
                await connection.read(self._timeout)
            await self.settle()
        except BaseException:
            await self.aclose()
            raise


def _body(request: httpx.Request) -> Body:
    try:
        return request.content
    except httpx.RequestNotRead:
        assert isinstance(request.stream, httpx.AsyncByteStream)  # what every AsyncClient makes sure of
        return request.stream


def written(method: bytes, target: bytes, headers: list[tuple[bytes, bytes]]) -> Request:
    """The head of a request.

    Raises:
        httpx.LocalProtocolError: It cannot be sent: a line end in a header would begin another.
    """
    try:
        return h11.Request(method=method, target=target, headers=headers)
    except h11.LocalProtocolError as exc:
        raise httpx.LocalProtocolError(str(exc)) from exc
