"""One HTTP/1.1 connection: h11 knows the protocol, anyio the socket. It carries one request at a time."""

from __future__ import annotations

import select
import ssl
import sys
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Mapping
from typing import TypeAlias

import h11
import httpx
from anyio import (
    BrokenResourceError,
    BusyResourceError,
    ClosedResourceError,
    EndOfStream,
    aclose_forcefully,
    connect_tcp,
    create_task_group,
    fail_after,
)
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.tls import TLSAttribute, TLSStream

MAX_HEAD = 64 * 1024  # bytes of one head; nginx and Node send and accept 8 to 16 KiB
READ = 64 * 1024  # bytes at a time, so that a head is never longer than both together
AT_ONCE = 64 * 1024  # a longer body is worth watching for an answer that comes before its end
MANY_EVENTS = 256  # of a body's chunks, in a row: what a server sends in chunks of one byte holds nobody up

Request: TypeAlias = h11.Request
Body: TypeAlias = bytes | AsyncIterable[bytes]
Timeouts: TypeAlias = Mapping[str, float | None]
"""What httpx keeps in a request's extensions: seconds for "connect", "read" and "write"."""

_LOST = (BrokenResourceError, ClosedResourceError, BusyResourceError, EndOfStream, OSError)  # TLS errors are OSErrors


class Connection:
    """A socket and the state of the protocol on it.

    Raises:
        httpx.TransportError: As httpx itself would. The connection is of no use then.
    """

    def __init__(self, stream: ByteStream) -> None:
        self.expires = 0.0
        """When it is too late to use it again, once it is idle."""
        self.answered = 0
        """How many requests it has carried that were answered to the end."""
        self.forgotten_before = 0
        """How many kept connections in a row the server had forgotten when this one was opened."""
        self.heard = True
        """Whether a byte has arrived since the last request began."""
        self._stream = stream
        self._socket = stream.extra(SocketAttribute.raw_socket)
        self._tls = stream.extra(TLSAttribute.ssl_object, None)
        self._state = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
        self._written = True
        self._full = False

    @property
    def reusable(self) -> bool:
        """Whether both sides have said all they had to say, and neither wants to part."""
        return (
            self._written  # h11 counts what it has encoded
            and not self._full  # or something unasked may wait behind what was read
            and self._state.our_state is h11.DONE
            and self._state.their_state is h11.DONE
            and self._state.trailing_data == (b"", False)
            and self._silent
        )

    @property
    def stale(self) -> bool:
        """Whether something has come over the idle connection: its end, or what nobody asked for."""
        descriptor = self._socket.fileno()
        if descriptor < 0:
            return True
        if sys.platform == "win32":  # pragma: no cover  # runs on Windows only
            return bool(select.select([descriptor], [], [], 0)[0])
        poll = select.poll()  # select() would stop at descriptor 1023
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(0))

    @property
    def _silent(self) -> bool:
        """Whether no TLS record waits to be decrypted. No descriptor would show it."""
        if self._tls is None:
            return True
        try:
            self._tls.read(1)
        except ssl.SSLError as exc:
            return isinstance(exc, ssl.SSLWantReadError)
        return False

    def renew(self) -> None:
        """Get ready for another request."""
        self._state.start_next_cycle()
        self.answered += 1

    async def close(self) -> None:
        """Close the socket, whatever is under way; waits for nobody."""
        await aclose_forcefully(self._stream)

    async def ask(self, request: Request, body: Body, timeouts: Timeouts) -> h11.Response:
        """Send *request* and return the head of its answer. What comes before that (1xx) is passed over."""
        self.heard = self._written = False
        early: h11.Response | None = None
        try:
            head = self._state.send(request)
            if isinstance(body, bytes) and len(body) <= AT_ONCE:
                await self._write(head + self._encoded(body) + self._state.send(h11.EndOfMessage()), timeouts)
                self._written = True
            else:
                early = await self._upload(head, body, timeouts)
        except h11.LocalProtocolError as exc:
            raise httpx.LocalProtocolError(str(exc)) from exc
        return early or await self._head(timeouts.get("read"))

    def parse(self, pieces: list[bytes | bytearray]) -> bool | None:
        """Add to *pieces* what of a body has arrived; True at its end, None if there may be more without reading."""
        for _ in range(MANY_EVENTS):
            event = self._event()
            if type(event) is h11.Data:
                pieces.append(event.data)
            else:
                return event is not h11.NEED_DATA
        return None

    async def read(self, timeout: float | None) -> None:
        """Take in what arrives next, be it the connection's end."""
        try:
            if timeout is None:
                data = await self._stream.receive(READ)
            else:
                with fail_after(timeout):
                    data = await self._stream.receive(READ)
        except EndOfStream:
            data = b""
        except TimeoutError as exc:
            raise httpx.ReadTimeout("the server sent nothing for too long") from exc
        except _LOST as exc:
            raise httpx.ReadError(_why(exc)) from exc
        self._full = len(data) == READ
        if data:
            self.heard = True
        elif self._state.their_state is h11.SEND_RESPONSE:
            raise httpx.RemoteProtocolError("the server closed the connection without a response")
        self._state.receive_data(data)

    async def _head(self, timeout: float | None) -> h11.Response:
        while True:
            event = self._event()
            if type(event) is h11.Response:
                return event
            if event is h11.NEED_DATA:
                await self.read(timeout)
            elif type(event) is not h11.InformationalResponse:
                raise httpx.RemoteProtocolError("the server switched to another protocol")

    def _event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        try:
            return self._state.next_event()
        except h11.RemoteProtocolError as exc:
            raise httpx.RemoteProtocolError(str(exc)) from exc

    def _encoded(self, piece: bytes) -> bytes:
        return self._state.send(h11.Data(data=piece)) if piece else b""

    async def _write(self, data: bytes, timeouts: Timeouts) -> None:
        if not data:
            return
        try:
            with fail_after(timeouts.get("write")):
                await self._stream.send(data)
        except TimeoutError as exc:
            raise httpx.WriteTimeout("the server took nothing for too long") from exc
        except _LOST as exc:
            raise httpx.WriteError(_why(exc)) from exc

    async def _upload(self, head: bytes, body: Body, timeouts: Timeouts) -> h11.Response | None:
        """Write a long body until its end, or until the server has answered without it."""
        early: list[h11.Response] = []
        failure: Exception | None = None

        async def watch() -> None:
            nonlocal failure
            try:
                early.append(await self._head(None))
            except httpx.TransportError as exc:
                failure = exc
            tasks.cancel_scope.cancel()

        async with create_task_group() as tasks:
            tasks.start_soon(watch)
            try:
                await self._pour(head, body, timeouts)
            except httpx.WriteError:
                pass  # there may still be an answer to read
            except Exception as exc:  # out of the group, which would wrap it
                failure = exc
            tasks.cancel_scope.cancel()
        if early:
            return early[0]
        if failure is not None:
            raise failure
        return None

    async def _pour(self, head: bytes, body: Body, timeouts: Timeouts) -> None:
        await self._write(head, timeouts)
        if isinstance(body, bytes):
            for start in range(0, len(body), AT_ONCE):
                await self._write(self._encoded(body[start : start + AT_ONCE]), timeouts)
        else:
            await self._pour_out(aiter(body), timeouts)
        await self._write(self._state.send(h11.EndOfMessage()), timeouts)
        self._written = True

    async def _pour_out(self, pieces: AsyncIterator[bytes], timeouts: Timeouts) -> None:
        try:
            async for piece in pieces:
                await self._write(self._encoded(piece), timeouts)
        finally:
            if isinstance(pieces, AsyncGenerator):
                await pieces.aclose()  # which otherwise the garbage collector would have to do


async def connect(host: str, port: int, tls: ssl.SSLContext | None, name: str, timeout: float | None) -> Connection:
    """Open a connection to *host*, which by TLS has to prove that it is *name*.

    Raises:
        httpx.ConnectError, httpx.ConnectTimeout: There is none to be had.
    """
    stream: ByteStream | None = None
    try:
        with fail_after(timeout):
            stream = await connect_tcp(host, port)
            if tls is not None:
                stream = await TLSStream.wrap(stream, hostname=name, ssl_context=tls, standard_compatible=False)
        return Connection(stream)
    except BaseException as exc:
        if stream is not None:
            await aclose_forcefully(stream)
        if isinstance(exc, TimeoutError):
            raise httpx.ConnectTimeout("no connection for too long") from exc
        if isinstance(exc, (*_LOST, UnicodeError)):  # the last for a name that no resolver knows
            raise httpx.ConnectError(_why(exc)) from exc
        raise


def _why(exc: BaseException) -> str:
    return str(exc) or str(exc.__cause__ or "") or type(exc).__name__
