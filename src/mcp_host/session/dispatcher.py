"""The messages of one connection: each goes where it belongs, and every request of ours ends."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, assert_never

from anyio import CancelScope
from anyio.abc import TaskGroup

from mcp_host.concurrency.deadlines import Alarm, TimeoutScope
from mcp_host.concurrency.synchronization import Event
from mcp_host.concurrency.tasks import HandlerTasks
from mcp_host.errors import (
    ConnectionClosed,
    McpError,
    MessageTooLarge,
    RequestTimeout,
    ServerError,
    SessionLost,
    excerpt,
)
from mcp_host.handlers import HandlerScope, worth_logging
from mcp_host.protocol.cache import CHANGES
from mcp_host.protocol.eras import DISCOVER, INITIALIZE, SUBSCRIPTION_ID, Era
from mcp_host.protocol.jsonrpc import (
    INVALID_REQUEST,
    Failure,
    Id,
    Incoming,
    Malformed,
    Notification,
    Params,
    Request,
    Response,
    Success,
    malformed_error,
    read_id,
)
from mcp_host.protocol.values import SMALLEST_VALUE, has_too_many_values
from mcp_host.session.call import Call, CallTimeouts, OnEvent, PendingRequest
from mcp_host.session.inbound import MAX_ID, InboundRequests
from mcp_host.session.sender import BackgroundSender
from mcp_host.session.session import Session
from mcp_host.session.state import ClientState
from mcp_host.transports.base import AuthorizedChannel, Channel, Headers

if TYPE_CHECKING:
    from mcp_host.middleware import ClientRequest

logger = logging.getLogger(__name__)

MAX_EARLY = 64  # messages kept that the server sends before the session has begun
OPENING = frozenset({INITIALIZE, DISCOVER})
ECHOES = "sends back what it gets: it is no MCP server, or has a terminal, as with the -t of docker run and of ssh"


class Dispatcher:
    """Sends requests, routes what arrives, and has the server's requests handled.

    Every stream of the connection feeds `route`, which never waits: a response goes to the
    pending request with its id, progress to the one with its token, and a request of the
    server to a separate task.
    """

    __slots__ = (  # CPython shares the names of 30 attributes at most between objects: without, each has a dict of 1.5 KiB
        "_authorization_context",
        "_call_soon",
        "_channel",
        "_client",
        "_counters",
        "_early",
        "_handshake_expected",
        "_idle",
        "_inbound",
        "_last_id",
        "_last_notified",
        "_login",
        "_max_values",
        "_middleware",
        "_name",
        "_notes_silence",
        "_on_notification",
        "_open_scopes",
        "_pending",
        "_sender",
        "_session_begun",
        "_skipped",
        "_skipped_last",
        "_success",
        "_unwanted",
        "_warn",
        "alarm",
        "closed",
        "closed_at",
        "ended",
        "has_logins",
        "heard_at",
        "now",
        "on_another_login",
        "opened_at",
        "session",
        "spawn",
        "stream_per_request",
        "wait_until_started",
    )

    def __init__(
        self,
        channel: Channel,
        handlers: HandlerTasks,
        tasks: TaskGroup,
        notify: Callable[[Notification], None],
        state: ClientState,
    ) -> None:
        self.session: Session | None = None
        self.closed: ConnectionClosed | None = None
        """Why the connection has ended, if it has."""
        self.closed_at = math.inf
        """When it has ended, on the event loop's clock."""
        self.ended = Event()
        """Set when it has ended."""
        self.stream_per_request = channel.stream_per_request
        self.wait_until_started = channel.wait_until_started
        self.spawn = tasks.start_soon
        """Runs a function in a task that ends with the connection at the latest."""
        self._channel = channel
        context = channel.authorization_context if isinstance(channel, AuthorizedChannel) else None
        self._authorization_context = context if context is not None and context() is not None else None
        self.has_logins = self._authorization_context is not None
        """Whether to `notice_login`: before what is kept is used, and after each request."""
        self._login: Hashable = None
        """Of the last requests that had a token."""
        self.on_another_login: Callable[[], None] = lambda: None
        self._on_notification = notify
        limits, self._counters = state.limits, state.counters
        self._max_values = limits.max_values
        self._middleware = state.middleware
        self._client = state
        self._name, self._warn = state.name, state.warn_about_server
        self._last_id = 0
        self._last_notified = -1
        """The id of the last request before our last notification."""
        self._pending: dict[Id, PendingRequest] = {}
        loop = handlers.loop
        self.now = loop.time
        """Seconds on the event loop's clock."""
        self._call_soon = loop.call_soon
        self.alarm = Alarm(loop)
        self._sender = BackgroundSender(
            channel,
            tasks,
            limits.max_answers,
            self._counters,
            self._check_idle,
            self._warn,
            retry_delays=state.retry_delays,
        )
        self._inbound = InboundRequests(
            handlers,
            self._sender,
            self.alarm,
            self._pending,
            limits,
            self._counters,
            self._notified,
            stream_per_request=channel.stream_per_request,
        )
        self._unwanted: list[Id] = []
        """Requests that began the connection, and whose answers come too late to decide anything."""
        self._early: list[Request | Notification] = []
        self._handshake_expected = False
        self._open_scopes: list[CancelScope] = []  # of the callers in `while_open`
        self.opened_at = self._session_begun = self.now()
        self.heard_at = self.opened_at
        """When the last message came, if there is a `Client(ping_interval=...)`."""
        self._notes_silence = state.ping_interval is not None
        self._skipped = 0
        self._skipped_last = ""
        """Why the last of them was."""
        self._idle = Event()
        self._success: Event | None = None
        """Set by the next request that succeeds, if a task waits for that."""

    # Requests and notifications of ours

    async def request(
        self,
        method: str,
        params: Params,
        headers: Headers,
        timeouts: CallTimeouts,
        *,
        call: Call | None = None,
        on_event: OnEvent | None = None,
        stateless: bool = False,
        sent_ids: list[Id] | None = None,
    ) -> Success:
        """Send one request and return its response. If this fails or is cancelled, the server is told.

        *call* is the application's call that the request belongs to, if any.
        *on_event* takes the notifications of a subscription, without awaiting.
        *stateless* requests belong to no session of the transport. The id is added to *sent_ids*.

        Raises:
            ServerError: The server answered with an error, or an HTTP status.
            RequestTimeout: One of the timeouts has passed.
            ConnectionClosed, ProtocolError: The connection ended, or the answer is invalid.
            MessageTooLarge: The answer has too many values to be read.
            CallerError: The request cannot be encoded.
            CallbackRaised: The progress callback of *call* raised.
        """
        if self.closed is not None:
            raise self._not_sent(self.closed)
        if call is not None and timeouts.end <= self.now():
            raise RequestTimeout(f"{method}: {timeouts.overdue()}", may_have_run=False)
        id = self._last_id = self._last_id + 1
        if sent_ids is not None:
            sent_ids.append(id)
        if call is not None and call.on_reports is not None:
            params = params | {"_meta": {**params.get("_meta", {}), "progressToken": id}}
        request = Request(id, method, params)
        pending = PendingRequest(request, timeouts, self.route, self.alarm, call, on_event, stateless)
        self._pending[id] = pending
        try:
            success = await self._exchange(pending, headers)
        except BaseException:
            self._abandon(pending)
            raise
        finally:
            del self._pending[id]
            pending.close()
            if pending.asked:
                self._inbound.request_ended(pending, answered=isinstance(pending.outcome, Success | Failure))
            if self.closed is not None:
                self._check_idle()
        most = self._max_values
        if success.size > most * SMALLEST_VALUE and has_too_many_values(method, success.result, most):
            raise MessageTooLarge(f"the result of {method} has more than {most:,} values (Limits.max_values)")
        if self._success is not None:
            self._success.set()
            self._success = None
        return success

    def notice_login(self) -> None:
        """Drop what was private to the last login, if there is another one now."""
        assert self._authorization_context is not None, "the caller has looked"
        context = self._authorization_context()
        assert context is not None, "a channel knows of logins, or does not"
        self._client.cache.enter(context)
        if context.login not in (None, self._login):
            self._login = context.login
            if self.session is not None:
                self.on_another_login()

    async def next_success(self) -> None:
        """Wait until another request succeeds."""
        self._success = self._success or Event()
        await self._success.wait()

    async def _exchange(self, pending: PendingRequest, headers: Headers) -> Success:
        skipped = self._skipped
        if self.has_logins:
            self.notice_login()
        try:
            if self.stream_per_request:
                with pending.bounded():
                    await self._channel.request(pending.request, headers, pending)
            else:
                await self._channel.request(pending.request, headers, pending)
        except McpError as exc:
            pending.fail(exc)
        if pending.reports:  # they came before the answer, so they are delivered before it
            await pending.deliver_progress()
        if self.has_logins:
            self.notice_login()  # the result may be of a login before
        if self._skipped > skipped:
            pending.notes += self.skipped_since(skipped)
        return pending.result()

    async def request_by_itself(
        self,
        method: str,
        params: Params,
        era: Era | None,
        timeouts: CallTimeouts,
        *,
        on_event: OnEvent | None = None,
        on_send: Callable[[], None] | None = None,
    ) -> Success:
        """Send a request that no call of the application makes, through the middleware, and return its response.

        *timeouts* are paused until the middleware passes the request on. *era* is None for `initialize`, which
        negotiates it. *on_event* is as for `request`; *on_send* is called when the request is about to be sent.

        Raises: as `request`, and what the middleware raises.
        """

        async def send(params: Params, headers: Headers, sent_ids: list[Id] | None = None) -> Success:
            if era is not None:
                headers, params = {**headers, **era.headers(method, params)}, era.prepare_params(params, None)
            stateless = era is not None and era.stateless
            if on_send is not None:
                on_send()
            return await self.request(
                method, params, headers, timeouts, on_event=on_event, stateless=stateless, sent_ids=sent_ids
            )

        if (middleware := self._client.around_ours) is None:
            return await send(params, {})

        async def pass_on(request: ClientRequest) -> dict[str, Any]:
            resume.close()
            return (await send(dict(request.params), request.headers, request.sent_ids)).result

        version = None if self.session is None else self.session.era.version
        request = middleware.client_request(method, params, protocol_version=version)
        with HandlerScope(client=self._client), ExitStack() as resume:
            timeouts.pause()
            resume.callback(timeouts.resume)
            return Success(0, await middleware.run(request, pass_on))

    async def notify(self, method: str, params: Params, headers: Headers) -> None:
        """Send a notification."""
        self._notified()
        await self._channel.send(Notification(method, params), headers)

    def _notified(self) -> None:
        self._last_notified = self._last_id

    def _abandon(self, pending: PendingRequest) -> None:
        """Cancel a request that the server has not answered. The message is sent in the background."""
        is_answered = pending.outcome is not None and not pending.unanswered
        if is_answered or pending.unsent or self.closed is not None:
            return
        if pending.request.method in OPENING and self.session is None:
            self._unwanted.append(pending.request.id)
            return  # "The initialize request MUST NOT be cancelled by clients", and nothing may come before it
        if self.stream_per_request:
            if self.session is not None and self.session.era.disconnect_cancels:
                return  # leaving the stream was the cancellation
        else:
            self._inbound.request_abandoned(pending.request.id)
        self._notified()
        cancelled = Notification("notifications/cancelled", {"requestId": pending.request.id})
        headers = {} if pending.call is None else pending.call.headers
        self._sender.send_soon(cancelled, None if self.session is None else self.session.era, headers)

    # What arrives

    def route(self, message: Incoming, origin: PendingRequest | None = None) -> None:
        """Take one message from any stream; *origin* is the request on whose own stream it came."""
        if self._notes_silence:
            self.heard_at = self.now()
        match message:
            case Success(id=id) | Failure(id=int() | str() as id):
                self._settle(id, message, origin)
            case Notification(method, params, size) if size > (
                most := self._max_values
            ) * SMALLEST_VALUE and has_too_many_values(method, params, most):
                self._counters["notifications of too many values"] += 1
            case Notification(method="notifications/progress", params=params):
                pending = self._find(params.get("progressToken"))
                if pending is None or not pending.report(params):
                    self._counters["progress for nothing"] += 1
            case Request() | Notification():
                self._take(message, origin)
            case Failure(code=code, message=text, data=data):  # without an id: the server could not read ours
                only = self._only_pending()
                if only is None or (origin is None and self._may_follow_notification(only)):
                    self._counters["errors without an id"] += 1
                    self._skip("an error without an id", self._counters["errors without an id"], excerpt(text))
                else:
                    only.settle(ServerError(code, text, data))
            case Malformed():
                self._malformed(message, origin)
            case _:
                assert_never(message)

    def _settle(self, id: Id, outcome: Response | McpError, origin: PendingRequest | None) -> None:
        if isinstance(id, str):
            id = _number(id)
        if self._inbound.abandoned:
            self._inbound.abandoned.pop(id, None)
        pending = self._pending.get(id)
        if pending is None and id in self._unwanted:
            self._unwanted.remove(id)
        elif pending is None or not pending.settle(outcome, by=origin):
            self._counters["answers to nothing"] += 1  # late, repeated, or meant for another client

    def _find(self, token: object) -> PendingRequest | None:
        """The pending request with this id or progress token."""
        return self._pending.get(_number(token)) if isinstance(token, int | str) else None

    def _only_pending(self) -> PendingRequest | None:
        """The only request that waits for an answer, if there is only one. Subscriptions do not wait."""
        waiting = [pending for pending in self._pending.values() if pending.on_event is None]
        return waiting[0] if len(waiting) == 1 else None

    def _may_follow_notification(self, pending: PendingRequest) -> bool:
        """Whether the server may still be at a notification of ours, which some answer with an error: that has no id, either.

        It has handled a notification once it answers the next request.
        """
        assert isinstance(pending.request.id, int), "our ids are numbers"
        return pending.request.id <= self._last_notified + 1

    def _malformed(self, message: Malformed, origin: PendingRequest | None) -> None:
        self._counters["malformed messages"] += 1
        if message.method is not None and message.id is not None:
            self._reply(Failure(message.id, INVALID_REQUEST, message.reason))
        elif message.id is not None:  # without a method it is a response: its call must not wait until it times out
            self._settle(message.id, malformed_error(message), origin)
        elif message.oversize and message.method is None and (only := self._only_pending()) is not None:
            only.settle(malformed_error(message), by=origin)
        else:
            self._skip("something that is no message", self._counters["malformed messages"], message.reason)

    def skipped_since(self, before: int) -> str:
        """The end of the error of a request without an answer, which may be among what was skipped after the first *before*."""
        more = self._skipped - before
        return f"; skipped meanwhile: {more}, the last {self._skipped_last}" if more else ""

    def _skip(self, what: str, count: int, reason: str) -> None:
        self._skipped += 1
        self._skipped_last = reason
        if worth_logging(count):
            self._warn(f"skipped {what} ({count} so far): {reason}")

    # The server's requests and notifications

    def _take(self, message: Request | Notification, origin: PendingRequest | None) -> None:
        if isinstance(message, Request) and isinstance(message.id, str) and len(message.id) > MAX_ID:
            self._counters["requests with too long an id"] += 1
        elif self.session is None:
            if message.method in OPENING:  # as `cat` does: no server sends these
                self.close(ConnectionClosed(f"{self._name} {ECHOES}"))
            elif self._handshake_expected and isinstance(message, Request) and message.method == "ping":
                self._reply(Success(message.id, {}))
            elif len(self._early) < MAX_EARLY:
                self._early.append(message)
        elif isinstance(message, Request):
            self._inbound.take(message, self.session, origin)
        elif message.method == "notifications/cancelled":
            self._cancel(read_id(message.params.get("requestId")), self.session)
        else:
            self._announce(message, origin, self.session)

    def _announce(self, notification: Notification, origin: PendingRequest | None, session: Session) -> None:
        """Deliver a notification: to its subscription if it names one, or else to the application."""
        meta = notification.params.get("_meta")
        token = meta.get(SUBSCRIPTION_ID) if isinstance(meta, dict) else None
        if token is None and (notification.method not in CHANGES or not session.era.listens):
            self._on_notification(notification)
            return
        pending = origin if token is None else self._find(token)
        if pending is not None and pending.on_event is not None:
            pending.on_event(notification)
        else:
            self._counters["notifications for nothing"] += 1

    def _cancel(self, id: Id | None, session: Session) -> None:
        """The server cancels its own request, or where it can send none, ends a subscription of ours."""
        if id is None:
            return
        if not session.era.listens:
            self._inbound.cancel((session.epoch, id))
        elif (pending := self._find(id)) is not None and pending.on_event is not None:
            pending.settle(ConnectionClosed("the server has ended the subscription"))

    def _reply(self, reply: Success | Failure) -> None:
        if self.session is None:
            if self._handshake_expected:  # else it may be a modern server, which must not be answered
                self._sender.send_soon(reply, None)
        elif self.session.era.server_requests:  # else "the client MUST NOT send JSON-RPC responses"
            self._sender.send_soon(reply, self.session.era)

    # The life of the connection

    def expect_handshake(self) -> None:
        """`initialize` is about to be sent, so the server may ping."""
        self._handshake_expected = True
        self._call_soon(self._take_early)  # the replies come after `initialize`

    def begin(self, session: Session) -> None:
        """Use *session* from now on: handle early messages, drop the last session's requests."""
        if self.session is not None:
            self._session_ended(SessionLost("the server no longer knows the session"))
        self.session, self._session_begun = session, self.now()
        self._inbound.drop_all()
        self._take_early()

    def _take_early(self) -> None:
        early, self._early = self._early, []
        for message in early:
            self._take(message, None)

    async def listen(self) -> ConnectionClosed | None:
        """Read the channel's own stream until the connection ends; return why, to be passed to `close` at once.

        None: nothing more can arrive on that stream, and the connection goes on.
        """
        try:
            await self._channel.listen(self.route)
        except McpError as exc:
            return exc if isinstance(exc, ConnectionClosed) else ConnectionClosed(str(exc))
        except Exception as exc:
            logger.exception("reading from the server failed")
            return ConnectionClosed(f"reading from the server failed: {type(exc).__name__}")
        return None

    def close(self, reason: ConnectionClosed, *, by_us: bool = False) -> None:
        """End every pending request with *reason*, and send no new one. *by_us*: the application closes."""
        if self.closed is None:
            self.closed = reason
            self.closed_at = self.now()
            self.ended.set()
            self._sender.closed = True
            self._session_ended(None if by_us else reason)
        self._inbound.drop_all()
        for pending in list(self._pending.values()):
            pending.settle(reason.again())
        for scope in self._open_scopes:
            scope.cancel()
        self._check_idle()

    def _session_ended(self, error: ConnectionClosed | None) -> None:
        if self._middleware is not None and self.session is not None:
            self._middleware.session_ended(self.session.era.version, self.now() - self._session_begun, error)

    @property
    def busy(self) -> bool:
        """Whether a request is in flight, in either direction."""
        return bool(self._pending) or self._inbound.busy

    def _check_idle(self) -> None:
        if self.closed is not None and not self._pending and not self._sender.sending:
            self.alarm.stop()
            self._idle.set()

    async def idle(self) -> None:
        """Wait, once closed, until every caller has left the channel and every message is sent."""
        await self._idle.wait()

    def _not_sent(self, closed: ConnectionClosed) -> ConnectionClosed:
        error = closed.again()
        error.may_have_run = False
        return error

    @contextmanager
    def while_open(self, call: Call, *, idle: bool = False) -> Iterator[CancelScope]:
        """Cancel the block when the connection ends or *call* times out, and raise why. Yields its cancel scope.

        With *idle*, also after the call's *idle_timeout*.
        """
        if self.closed is not None:
            raise self._not_sent(self.closed)
        timeouts = call.timeouts
        with TimeoutScope(self.alarm, timeouts.idle_end(self.now()) if idle else timeouts.end) as timeout:
            self._open_scopes.append(timeout.scope)
            try:
                yield timeout.scope
            finally:
                self._open_scopes.remove(timeout.scope)
        if timeout.scope.cancelled_caught:
            if timeout.expired or self.closed is None:
                raise RequestTimeout(f"{call.method}: {timeouts.overdue()}")
            raise self.closed.again()

    def require(self, epoch: int | None = None) -> Session:
        """The session, if the connection is open.

        Raises:
            ConnectionClosed: It is not.
            SessionLost: It has another session than that of *epoch*.
        """
        if self.closed is not None:
            raise self._not_sent(self.closed)
        assert self.session is not None, "connecting ends with a session"
        if epoch is not None and epoch != self.session.epoch:
            raise SessionLost("the session was replaced before the request was sent", may_have_run=False)
        return self.session


def _number(id: Id) -> Id:
    """*id*, or the number in it: our ids are numbers, and some servers return 3 as "3"."""
    is_number = isinstance(id, str) and id.isascii() and id.isdigit() and len(id) < 19
    return int(id) if is_number else id
