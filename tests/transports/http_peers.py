"""Peers for the tests of Streamable HTTP: a recording handle, and servers down to the bytes."""

from __future__ import annotations

import json
import socket
import ssl
import struct
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import anyio
import httpx
import pytest
from anyio.abc import ByteStream, SocketAttribute, SocketStream
from anyio.streams.tls import TLSAttribute, TLSStream

from mcp_host.concurrency.asking import paused_by_asking
from mcp_host.errors import McpError
from mcp_host.limits import Limits
from mcp_host.protocol.jsonrpc import Failure, Incoming, Notification, Request, Success
from mcp_host.transports._http.channel import HttpChannel
from mcp_host.transports._http.session import Timing
from mcp_host.transports.http import StreamableHttp

VERSION = {"MCP-Protocol-Version": "2025-11-25"}
CALL = Request(7, "tools/call", {"name": "tides"})
DONE = Success(7, {"content": []})
DONE_JSON = b'{"jsonrpc":"2.0","id":7,"result":{"content":[]}}'
NOTE = Notification("notifications/message", {"level": "info"})
NOTE_JSON = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}'
INITIALIZE = Request(0, "initialize", {})
WELCOME = b'{"jsonrpc":"2.0","id":0,"result":{}}'
INITIALIZED = Notification("notifications/initialized", {})

JSON = {"content-type": "application/json"}
EVENTS = {"content-type": "text/event-stream"}
LENGTH = {"content-length": "1000"}
CHUNKED = {"transfer-encoding": "chunked"}


T = TypeVar("T")


@contextmanager
def reserved_port() -> Iterator[int]:
    """A port of 127.0.0.1 for servers that come and go. It is bound here, so no other program gets it, and not listened on."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers set it
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


class Log(list[T]):
    """A list that one can wait for."""

    def __init__(self) -> None:
        super().__init__()
        self._grown = anyio.Event()

    def append(self, item: T) -> None:
        super().append(item)
        self._grown.set()
        self._grown = anyio.Event()

    async def reaches(self, condition: Callable[[list[T]], bool]) -> None:
        """Wait until *condition* holds."""
        while not condition(self):
            await self._grown.wait()


@dataclass
class RecordedHandle:
    """What a link would be to a channel, for the request with *id*: it only notes what comes."""

    id: int = 7
    received: list[Incoming] = field(default_factory=list)
    progressed: int = 0
    unsent: bool = False
    personal: bool = False
    stateless: bool = False
    on_progress: Callable[[], Awaitable[None]] | None = None
    is_authorizing: bool = False
    is_asking: bool = False

    @property
    def done(self) -> bool:
        return any(isinstance(message, Success | Failure) and message.id == self.id for message in self.received)

    def receive(self, message: Incoming) -> None:
        self.received.append(message)

    def restart_idle(self) -> None:
        pass

    async def deliver_progress(self) -> None:
        arrived, self.progressed = len(self.received) - self.progressed, len(self.received)
        if arrived and self.on_progress is not None:
            await self.on_progress()

    def queued(self) -> AbstractContextManager[None]:
        return nullcontext()

    def bounded(self) -> AbstractContextManager[None]:
        return nullcontext()

    @contextmanager
    def authorizing(self, *, sent: bool = False) -> Iterator[None]:
        self.is_authorizing = True
        with paused_by_asking(self._paused):
            yield
        self.is_authorizing = False

    @contextmanager
    def _paused(self) -> Iterator[None]:
        self.is_asking = True
        yield
        self.is_asking = False

    async def wait(self) -> None:
        raise AssertionError("a request over HTTP waits on its own stream")

    def fail(self, error: McpError) -> None:
        raise AssertionError("a request over HTTP fails in its own task")


@dataclass
class Heard:
    """One HTTP request as a server heard it; header names in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def rpc(self) -> Any:
        return json.loads(self.body)


class Wire:
    """The server's end of one connection, with nothing between the script and the socket."""

    def __init__(self, stream: ByteStream, log: Log[Heard]) -> None:
        self.stream = stream
        self._buffer = bytearray()
        self._log = log

    async def hear(self) -> Heard:
        """The next request; ends the script (anyio.EndOfStream) when the client has hung up."""
        head = await self.hear_until(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        size = int(headers.get("content-length", "0"))
        while len(self._buffer) < size:
            self._buffer += await self.stream.receive()
        body = bytes(self._buffer[:size])
        del self._buffer[:size]
        method, path, _ = first.split(" ")
        heard = Heard(method, path, headers, body)
        self._log.append(heard)
        return heard

    async def say(self, *parts: bytes) -> None:
        """Send *parts* at once; with TLS, in a record each."""
        *first, last = parts
        if isinstance(self.stream, TLSStream):
            for part in first:
                self.stream.extra(TLSAttribute.ssl_object).write(part)
            await self.stream.send(last)
        else:
            await self.stream.send(b"".join(parts))

    async def reply(self, status: int, headers: dict[str, str] | None = None, body: bytes = b"") -> None:
        await self.say(response(status, headers, body))

    async def events(self, *parts: bytes, **headers: str) -> None:
        """The head of an event stream that ends with the connection, and its beginning."""
        await self.say(head(200, {**EVENTS, "connection": "close", **headers}))
        for part in parts:
            await self.say(part)

    async def hung_up(self) -> None:
        """Wait until the client has closed the connection."""
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            while True:
                await self.stream.receive()

    async def end(self) -> None:
        """Close the connection in order."""
        await self.stream.aclose()

    async def reset(self) -> None:
        """Close with a RST instead of a FIN."""
        raw = self.stream.extra(SocketAttribute.raw_socket)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await self.stream.aclose()

    async def hear_until(self, mark: bytes) -> bytes:
        """All that comes before *mark*."""
        while mark not in self._buffer:
            self._buffer += await self.stream.receive()
        found, _, self._buffer = self._buffer.partition(mark)
        return bytes(found)


Script: TypeAlias = Callable[[Wire], Awaitable[None]]


@dataclass
class Peer:
    """A server at *url* that has *heard* some requests, over some *connections*."""

    url: str
    heard: Log[Heard] = field(default_factory=Log)
    connections: int = 0

    def methods(self) -> list[str]:
        return [heard.method for heard in self.heard]

    def sent(self, method: str, header: str) -> list[str | None]:
        """What each request with *method* had in a *header*."""
        return [heard.headers.get(header) for heard in self.heard if heard.method == method]

    async def hears(self, method: str, count: int) -> None:
        """Wait for the *count*th request with *method*."""
        await self.heard.reaches(lambda heard: sum(each.method == method for each in heard) >= count)


def saying(raw: bytes) -> Script:
    """The script of a server that says *raw* to each request, as long as the client keeps the connection."""

    async def script(wire: Wire) -> None:
        while True:
            await wire.hear()
            await wire.say(raw)

    return script


def saying_once(raw: bytes) -> Script:
    """The script of a server that says *raw* to the first request of a connection, and closes that."""

    async def script(wire: Wire) -> None:
        await wire.hear()
        if raw:
            await wire.say(raw)

    return script


class Halting:
    """A server that says *beginning* and no more, and notes when the client has hung up."""

    def __init__(self, beginning: bytes = b"") -> None:
        self.heard = anyio.Event()
        self.hung_up = anyio.Event()
        self._beginning = beginning

    async def __call__(self, wire: Wire) -> None:
        await wire.hear()
        await wire.say(self._beginning)
        self.heard.set()
        await wire.hung_up()
        self.hung_up.set()


@asynccontextmanager
async def serving(
    script: Script,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    uds: Path | None = None,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Peer]:
    """Run *script* for each connection to a new socket, to *port*, or to the unix socket *uds*."""
    async with (
        await (
            anyio.create_tcp_listener(local_host=host, local_port=port)
            if uds is None
            else anyio.create_unix_listener(uds)
        ) as listener,
        anyio.create_task_group() as tasks,
    ):
        place = "localhost"
        if uds is None:
            place = f"{f'[{host}]' if ':' in host else host}:{listener.extra(SocketAttribute.local_port)}"
        peer = Peer(f"{'https' if tls else 'http'}://{place}/mcp")

        async def handle(stream: SocketStream) -> None:
            peer.connections += 1
            async with stream:
                with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, ssl.SSLError):
                    await script(Wire(await secured(stream, tls), peer.heard))  # to its end, or the client's

        tasks.start_soon(listener.serve, handle)
        yield peer
        tasks.cancel_scope.cancel()


async def secured(stream: SocketStream, tls: ssl.SSLContext | None) -> ByteStream:
    """The server's side of TLS, if there is to be any."""
    if tls is None:
        return stream
    return await TLSStream.wrap(stream, server_side=True, ssl_context=tls, standard_compatible=False)


def head(status: int, headers: dict[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} Whatever", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"


def response(status: int, headers: dict[str, str] | None = None, body: bytes = b"") -> bytes:
    return head(status, {"content-length": str(len(body)), **(headers or {})}) + body


DONE_RESPONSE = response(200, JSON, DONE_JSON)


def chunk(data: bytes) -> bytes:
    """One of a chunked body; without *data*, its end."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(data: bytes, *, id: str = "") -> bytes:
    return (f"id: {id}\n".encode() if id else b"") + b"data: " + data + b"\n\n"


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncIterator[HttpChannel]:
    """An open channel, which nothing can keep longer than ten seconds."""
    limits = options.pop("limits", Limits())
    with anyio.fail_after(25):
        async with timed(url, **options).open(limits) as channel:
            yield channel


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class TimedHttp(StreamableHttp):
    """Whose channels wait as *timing* says."""

    timing: Timing = field(kw_only=True)

    def open(self, limits: Limits) -> AbstractAsyncContextManager[HttpChannel]:
        return self._open(limits, self.timing)


def timed(url: str, **options: Any) -> StreamableHttp:
    """Streamable HTTP with *options*, of which some may be those of `Timing`."""
    timing = {each.name: options.pop(each.name) for each in fields(Timing) if each.name in options}
    return TimedHttp(url, timing=Timing(**timing), **options) if timing else StreamableHttp(url, **options)


@asynccontextmanager
async def mocked(
    answer: Callable[[Any], Any],
    url: str = "http://server.test/mcp",
    *,
    library: Any = httpx,
    follow_redirects: bool = False,
    **options: Any,
) -> AsyncIterator[HttpChannel]:
    """A channel whose server is one function, called by a client of *library*."""
    async with (
        library.AsyncClient(transport=library.MockTransport(answer), follow_redirects=follow_redirects) as client,
        opened(url, client=client, **options) as channel,
    ):
        yield channel


class NoLogin(httpx.Auth):
    """No one is here to log in. It counts how often it would ask."""

    asked = 0

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        if (yield request).status_code == 401:
            self.asked += 1
            raise McpError("a login is needed")


async def ask(channel: HttpChannel, request: Request = CALL) -> list[Incoming]:
    """Send one request and return what came on its stream."""
    handle = RecordedHandle(request.id if isinstance(request.id, int) else 0)
    await channel.request(request, VERSION, handle)
    return handle.received


def answering(
    status: int, headers: dict[str, str] | None = None, content: bytes = b""
) -> Callable[[httpx.Request], httpx.Response]:
    return lambda request: httpx.Response(status, headers=headers, content=content)


async def error_of(answer: Callable[[httpx.Request], httpx.Response], request: Request = CALL) -> McpError:
    async with mocked(answer) as channel:
        with pytest.raises(McpError) as caught:
            await ask(channel, request)
    return caught.value
