"""An open channel of Streamable HTTP: one POST for each message; the task that sends it reads the response."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager, nullcontext, suppress
from functools import partial

from anyio import Semaphore, WouldBlock, create_task_group, move_on_after
from anyio.lowlevel import checkpoint

from mcp_host.concurrency.synchronization import Event
from mcp_host.errors import (
    ConnectFailed,
    ConnectionClosed,
    HttpStatusError,
    McpError,
    ProtocolError,
    Unauthorized,
    excerpt,
)
from mcp_host.handlers import in_handler
from mcp_host.limits import Limits
from mcp_host.protocol.backoff import RETRY_DELAYS
from mcp_host.protocol.eras import IDEMPOTENT, INITIALIZE, INITIALIZED, LISTEN
from mcp_host.protocol.headers import SESSION_ID
from mcp_host.protocol.jsonrpc import (
    Failure,
    Malformed,
    Message,
    Notification,
    Request,
    Success,
    decode,
    encode,
    malformed_error,
)
from mcp_host.protocol.sse import EventDecoder, LastEvent
from mcp_host.transports._http.backend import HttpBackend, OnSent
from mcp_host.transports._http.response import (
    EVENT_STREAM,
    EXCERPT_SIZE,
    JSON,
    HttpResponse,
    MessageStream,
    error_without_id,
)
from mcp_host.transports._http.session import (
    LegacySession,
    Timing,
    check_session_id,
    means_session_lost,
    names_lost_session,
)
from mcp_host.transports._http.url import POSTED
from mcp_host.transports.base import AuthorizationContext, Headers, Receive, RequestHandle

STREAM_WAIT = 1.0  # seconds for the headers of the server's own stream before the first call; an event may never come
PROBE_TIME = 2.0  # seconds for finding out whether a server uses the transport of 2024
NO_CONTENT = frozenset({202, 204})
SESSION_NOT_FOUND = (
    -32001,
    "Session not found",
)  # what the official SDKs say; no less, as a tool may have sessions, too
OLD_TRANSPORT = frozenset({400, 404, 405})  # how a server of 2024 answers a POST of initialize


@asynccontextmanager
async def open_channel(
    backend: HttpBackend, max_connections: int | None, limits: Limits, *, owned: bool, timing: Timing
) -> AsyncIterator[HttpChannel]:
    """A channel over *backend*, which is closed at the end if it is *owned*: not the caller's."""
    try:
        async with create_task_group() as tasks:
            backend.tasks, backend.drain_time = tasks, timing.drain_time
            slots = Semaphore(sys.maxsize if max_connections is None else max_connections)
            channel = HttpChannel(
                backend, limits.max_message, slots, keeps_cache=owned and backend.knows_login, timing=timing
            )
            try:
                yield channel
            finally:
                backend.tasks = None
                with move_on_after(limits.close_timeout / 2, shield=True):
                    await channel.close()
                tasks.cancel_scope.cancel()
    finally:
        if owned:
            with move_on_after(limits.close_timeout / 2, shield=True):
                await backend.aclose()


class HttpChannel:
    """Implements `transports.base.Channel`. Holds the session, if the server has begun one."""

    stream_per_request = True
    other_output = ""

    def __init__(
        self, backend: HttpBackend, max_message: int, slots: Semaphore, *, keeps_cache: bool, timing: Timing
    ) -> None:
        self.keeps_cache = keeps_cache  # the identity behind a caller's client or Auth may change
        self._backend = backend
        self._max_message = max_message
        self._slots = slots
        self._timing = timing
        self._session: LegacySession | None = None
        self._initialized_by: Hashable = None
        """The login of the last `initialize`, if that was sent with a token."""
        self._session_begun = Event()
        self._listening = False
        self._reached = False

    def report_sent(self, on_sent: OnSent) -> None:
        """Pass each request to *on_sent*, as it is sent. For a cassette, which marks the secrets in it."""
        self._backend.on_sent = on_sent

    def authorization_context(self) -> AuthorizationContext | None:
        by = self._backend.authorized_by()
        return None if by is None else by.context

    async def wait_until_started(self) -> None:
        await checkpoint()  # a server that accepts connections is running

    async def request(self, request: Request, headers: Headers, handle: RequestHandle) -> None:
        """POST *request* and read until it is answered. Beyond the bound on connections it waits for its turn.

        Raises:
            HttpStatusError: A status that is no success (`Unauthorized` for 401 and 403).
            SessionLost: A 404, or its like, to a request with a session id.
            ConnectionClosed: The connection broke, and with it this request alone.
            ProtocolError: A success without the response in it.
        """
        # A subscription stays open for hours. A handler's call must not wait for the call that waits for the handler.
        if takes_slot := not (request.method == LISTEN or in_handler()):
            try:
                self._slots.acquire_nowait()
            except WouldBlock:
                with handle.queued():
                    await self._slots.acquire()
        try:
            opening = request.method == INITIALIZE
            session = None if opening or handle.stateless else self._session
            if session is not None and session.waits_for_stream:
                with handle.queued():
                    await session.wait_for_stream()
            async with await self._post(request, headers, session, handle) as response:
                if opening:
                    session = self._begin_session(response, headers)
                if response.content_type == EVENT_STREAM:
                    await self._read_stream(response, headers, handle, session)
                else:
                    await self._read_body(response, handle, session)
        except BaseException:
            if takes_slot:
                self._slots.release()
            raise
        if response.draining and takes_slot:
            response.on_drained = self._slots.release
        elif takes_slot:
            self._slots.release()

    async def send(self, message: Notification | Success | Failure, headers: Headers) -> None:
        """POST a message that has no response, and wait until the server has accepted it.

        Raises: as `request`.
        """
        session = self._session
        async with await self._post(message, headers, session):
            pass  # the status is all of the answer
        if session is not None and isinstance(message, Notification) and message.method == INITIALIZED:
            session.initialized(STREAM_WAIT if self._listening else 0.0)

    def send_now(self, message: Notification | Success | Failure) -> bool:
        return False  # a POST always has to wait

    async def listen(self, receive: Receive) -> None:
        """Deliver what arrives on the stream that a legacy server may offer; never returns.

        If that stream fails, the connection goes on.
        """
        self._listening = True
        while True:
            await self._session_begun.wait()
            self._session_begun = Event()
            assert self._session is not None  # see `_begin_session`
            await self._session.listen(receive)

    async def close(self) -> None:
        """End the session, if there is one. Bounded, and never raises for what the server does."""
        if self._session is not None:
            self._session.end()
            await self._session.delete()

    async def _post(
        self, message: Message, headers: Headers, session: LegacySession | None, handle: RequestHandle | None = None
    ) -> HttpResponse:
        """POST *message*; return the response, if it is a success.

        A request is sent again after each of `RETRY_DELAYS` while the server cannot be reached, but only if it
        has been reached before: otherwise the URL is probably wrong. A subscription has its own backoff.
        """
        body = encode(message)
        repeatable = not isinstance(message, Request) or message.method in IDEMPOTENT
        if session is not None:
            session.sending(message, headers)
            if len(headers) > 1 and handle is not None and not handle.personal:  # more than the version
                session.identify(headers)
            headers = {**session.headers, **headers}
        attempts = iter(RETRY_DELAYS if self._reached else ())
        authorizing = nullcontext if handle is None else handle.authorizing
        check_login = self._note_login if session is None else session.check_login
        while True:
            try:
                response = await self._backend.send(
                    "POST",
                    {**POSTED, **headers},
                    body,
                    repeatable=repeatable,
                    authorizing=authorizing,
                    check_login=check_login,
                )
                break
            except ConnectFailed as exc:
                if handle is None or isinstance(exc.__cause__, self._backend.not_retried):
                    raise
                delay = next(attempts, None)
                if delay is None or (isinstance(message, Request) and message.method == LISTEN):
                    raise
                handle.unsent = True
                await self._timing.sleep_unsent(delay)
                handle.unsent = False
        self._reached = True
        if not response.is_success:
            async with response:
                raise await self._refusal(response, message, headers, session)
        if session is not None:
            session.succeeded()
        return response

    def _note_login(self, login: Hashable) -> None:
        self._initialized_by = login  # or some other request without a session, which begins none

    def _begin_session(self, response: HttpResponse, headers: Headers) -> LegacySession:
        """Begin a session with the headers of the response to `initialize`; *headers* are those of the request."""
        id = check_session_id(response.header(SESSION_ID.lower().encode()))
        session = LegacySession(self._backend, id, headers, self._initialized_by, self._max_message, self._timing)
        if self._session is not None:
            self._session.end()
        self._session = session
        self._session_begun.set()
        return session

    async def _read_body(self, response: HttpResponse, handle: RequestHandle, session: LegacySession | None) -> None:
        is_json = response.content_type == JSON
        body = await response.read_all(self._max_message) if is_json else b""
        if not is_json or (not body and response.status in NO_CONTENT):
            raise ProtocolError(f"{self._backend.name}: {await _no_response(response)}")
        messages = decode(body)
        for message in messages:
            if isinstance(message, Failure):
                _check_error(session, message)
            handle.receive(message)
        await handle.deliver_progress()
        if handle.done:
            return
        self._check_session(body, session)
        for message in messages:
            if isinstance(message, Malformed):
                raise malformed_error(message)
        raise error_without_id(messages) or ProtocolError(
            f"{self._backend.name}: the body holds no response to this request"
        )

    async def _read_stream(
        self, response: HttpResponse, headers: Headers, handle: RequestHandle, session: LegacySession | None
    ) -> None:
        last_event = LastEvent()
        stream = MessageStream(response, last_event, self._max_message)
        await stream.read_until_done(handle, partial(_check_error, session))
        if handle.done:
            return
        if stream.error is not None:
            raise stream.error
        self._check_session(stream.skipped, session)
        if session is None or not last_event.id:
            odd = stream.odd and f"; it had {stream.odd}"
            raise ConnectionClosed(
                f"{self._backend.name}: the stream ended before the response{odd}"
            ) from stream.failure
        await session.resume(last_event, headers, handle)

    def _check_session(self, body: bytes, session: LegacySession | None) -> None:
        """Raise `SessionLost` if *body* says so: some servers answer 200 instead of 404."""
        if session is not None and session.id is not None:
            text = body[:EXCERPT_SIZE].decode(errors="replace")
            if names_lost_session(text):
                raise session.lost(excerpt(text), may_have_run=False)

    async def _refusal(
        self, response: HttpResponse, message: Message, headers: Headers, session: LegacySession | None
    ) -> McpError:
        """The exception for a *response* that is no success; *headers* are those of the request."""
        error = await response.error()
        if isinstance(error, Unauthorized):
            error.credential_sent = self._backend.sends_credential(headers)
        if session is not None and session.id is not None and means_session_lost(error):
            return session.lost(error, may_have_run=False)
        if isinstance(message, Request) and message.method == INITIALIZE and error.status in OLD_TRANSPORT:
            with move_on_after(PROBE_TIME), suppress(ConnectionClosed, HttpStatusError, ProtocolError):
                if await self._uses_old_transport():
                    return HttpStatusError(
                        error.status,
                        f"{self._backend.name} speaks only the HTTP+SSE transport of 2024-11-05, which Streamable HTTP"
                        f" replaced and mcp-host does not speak ({error.message})",
                        body=error.body,
                    )
        return error

    async def _uses_old_transport(self) -> bool:
        """Whether the server uses the HTTP+SSE transport of 2024.

        "If it fails with [...] '400 Bad Request', '404 Not Found' or '405 Method Not
        Allowed': Issue a GET request to the server URL, expecting that this will open
        an SSE stream and return an `endpoint` event as the first event."
        """
        async with await self._backend.send("GET", {"Accept": EVENT_STREAM}) as response:
            if not response.is_success or response.content_type != EVENT_STREAM:
                return False
            decoder = EventDecoder(self._max_message, LastEvent())
            while piece := await response.read():
                for event in filter(None, decoder.feed(piece)):
                    return event.type == "endpoint"
            return any(event.type == "endpoint" for event in decoder.end())


def _check_error(session: LegacySession | None, error: Failure) -> None:
    """Raise `SessionLost` if *error*, the answer to a request of *session*, says so: it may come with the status 200."""
    if session is not None and session.id is not None and (error.code, error.message) == SESSION_NOT_FOUND:
        raise session.lost(error.message, may_have_run=False)


async def _no_response(response: HttpResponse) -> str:
    if response.status in NO_CONTENT:
        return f"HTTP {response.reason} for a request: no response can follow"
    kind = f"the content type {excerpt(response.content_type)}" if response.content_type else "no content type"
    body = await response.beginning() if response.content_type == "text/plain" else b""
    said = excerpt(body.decode(errors="replace").strip())
    return f"HTTP {response.reason} with {kind}, neither {JSON} nor {EVENT_STREAM}{said and f': {said}'}"
