"""HTTP/1.1 connections to one origin: one for each request in flight, idle ones kept for the next.

h11 knows the protocol, anyio the sockets and TLS.
"""

from __future__ import annotations

import math
import os
import select
import ssl
import sys
from collections.abc import Awaitable, Callable
from functools import lru_cache
from time import monotonic
from typing import TypeAlias

import h11
import httpx
from anyio import (
    BrokenResourceError,
    BusyResourceError,
    CancelScope,
    ClosedResourceError,
    EndOfStream,
    aclose_forcefully,
    connect_tcp,
    connect_unix,
    create_task_group,
    current_time,
    fail_after,
)
from anyio.abc import ByteStream, SocketAttribute, SocketStream
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled
from anyio.streams.tls import TLSAttribute, TLSStream
from h11._receivebuffer import ReceiveBuffer

from mcp_host.concurrency.backends import Loop
from mcp_host.errors import ConnectFailed, ConnectionClosed, excerpt, quoted
from mcp_host.secret import SecretBytes
from mcp_host.transports._http.response import HttpResponse
from mcp_host.transports._http.tls import check_protocol, explain, rejects_client

KEEPALIVE = 4.0  # seconds; uvicorn and Node close idle connections after 5, and a race with that loses requests
MAX_IDLE = 1000  # kept-alive connections: more than are in flight at once in nearly any host
EARLY_CLOSE = 1.0  # seconds after its first response: a server that closes by then does not keep connections
MAX_EARLY_CLOSES = 2  # of these in a row; then no connection is kept any more

MAX_CHECKED = (
    64  # headers that are kept: some ten of each session, and the name of each method or tool since 2026-07-28
)
MAX_NAMES = 256  # of headers that are kept: these are the same for all clients

MAX_HEAD = 64 * 1024  # bytes of one head; nginx and Node send and accept 8 to 16 KiB
READ_SIZE = 64 * 1024  # bytes at a time, so that a head is never longer than both together
WRITE_SIZE = 64 * 1024  # bytes at a time; while a longer body is written, an early response is watched for
BEGINNING = 64  # bytes of what arrives first, for errors
HTTP = b"HTTP/"
TLS_RECORDS = (b"\x15\x03", b"\x16\x03")  # how an alert and a handshake begin (RFC 8446, section 5.1)
EVENTS_PER_TICK = 256  # chunks of a body parsed in a row: a server may send chunks of one byte

Connect: TypeAlias = Callable[[str, int], Awaitable[SocketStream]]
"""Opens a connection to a host and port."""

_SOCKET_ERRORS = (BrokenResourceError, ClosedResourceError, BusyResourceError, EndOfStream, OSError)  # TLS: OSErrors
_END = h11.EndOfMessage()


class PoolState:
    """What a pool keeps between requests, and pools to one origin may share. The connections that the last pool leaves are to be closed."""

    def __init__(self) -> None:
        self.connections: list[Connection] = []
        """The idle ones. The one that was used last is last."""
        self.early_closes = 0
        """How many kept connections in a row the server has closed right after their first response."""
        self.pools = 0
        """How many use them."""
        self.checked = lru_cache(MAX_CHECKED)(checked)
        """What `checked` has returned for the last headers."""


class SharedPoolState:
    """Where pools find the `PoolState` that they share. Other event loops and processes have others."""

    def __init__(self) -> None:
        self._loop: Loop | None = None
        self._state = PoolState()

    def here(self) -> PoolState:
        """That of the running event loop."""
        if self._loop is None or not self._loop.is_running():
            self._loop, self._state = Loop.running(), PoolState()
        return self._state


class Pool:
    """The connections to the origin of *url*. *name* is the URL for error messages.

    Requests in flight are not bounded here: streams stay open for hours, and a request
    must not wait for them. `HttpChannel` bounds calls. *tls* is used for https. *uds* is the
    path of a unix socket to connect to, instead of the URL's host. *connect* takes the place of `anyio.connect_tcp`.
    *state* is what other pools to the same origin share, with the same *tls*.
    """

    def __init__(
        self,
        url: httpx.URL,
        name: str,
        tls: ssl.SSLContext,
        *,
        uds: str | None = None,
        state: PoolState | None = None,
        connect: Connect = connect_tcp,
        connect_timeout: float | None = None,
        write_timeout: float | None = None,
        max_idle: int = MAX_IDLE,
        keepalive: float = KEEPALIVE,
    ) -> None:
        self.closed = False
        self.name = name
        self._host = url.raw_host.decode("ascii")
        self._port = url.port or {"http": 80, "https": 443}[url.scheme]
        self._tls = tls if url.scheme == "https" else None
        self._uds = uds
        self._connect = connect
        self._connect_timeout = connect_timeout
        self._write_timeout = write_timeout
        self._max_idle = max_idle
        self._keepalive = keepalive
        self.state = state or PoolState()
        self.state.pools += 1
        self._busy: set[Connection] = set()

    async def request(self, request: h11.Request, body: bytes, *, repeatable: bool) -> PoolResponse:
        """Send *request*; return its response, which has to be read or closed.

        If a kept connection breaks before any of the response arrives, a *repeatable*
        request is sent again over a new connection.

        Raises:
            ConnectFailed: No connection could be opened.
            ConnectionClosed: The connection broke.
        """
        connection = await self._take()
        used = connection.responses > 0
        try:
            head = await connection.request(request, body, self._write_timeout)
        except BaseException as exc:
            await self.discard(connection)
            stale = used and not connection.response_begun and not self.closed
            if not stale or not isinstance(exc, ConnectionClosed) or isinstance(exc.__cause__, TimeoutError):
                raise
            # Perhaps the server had closed the connection before the request came, perhaps it has read
            # the request: only a request that does no harm twice is sent again.
            await self._count_closed(connection)
            if not repeatable:
                raise
            connection, head = await self._repeat(request, body, exc)
        else:
            if used:
                self.state.early_closes = 0
        response = PoolResponse(self, connection, head)
        await response.parse(connection)
        return response

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
            await self.discard(connection)
            raise

    async def aclose(self) -> None:
        """Close every connection, those in use too. Idle ones stay for the pools that share them."""
        if self.closed:
            return
        self.closed = True
        self.state.pools -= 1
        connections = [*self._busy]
        if not self.state.pools:
            connections += self.state.connections
            self.state.connections.clear()
        for connection in connections:
            await connection.close()

    async def _take(self) -> Connection:
        """The idle connection that was used last, if it is still good; else a new one."""
        closed_early = False
        while self.state.connections:
            connection = self.state.connections.pop()
            self._busy.add(connection)
            left = connection.expires - monotonic()
            if left > 0 and not connection.readable:
                return connection
            closed_early |= connection.responses == 1 and left > max(0.0, self._keepalive - EARLY_CLOSE)
            await self.discard(connection)
        if closed_early:
            self.state.early_closes += 1
        return await self._open()

    async def _count_closed(self, connection: Connection) -> None:
        """The server has closed one kept *connection*, so probably all: the next request gets a new one."""
        # If more than one was in use, only the first counts.
        if connection.responses == 1 and connection.early_closes == self.state.early_closes:
            self.state.early_closes += 1
        while self.state.connections:
            await self.state.connections.pop().close()

    async def _open(self) -> Connection:
        """Open a connection. With TLS, the server's certificate is checked.

        Raises:
            ConnectFailed: No connection. Its cause is a `TimeoutError` if that took too long.
            ConnectionClosed: The pool is closed, or was meanwhile.
        """
        closed = ConnectionClosed(f"{self.name}: the client was closed", may_have_run=False)
        if self.closed:
            raise closed
        stream: ByteStream | None = None
        try:
            with fail_after(self._connect_timeout):
                if self._uds is None:
                    stream = await self._connect(self._host, self._port)
                else:
                    connected = (await connect_unix(self._uds)).extra(SocketAttribute.raw_socket)
                    # On asyncio, anyio's streams for unix sockets cause an `InvalidStateError` in the log if data or
                    # the end arrives as a read is cancelled. Its streams for TCP, which take any socket, do not.
                    stream = await SocketStream.from_socket(connected.detach())
                if self._tls is not None:
                    stream = await TLSStream.wrap(
                        stream, hostname=self._host, ssl_context=self._tls, standard_compatible=False
                    )
                    check_protocol(stream.extra(TLSAttribute.alpn_protocol, None), self.name)
            connection = Connection(stream, self.name)
        except BaseException as exc:
            if stream is not None:
                await aclose_forcefully(stream)
            place = self.name if self._uds is None else f"{self.name} at the unix socket {excerpt(self._uds)}"
            if isinstance(exc, TimeoutError):
                raise ConnectFailed(f"{place}: connecting took too long", may_have_run=False) from exc
            if isinstance(exc, (*_SOCKET_ERRORS, UnicodeError)):  # the last for a name that no resolver knows
                raise ConnectFailed(f"{place}: {_reason(exc)}", may_have_run=False) from exc
            raise
        if self.closed:
            await connection.close()
            raise closed
        connection.early_closes = self.state.early_closes
        self._busy.add(connection)
        return connection

    async def release(self, connection: Connection) -> None:
        """Keep a connection whose response has been read, or close it."""
        idle = self.state.connections
        keep = not self.closed and len(idle) < self._max_idle and self.state.early_closes < MAX_EARLY_CLOSES
        if not keep or not connection.reset():
            await self.discard(connection)
            return
        self._busy.discard(connection)
        now = monotonic()
        connection.expires = now + self._keepalive
        idle.append(connection)
        while idle and idle[0].expires < now:  # the oldest first
            await self.discard(idle.pop(0))

    async def discard(self, connection: Connection) -> None:
        """Close a connection."""
        self._busy.discard(connection)
        await connection.close()


class PoolResponse(HttpResponse):
    """A response over a connection of *pool*, which is released as soon as the end has arrived, read or not."""

    def __init__(self, pool: Pool, connection: Connection, head: h11.Response) -> None:
        super().__init__(head.status_code, head.headers, pool.name)
        self.head = head
        self._pool = pool
        self._connection: Connection | None = connection
        self._pieces: list[bytes | bytearray] = []
        self._more_to_parse = False
        self._failure: ConnectionClosed | None = None

    async def read_raw(self) -> bytes:
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
        self._pieces.clear()
        if self._connection is not None:
            connection, self._connection, self.complete = self._connection, None, True
            await self._pool.discard(connection)

    async def parse(self, connection: Connection) -> None:
        """Take what has arrived already, up to `EVENTS_PER_TICK` chunks."""
        self._more_to_parse = True
        for _ in range(EVENTS_PER_TICK):
            try:
                event = connection.next_event()
            except ConnectionClosed as exc:
                self._failure = exc  # what came before it is good
                return
            if type(event) is h11.Data:
                self._pieces.append(event.data)
            elif event is h11.NEED_DATA:
                self._more_to_parse = False
                return
            else:
                self._connection, self.complete = None, True
                await self._pool.release(connection)
                return


class ChunkBuffer(ReceiveBuffer):
    """What h11 parses. It hides the blank before the extension of a chunk: RFC 9112, section 7.1.1, allows it, h11 does not."""

    def maybe_extract_next_line(self) -> bytearray | None:
        line = super().maybe_extract_next_line()  # h11 reads only the sizes of chunks by this
        if line is None or b";" not in line:
            return line
        size, _, extension = line.partition(b";")
        return size.rstrip(b" \t") + b";" + extension


class Connection:
    """A socket, and the state of HTTP/1.1 on it. It carries one request at a time.

    *name* is the URL for error messages. A failure raises `ConnectionClosed`, with
    the reason as its cause. The connection is of no use then.
    """

    def __init__(self, stream: ByteStream, name: str) -> None:
        self.expires = 0.0
        """When the connection, once idle, is not used again; on the clock `time.monotonic`."""
        self.responses = 0
        """How many complete responses it has carried."""
        self.early_closes = 0
        """What `PoolState` had counted of these when this connection was opened."""
        self.response_begun = False
        self._beginning = b""
        """Whether any byte has arrived since the last request began."""
        self._stream = stream
        self._name = name
        self._socket = stream.extra(SocketAttribute.raw_socket)
        self._tls = stream.extra(TLSAttribute.ssl_object, None)
        self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
        self._h11._receive_buffer = ChunkBuffer()
        self._request_written = False
        self._read_was_full = False

    @property
    def readable(self) -> bool:
        """Whether anything has arrived over the idle connection: its end, or unsolicited bytes."""
        descriptor = self._socket.fileno()
        if descriptor < 0:
            return True
        if sys.platform == "win32":
            return bool(select.select([descriptor], [], [], 0)[0])
        poll = select.poll()  # select() fails from descriptor 1024 on
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(0))

    def reset(self) -> bool:
        """Prepare for another request. False if that is impossible.

        Request and response have to be complete, nothing may follow, and neither side may close the connection.
        """
        if (
            not self._request_written  # h11 counts what it has encoded
            or self._read_was_full  # unsolicited bytes may wait behind what was read
            or self._h11.our_state is not h11.DONE
            or self._h11.their_state is not h11.DONE
            or self._h11.trailing_data != (b"", False)
        ):
            return False
        if self._tls is not None:
            try:
                self._tls.read(1)  # a TLS record that waits to be decrypted shows at no descriptor
                return False
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                return False
        self._h11.start_next_cycle()
        self.responses += 1
        return True

    async def close(self) -> None:
        """Close the socket at once, without a TLS goodbye, even during another task's read or write."""
        await aclose_forcefully(self._stream)

    async def request(self, request: h11.Request, body: bytes, write_timeout: float | None) -> h11.Response:
        """Send a request and return the head of its response. Informational responses (1xx) are skipped."""
        self.response_begun = self._request_written = False
        self._beginning = b""
        early: h11.Response | None = None
        data = self._h11.send(request)
        if len(body) <= WRITE_SIZE:
            if body:
                data += self._h11.send(h11.Data(data=body))
            data = SecretBytes(data + self._h11.send(_END))
            await self._write(data, write_timeout)
            self._request_written = True
        else:
            data = SecretBytes(data)
            early = await self._upload(data, body, write_timeout)
        return early or await self._read_head()

    async def read(self) -> None:
        """Wait for bytes, or the end of the connection, and pass them to h11."""
        try:
            data = await self._stream.receive(READ_SIZE)
        except EndOfStream:
            data = b""
        except _SOCKET_ERRORS as exc:
            if rejects_client(exc) and not self.response_begun:
                raise ConnectFailed(f"{self._name}: {_reason(exc)}", may_have_run=False) from exc
            raise self._failed(exc) from exc
        self._read_was_full = len(data) == READ_SIZE
        if data:
            if not self.response_begun:
                self.response_begun, self._beginning = True, data[:BEGINNING]
        elif self._h11.their_state is h11.SEND_RESPONSE:
            raise self._no_response()
        self._h11.receive_data(data)

    async def _read_head(self) -> h11.Response:
        while True:
            await self.read()
            while (event := self.next_event()) is not h11.NEED_DATA:
                if type(event) is h11.Response:
                    return event
                if type(event) is not h11.InformationalResponse:
                    raise ConnectionClosed(f"{self._name}: the server switched to another protocol")

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """The next part of a response in what has arrived."""
        try:
            return self._h11.next_event()
        except h11.RemoteProtocolError as exc:
            if not HTTP.startswith(self._beginning[: len(HTTP)]):
                raise self._no_response() from None
            raise self._failed(exc) from (None if quotes_response(exc) else exc)

    async def _write(self, data: bytes, timeout: float | None) -> None:
        try:
            if self._tls is None and sys.platform != "win32":
                # The stream has nothing buffered. Its own `send` would take one more turn of the event loop.
                await checkpoint_if_cancelled()
                try:
                    written = os.write(self._socket.fileno(), data)
                except BlockingIOError:
                    written = 0
                if written == len(data):
                    return
                data = SecretBytes(data[written:])
            with CancelScope(deadline=math.inf if timeout is None else current_time() + timeout) as scope:
                await self._stream.send(data)
        except _SOCKET_ERRORS as exc:
            raise self._failed(exc) from exc
        if scope.cancelled_caught:
            raise ConnectionClosed(f"{self._name}: the server read nothing for too long") from TimeoutError()

    async def _upload(self, head: bytes, body: bytes, timeout: float | None) -> h11.Response | None:
        """Write a long body, until its end or until a response comes early."""
        early: list[h11.Response] = []
        failure: ConnectionClosed | None = None

        async def watch() -> None:
            nonlocal failure
            try:
                early.append(await self._read_head())
            except ConnectionClosed as exc:
                failure = exc
            tasks.cancel_scope.cancel()

        async with create_task_group() as tasks:
            tasks.start_soon(watch)
            try:
                await self._write(head, timeout)
                for start in range(0, len(body), WRITE_SIZE):
                    await checkpoint()  # for `watch`
                    await self._write(self._h11.send(h11.Data(data=body[start : start + WRITE_SIZE])), timeout)
                await self._write(self._h11.send(_END), timeout)
                self._request_written = True
            except ConnectionClosed as exc:
                if isinstance(exc.__cause__, TimeoutError):
                    failure = exc  # after any other, there may still be a response to read
            tasks.cancel_scope.cancel()
        if early:
            return early[0]
        if failure is not None:
            raise failure
        return None

    def _failed(self, exc: Exception) -> ConnectionClosed:
        return ConnectionClosed(f"{self._name}: {_reason(exc)}")

    def _no_response(self) -> ConnectionClosed:
        """The error for what has arrived, which is no response, nor the whole beginning of one."""
        beginning = self._beginning
        if HTTP.startswith(beginning[: len(HTTP)]):
            text = "the server closed the connection without a response"
        elif beginning.startswith(TLS_RECORDS):
            text = "what answered speaks TLS: the URL may begin with https://"
        else:  # one word, or the space before it: a server may repeat the request, with the secrets of its URL
            begun = beginning.decode("latin-1")
            word = begun[: len(begun) - len(begun.lstrip())] or begun.split(maxsplit=1)[0]
            text = f"what answered is not HTTP: it begins with {quoted(word)}"
        return ConnectionClosed(f"{self._name}: {text}")


def system_reason(exc: BaseException | None) -> str:
    """What the system said to the attempts to connect, if *exc* says only that all have failed: ``Connection refused``."""
    while exc is not None and not (isinstance(exc, OSError) and exc.errno is None):
        exc = exc.__cause__ or exc.__context__  # httpcore raises errors of its pool `from None`
    cause = None if exc is None else exc.__cause__
    errors = cause.exceptions if isinstance(cause, BaseExceptionGroup) else [cause]
    return ", ".join(
        dict.fromkeys(os.strerror(each.errno) for each in errors if isinstance(each, OSError) and each.errno)
    )


def quotes_response(exc: BaseException) -> bool:
    """Whether *exc* of h11 quotes a header or the first line of a response: a secret, or our request, which the server repeats."""
    return str(exc).startswith(("illegal header line: ", "illegal status line: "))


def text_of(exc: BaseException) -> str:
    """What *exc* says, of a response that it quotes no more than the first word of the first line."""
    text = str(exc)
    if quotes_response(exc):
        text = text.partition(":")[0] if "header" in text[:14] else " ".join(text.split(" ")[:4])
    return excerpt(text)


def _reason(exc: BaseException) -> str:
    return explain(exc) or system_reason(exc) or text_of(exc) or excerpt(str(exc.__cause__ or "")) or type(exc).__name__


def checked(header: tuple[str, str]) -> tuple[bytes, tuple[bytes, bytes, bytes]]:
    """The name in lower case, and the *header* of a request as h11 keeps it once it has checked it.

    Raises:
        h11.LocalProtocolError, UnicodeEncodeError: It cannot be sent.
    """
    name, value = header
    raw, lower = _encoded(name)
    request = h11.Request(method="POST", target="/", headers=[(raw, value.encode("ascii"))], http_version="1.0")
    [(_, checked_value)] = request.headers.raw_items()
    return lower, (raw, lower, SecretBytes(checked_value))


@lru_cache(MAX_NAMES)
def _encoded(name: str) -> tuple[bytes, bytes]:
    """The *name* of a header, and the same in lower case."""
    raw = name.encode("ascii")
    return raw, raw.lower()
