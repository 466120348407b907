"""What HTTP needs besides one POST per message until revision 2025-11-25.

A session lasts from one `initialize` to the next. It has an id that each request
carries, a stream for the server's unprompted messages, and it resumes streams that broke.

https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#streamable-http
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

from anyio import CancelScope, current_time, move_on_after, sleep

from mcp_host.concurrency.asking import unattended
from mcp_host.concurrency.synchronization import Event
from mcp_host.errors import (
    AuthError,
    ConnectionClosed,
    HttpStatusError,
    McpError,
    MessageTooLarge,
    ProtocolError,
    SessionLost,
    Unauthorized,
    excerpt,
)
from mcp_host.protocol.backoff import Backoff, listen_backoff, resume_backoff
from mcp_host.protocol.headers import LAST_EVENT_ID, PROTOCOL_VERSION, SESSION_ID
from mcp_host.protocol.jsonrpc import Message, Request
from mcp_host.protocol.sse import LastEvent
from mcp_host.transports._http.authorization import Authorizing
from mcp_host.transports._http.backend import HttpBackend
from mcp_host.transports._http.response import DRAIN_TIME, EVENT_STREAM, HttpResponse, MessageStream
from mcp_host.transports.base import Headers, Receive, RequestHandle

logger = logging.getLogger(__name__)

DELETE_TIME = 2.0  # seconds for the DELETE; servers end idle sessions by themselves
MAX_FAILED_RESUMES = 8  # consecutive attempts: a restart of the server takes no longer
SESSION_TEXT = 1024  # characters of a body in which a server may say that a session is lost

_VISIBLE = re.compile("[!-~]+")
_LOST_SESSION = re.compile(
    r"(no valid|no active|no such|invalid|unknown|unrecognized|expired)( or missing| mcp)*[ -]session"
    r"|server not initialized"  # a restarted one, which takes us for its first client
    r"|session( id| with id [^ ]{1,128})?( is| was| has)?"
    r" (not found|not valid|invalid|unknown|expired|terminated|does not exist|no longer exists|not initialized)",
    re.IGNORECASE,
)


def check_session_id(id: str | None) -> str | None:
    """The id that a response to `initialize` assigns, if any. The error does not quote it: it is as good as a token.

    Some servers without sessions send the header with nothing in it.

    Raises:
        ProtocolError: "The session ID MUST only contain visible ASCII characters".
    """
    if id and not _VISIBLE.fullmatch(id):
        if all(map(_VISIBLE.fullmatch, id.split(", "))):
            raise ProtocolError(f"the server names {id.count(', ') + 1} session ids")
        wrong = next(char for char in id if not _VISIBLE.fullmatch(char))
        raise ProtocolError(f"the server's session id is not visible ASCII: it has {wrong!r}")
    return id or None


def means_session_lost(error: HttpStatusError) -> bool:
    """Whether this response to a request with a session id means that the session is lost.

    "The server [...] MUST respond to requests containing that session ID with HTTP
    404 Not Found"; many servers use another status and say so in the body.
    """
    if error.status == 401:  # there, "session expired" is about a login
        return "session not found" in error.body[:SESSION_TEXT].lower()
    return error.status in (404, 410) or (error.status == 400 and names_lost_session(error.body))


def names_lost_session(text: str) -> bool:
    """Whether *text* is one of the sentences with which servers reject an unknown session."""
    return _LOST_SESSION.search(text[:SESSION_TEXT]) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """For how long a channel waits."""

    sleep: Callable[[float], Awaitable[None]] = sleep
    """Waits before a stream is opened again."""
    sleep_unsent: Callable[[float], Awaitable[None]] = sleep
    """Waits before a request is sent again that did not reach the server."""
    listen_backoff: Callable[[], Backoff] = listen_backoff
    resume_backoff: Callable[[], Backoff] = resume_backoff
    drain_time: float = DRAIN_TIME
    """Seconds spent on the unread rest of a body to keep its connection."""


class LegacySession:
    """One session of a handshake revision.

    *headers* are those that middleware has given the `initialize` request: they say who the application is.
    *login* is that of the request, if it had a token.
    """

    def __init__(
        self,
        backend: HttpBackend,
        id: str | None,
        headers: Headers,
        login: Hashable,
        max_message: int,
        timing: Timing,
    ) -> None:
        self.id = id
        self._login = login
        self.headers: Headers
        """What everything in the session carries."""
        self.identify(headers)
        self.waits_for_stream = False
        """Whether the next request has to `wait_for_stream`."""
        self._backend = backend
        self._max_message = max_message
        self._timing = timing
        self._version: Headers = {}
        self._active = Event()  # the handshake is complete, or any request has been sent since the stream failed
        self._was_opened = False  # the stream, at least once
        self._unauthorized = False  # the stream waits for a request that succeeds
        self._refused: object = None
        """The stream needs another authorization than this, and waits for it."""
        self._stream_known = Event()  # whether the server offers its own stream
        self._wait_until = 0.0
        self._lost = False
        self._ended = False
        self._scopes: list[CancelScope] = []

    # Called by the channel

    def identify(self, headers: Headers) -> None:
        """Use newer *headers* from now on, such as a token that has been renewed."""
        self.headers = {**headers} if self.id is None else {**headers, SESSION_ID: self.id}

    def check_login(self, login: Hashable) -> None:
        """A message in this session is about to be sent with a token of *login*.

        Raises:
            SessionLost: Another login has begun the session: the server may keep data of another person in it.
        """
        if self._login is None:
            self._login = login
        elif login != self._login:
            raise self.lost("it was begun with another login", may_have_run=False)

    def sending(self, message: Message, headers: Headers) -> None:
        """Note that *message* is about to be sent in this session, with *headers*."""
        if headers:
            self._version = headers
        if isinstance(message, Request) and message.method != "ping" and not self._unauthorized:
            # "The client SHOULD NOT send requests other than pings before the server has responded to
            # the initialize request": so the handshake is complete, even if its last message failed.
            self._active.set()

    def succeeded(self) -> None:
        """A message in this session has been accepted: so the client is authorized, at least for that."""
        if self._unauthorized and (self._refused is None or self._backend.authorized_by() != self._refused):
            self._unauthorized = False
            self._active.set()

    def initialized(self, wait: float) -> None:
        """The handshake is complete. Open the server's stream; requests wait for it *wait* seconds at most.

        If a request has been sent before, the stream has been opened with it, and nothing waits.
        """
        if not self._active.is_set():
            self._wait_until = current_time() + wait
            self.waits_for_stream = wait > 0
            self._active.set()

    async def wait_for_stream(self) -> None:
        """Wait until it is known whether the server offers its own stream, or the time for that is over."""
        with CancelScope(deadline=self._wait_until):
            await self._stream_known.wait()
        self.waits_for_stream = False

    def lost(self, reason: object, *, may_have_run: bool) -> SessionLost:
        """The error for a server that does not know this session."""
        self._lost = True
        return SessionLost(f"{self._backend.name}: the session is lost: {reason}", may_have_run=may_have_run)

    def end(self) -> None:
        """Stop reading for this session."""
        self._ended = True
        for scope in self._scopes:
            scope.cancel()

    async def delete(self) -> None:
        """Tell the server that the session is over. It may refuse, fail or not answer."""
        if self.id is None or self._lost:
            return
        with move_on_after(DELETE_TIME):
            try:
                response = await self._backend.send("DELETE", self._get_headers(), check_login=self.check_login)
                await response.close()
            except Exception as exc:  # of an Auth, too
                logger.debug("%s: the session was not deleted: %s", self._backend.name, exc)

    # The stream of a request

    async def resume(self, last_event: LastEvent, headers: Headers, handle: RequestHandle) -> None:
        """Continue the stream of a request with these *headers* after *last_event*, until the request is answered.

        Raises:
            SessionLost: The server does not know the session, or a new one has replaced it.
            ConnectionClosed: The rest is not available. The request may have run in either case.
            McpError: An Auth raised it.
        """
        with self._reading():
            await self._resume(last_event, headers, handle)
            return
        raise SessionLost(f"{self._backend.name}: a new session took the place of this request's")

    async def _resume(self, last_event: LastEvent, headers: Headers, handle: RequestHandle) -> None:
        backoff, failures = self._timing.resume_backoff(), 0
        while not handle.done:
            if backoff.exhausted or failures >= MAX_FAILED_RESUMES:
                raise ConnectionClosed(f"{self._backend.name}: the response's stream broke off and stayed away")
            await self._timing.sleep(backoff.delay(last_event.retry))
            backoff.fail()
            try:
                response = await self._get_stream(last_event, headers, partial(handle.authorizing, sent=True))
            except SessionLost as exc:
                exc.may_have_run = True
                raise
            except ConnectionClosed as exc:
                failures += 1
                logger.debug("%s: resuming failed: %s", self._backend.name, exc)
                continue
            except (HttpStatusError, ProtocolError) as exc:
                failures += 1
                if isinstance(exc, HttpStatusError):
                    if self.id is not None and means_session_lost(exc):
                        raise self.lost(exc, may_have_run=True) from exc
                    if exc.transient:
                        continue
                text = f"{self._backend.name}: the response's stream broke off and cannot be resumed: {exc}"
                raise ConnectionClosed(text) from exc
            failures = 0
            stream = MessageStream(response, last_event, self._max_message)
            async with response:
                await stream.read_until_done(handle)
            if stream.begun:
                backoff.reset()

    # The server's own stream

    async def listen(self, receive: Receive) -> None:
        """Deliver the server's unprompted messages, until the session ends or the server offers no such stream."""
        with self._reading():
            await self._active.wait()
            last_event, backoff = LastEvent(), self._timing.listen_backoff()
            while await self._listen_once(last_event, backoff, receive):
                if backoff.exhausted:
                    logger.warning(
                        "%s: the stream for server messages keeps failing; waiting for activity", self._backend.name
                    )
                    self._active = Event()
                    backoff.reset()
                await self._active.wait()
                if backoff.failures:
                    await self._timing.sleep(backoff.delay(last_event.retry))
        self._stream_known.set()

    async def _listen_once(self, last_event: LastEvent, backoff: Backoff, receive: Receive) -> bool:
        """Read one stream to its end. False if another attempt is pointless."""
        try:
            with unattended():
                response = await self._get_stream(last_event, {})
        except McpError as exc:
            backoff.fail()
            return self._may_retry(exc, last_event, backoff)
        except Exception:  # of an Auth
            logger.exception("%s: opening the stream for server messages failed", self._backend.name)
            return False
        finally:
            self._stream_known.set()
        self._was_opened = True
        opened, too_large = current_time(), False
        stream = MessageStream(response, last_event, self._max_message)
        try:
            async with response:
                while (messages := await stream.next()) is not None:
                    for message in messages:
                        receive(message)
                    await stream.take_turns()
        except ProtocolError as exc:
            logger.warning("%s: the stream for server messages: %s", self._backend.name, exc)
            last_event.id = ""  # a replay from there would fail again
            too_large = isinstance(exc, MessageTooLarge)
        backoff.ended(current_time() - opened, useful=stream.begun and not too_large)
        return True

    def _may_retry(self, error: McpError, last_event: LastEvent, backoff: Backoff) -> bool:
        """Whether to ask again for the stream. Calls go on either way.

        A 404 here does not mean that the session is lost: servers without this stream
        answer so too. The next POST will tell.
        """
        name = self._backend.name
        if isinstance(error, ConnectionClosed | ProtocolError):
            logger.debug("%s: no stream for server messages: %s", name, error)
            return isinstance(error, ConnectionClosed) and not isinstance(error, SessionLost)
        if not isinstance(error, HttpStatusError) or isinstance(
            error, Unauthorized
        ):  # an Auth has failed, or is missing
            if (self._was_opened or not isinstance(error, Unauthorized)) and not backoff.exhausted:
                # A person is asked to log in only for requests: the next one may have them do so.
                self._active, self._unauthorized = Event(), True
                needs_login = isinstance(error, AuthError) and error.needs_login
                self._refused = self._backend.authorized_by() if needs_login else None
                until = "a request succeeds"
                if self._refused is not None:
                    until = "a login"
                    backoff.reset()  # which may come after any number of refreshed tokens; each is tried once
                logger.warning("%s: no stream for server messages until %s: %s", name, until, error)
                return True
        elif error.transient:
            return True
        elif last_event.id:
            last_event.id = ""  # perhaps only that was refused
            return True
        level = logging.DEBUG if isinstance(error, HttpStatusError) and error.status in (404, 405) else logging.WARNING
        logger.log(level, "%s: no stream for server messages: %s", name, error)
        return False

    # Both

    async def _get_stream(
        self, last_event: LastEvent, headers: Headers, authorizing: Authorizing = nullcontext
    ) -> HttpResponse:
        """GET the event stream after *last_event*, with more *headers*.

        Raises:
            HttpStatusError, ConnectionClosed, ProtocolError: There is none.
            McpError: An Auth raised it.
        """
        # Middleware that compresses tends to hold small events back.
        headers = {**self._get_headers(), **headers} | {"Accept": EVENT_STREAM, "Accept-Encoding": "identity"}
        if last_event.id:
            headers[LAST_EVENT_ID] = last_event.id
        response = await self._backend.send("GET", headers, authorizing=authorizing, check_login=self.check_login)
        if response.is_success and response.content_type == EVENT_STREAM:
            return response
        async with response:
            if not response.is_success:
                raise await response.error()
            kind = excerpt(response.content_type) or "of no type"
            raise ProtocolError(f"the answer to GET is {kind}, not {EVENT_STREAM}")

    def _get_headers(self) -> dict[str, str]:
        version = {name: value for name, value in self._version.items() if name.lower() == PROTOCOL_VERSION.lower()}
        return {**self.headers, **version}

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Cancel what runs inside when the session ends."""
        with CancelScope() as scope:
            if self._ended:
                scope.cancel()
            self._scopes.append(scope)
            try:
                yield
            finally:
                self._scopes.remove(scope)
