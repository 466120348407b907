"""One HTTP response: its body in bounded pieces, and a way out of it at any moment."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from types import TracebackType
from typing import Self, TypeAlias

import httpx
from anyio import CancelScope, move_on_after
from anyio.lowlevel import checkpoint

from mcp_host.errors import ConnectFailed, ConnectionClosed, MessageTooLarge, ProtocolError, excerpt
from mcp_host.transports._http.inflate import Inflater
from mcp_host.transports._http.pool import Stream

DRAIN_TIME, DRAIN_SIZE = 0.1, 64 * 1024  # what an unread end of a body may cost to keep its connection
EXCERPT_TIME, EXCERPT_SIZE = 2.0, 64 * 1024  # what the text of an error may cost
RELEASE_TIME = 1.0  # seconds for closing a socket: no peer takes part in it, so this is never reached
MANY_PIECES = 20_000  # more than h11 can hold decoded: past it, a body never waits for a network

Leave: TypeAlias = "Callable[[HttpResponse], bool]"
"""Takes over a reply that was left before its end, or says that it is too late for that."""

# All that httpx raises: the third for a Location, the last for a cookie in a client of the caller's.
FAILURES = (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL, UnicodeEncodeError)

# In these cases not a byte of the request can have reached the server.
_NEVER_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)


def broken(exc: Exception, name: str) -> ConnectionClosed:
    """What a failure of the HTTP library's means for the one request it happened to."""
    text = "" if cause(exc) is None else excerpt(str(exc))
    message = f"{name}: {text or type(exc).__name__}"
    if isinstance(exc, _NEVER_SENT):
        return ConnectFailed(message, may_have_run=False)
    return ConnectionClosed(message)


def cause(exc: Exception) -> Exception | None:
    """The same failure, if it can be shown: a LocalProtocolError quotes the header it dislikes, which may be a secret."""
    return None if isinstance(exc, httpx.LocalProtocolError) else exc


class HttpResponse:
    """A response whose headers are there. Use it as a context manager.

    Left without an error, *leave* sees to the unread rest, so that the connection
    is kept and nobody waits; left by an error or a cancellation, the connection
    is closed.
    """

    def __init__(self, response: httpx.Response, name: str, leave: Leave) -> None:
        self.status = response.status_code
        self.headers = response.headers
        self._response = response
        self.name = name
        self._leave = leave
        self._ended = False
        self._draining = False
        self._on_free: Callable[[], None] | None = None
        if response.is_stream_consumed:  # by a hook or an Auth of the caller's client, which leaves it decoded
            stream: httpx.AsyncByteStream = httpx.ByteStream(response.content)
            self._coding = ""
        else:
            assert isinstance(response.stream, httpx.AsyncByteStream)  # what every AsyncClient makes sure of
            stream = response.stream  # not aiter_raw(): each generator around a stream is one more to unwind
            self._coding = response.headers.get("content-encoding", "").strip().lower()
        self._ours = stream if isinstance(stream, Stream) else None
        self._pieces = aiter(stream)
        self._inflater: Inflater | None = None

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def reason(self) -> str:
        """The status with its standard phrase: "503 Service Unavailable"."""
        return f"{self.status} {httpx.codes.get_reason_phrase(self.status)}".rstrip()

    @property
    def failure(self) -> str:
        """The same for an error message, with the URL: "HTTP 503 Service Unavailable from https://example.com/mcp"."""
        return f"HTTP {self.reason} from {self.name}"

    @property
    def kind(self) -> str:
        """The content type, lower case and without parameters."""
        value: str = self.headers.get("content-type", "")
        return value.partition(";")[0].strip().lower()

    @property
    def _is_done(self) -> bool:
        """Whether its end has been read, and its connection handed back."""
        return self._ended and self._response.is_closed if self._ours is None else self._ours.complete

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._is_done:
            return
        if exc is not None:
            await self.close()
        elif self.status == 204 or self.headers.get("content-length") == "0":
            await self.drain()  # its end is there already
        else:
            self._draining = self._leave(self)
            if not self._draining:
                await self.close()

    def when_free(self, call: Callable[[], None]) -> None:
        """Call *call* as soon as the connection carries this response no more: at once, or when the unread rest is read."""
        if self._draining:
            self._on_free = call
        else:
            call()

    async def read(self) -> bytes:
        """The next piece of the body, decompressed; empty at the end.

        Raises:
            ConnectionClosed: The connection broke, or what came over it is corrupt.
            ProtocolError: The body has an encoding that was not asked for.
        """
        while True:
            if self._inflater is not None and self._inflater.pending:
                await checkpoint()  # a small chunk may inflate for a long time
                if piece := self._inflater.take():
                    return piece
                continue
            raw = await self._pull()
            if raw is None:
                await self._response.aclose()  # which hands the connection back
                if self._inflater is not None:
                    self._inflater.finish()
                return b""
            if self._coding in ("", "identity"):
                return raw
            self._inflater = self._inflater or Inflater(self._coding)
            self._inflater.feed(raw)

    async def whole(self, limit: int) -> bytes:
        """The whole body.

        Raises:
            MessageTooLarge: It is longer than *limit* bytes once decompressed.
            ConnectionClosed, ProtocolError: As `read`.
        """
        pieces: list[bytes] = []
        size = 0
        while piece := await self.read():
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                raise MessageTooLarge(f"{self.name}: a body is larger than {limit} bytes")
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def beginning(self) -> bytes:
        """As much of the body as an error report may cost; whatever breaks off, breaks off."""
        pieces: list[bytes] = []
        size = 0
        with move_on_after(EXCERPT_TIME):
            try:
                while size < EXCERPT_SIZE and (piece := await self.read()):
                    pieces.append(piece)
                    size += len(piece)
            except (ConnectionClosed, ProtocolError):
                pass  # the status says more than a fault in its text
        return b"".join(pieces)[:EXCERPT_SIZE]

    async def drain(self) -> None:
        """Read what little may be left of the body so that the connection can be used again, or close it."""
        size = 0
        try:
            with move_on_after(DRAIN_TIME):
                while size < DRAIN_SIZE and (raw := await self._pull()) is not None:
                    size += len(raw)
        except ConnectionClosed:
            pass  # nobody waits for this body any more
        finally:
            await self.close()
            self._draining = False
            if self._on_free is not None:
                self._on_free()

    async def close(self) -> None:
        """Let go of the response. Unless its end has been read, the connection is closed.

        httpx and httpcore read through four nested async generators. Closing the
        outermost one leaves the others to the garbage collector, which asyncio
        answers with stray tasks and trio with warnings. A cancellation of the
        innermost await unwinds them all. The streams of our own pool are no generators.
        """
        if self._ours is not None:
            await self._ours.aclose()
            return
        with CancelScope(shield=True) as scope:
            scope.cancel()
            for _ in range(MANY_PIECES):  # what is buffered comes without an await
                if self._ended:
                    break
                with suppress(ConnectionClosed):  # it is being thrown away
                    await self._pull()
            if not self._ended and isinstance(self._pieces, AsyncGenerator):
                await self._pieces.aclose()  # somebody's stand-in for a network, which never waits
        with move_on_after(RELEASE_TIME, shield=True):
            await self._response.aclose()

    async def _pull(self) -> bytes | None:
        self._ended = True  # any exception ends the generators
        try:
            raw = b""
            while not raw:  # an empty piece would look like the end
                raw = await anext(self._pieces)
        except StopAsyncIteration:
            return None
        except FAILURES as exc:
            raise broken(exc, self.name) from cause(exc)
        self._ended = False
        return raw
