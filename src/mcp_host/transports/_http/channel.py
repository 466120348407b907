"""An open channel of Streamable HTTP: one POST for each message, read by whoever sent it."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import httpx
from anyio import Event, Semaphore, WouldBlock, create_task_group, move_on_after, sleep
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from mcp_host.errors import (
    ConnectFailed,
    ConnectionClosed,
    HttpStatusError,
    McpError,
    ProtocolError,
    ServerError,
    excerpt,
)
from mcp_host.handlers import in_handler
from mcp_host.limits import Limits
from mcp_host.protocol.backoff import RETRY_DELAYS
from mcp_host.protocol.eras import IDEMPOTENT, INITIALIZE, INITIALIZED, LISTEN
from mcp_host.protocol.headers import MCP_METHOD
from mcp_host.protocol.jsonrpc import (
    Failure,
    Incoming,
    Malformed,
    Message,
    Notification,
    Request,
    Success,
    decode,
    encode,
    malformed_error,
)
from mcp_host.protocol.sse import Cursor
from mcp_host.protocol.sse import Event as ServerEvent
from mcp_host.transports._http.backends import HttpBackend, HttpxBackend, own_client
from mcp_host.transports._http.endpoint import Endpoint
from mcp_host.transports._http.errors import forgets_session, names_lost_session, refusal
from mcp_host.transports._http.headers import ALWAYS, EVENT_STREAM, JSON, POSTED, SESSION_ID
from mcp_host.transports._http.response import HttpResponse
from mcp_host.transports._http.session import LegacySession, valid_session_id
from mcp_host.transports._http.stream import REMARK, MessageStream
from mcp_host.transports.base import Headers, Receive, RequestHandle, deliver

STREAM_WAIT = 1.0  # seconds for the headers of the server's own stream before the first call; an event may never come
PROBE_TIME = 2.0  # seconds for finding out whether a server speaks the transport of 2024
NO_RESPONSE = frozenset({202, 204})  # accepted, no content
OLD_TRANSPORT = frozenset({400, 404, 405})  # what such a server says to a POST of initialize
UNREACHABLE = (httpx.ConnectError, httpx.ProxyError)  # found out at once; what timed out has been waited for already


@asynccontextmanager
async def opened(
    url: httpx.URL,
    name: str,
    headers: Headers,
    borrowed: httpx.AsyncClient | None,
    max_connections: int | None,
    limits: Limits,
) -> AsyncIterator[HttpChannel]:
    """A channel to *url*, by the *borrowed* client or one of our own. Nothing is sent until the first request is."""
    async with _borrowed_or_own(url, borrowed, limits) as client, create_task_group() as drains:
        drain = Drain(drains)
        origin = Endpoint(client, url, name, drain)
        slots = Semaphore(sys.maxsize if max_connections is None else max_connections)
        channel = HttpChannel(origin, {**headers, **ALWAYS}, limits.max_message, slots, continuous=borrowed is None)
        try:
            yield channel
        finally:
            drain.closed = True
            with move_on_after(limits.close_timeout / 2, shield=True):
                await channel.close()
            drains.cancel_scope.cancel()


@asynccontextmanager
async def _borrowed_or_own(
    url: httpx.URL, borrowed: httpx.AsyncClient | None, limits: Limits
) -> AsyncIterator[HttpBackend]:
    """The client to use. Only one of our own is closed."""
    if borrowed is not None:
        # How long a call may take is for its caller to say, not for the HTTP library.
        given = borrowed.timeout
        yield HttpxBackend(borrowed, httpx.Timeout(None, connect=given.connect, write=given.write, pool=given.pool))
        return
    client = own_client(url, limits)
    try:
        yield client
    finally:
        with move_on_after(limits.close_timeout / 2, shield=True):
            await client.aclose()


class Drain:
    """Takes what is left of bodies that nobody waits for, so that their connections are kept."""

    def __init__(self, tasks: TaskGroup) -> None:
        self.closed = False
        self._tasks = tasks

    def __call__(self, reply: HttpResponse) -> bool:
        if not self.closed:
            self._tasks.start_soon(reply.drain)
        return not self.closed


class HttpChannel:
    """The live side: a client, and the session that a legacy server began."""

    stream_per_request = True
    last_words = ""

    def __init__(
        self, origin: Endpoint, headers: Headers, max_message: int, slots: Semaphore, *, continuous: bool
    ) -> None:
        self.continuous = continuous  # nobody knows for whom a borrowed client speaks next
        self._origin = origin
        self._headers = headers
        self._max_message = max_message
        self._slots = slots
        self._session: LegacySession | None = None
        self._begun = Event()
        self._listening = False
        self._reached = False

    async def awake(self) -> None:
        await checkpoint()  # who takes a connection runs

    async def request(self, request: Request, headers: Headers, exchange: RequestHandle) -> None:
        """POST *request* and read until *exchange* is answered. Past the bound on connections it waits for its turn.

        Raises:
            HttpStatusError: A status that is no success (`Unauthorized` for 401 and 403).
            SessionLost: A 404, or its like, to a request that bore a session id.
            ConnectionClosed: The connection broke, and with it this request alone.
            ProtocolError: A success without the response in it.
        """
        # A subscription stays open for hours; and for what a handler calls, a call may be waiting that keeps its slot.
        if request.method == LISTEN or in_handler():
            await self._request(request, headers, exchange)
            return
        try:
            self._slots.acquire_nowait()
        except WouldBlock:
            with exchange.unsent():
                await self._slots.acquire()
        try:
            reply = await self._request(request, headers, exchange)
        except BaseException:
            self._slots.release()
            raise
        reply.when_free(self._slots.release)

    async def _request(self, request: Request, headers: Headers, exchange: RequestHandle) -> HttpResponse:
        opening = request.method == INITIALIZE
        session = None if opening or MCP_METHOD in headers else self._session  # a stateless request belongs to none
        if session is not None and session.awaits_stream:
            with exchange.unsent():
                await session.stream_settled()
        async with await self._sent(request, headers, session, exchange) as reply:
            await self._check(reply, request, session)
            if opening:
                session = self._begin(reply)
            read = self._read_stream if reply.kind == EVENT_STREAM else self._read_body
            await read(reply, exchange, session)
        return reply

    async def send(self, message: Notification | Success | Failure, headers: Headers) -> None:
        """POST a message that has no response, and wait until the server has accepted it.

        Raises: as `request`.
        """
        session = self._session
        async with await self._post(message, headers, session) as reply:
            await self._check(reply, message, session)
        if session is not None and isinstance(message, Notification) and message.method == INITIALIZED:
            session.open_stream(STREAM_WAIT if self._listening else 0.0)

    def send_now(self, message: Notification | Success | Failure) -> bool:
        return False  # every POST takes waiting

    async def listen(self, receive: Receive) -> None:
        """Deliver what arrives on the stream that a legacy server may offer; never returns.

        No failure of that stream is one of the link's.
        """
        self._listening = True
        while True:
            await self._begun.wait()
            self._begun = Event()
            assert self._session is not None  # which is what has begun
            await self._session.listen(receive)

    async def close(self) -> None:
        """End the session, if there is one. Bounded, and never raises for what the server does."""
        if self._session is not None:
            self._session.end()
            await self._session.terminate()

    async def _sent(
        self, request: Request, headers: Headers, session: LegacySession | None, exchange: RequestHandle
    ) -> HttpResponse:
        """POST *request*, and try again after each of `RETRY_DELAYS` where none of it could be sent.

        A server that has answered before is away for a moment, most likely; what was never
        reached is a wrong URL. A subscription has another backoff.
        """
        for delay in RETRY_DELAYS if self._reached and request.method != LISTEN else ():
            try:
                return await self._post(request, headers, session)
            except ConnectFailed as exc:
                if not isinstance(exc.__cause__, UNREACHABLE):
                    raise
            exchange.withdrawn = True
            await sleep(delay)
            exchange.withdrawn = False
        return await self._post(request, headers, session)

    async def _post(self, message: Message, headers: Headers, session: LegacySession | None) -> HttpResponse:
        body = encode(message)
        if session is None:
            always = self._headers
        else:
            session.touch(message, headers)
            always = session.headers
        repeatable = not isinstance(message, Request) or message.method in IDEMPOTENT
        reply = await self._origin.send("POST", {**always, **POSTED, **headers}, body, repeatable=repeatable)
        self._reached = True
        return reply

    def _begin(self, reply: HttpResponse) -> LegacySession:
        """A session begins with the headers of the reply to `initialize`, not before and not elsewhere."""
        session = LegacySession(
            self._origin, self._headers, valid_session_id(reply.headers.get(SESSION_ID)), self._max_message
        )
        if self._session is not None:
            self._session.end()
        self._session = session
        self._begun.set()
        return session

    async def _read_body(self, reply: HttpResponse, exchange: RequestHandle, session: LegacySession | None) -> None:
        if reply.kind != JSON:
            raise ProtocolError(f"{self._origin.name}: {_no_response(reply)}")
        body = await reply.whole(self._max_message)
        if not body and reply.status in NO_RESPONSE:
            raise ProtocolError(f"{self._origin.name}: {_no_response(reply)}")
        messages = decode(body)
        deliver(messages, exchange.receive)
        await exchange.progress()
        if exchange.answered:
            return
        self._heed(body, session)
        raise _unanswered(messages, self._origin.name)

    async def _read_stream(self, reply: HttpResponse, exchange: RequestHandle, session: LegacySession | None) -> None:
        cursor, anonymous = Cursor(), None
        stream = MessageStream(reply, cursor, self._max_message)
        while (messages := await stream.next()) is not None:
            deliver(messages, exchange.receive)
            await exchange.progress()
            if exchange.answered:
                return
            anonymous = anonymous or _anonymous(messages)
        if anonymous is not None:
            raise anonymous
        self._heed(stream.remark, session)
        if session is None or not cursor.last_id:
            raise ConnectionClosed(f"{self._origin.name}: the stream ended before the response") from stream.failure
        await session.resume(cursor, exchange)

    def _heed(self, remark: bytes, session: LegacySession | None) -> None:
        """Some servers say in a 200 what deserves a 404."""
        if (
            session is not None
            and session.id is not None
            and names_lost_session(remark[:REMARK].decode(errors="replace"))
        ):
            raise session.lose(excerpt(remark[:REMARK].decode(errors="replace")), may_have_run=False)

    async def _check(self, reply: HttpResponse, message: Message, session: LegacySession | None) -> None:
        """Raise what *reply* means, unless it is a success."""
        if reply.is_success:
            return
        error = await refusal(reply)
        if session is not None and session.id is not None and forgets_session(error):
            raise session.lose(error, may_have_run=False)
        if isinstance(message, Request) and message.method == INITIALIZE and error.status in OLD_TRANSPORT:
            raise await self._explained(error)
        raise error

    async def _explained(self, error: HttpStatusError) -> HttpStatusError:
        """*error*, or one that says what the server is, if it speaks the transport of 2024.

        "If it fails with [...] '400 Bad Request', '404 Not Found' or '405 Method Not
        Allowed': Issue a GET request to the server URL, expecting that this will open
        an SSE stream and return an `endpoint` event as the first event."
        """
        first = None
        with move_on_after(PROBE_TIME), suppress(ConnectionClosed, HttpStatusError, ProtocolError):
            first = await self._first_event()  # any failure: the answer to the POST is what there is to report
        if first is None or first.type != "endpoint":
            return error
        return HttpStatusError(
            error.status,
            f"{self._origin.name} speaks only the HTTP+SSE transport of 2024-11-05, which Streamable HTTP"
            f" replaced and mcp-host does not speak ({error.message})",
            body=error.body,
        )

    async def _first_event(self) -> ServerEvent | None:
        async with await self._origin.send("GET", {**self._headers, "Accept": EVENT_STREAM}) as reply:
            if not reply.is_success or reply.kind != EVENT_STREAM:
                return None
            return await MessageStream(reply, Cursor(), self._max_message).next_event()


def _no_response(reply: HttpResponse) -> str:
    if reply.status in NO_RESPONSE:
        return f"HTTP {reply.reason} for a request: no response can follow"
    kind = f"the content type {excerpt(reply.kind)}" if reply.kind else "no content type"
    return f"HTTP {reply.reason} with {kind}, neither {JSON} nor {EVENT_STREAM}"


def _unanswered(messages: Sequence[Incoming], name: str) -> McpError:
    """The error for a JSON body, read to its end, in which the response was not."""
    for message in messages:
        if isinstance(message, Malformed):
            return malformed_error(message)
    return _anonymous(messages) or ProtocolError(f"{name}: the body holds no response to this request")


def _anonymous(messages: Sequence[Incoming]) -> ServerError | None:
    """An error without an id. On a request's own stream it is clear whose it is."""
    for message in messages:
        if isinstance(message, Failure) and message.id is None:
            return ServerError(message.code, message.message, message.data)
    return None
