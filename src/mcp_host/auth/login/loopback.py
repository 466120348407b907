"""A listener on this machine for one redirect of an authorization server (RFC 8252, section 7.3).

Every page that a browser shows, and every program of the machine, can send requests to it. It answers
all but the one redirect with an error, and goes on.
"""

from __future__ import annotations

import logging
import socket
from collections import deque
from collections.abc import AsyncIterator, Sequence, Set
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from urllib.parse import urlsplit

import h11
from anyio import (
    BrokenResourceError,
    CancelScope,
    ClosedResourceError,
    EndOfStream,
    create_task_group,
    create_tcp_listener,
    move_on_after,
    sleep,
)
from anyio.abc import SocketAttribute, SocketListener, SocketStream, TaskGroup

from mcp_host.auth.login.redirects import Parameters, check_redirect_uri, read_redirect
from mcp_host.auth.requests.urls import DEFAULT_PORTS
from mcp_host.handlers import CountedWarnings
from mcp_host.secret import Secret

logger = logging.getLogger(__name__)

ADDRESS = "127.0.0.1"  # "the use of localhost is NOT RECOMMENDED" (RFC 8252, section 8.3)
PATH = "/callback"
HOSTS = {ADDRESS: (ADDRESS,), "localhost": (ADDRESS, "::1"), "[::1]": ("::1",)}
"""Where to listen, by the host of a redirect URI. Some authorization servers take only one of these hosts.

A browser may take either address for localhost: what is not ours, another program could have.
"""

BACKLOG = 64  # connections that the system accepts for us
MAX_CONNECTIONS = 16  # at a time; a browser opens a few, and one more closes the oldest
MAX_HEAD = 16 * 1024  # bytes; codes and states have some hundred
MAX_REST = 64 * 1024  # bytes that a client may send after its answer
READ_SIZE = 4096
REQUEST_TIME = 10.0  # seconds for the head of a request
ANSWER_TIME = 2.0  # seconds for a client to read its answer, and to close
ACCEPT_PAUSE = 0.05  # seconds after a connection that could not be accepted, such as with too many open files

GONE = (OSError, BrokenResourceError, ClosedResourceError, EndOfStream)
"""What reading and writing raises if the client has gone."""

HEADERS = [
    ("Content-Type", "text/html; charset=utf-8"),
    ("Cache-Control", "no-store"),
    ("Content-Security-Policy", "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
    ("Connection", "close"),
]


@dataclass(frozen=True, slots=True)
class Page:
    """An answer, with a text if a person may see it. Nothing in it comes from the network."""

    status: int
    title: str = ""
    text: str = ""

    def written_by(self, protocol: h11.Connection) -> bytes:
        """The response."""
        page = (
            '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
            f"<title>{self.title}</title></head><body><h1>{self.title}</h1><p>{self.text}</p></body></html>\n"
        )
        body = page.encode() if self.title else b""
        allow = [("Allow", "GET")] if self is NO_METHOD else []
        headers = [*HEADERS, *allow, ("Content-Length", str(len(body)))]
        response = h11.Response(status_code=self.status, reason=HTTPStatus(self.status).phrase, headers=headers)
        parts = [protocol.send(event) for event in (response, h11.Data(data=body), h11.EndOfMessage())]
        return b"".join([part for part in parts if part])


AUTHORIZED = Page(200, "Authorization received", "You can close this page and go back to the application.")
REFUSED = Page(
    200,
    "Not authorized",
    "The authorization server has refused. You can close this page and go back to the application, which says why.",
)
NOT_OURS = Page(
    400,
    "Not the answer to this login",
    "The application waits for the answer to another login. Did this page belong to an earlier try?",
)
NO_PAGE = Page(404)
NO_METHOD = Page(405)
TOO_SLOW = Page(408)
NO_HOST = Page(421)


@dataclass(frozen=True, slots=True)
class LoopbackUri:
    """A redirect URI of this machine. With 0 as *port* it has any."""

    host: str = ADDRESS
    port: int = 0
    path: str = PATH

    @classmethod
    def of(cls, uri: str) -> LoopbackUri:
        """*uri*; without a port, it has any.

        Raises:
            ValueError: It is not of this machine, or has a query, which `LoopbackListener` does not take.
        """
        check_redirect_uri(uri)
        parts = urlsplit(uri)
        port = parts.port or 0
        found = cls(parts.netloc.removesuffix(f":{port}"), port, parts.path)
        if found.host not in HOSTS or str(found) != uri:
            raise ValueError(
                "redirect_uri has to be of http on this machine, without a query, such as http://localhost:8080/callback"
            )
        return found

    def __str__(self) -> str:
        return f"http://{self.authority}{self.path}"

    @property
    def authority(self) -> str:
        return f"{self.host}:{self.port}" if self.port else self.host

    @property
    def host_headers(self) -> Set[bytes]:
        """What a browser may send as Host. It leaves out the default port."""
        names = {self.authority, self.host} if self.port == DEFAULT_PORTS["http"] else {self.authority}
        return {name.encode() for name in names}

    def find_port(self, earlier: str) -> int:
        """The port of an *earlier* redirect URI, if that differs in nothing else; else 0."""
        with suppress(ValueError):
            uri = LoopbackUri.of(earlier)
            if replace(uri, port=self.port) == self:
                return uri.port
        return 0


def has_address(address: str) -> bool:
    """Whether this machine has the IPv6 *address*: without IPv6, no other program can listen there either."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


class LoopbackListener:
    """Listens for redirects to *uri*, at the port of all *listeners*. Made by `open`."""

    def __init__(self, listeners: Sequence[SocketListener], uri: LoopbackUri, request_time: float) -> None:
        self._listeners = listeners
        self._uri = replace(uri, port=listeners[0].extra(SocketAttribute.local_port))
        self._request_time = request_time
        self._open: deque[CancelScope] = deque()
        self._redirect = ""
        self._warnings = CountedWarnings()  # any page in the browser can send requests
        self.redirect_uri = str(self._uri)

    @classmethod
    @asynccontextmanager
    async def open(cls, uri: LoopbackUri, *, request_time: float = REQUEST_TIME) -> AsyncIterator[LoopbackListener]:
        """Listen for redirects to *uri*. Connections wait until `wait_for_redirect`.

        Raises:
            OSError: The port cannot be had, at any of the addresses that this machine has.
        """
        first, *others = HOSTS[uri.host]
        listeners, port = list[SocketListener](), uri.port
        async with AsyncExitStack() as stack:
            for address in [first, *filter(has_address, others)]:
                group = await create_tcp_listener(local_host=address, local_port=port, backlog=BACKLOG)
                [listener] = (await stack.enter_async_context(group)).listeners
                assert isinstance(listener, SocketListener)  # which its type does not say
                listeners.append(listener)
                port = listener.extra(SocketAttribute.local_port)
            yield cls(listeners, uri, request_time)

    async def wait_for_redirect(self, state: str) -> str:
        """Answer requests until one is the redirect with this *state*. Returns its URL."""
        async with create_task_group() as connections:
            for listener in self._listeners:
                connections.start_soon(self._accept, listener, state, connections)
        return self._redirect

    async def _accept(self, listener: SocketListener, state: str, connections: TaskGroup) -> None:
        while True:
            try:
                stream = await listener.accept()
            except (OSError, BrokenResourceError):  # too many open files, or the client has gone
                self._close_oldest()
                await sleep(ACCEPT_PAUSE)
            else:
                connections.start_soon(self._serve, stream, state, connections.cancel_scope)

    def _close_oldest(self) -> None:
        if self._open:
            self._open.popleft().cancel()

    async def _serve(self, stream: SocketStream, state: str, wait: CancelScope) -> None:
        """Answer the one request of a connection. If it is the redirect, the *wait* ends."""
        if len(self._open) == MAX_CONNECTIONS:
            self._close_oldest()
        with CancelScope() as scope:
            self._open.append(scope)
            try:
                async with stream:
                    with suppress(*GONE):
                        await self._answer(stream, state, wait)
            finally:
                with suppress(ValueError):  # a newer connection has closed it
                    self._open.remove(scope)

    async def _answer(self, stream: SocketStream, state: str, wait: CancelScope) -> None:
        protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        page: Page | None = TOO_SLOW
        with move_on_after(self._request_time):
            page = await self._read(stream, protocol, state)
        if page is None:
            return
        try:
            with move_on_after(ANSWER_TIME):
                await stream.send(page.written_by(protocol))
                await stream.send_eof()
                rest = 0
                while page.status != 200 and rest < MAX_REST:  # closing would lose the answer while bytes are unread
                    rest += len(await stream.receive())
        finally:
            if page.status == 200:
                wait.cancel()

    async def _read(self, stream: SocketStream, protocol: h11.Connection, state: str) -> Page | None:
        """The answer to what the client sends; None if it sends nothing."""
        try:
            while (event := protocol.next_event()) is h11.NEED_DATA:
                try:
                    protocol.receive_data(await stream.receive(READ_SIZE))
                except EndOfStream:
                    protocol.receive_data(b"")
        except h11.RemoteProtocolError as exc:
            return Page(exc.error_status_hint)
        return self._judge(event, state) if isinstance(event, h11.Request) else None

    def _judge(self, request: h11.Request, state: str) -> Page:
        if dict(request.headers).get(b"host") not in self._uri.host_headers:  # h11 takes no two
            return NO_HOST  # another name that leads here: DNS rebinding
        if request.method != b"GET":
            return NO_METHOD
        target = Secret(request.target.decode("ascii"))
        if target.partition("?")[0] != (self._uri.path or "/"):
            return NO_PAGE
        parameters: Parameters | None = None
        with suppress(ValueError):  # it is refused
            parameters = read_redirect(target, state)
        if parameters is None or self._redirect:
            text = f"a request for {self.redirect_uri} was refused: it is not the answer to this login"
            self._warnings.log(logger, (NOT_OURS.title, ""), text)
            return NOT_OURS
        self._redirect = Secret(f"http://{self._uri.authority}{target}")
        return AUTHORIZED if "code" in parameters and "error" not in parameters else REFUSED
