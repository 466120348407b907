"""What HTTP needs beside one POST per message until revision 2025-11-25.

A session lasts from one `initialize` to the next. To it belong the id that each
request carries, the stream on which the server speaks unprompted, and the
resumption of streams that broke off.

https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#streamable-http
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

from anyio import CancelScope, Event, current_time, move_on_after, sleep

from mcp_host.errors import (
    ConnectionClosed,
    HttpStatusError,
    MessageTooLarge,
    ProtocolError,
    SessionLost,
    excerpt,
    quoted,
)
from mcp_host.protocol.backoff import Backoff, listen_backoff, resume_backoff
from mcp_host.protocol.headers import PROTOCOL_VERSION
from mcp_host.protocol.jsonrpc import Message, Request
from mcp_host.protocol.sse import Cursor
from mcp_host.transports._http.endpoint import Endpoint
from mcp_host.transports._http.errors import forgets_session, refusal
from mcp_host.transports._http.headers import EVENT_STREAM, LAST_EVENT_ID, SESSION_ID
from mcp_host.transports._http.response import HttpResponse
from mcp_host.transports._http.stream import MessageStream
from mcp_host.transports.base import Headers, Receive, RequestHandle, deliver

logger = logging.getLogger(__name__)

DELETE_TIME = 2.0  # seconds; a courtesy
MAX_FAILURES = 8  # attempts to resume that fail one after the other: a restart takes so long, not more

_VISIBLE = re.compile("[!-~]+")


def valid_session_id(id: str | None) -> str | None:
    """The id that an initialize reply bears, if any.

    Raises:
        ProtocolError: "The session ID MUST only contain visible ASCII characters".
    """
    if id is not None and not _VISIBLE.fullmatch(id):
        raise ProtocolError(f"the server's session id is not visible ASCII: {quoted(id)}")
    return id


class LegacySession:
    """One legacy session. *headers* are what every request of it carries."""

    def __init__(self, origin: Endpoint, headers: Headers, id: str | None, max_message: int) -> None:
        self.id = id
        self.headers = {**headers, SESSION_ID: id} if id is not None else dict(headers)
        self.awaits_stream = False
        """Whether the next request has to wait for `stream_settled`."""
        self._origin = origin
        self._max_message = max_message
        self._version: Headers = {}
        self._active = Event()
        self._settled = Event()  # when it is known whether the server opens a stream of its own
        self._settle_by = 0.0
        self._lost = False
        self._over = False
        self._scopes: set[CancelScope] = set()

    # What the channel reports

    def touch(self, message: Message, headers: Headers) -> None:
        """*message* is about to be sent in this session, with *headers* of its own."""
        if headers:
            self._version = headers
        if isinstance(message, Request) and message.method != "ping":
            # "The client SHOULD NOT send requests other than pings before the server has responded to
            # the initialize request": so the handshake is over, even if the server fumbled its end.
            self._active.set()

    def open_stream(self, wait: float) -> None:
        """The server has accepted the end of the handshake: time for its own stream, for which requests wait *wait* seconds.

        They do not if one of them has been sent before, which has opened the stream.
        """
        if not self._active.is_set():
            self._settle_by = current_time() + wait
            self.awaits_stream = wait > 0
            self._active.set()

    async def stream_settled(self) -> None:
        """Wait until it is known whether the server opens a stream of its own, or the time for that is over."""
        with CancelScope(deadline=self._settle_by):
            await self._settled.wait()
        self.awaits_stream = False

    def lose(self, reason: object, *, may_have_run: bool) -> SessionLost:
        """The server says that it does not know this session."""
        self._lost = True
        return SessionLost(f"{self._origin.name}: the session is lost: {reason}", may_have_run=may_have_run)

    def end(self) -> None:
        """Another session has taken its place: stop reading for this one."""
        self._over = True
        for scope in self._scopes:
            scope.cancel()

    async def terminate(self) -> None:
        """Tell the server that the session is over. It may refuse, fail or say nothing."""
        if self.id is None or self._lost:
            return
        with move_on_after(DELETE_TIME):
            try:
                reply = await self._origin.send("DELETE", self._headers())
                await reply.close()
            except (ConnectionClosed, HttpStatusError) as exc:
                logger.debug("%s: the session was not deleted: %s", self._origin.name, exc)

    # Resumption of a request's stream

    async def resume(self, cursor: Cursor, exchange: RequestHandle) -> None:
        """Go on with a request's stream that broke off at *cursor*, until *exchange* is answered.

        Raises:
            SessionLost: The server, or the client, has begun anew.
            ConnectionClosed: The rest cannot be had. The request may have run in either case.
        """
        with self._reading():
            await self._resume(cursor, exchange)
            return
        raise SessionLost(f"{self._origin.name}: a new session took the place of this request's")

    async def _resume(self, cursor: Cursor, exchange: RequestHandle) -> None:
        backoff, failures = resume_backoff(), 0
        while not exchange.answered:
            if backoff.exhausted or failures >= MAX_FAILURES:
                raise ConnectionClosed(f"{self._origin.name}: the response's stream broke off and stayed away")
            await sleep(backoff.delay(cursor.retry))
            backoff.fail()
            try:
                reply = await self._open(cursor)
            except (HttpStatusError, ProtocolError) as exc:
                failures += 1
                self._judge(exc)
            except ConnectionClosed as exc:
                failures += 1
                logger.debug("%s: resuming failed: %s", self._origin.name, exc)
            else:
                failures = 0
                async with reply:
                    await self._go_on(reply, cursor, exchange, backoff)

    async def _go_on(self, reply: HttpResponse, cursor: Cursor, exchange: RequestHandle, backoff: Backoff) -> None:
        stream = MessageStream(reply, cursor, self._max_message)
        while (messages := await stream.next()) is not None:
            backoff.reset()
            deliver(messages, exchange.receive)
            await exchange.progress()
            if exchange.answered:
                return

    def _judge(self, error: HttpStatusError | ProtocolError) -> None:
        """Raise what *error*, the answer to an attempt to resume, means; return if another may be better."""
        if isinstance(error, HttpStatusError):
            if self.id is not None and forgets_session(error):
                raise self.lose(error, may_have_run=True) from error
            if error.transient:
                return
        text = f"{self._origin.name}: the response's stream broke off and cannot be resumed: {error}"
        raise ConnectionClosed(text) from error

    # The server's own stream

    async def listen(self, receive: Receive) -> None:
        """Deliver what the server says unprompted, until the next session begins or the server has no such stream."""
        with self._reading():
            await self._active.wait()
            await self._listen(receive)
        self._settled.set()

    async def _listen(self, receive: Receive) -> None:
        cursor, backoff = Cursor(), listen_backoff()
        while await self._hear_out(cursor, backoff, receive):
            if not backoff.exhausted:
                await sleep(backoff.delay(cursor.retry))
                continue
            logger.warning("%s: the stream for server messages keeps failing; waiting for activity", self._origin.name)
            self._active = Event()
            await self._active.wait()
            backoff.reset()

    async def _hear_out(self, cursor: Cursor, backoff: Backoff, receive: Receive) -> bool:
        """One stream from opening to end. False if there is none to be had."""
        try:
            reply = await self._open(cursor)
        except HttpStatusError as exc:
            backoff.fail()
            return self._may_come_back(exc, cursor)
        except (ConnectionClosed, ProtocolError) as exc:
            backoff.fail()
            logger.debug("%s: no stream for server messages: %s", self._origin.name, exc)
            return not isinstance(exc, ProtocolError)
        finally:
            self._settled.set()
        opened = current_time()
        heard = await self._hear(reply, cursor, receive)
        backoff.ended(current_time() - opened, useful=heard)
        return True

    async def _hear(self, reply: HttpResponse, cursor: Cursor, receive: Receive) -> bool:
        """Deliver one stream to its end; whether there was anything in it."""
        heard = False
        stream = MessageStream(reply, cursor, self._max_message)
        try:
            async with reply:
                while (messages := await stream.next()) is not None:
                    heard = True
                    deliver(messages, receive)
        except ProtocolError as exc:
            logger.warning("%s: the stream for server messages: %s", self._origin.name, exc)
            cursor.last_id = ""  # from there on it would all be replayed, and fail again
            return heard and not isinstance(exc, MessageTooLarge)
        return heard

    def _may_come_back(self, error: HttpStatusError, cursor: Cursor) -> bool:
        """Whether to ask again for a stream that was refused. Calls go on either way.

        Even a 404 does not mean here that the session is lost: servers without
        this stream say that too. The next POST will tell.
        """
        if error.transient:
            return True
        if cursor.last_id:
            cursor.last_id = ""  # perhaps only that was refused
            return True
        level = logging.DEBUG if error.status in (404, 405) else logging.WARNING
        logger.log(level, "%s: no stream for server messages: %s", self._origin.name, error)
        return False

    # Both

    async def _open(self, cursor: Cursor) -> HttpResponse:
        """GET the event stream after *cursor*.

        Raises:
            HttpStatusError, ConnectionClosed, ProtocolError: There is none.
        """
        # Middleware that compresses tends to hold small events back.
        headers = self._headers() | {"Accept": EVENT_STREAM, "Accept-Encoding": "identity"}
        if cursor.last_id:
            headers[LAST_EVENT_ID] = cursor.last_id
        reply = await self._origin.send("GET", headers)
        if reply.is_success and reply.kind == EVENT_STREAM:
            return reply
        async with reply:
            if not reply.is_success:
                raise await refusal(reply)
            raise ProtocolError(f"the answer to GET is {excerpt(reply.kind) or 'of no type'}, not {EVENT_STREAM}")

    def _headers(self) -> dict[str, str]:
        version = {name: value for name, value in self._version.items() if name.lower() == PROTOCOL_VERSION.lower()}
        return self.headers | version

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """What runs inside ends with the session."""
        with CancelScope() as scope:
            if self._over:
                scope.cancel()
            self._scopes.add(scope)
            try:
                yield
            finally:
                self._scopes.discard(scope)
