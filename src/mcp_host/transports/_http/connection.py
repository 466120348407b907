"""One HTTP/1.1 connection: h11 for the protocol, anyio for the socket. It carries one request at a time."""

from __future__ import annotations

import math
import select
import ssl
import sys

import h11
from anyio import (
    BrokenResourceError,
    BusyResourceError,
    CancelScope,
    ClosedResourceError,
    EndOfStream,
    aclose_forcefully,
    connect_tcp,
    create_task_group,
    current_time,
    fail_after,
)
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.tls import TLSAttribute, TLSStream

from mcp_host.errors import ConnectFailed, ConnectionClosed, excerpt

MAX_HEAD = 64 * 1024  # bytes of one head; nginx and Node send and accept 8 to 16 KiB
READ_SIZE = 64 * 1024  # bytes at a time, so that a head is never longer than both together
WRITE_SIZE = 64 * 1024  # bytes at a time; while a longer body is written, an early response is watched for
EVENTS_PER_TICK = 256  # chunks of a body parsed in a row: a server may send chunks of one byte

_SOCKET_ERRORS = (BrokenResourceError, ClosedResourceError, BusyResourceError, EndOfStream, OSError)  # TLS: OSErrors


class Connection:
    """A socket, and the state of HTTP/1.1 on it. *name* is the URL for error messages.

    A failure raises `ConnectionClosed`, with the reason as its cause. The connection is of no use then.
    """

    def __init__(self, stream: ByteStream, name: str) -> None:
        self.expires = 0.0
        """When the connection, once idle, is not used again; on the clock `time.monotonic`."""
        self.responses = 0
        """How many complete responses it has carried."""
        self.early_closes = 0
        """What `Pool` had counted of these when this connection was opened."""
        self.response_begun = False
        """Whether any byte has arrived since the last request began."""
        self._stream = stream
        self._name = name
        self._socket = stream.extra(SocketAttribute.raw_socket)
        self._tls = stream.extra(TLSAttribute.ssl_object, None)
        self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
        self._request_written = False
        self._read_was_full = False

    @property
    def reusable(self) -> bool:
        """Whether request and response are complete, nothing follows, and neither side closes the connection."""
        if (
            not self._request_written  # h11 counts what it has encoded
            or self._read_was_full  # unsolicited bytes may wait behind what was read
            or self._h11.our_state is not h11.DONE
            or self._h11.their_state is not h11.DONE
            or self._h11.trailing_data[0]
            or self._h11.trailing_data[1]
        ):
            return False
        if self._tls is None:
            return True
        try:
            self._tls.read(1)  # a TLS record that waits to be decrypted shows at no descriptor
        except ssl.SSLError as exc:
            return isinstance(exc, ssl.SSLWantReadError)
        return False

    @property
    def stale(self) -> bool:
        """Whether anything has arrived over the idle connection: its end, or unsolicited bytes."""
        descriptor = self._socket.fileno()
        if descriptor < 0:
            return True
        if sys.platform == "win32":  # pragma: no cover  # runs on Windows only
            return bool(select.select([descriptor], [], [], 0)[0])
        poll = select.poll()  # select() fails from descriptor 1024 on
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(0))

    def reset(self) -> None:
        """Prepare for another request."""
        self._h11.start_next_cycle()
        self.responses += 1

    async def close(self) -> None:
        """Close the socket at once, without a TLS goodbye, even during another task's read or write."""
        await aclose_forcefully(self._stream)

    async def request(self, request: h11.Request, body: bytes, write_timeout: float | None) -> h11.Response:
        """Send a request and return the head of its response. Informational responses (1xx) are skipped."""
        self.response_begun = self._request_written = False
        early: h11.Response | None = None
        data = self._h11.send(request)
        if len(body) <= WRITE_SIZE:
            if body:
                data += self._h11.send(h11.Data(data=body))
            await self._write(data + self._h11.send(h11.EndOfMessage()), write_timeout)
            self._request_written = True
        else:
            early = await self._upload(data, body, write_timeout)
        return early or await self._response_head()

    def parse_body(self, pieces: list[bytes | bytearray]) -> bool | None:
        """Append what has arrived of a body to *pieces*.

        True at the body's end, False if more has to be read first, None if there may be more to parse.
        """
        for _ in range(EVENTS_PER_TICK):
            event = self._next_event()
            if type(event) is not h11.Data:
                return event is not h11.NEED_DATA
            pieces.append(event.data)
        return None

    async def read(self) -> None:
        """Wait for bytes, or the end of the connection, and pass them to h11."""
        try:
            data = await self._stream.receive(READ_SIZE)
        except EndOfStream:
            data = b""
        except _SOCKET_ERRORS as exc:
            raise self._failed(exc) from exc
        self._read_was_full = len(data) == READ_SIZE
        if data:
            self.response_begun = True
        elif self._h11.their_state is h11.SEND_RESPONSE:
            raise ConnectionClosed(f"{self._name}: the server closed the connection without a response")
        self._h11.receive_data(data)

    async def _response_head(self) -> h11.Response:
        while True:
            event = self._next_event()
            if type(event) is h11.Response:
                return event
            if event is h11.NEED_DATA:
                await self.read()
            elif type(event) is not h11.InformationalResponse:
                raise ConnectionClosed(f"{self._name}: the server switched to another protocol")

    def _next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        try:
            return self._h11.next_event()
        except h11.RemoteProtocolError as exc:
            raise self._failed(exc) from exc

    async def _write(self, data: bytes, timeout: float | None) -> None:
        deadline = math.inf if timeout is None else current_time() + timeout
        with CancelScope(deadline=deadline) as scope:
            try:
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
                early.append(await self._response_head())
            except ConnectionClosed as exc:
                failure = exc
            tasks.cancel_scope.cancel()

        async with create_task_group() as tasks:
            tasks.start_soon(watch)
            try:
                await self._write(head, timeout)
                for start in range(0, len(body), WRITE_SIZE):
                    await self._write(self._h11.send(h11.Data(data=body[start : start + WRITE_SIZE])), timeout)
                await self._write(self._h11.send(h11.EndOfMessage()), timeout)
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


async def connect(host: str, port: int, tls: ssl.SSLContext | None, timeout: float | None, name: str) -> Connection:
    """Open a connection to *host*, whose certificate is checked if there is a *tls* context.

    Raises:
        ConnectFailed: No connection. Its cause is a `TimeoutError` if *timeout* passed.
    """
    stream: ByteStream | None = None
    try:
        with fail_after(timeout):
            stream = await connect_tcp(host, port)
            if tls is not None:
                stream = await TLSStream.wrap(stream, hostname=host, ssl_context=tls, standard_compatible=False)
        return Connection(stream, name)
    except BaseException as exc:
        if stream is not None:
            await aclose_forcefully(stream)
        if isinstance(exc, TimeoutError):
            raise ConnectFailed(f"{name}: connecting took too long", may_have_run=False) from exc
        if isinstance(exc, (*_SOCKET_ERRORS, UnicodeError)):  # the last for a name that no resolver knows
            raise ConnectFailed(f"{name}: {_reason(exc)}", may_have_run=False) from exc
        raise


def _reason(exc: BaseException) -> str:
    return excerpt(str(exc) or str(exc.__cause__ or "")) or type(exc).__name__
