"""Requests from the server: each is answered at most once, and none in a later session."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from anyio import CancelScope, move_on_after, sleep
from anyio.abc import TaskGroup

from mcp_host.concurrency import HandlerTasks
from mcp_host.errors import CallerError, ConnectionClosed, HttpStatusError, InputRefused, McpError, SessionLost
from mcp_host.handlers import HandlerScope
from mcp_host.limits import Limits
from mcp_host.protocol.backoff import RETRY_DELAYS
from mcp_host.protocol.jsonrpc import (
    ASKED_TOO_MUCH,
    CALL_ENDED,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    Failure,
    Id,
    Notification,
    Params,
    Request,
    Response,
    Success,
)
from mcp_host.sampling.progress import ProgressReporter
from mcp_host.session.call import PendingRequest
from mcp_host.session.features import FAILED
from mcp_host.session.state import Session
from mcp_host.transports.base import Channel, Headers

if TYPE_CHECKING:
    from mcp_host.sampling import OuterCall

logger = logging.getLogger(__name__)

SEND_TIMEOUT = 30.0  # seconds for delivering an answer or a cancellation: less than any sensible call timeout
UNPROMPTED_PERIOD = 3600.0  # seconds in which a server may send `max_inputs` requests while no call is in flight
REMEMBERED = 1024  # answered ids kept to recognise a replay; only recent events are replayed

Key: TypeAlias = tuple[int, Id]  # session epoch, request id
Place: TypeAlias = tuple[Key, Id | None]  # and the id of the request on whose stream it came


class InboundRequest:
    """One request of the server while the client handles it.

    *waiting* are the requests in flight that it may belong to. Their timeouts are paused until it
    is answered, and it is cancelled when the last of them has ended.
    """

    def __init__(self, key: Key, origin: PendingRequest | None, waiting: list[PendingRequest]) -> None:
        self.key = key
        self.origin = origin
        """The request on whose stream it came, if that is known."""
        self.waiting = waiting
        self.scope: CancelScope
        self.ended = False
        self.dropped = False
        """Whether it gets no response: the server has cancelled it, or the session has ended."""
        self.refusal: InputRefused | None = None
        """The limit that it exceeds, if any."""
        self.nesting = 0
        """The `Call.nesting` of the call that it belongs to, as far as can be told."""
        for pending in waiting:
            pending.timeouts.pause()

    def end(self) -> None:
        self.ended = True
        for pending in self.waiting:
            pending.timeouts.resume()

    def request_ended(self, pending: PendingRequest) -> None:
        if pending in self.waiting:
            self.waiting.remove(pending)
            pending.timeouts.resume()
            if not self.waiting:
                self.scope.cancel()

    def drop(self) -> None:
        self.dropped = True
        self.scope.cancel()


class InboundRequests:
    """The requests that the client is handling, and how many each call has had.

    With *replays*, a stream may repeat old requests, so answered ones are remembered.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float], *, replays: bool) -> None:
        self._limits = limits
        self._clock = clock
        self._replays = replays
        self._unprompted: deque[float] = deque()  # when requests came while no call was in flight, the oldest first
        self._current: dict[Key, InboundRequest] = {}
        self._done: deque[Place] = deque(maxlen=REMEMBERED)
        self._seen: set[Place] = set()

    def full(self) -> bool:
        return len(self._current) >= self._limits.max_answers

    def known(self, key: Key, origin: PendingRequest | None) -> bool:
        """Whether this request is being handled, or was answered before on the same stream.

        On another stream it is no replay: a stateless server that has restarted counts from 1 again.
        """
        return key in self._current or (self._replays and _place(key, origin) in self._seen)

    def begin(self, inbound: InboundRequest) -> None:
        """Add a request; set its `nesting`, and its `refusal` if it exceeds a limit."""
        inbound.nesting = self._nesting(inbound.waiting)
        self._current[inbound.key] = inbound
        for pending in inbound.waiting:
            pending.inputs += 1
        nested, most = self._limits.max_nesting, self._limits.max_inputs
        if inbound.nesting >= nested:
            inbound.refusal = _asked_too_much("max_nesting", f"{nested} handlers within each other")
        elif inbound.waiting:
            if min([pending.inputs for pending in inbound.waiting]) > most:
                inbound.refusal = _asked_too_much("max_inputs", f"{most} for one call")
        elif not self._admit_unprompted(most):
            inbound.refusal = _asked_too_much("max_inputs", f"{most} in {UNPROMPTED_PERIOD:g} seconds without a call")

    def _nesting(self, waiting: list[PendingRequest]) -> int:
        """The nesting of the call that the server asks for, which is one of *waiting*.

        If these differ, it is the outermost that has no request yet: most servers await
        one answer for each call. If every call has one, it is the innermost.
        """
        nestings = sorted([each.call.nesting for each in waiting if each.call is not None])
        if not nestings or nestings[0] == nestings[-1]:
            return nestings[0] if nestings else 0
        handled = Counter(inbound.nesting for inbound in self._current.values())
        for nesting, calls in Counter(nestings).items():  # in ascending order
            if handled[nesting] < calls:
                return nesting
        return nestings[-1]

    def _admit_unprompted(self, most: int) -> bool:
        """Count a request that belongs to no call; False if there were *most* in the last period."""
        now = self._clock()
        while self._unprompted and self._unprompted[0] <= now - UNPROMPTED_PERIOD:
            self._unprompted.popleft()
        if len(self._unprompted) >= most:
            return False
        self._unprompted.append(now)
        return True

    def end(self, inbound: InboundRequest) -> None:
        del self._current[inbound.key]
        inbound.end()
        if self._replays:
            if len(self._done) == REMEMBERED:
                self._seen.discard(self._done[0])
            place = _place(inbound.key, inbound.origin)
            self._done.append(place)
            self._seen.add(place)

    def cancel(self, key: Key) -> None:
        """The server has cancelled its request: "the receiver SHOULD NOT send a response"."""
        if inbound := self._current.get(key):
            inbound.drop()

    def request_ended(self, pending: PendingRequest) -> None:
        """A request of ours has ended: what belonged only to it is cancelled."""
        for inbound in list(self._current.values()):
            inbound.request_ended(pending)

    def drop_before(self, epoch: float) -> None:
        """The sessions before *epoch* have ended: their requests must not be answered in a later one."""
        for inbound in list(self._current.values()):
            if inbound.key[0] < epoch:
                inbound.drop()


class RequestHandler:
    """Takes the requests of the server, and has each answered in one of the *application*'s tasks.

    *pending* are the requests of ours in flight. *serves_abandoned* tells whether the server may still
    be working on a call that was cancelled.
    """

    def __init__(
        self,
        application: HandlerTasks,
        inbound: InboundRequests,
        sender: BackgroundSender,
        pending: Mapping[Id, PendingRequest],
        counters: Counter[str],
        serves_abandoned: Callable[[], bool],
        *,
        stream_per_request: bool,
    ) -> None:
        self._application = application
        self._inbound = inbound
        self._sender = sender
        self._pending = pending
        self._counters = counters
        self._serves_abandoned = serves_abandoned
        self._stream_per_request = stream_per_request

    def take(self, request: Request, session: Session, origin: PendingRequest | None) -> None:
        """Handle *request*, refuse it or count it; *origin* is the request of ours on whose stream it came."""
        key = (session.epoch, request.id)
        if not session.era.server_requests:
            self._counters["requests that no server may send"] += 1
        elif request.method == "ping":
            self._reply(Success(request.id, {}), session)
        elif self._inbound.known(key, origin):
            self._counters["repeated requests"] += 1
            if not self._stream_per_request:  # over HTTP it is a replay
                self._reply(Failure(request.id, INVALID_REQUEST, "this id is in use by a request under way"), session)
        elif request.method not in session.era.server_requests:
            self._reply(Failure(request.id, METHOD_NOT_FOUND, "this client knows no such method"), session)
        elif self._sender.closed or self._inbound.full():
            self._counters["dropped requests"] += 1  # a flood
        else:
            self._start(request, session, origin)

    def _start(self, request: Request, session: Session, origin: PendingRequest | None) -> None:
        waiting = [each for each in self._pending.values() if not each.done] if origin is None else [origin]
        # Over HTTP a request on a call's own stream belongs to that call; on another it "SHOULD be unrelated" to any.
        # Over a pipe it belongs to the only call that the server can be working on.
        named = origin is not None or not (self._stream_per_request or self._serves_abandoned())
        call = waiting[0].call if named and len(waiting) == 1 else None
        outer = None if call is None else call.outer(waiting[0].request.id, inferred=origin is None)
        inbound = InboundRequest((session.epoch, request.id), origin, waiting)
        self._inbound.begin(inbound)
        run = partial(self._run, inbound, request, session, outer)
        inbound.scope = self._application.start(run, None if call is None else call.context)

    async def _run(self, inbound: InboundRequest, request: Request, session: Session, call: OuterCall | None) -> None:
        try:
            reply = await self._answer(inbound, request, session, call)
        except BaseException:  # cancelled
            self._inbound.end(inbound)
            if not inbound.dropped:
                self._reply(Failure(request.id, CALL_ENDED, "the call that this belonged to has ended"), session)
            raise
        self._inbound.end(inbound)
        if inbound.dropped:
            return
        if inbound.scope.cancel_called:  # there is an answer, but this task can await nothing more
            self._reply(reply, session)
        elif not self._sender.send_now(reply):
            await self._sender.send(reply, session.era.headers(request.method, {}))

    async def _answer(
        self, inbound: InboundRequest, request: Request, session: Session, call: OuterCall | None
    ) -> Response:
        try:
            if inbound.refusal is not None:
                raise inbound.refusal
            reporter = self._reporter(inbound, request, session)
            with HandlerScope(nesting=inbound.nesting + 1):
                result = await session.features.answer(
                    request.method, request.params, call, size=request.size, within=inbound.scope, reporter=reporter
                )
            return Success(request.id, result)
        except InputRefused as exc:
            return Failure(request.id, exc.code, str(exc), exc.data)
        except Exception:  # a bug in the client or in a handler: the reason goes to the log, not to the server
            logger.exception("answering %s failed", request.method)
            return Failure(request.id, INTERNAL_ERROR, FAILED)

    def _reporter(self, inbound: InboundRequest, request: Request, session: Session) -> ProgressReporter | None:
        """Sends a handler's progress, if the server has given a token for it."""
        meta = request.params.get("_meta")
        token = meta.get("progressToken") if isinstance(meta, dict) else None
        if not isinstance(token, str | int) or isinstance(token, bool):
            return None

        async def send(params: Params) -> None:
            report = Notification("notifications/progress", params)
            if not (inbound.ended or inbound.dropped or self._sender.send_now(report)):
                await self._sender.send(report, session.era.headers(report.method, params))

        return ProgressReporter(token, send)

    def _reply(self, reply: Success | Failure, session: Session) -> None:
        self._sender.send_soon(reply, session.era.headers("", {}))


class BackgroundSender:
    """Sends messages that no caller waits for: at most *limit* at a time; *on_done* is called after each of them."""

    def __init__(
        self, channel: Channel, tasks: TaskGroup, limit: int, counters: Counter[str], on_done: Callable[[], None]
    ) -> None:
        self.closed = False
        self.sending = 0
        self._channel = channel
        self._tasks = tasks
        self._limit = limit
        self._counters = counters
        self._on_done = on_done

    def send_soon(self, message: Notification | Success | Failure, headers: Headers) -> None:
        """Send *message* without waiting if possible, or else in the background; not if the connection is closed."""
        if not self.closed and not self.send_now(message):
            self.send_in_background(message, headers)

    def send_in_background(self, message: Notification | Success | Failure, headers: Headers) -> None:
        if self.sending >= self._limit:
            self._counters["dropped answers"] += 1  # the server sends a flood of pings, say, and reads no answers
        else:
            self.sending += 1
            self._tasks.start_soon(self._send_counted, message, headers)

    async def _send_counted(self, message: Notification | Success | Failure, headers: Headers) -> None:
        try:
            await self.send(message, headers)
        finally:
            self.sending -= 1
            self._on_done()

    def send_now(self, message: Notification | Success | Failure) -> bool:
        """Send *message* if that needs no waiting. False if it is still to be sent."""
        try:
            return self._channel.send_now(message)
        except CallerError:
            return False  # `send` handles it
        except McpError as exc:
            self._undelivered(exc)
            return True

    async def send(self, message: Notification | Success | Failure, headers: Headers) -> None:
        """Send *message*. Failures are only counted: a closed connection is reported elsewhere."""
        with move_on_after(SEND_TIMEOUT):
            try:
                await self._send_with_retries(message, headers)
            except CallerError:
                logger.exception("a message could not be written as JSON")
                if isinstance(message, Success | Failure):  # the server must not wait for an answer in vain
                    await self.send(Failure(message.id, INTERNAL_ERROR, FAILED), headers)
            except McpError as exc:
                self._undelivered(exc)

    async def _send_with_retries(self, message: Notification | Success | Failure, headers: Headers) -> None:
        """Send *message*. An answer over HTTP is repeated if it may be lost: servers accept it only once."""
        is_answer = isinstance(message, Success | Failure)
        for delay in RETRY_DELAYS if is_answer and self._channel.stream_per_request else ():
            try:
                return await self._channel.send(message, headers)
            except HttpStatusError as exc:
                if not exc.transient:
                    raise
            except SessionLost:
                raise
            except ConnectionClosed:
                pass
            await sleep(delay)
        return await self._channel.send(message, headers)

    def _undelivered(self, error: McpError) -> None:
        self._counters["undelivered messages"] += 1
        logger.debug("not delivered: %s", error)


def _asked_too_much(limit: str, bound: str) -> InputRefused:
    return InputRefused(ASKED_TOO_MUCH, f"this client's limit {limit} is {bound}")


def _place(key: Key, origin: PendingRequest | None) -> Place:
    return key, None if origin is None else origin.request.id
