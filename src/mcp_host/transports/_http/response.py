"""One HTTP response: its body, the messages of its event stream, and the error that its status means."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from time import perf_counter
from types import TracebackType
from typing import Self
from urllib.request import parse_http_list

import httpx
from anyio import move_on_after
from anyio.lowlevel import checkpoint

from mcp_host.errors import (
    ConnectionClosed,
    HttpStatusError,
    MessageTooLarge,
    ProtocolError,
    ServerError,
    Unauthorized,
    excerpt,
)
from mcp_host.protocol.jsonrpc import Failure, Incoming, Malformed, decode
from mcp_host.protocol.sse import Event, EventDecoder, LastEvent
from mcp_host.transports.base import TURN_TIME, RequestHandle

JSON = "application/json"
EVENT_STREAM = "text/event-stream"
ACCEPT_ENCODING = "gzip, deflate"

DRAIN_TIME, DRAIN_SIZE = 0.1, 64 * 1024  # spent on the unread rest of a body to keep its connection
ERROR_TIME, ERROR_SIZE = 2.0, 64 * 1024  # spent on the body of an error
INFLATE_SIZE = 64 * 1024  # bytes of output at a time; httpx's own decoders inflate all that a chunk holds
EXCERPT_SIZE = 1024  # bytes of an event that is no message, kept for error messages
MAX_RETRY_AFTER = 86_400.0  # seconds; a longer one means "not today"
MAX_CHALLENGES = 16  # WWW-Authenticate headers that are kept; a server sends one for each way to log in
MAX_CHALLENGE = 8192  # characters of one of them; they hold a URL and some scopes

PLAIN = b"[{"  # with one of these begins JSON, and text in no compression
PLAIN_STREAM = b":deir \t\r\n"  # and with these an event stream, or blanks; raw "deflate" may begin so

_GZIP = 16 + zlib.MAX_WBITS
_GZIP_MAGIC = b"\x1f\x8b"
_CODINGS = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": zlib.MAX_WBITS}


class HttpResponse(ABC):
    """A response whose headers have arrived. Use it as a context manager.

    On leaving without an error, *drain_soon* reads the unread rest in the background,
    so that the connection is kept; it returns False if it is too late for that.
    On an error or a cancellation the connection is closed.
    """

    drain_soon: Callable[[HttpResponse], bool] | None = None

    def __init__(self, status: int, headers: Iterable[tuple[bytes, bytes]], name: str) -> None:
        self.status = status
        self.is_success = 200 <= status < 300
        self.name = name
        self._headers: dict[bytes, list[bytes]] = {}
        for key, value in headers:
            self._headers.setdefault(key, []).append(value)
        self.complete = False
        """Whether the end of the body has arrived, or it was closed: its connection has been released."""
        self.draining = False
        """Whether the unread rest is being read in the background."""
        self.on_drained: Callable[[], None] = lambda: None
        """Called when that has ended."""
        self._decompressor: Decompressor | None = None
        self._inflating: Iterator[bytes] = iter(())
        kind = self.header(b"content-type") or ""
        self.content_type = _media_types(kind) if "," in kind else kind.partition(";")[0].strip().lower()
        """In lower case and without parameters; "" if there is none."""
        coding = self.header(b"content-encoding")
        self._coding = "" if coding is None else _without_identity(coding)

    @abstractmethod
    async def read_raw(self) -> bytes:
        """The next piece of the body as it comes from the network; empty at the end. Raises `ConnectionClosed`."""

    @abstractmethod
    async def close(self) -> None:
        """Discard the rest of the body. Unless its end has arrived, the connection is closed."""

    def header(self, name: bytes) -> str | None:
        """The header's values, joined by commas, or None; equal ones count once. *name* is in lower case."""
        if (values := self._headers.get(name)) is None:
            return None
        value = ", ".join(map(_decoded, values))
        return once(value) if ", " in value else value

    @property
    def headers(self) -> httpx.Headers:
        """All headers; their names are not case-sensitive."""
        return httpx.Headers([(key, value) for key, values in self._headers.items() for value in values])

    @property
    def reason(self) -> str:
        """The status with its standard phrase: "503 Service Unavailable"."""
        return f"{self.status} {httpx.codes.get_reason_phrase(self.status)}".rstrip()

    @property
    def failure(self) -> str:
        """The same for an error message, with the URL: "HTTP 503 Service Unavailable from https://example.com/mcp"."""
        return f"HTTP {self.reason} from {self.name}"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self.complete:
            return
        if exc is None and (self.status == 204 or self.header(b"content-length") == "0"):
            await self.drain()  # its end has arrived
        elif exc is None and self.drain_soon is not None and self.drain_soon(self):
            self.draining = True
        else:
            await self.close()

    async def read(self) -> bytes:
        """The next piece of the body, decompressed; empty at the end.

        Raises:
            ConnectionClosed: The connection broke, or the compressed data is corrupt.
            ProtocolError: The body has an encoding that was not asked for.
        """
        if not self._coding:
            return await self.read_raw()
        while True:
            for piece in self._inflating:
                await checkpoint()  # a small chunk may inflate for a long time
                if piece:
                    return piece
            if raw := await self.read_raw():
                if self._decompressor is None and is_plain(raw, self._coding):
                    self._coding = ""
                    return raw
                self._decompressor = self._decompressor or Decompressor(self._coding)
                self._inflating = self._decompressor.feed(raw)
            else:
                if self._decompressor is not None:
                    self._decompressor.finish()
                return b""

    async def read_all(self, limit: int) -> bytes:
        """The whole body.

        Raises:
            MessageTooLarge: It has more than *limit* bytes once decompressed.
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

    async def drain(self, seconds: float = DRAIN_TIME) -> None:
        """Read the rest of the body if it is short and comes soon, so that the connection is kept; else close it."""
        size = 0
        try:
            with move_on_after(seconds):
                while size < DRAIN_SIZE and (raw := await self.read_raw()):
                    size += len(raw)
        except ConnectionClosed:
            pass  # the rest of the body is not needed
        finally:
            await self.close()
            self.draining = False
            self.on_drained()

    async def error(self) -> HttpStatusError:
        """The exception for a response that is no success, with the beginning of its body."""
        body = await self.beginning()
        text = body.decode(errors="replace")
        # Under any id: one SDK answers with the id "server-error".
        messages = decode(body) if self.content_type == JSON else ()
        failure = next((message for message in messages if isinstance(message, Failure)), None)
        detail = ""
        if failure is not None:
            detail = failure.message
        elif self.content_type in (JSON, "text/plain"):  # HTML is not quoted
            detail = excerpt(text.strip())
        url = self.name.rpartition(" (")[2].rstrip("/)")  # the host may have given the server a name, before its URL
        path = url.partition("://")[2].partition("/")[2]
        hint = f" (most servers are at {url}/mcp)" if self.status in (404, 405) and not path else ""
        error = (Unauthorized if self.status in (401, 403) else HttpStatusError)(
            self.status,
            f"{self.failure}{hint}" + (f": {detail}" if detail else ""),
            retry_after=retry_after(self.header(b"retry-after"), datetime.now(UTC)),
            body=text,
            code=failure.code if failure else None,
            data=failure.data if failure else None,
            rpc_message=failure.message if failure else None,
        )
        if isinstance(error, Unauthorized):  # RFC 9110, section 11.6.1
            challenges = map(_decoded, self._headers.get(b"www-authenticate", [])[:MAX_CHALLENGES])
            error.challenges = tuple(value for value in challenges if len(value) <= MAX_CHALLENGE)
        return error

    async def beginning(self) -> bytes:
        """The body up to `ERROR_SIZE`, or to where it breaks off."""
        pieces: list[bytes] = []
        size = 0
        with move_on_after(ERROR_TIME):
            try:
                while size < ERROR_SIZE and (piece := await self.read()):
                    pieces.append(piece)
                    size += len(piece)
            except (ConnectionClosed, ProtocolError):
                pass  # the status matters more
        return b"".join(pieces)[:ERROR_SIZE]


class MessageStream:
    """The messages of an event stream. *last_event* is updated; *limit* bounds an event, in bytes."""

    def __init__(
        self, response: HttpResponse, last_event: LastEvent, limit: int, clock: Callable[[], float] = perf_counter
    ) -> None:
        self._clock = clock
        self._turn_ends = 0.0
        self._handle: RequestHandle | None = None
        self.begun = False
        """Whether an event of the type "message" has arrived."""
        self.failure: ConnectionClosed | None = None
        """What broke the stream; None if it ended in order."""
        self.error: ServerError | None = None
        """The first error without an id that `read_until_done` has read."""
        self.skipped = b""
        """The beginning of the last event that was no message."""
        self._odd = ""
        self._response = response
        self._decoder = EventDecoder(limit, last_event)
        self._events: Iterator[Event | None] = iter(())
        self._ended = False
        self._lines = 0

    async def read_until_done(self, handle: RequestHandle, check: Callable[[Failure], None] | None = None) -> None:
        """Pass the messages on to *handle*, until it is done or the stream ends. Raises as `next`, and what *check* raises
        for an error before it is passed on.

        Progress is delivered once for all that has arrived: a plain callback needs a thread each time.
        """
        self._handle = handle
        while (messages := await self.next()) is not None:
            for message in messages:
                if check is not None and isinstance(message, Failure):
                    check(message)
                handle.receive(message)
            if handle.done:
                break
            self.error = self.error or error_without_id(messages)
            await self.take_turns()
        await handle.deliver_progress()

    @property
    def odd(self) -> str:
        """The last thing on the stream that was no message, or the first line that was nothing at all; "" if there was none."""
        if self._odd or not self._decoder.odd:
            return self._odd
        return f"the line {excerpt(self._decoder.odd.decode(errors='replace'))}"

    async def take_turns(self) -> None:
        """Call it between the lines and messages of one piece: other tasks run if they have taken long."""
        if self._clock() >= self._turn_ends:
            await checkpoint()
            self._turn_ends = self._clock() + TURN_TIME

    async def next(self) -> Sequence[Incoming] | None:
        """The messages of the next event of the type "message". None at the end, and if the handle is done.

        Raises:
            MessageTooLarge: An event is past the limit.
            ProtocolError: The stream cannot be decoded.
        """
        while True:
            for event in self._events:
                if event is None or event.type != "message":
                    self._odd = self._odd if event is None else _of_another_type(event)
                    await self.take_turns()
                    continue
                messages = decode(event.data)
                if Malformed in map(type, messages):
                    self.skipped = bytes(event.data[:EXCERPT_SIZE])
                    if self._ended:  # inside of the event: then only complete JSON is a message
                        return None
                    self._odd = next(f"no message but {odd.reason}" for odd in messages if isinstance(odd, Malformed))
                self.begun = True
                return messages
            if (handle := self._handle) is not None:
                await handle.deliver_progress()
            if self._ended or (handle is not None and handle.done):
                return None
            if handle is not None and self._lines != self._decoder.lines:  # events, or comments as signs of life
                self._lines = self._decoder.lines
                handle.restart_idle()
            try:
                piece = await self._response.read()
            except ConnectionClosed as exc:
                self.failure, piece = exc, b""
                await self._response.close()
            self._turn_ends = self._clock() + TURN_TIME
            self._ended = not piece
            self._events = self._decoder.feed(piece) if piece else self._decoder.end()


def _of_another_type(event: Event) -> str:
    beginning = bytes(event.data[:EXCERPT_SIZE]).decode(errors="replace")
    return f"an event of the type {excerpt(event.type)}: {excerpt(beginning)}"


def error_without_id(messages: Sequence[Incoming]) -> ServerError | None:
    """On a request's own stream, an error without an id is about that request."""
    for message in messages:
        if isinstance(message, Failure) and message.id is None:
            return ServerError(message.code, message.message, message.data)
    return None


def _without_identity(codings: str) -> str:
    """A Content-Encoding in lower case, without what changes nothing."""
    names = [name.strip() for name in codings.lower().split(",")]
    return ", ".join(name for name in names if name not in ("", "identity"))


def is_plain(beginning: bytes, coding: str) -> bool:
    """Whether a body is not compressed, in spite of its Content-Encoding: `UTF-8`, or a coding that a proxy has undone."""
    return beginning[0] in PLAIN or (coding != "deflate" and beginning[0] in PLAIN_STREAM)


class Decompressor:
    """Decompresses a body in pieces of bounded size, so that a small body cannot fill the memory.

    Raises:
        ProtocolError: The Content-Encoding *coding* is none that was asked for.
        ConnectionClosed: The compressed bytes are corrupt, or were cut off.
    """

    def __init__(self, coding: str) -> None:
        if coding not in _CODINGS:
            raise ProtocolError(
                f"the body has the Content-Encoding {excerpt(coding)}; asked for were {ACCEPT_ENCODING}"
            )
        self._coding = coding
        self._zlib: zlib._Decompress | None = None
        self._between = b""
        """What has come of the next member's beginning."""
        self._is_over = False
        """Whether something else than a member has followed. All that comes now is dropped."""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The pieces that *chunk* inflates to, at most INFLATE_SIZE bytes each; some are empty."""
        while True:
            if self._zlib is None:
                self._zlib = zlib.decompressobj(self._bits(chunk[0]))
            elif self._zlib.eof and not (chunk := self._next_member(chunk)):
                return
            try:
                piece = self._zlib.decompress(chunk, INFLATE_SIZE)
            except zlib.error as exc:
                raise ConnectionClosed(f"the body's {self._coding} compression is corrupt: {exc}") from exc
            yield piece
            chunk = self._zlib.unused_data if self._zlib.eof else self._zlib.unconsumed_tail
            if not chunk and len(piece) < INFLATE_SIZE:  # else zlib may hold output back
                return

    def _bits(self, first: int) -> int:
        bits = _CODINGS[self._coding]
        if bits == zlib.MAX_WBITS and first & 0x0F != zlib.DEFLATED:
            return -zlib.MAX_WBITS  # "deflate" without the zlib wrapper that RFC 9110 requires: some servers do
        return bits

    def _next_member(self, chunk: bytes) -> bytes:
        """Begin another member, if *chunk* does: "A gzip file consists of a series of members" (RFC 1952, section 2.2).

        Returns what of the member has come; anything else is dropped.
        """
        chunk, self._between = self._between + chunk, b""
        if self._is_over or _CODINGS[self._coding] != _GZIP or not _GZIP_MAGIC.startswith(chunk[:2]):
            self._is_over = True
            return b""
        if len(chunk) < len(_GZIP_MAGIC):
            self._between = chunk
            return b""
        self._zlib = zlib.decompressobj(_GZIP)
        return chunk

    def finish(self) -> None:
        """Check, at the end of the body, that the compression ended too."""
        if self._zlib is not None and not self._zlib.eof:
            raise ConnectionClosed(f"the body's {self._coding} compression was cut off")


def retry_after(value: str | None, now: datetime) -> float | None:
    """The Retry-After header in seconds from *now*, at most a day; None if it is missing or malformed.

    RFC 9110, section 10.2.3: a number of seconds or a date.
    """
    if value is None:
        return None
    value = value.strip()
    if value.isascii() and value.isdigit():
        return min(float(value), MAX_RETRY_AFTER)
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    seconds = (date.replace(tzinfo=date.tzinfo or UTC) - now).total_seconds()
    return min(max(seconds, 0.0), MAX_RETRY_AFTER)


def once(value: str) -> str:
    """The *value* of a header, with equal ones of a list once: some gateways repeat a header that the server has written."""
    return ", ".join(dict.fromkeys(value.split(", ")))


def _media_types(value: str) -> str:
    """The different types in a list of them, without parameters."""
    return ", ".join(dict.fromkeys(kind.partition(";")[0].strip().lower() for kind in parse_http_list(value)))


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
