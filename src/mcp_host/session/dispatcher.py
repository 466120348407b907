"""One connection's traffic: every message finds whom it is for, and every request of ours ends."""

from __future__ import annotations

import itertools
import logging
import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from anyio import CancelScope, Event
from anyio.abc import TaskGroup

from mcp_host._backends import Loop
from mcp_host.concurrency import HandlerTasks
from mcp_host.errors import ConnectionClosed, McpError, NotConnected, RequestTimeout, ServerError
from mcp_host.limits import Limits
from mcp_host.protocol.eras import DISCOVER, INITIALIZE, SUBSCRIPTION_ID
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
)
from mcp_host.session.call import Call, CallTimeouts, OnReport
from mcp_host.session.config import Session
from mcp_host.session.inbound import BackgroundSender, InboundRequests, RequestHandler
from mcp_host.session.notifications import CHANGES
from mcp_host.session.pending import Deadlines, OnEvent, PendingRequest
from mcp_host.transports.base import Channel, Headers

logger = logging.getLogger(__name__)

MAX_EARLY = 64  # messages kept that a hasty server sends before the handshake is done
OPENING = frozenset({INITIALIZE, DISCOVER})  # what a connection begins with


class Dispatcher:
    """Routes what arrives, sees requests through, and answers what the server asks.

    Every stream of the connection feeds `route`, which never waits: a response
    goes to the exchange whose id it bears, progress to the exchange whose token
    it bears, a request of the server's to a task of its own.
    """

    def __init__(
        self,
        channel: Channel,
        application: HandlerTasks,
        plumbing: TaskGroup,
        notify: Callable[[Notification], None],
        limits: Limits,
        counters: Counter[str],
    ) -> None:
        self.session: Session | None = None
        self.counters = counters
        self.spawn = plumbing.start_soon
        """Runs something in a task that ends with the connection at the latest."""
        self._channel = channel
        self._notify = notify
        self._ids = itertools.count(1)
        self.pending: dict[Id, PendingRequest] = {}
        """The calls of ours that are not over."""
        self._deadlines = Deadlines(self.pending, Loop.running())
        plumbing.start_soon(self._deadlines.run)
        self.now = self._deadlines.loop.time
        """Seconds on the event loop's clock."""
        self._answers = InboundRequests(limits, self.now, replays=channel.stream_per_request)
        self._sender = BackgroundSender(channel, plumbing, limits.max_answers, counters, self._check_idle)
        self._request_handler = RequestHandler(self, application, self._answers, self._sender)
        self._abandoned: OrderedDict[Id, float] = OrderedDict()  # until when each counts, the first first
        self._idle_timeout = limits.idle_timeout
        self._early: list[Request | Notification] = []
        self._shaking_hands = False
        self._at_work: set[CancelScope] = set()
        self._closed: ConnectionClosed | None = None
        self._opened = self.now()
        self.lasted = 0.0
        """How many seconds this link was open, once it is not any more."""
        self._idle = Event()

    # Our requests

    async def ask(
        self,
        method: str,
        params: Params,
        headers: Headers,
        timeouts: CallTimeouts,
        on_report: OnReport | None = None,
        on_event: OnEvent | None = None,
        call: Call | None = None,
    ) -> Response:
        """Send one request and return its response; nothing outlives this call but its cancellation.

        *on_event* gets what a subscription announces, at once and without an await.
        *call* is what the request is sent for, if the application made one.

        Raises:
            RequestTimeout: The server was silent for too long, or the call took too long in all.
            ConnectionClosed, ProtocolError, HttpStatusError: As the channel or the answer says.
        """
        self._check_open()
        if timeouts.end <= self.now() and method not in OPENING:
            raise RequestTimeout(f"{method}: {timeouts.overdue()}", may_have_run=False)
        id = next(self._ids)
        if on_report is not None:
            params = params | {"_meta": {**params.get("_meta", {}), "progressToken": id}}
        request = Request(id, method, params)
        pending_request = PendingRequest(request, timeouts, self.route, self._deadlines, on_report, on_event, call)
        self.pending[id] = pending_request
        try:
            return await self._see_through(pending_request, headers)
        except BaseException:
            self._abandon(pending_request, headers)
            raise
        finally:
            del self.pending[id]
            pending_request.leave()
            self._answers.call_ended(pending_request)
            self._check_idle()

    async def _see_through(self, pending_request: PendingRequest, headers: Headers) -> Response:
        failure: McpError | None = None
        try:
            if self._channel.stream_per_request:
                with pending_request.bounded():
                    await self._channel.request(pending_request.request, headers, pending_request)
            else:
                await self._channel.request(pending_request.request, headers, pending_request)
        except McpError as exc:
            if exc is pending_request.callers_own:
                raise
            failure = exc
        await pending_request.progress()  # what came before the answer is delivered before the answer
        match pending_request.outcome:
            case Success() | Failure() as response:
                return response
            case McpError() as error:
                if pending_request.withdrawn and isinstance(error, ConnectionClosed):
                    error.may_have_run = False
                raise error
        if failure is not None:
            pending_request.outcome = failure  # it has ended; there is nothing left to cancel
            raise failure
        raise RequestTimeout(
            f"{pending_request.request.method}: {pending_request.overdue()}", may_have_run=not pending_request.withdrawn
        )

    async def tell(self, method: str, params: Params, headers: Headers) -> None:
        """Send a notification."""
        await self._channel.send(Notification(method, params), headers)

    def _abandon(self, pending_request: PendingRequest, headers: Headers) -> None:
        """Tell the server that nobody waits any longer, without waiting for it to listen."""
        if pending_request.outcome is not None or pending_request.withdrawn or self._closed is not None:
            return
        if pending_request.request.method in OPENING and self.session is None:
            return  # "The initialize request MUST NOT be cancelled by clients", and nothing may come before it
        if self._channel.stream_per_request and self.session is not None and self.session.era.disconnect_cancels:
            return  # leaving the stream has said it
        if not self._channel.stream_per_request:
            self._drop_expired()
            self._abandoned[pending_request.request.id] = self.now() + self._idle_timeout
        self._sender.soon(Notification("notifications/cancelled", {"requestId": pending_request.request.id}), headers)

    @property
    def serves_abandoned_calls(self) -> bool:
        """Whether, over a pipe, the server may still be working on a call that was given up.

        It has not answered the call, and `Limits.idle_timeout` has not passed since: a server that
        respects the cancellation never answers.
        """
        if self._abandoned:
            self._drop_expired()
        return bool(self._abandoned)

    def _drop_expired(self) -> None:
        now = self.now()
        while self._abandoned and next(iter(self._abandoned.values())) <= now:
            self._abandoned.popitem(last=False)

    # What arrives

    def route(self, message: Incoming, origin: PendingRequest | None = None) -> None:
        """Take one message from any stream; *origin* is the exchange whose own stream it came on."""
        match message:
            case Success(id=id) | Failure(id=int() | str() as id):
                self._settle(id, message, origin)
            case Notification(method="notifications/progress", params=params):
                self._report(params)
            case Request() | Notification():
                self._take(message, origin)
            case Failure():
                self._unattributed(message)
            case Malformed():
                self._malformed(message, origin)

    def _settle(self, id: Id, outcome: Response | McpError, origin: PendingRequest | None) -> None:
        pending_request = self._find(id)
        if self._abandoned:
            self._abandoned.pop(_number(id), None)
        if pending_request is None or not pending_request.settle(outcome, by=origin):
            self.counters["answers to nothing"] += 1  # late, doubled, or somebody else's

    def _find(self, token: object) -> PendingRequest | None:
        """The exchange that *token* means; the ids of ours are all numbers."""
        if isinstance(token, str):
            token = _number(token)
        return self.pending.get(token) if isinstance(token, int) else None

    def _report(self, params: Params) -> None:
        pending_request = self._find(params.get("progressToken"))
        if (
            pending_request is None
            or not pending_request.wants_reports
            or not isinstance(params.get("progress"), int | float)
        ):
            self.counters["progress for nothing"] += 1
        else:
            pending_request.report(params)

    def _unattributed(self, failure: Failure) -> None:
        """An error without an id: the server could not read ours. It is clear whose only when one is waiting."""
        if (pending_request := self._only_one()) is not None:
            pending_request.settle(ServerError(failure.code, failure.message, failure.data))
        else:
            self.counters["errors without an id"] += 1

    def _only_one(self) -> PendingRequest | None:
        """The call that waits for an answer, if there is but one. A subscription waits for none."""
        calls = [pending_request for pending_request in self.pending.values() if pending_request.on_event is None]
        return calls[0] if len(calls) == 1 else None

    def _malformed(self, message: Malformed, origin: PendingRequest | None) -> None:
        self.counters["malformed messages"] += 1
        if message.method is not None and message.id is not None:
            self._reply_soon(Failure(message.id, INVALID_REQUEST, message.reason))
        elif message.id is not None:
            self._settle(message.id, malformed_error(message), origin)
        elif message.oversize and message.method is None and (pending_request := self._only_one()) is not None:
            pending_request.settle(malformed_error(message), by=origin)  # it can be nobody else's
        elif (count := self.counters["malformed messages"]) & (count - 1) == 0:  # a flood must not fill a disk
            logger.warning("skipped something that is no message (%d so far): %s", count, message.reason)

    # The server's own requests and notifications

    def _take(self, message: Request | Notification, origin: PendingRequest | None) -> None:
        if self.session is None:
            self._take_early(message)
        elif isinstance(message, Request):
            self._request_handler.take(message, self.session, origin)
        elif message.method == "notifications/cancelled":
            self._cancel(message.params.get("requestId"), self.session)
        else:
            self._announce(message, origin)

    def _take_early(self, message: Request | Notification) -> None:
        """Keep what comes before the session has begun. Only a ping is answered, once there is to be a handshake."""
        if self._shaking_hands and isinstance(message, Request) and message.method == "ping":
            self._reply_soon(Success(message.id, {}))
        elif len(self._early) < MAX_EARLY:
            self._early.append(message)

    def _announce(self, notification: Notification, origin: PendingRequest | None) -> None:
        """Pass on what the server tells. What bears the id of a subscription has to belong to one that stands."""
        meta = notification.params.get("_meta")
        token = meta.get(SUBSCRIPTION_ID) if isinstance(meta, dict) else None
        if token is None and (notification.method not in CHANGES or not self._listens):
            self._notify(notification)
            return
        pending_request = origin if token is None else self._find(token)
        if pending_request is not None and pending_request.on_event is not None:
            pending_request.on_event(notification)
        else:
            self.counters["notifications for nothing"] += 1

    def _cancel(self, id: object, session: Session) -> None:
        """The server gives up a request of its own, or a subscription of ours."""
        if not isinstance(id, int | str):
            return
        self._answers.cancel((session.epoch, id))
        pending_request = self._find(id)
        if pending_request is not None and pending_request.on_event is not None:
            pending_request.settle(ConnectionClosed("the server has ended the subscription"))

    def _reply_soon(self, reply: Success | Failure) -> None:
        if self._closed is not None:
            return
        if self.session is None:
            if self._shaking_hands:  # else it may turn out to be a server that must not be answered
                self._sender.soon(reply, {})
        elif self.session.era.server_requests:  # else "the client MUST NOT send JSON-RPC responses"
            self._sender.soon(reply, self.session.era.headers("", {}))

    # Sessions

    def expect_handshake(self) -> None:
        """There is to be a handshake: so the server may ping us."""
        self._shaking_hands = True
        early, self._early = self._early, []
        for message in early:
            if isinstance(message, Request) and message.method == "ping":
                self._sender.later(Success(message.id, {}), {})  # than `initialize`, which is to be sent now
            else:
                self._early.append(message)

    def begin(self, session: Session) -> None:
        """It is settled how to speak: what came early is taken up, what belonged to the last session is dropped."""
        self.session = session
        self._answers.drop_before(session.epoch)
        early, self._early = self._early, []
        for message in early:
            self._take(message, None)

    async def listen(self) -> None:
        """Run the channel's own stream until the link is gone, then end every call that waits on it."""
        try:
            await self._channel.listen(self.route)
        except McpError as exc:
            self.close(exc if isinstance(exc, ConnectionClosed) else ConnectionClosed(str(exc)))
        except Exception as exc:
            logger.exception("reading from the server failed")
            self.close(ConnectionClosed(f"reading from the server failed: {type(exc).__name__}"))

    def close(self, reason: ConnectionClosed) -> None:
        """No answer will come any more, and no request can be sent."""
        if self._closed is None:
            self._closed = reason
            self.lasted = self.now() - self._opened
        self._answers.drop_before(math.inf)
        for pending_request in list(self.pending.values()):
            pending_request.settle(reason.again())
        for scope in self._at_work:
            scope.cancel()
        self._check_idle()

    def _check_idle(self) -> None:
        if self._closed is not None and not self.pending and not self._sender.under_way:
            self._idle.set()

    def _check_open(self) -> None:
        """Nothing can be sent over a link that is gone, so nothing of it can have run."""
        if self._closed is not None:
            gone = self._closed.again()
            gone.may_have_run = False
            raise gone

    @contextmanager
    def while_open(self) -> Iterator[None]:
        """What runs inside ends with the link at the latest, and then raises `ConnectionClosed`."""
        self._check_open()
        with CancelScope() as scope:
            self._at_work.add(scope)
            try:
                yield
            finally:
                self._at_work.discard(scope)
        if scope.cancelled_caught and self._closed is not None:
            raise self._closed.again()

    @property
    def _listens(self) -> bool:
        """Whether changes come only to who has asked for them, and bear the id of that."""
        return self.session is not None and self.session.era.listens

    @property
    def stream_per_request(self) -> bool:
        """Whether the channel is HTTP's: a stream for each request, and headers on it."""
        return self._channel.stream_per_request

    async def awake(self) -> None:
        """Wait for a first sign that the server is there, and runs."""
        await self._channel.awake()

    @property
    def alive(self) -> bool:
        return self._closed is None

    async def idle(self) -> None:
        """Wait, once closed, until every caller has let go of the channel and what was to be sent has been."""
        await self._idle.wait()

    def require(self) -> Session:
        """The session, for whoever needs one."""
        self._check_open()
        if self.session is None:
            raise NotConnected("the client has not finished connecting")
        return self.session


def _number(id: Id) -> Id:
    """*id*, or the number that it is a text of: some servers turn 3 into "3"."""
    is_number = isinstance(id, str) and id.isascii() and id.isdigit() and len(id) < 19
    return int(id) if is_number else id
