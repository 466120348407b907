"""Requests from the server: each is answered at most once, and none in a later session."""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from anyio import CancelScope

from mcp_host.concurrency.deadlines import Alarm
from mcp_host.concurrency.tasks import HandlerTasks
from mcp_host.errors import ConnectionClosed, InputRefused, McpError, excerpt
from mcp_host.handlers import HandlerScope, InputCount
from mcp_host.limits import Limits
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
    read_id,
)
from mcp_host.session.call import PendingRequest
from mcp_host.session.sender import BackgroundSender
from mcp_host.session.session import FAILED, Session
from mcp_host.transports.base import Headers

if TYPE_CHECKING:
    from mcp_host.server_requests import OuterCall, ProgressReporter

logger = logging.getLogger(__name__)

UNPROMPTED_PERIOD = 3600.0  # seconds in which a server may send `max_inputs` requests while no call is in flight
ABANDONED = 120.0  # seconds at most in which a server may still ask for a call that was cancelled
MAX_ID = 4096  # characters of a server's request id or progress token: they are sent back, and ids kept to recognise a replay
ROOTS = "roots/list"
REMEMBERED = 1024  # answered ids kept to recognise a replay; only recent events are replayed

Key: TypeAlias = tuple[int, Id]  # session epoch, request id
StreamKey: TypeAlias = tuple[Key, Id | None]  # and the id of the request of ours on whose stream it came


@dataclass(slots=True, eq=False)
class InboundRequest:
    """One request of the server while the client handles it."""

    key: Key
    stream_key: StreamKey
    candidates: list[PendingRequest]
    """The requests of ours in flight that it may belong to.

    Their timeouts are paused until it is answered. It is cancelled when the last of them has ended (`request_ended`).
    """
    method: str
    nesting: int
    """The `Call.nesting` of the call that it belongs to, as far as can be told."""
    inputs: InputCount
    """Counts it, and what is asked within the calls of its handler."""
    origin: PendingRequest | None
    """The request of ours on whose stream it came, if any."""
    scope: CancelScope = field(init=False)
    dropped: bool = False
    """Whether it gets no response: the server has cancelled it, or the session has ended."""


class InboundRequests:
    """The requests of the server: each is answered in a task of *handlers*, or refused at once.

    *pending* are the requests of ours in flight. *notified* is called before a notification goes out.
    """

    def __init__(
        self,
        handlers: HandlerTasks,
        sender: BackgroundSender,
        alarm: Alarm,
        pending: Mapping[Id, PendingRequest],
        limits: Limits,
        counters: Counter[str],
        notified: Callable[[], None],
        *,
        stream_per_request: bool,
    ) -> None:
        self._handlers = handlers
        self._sender = sender
        self._alarm = alarm
        self._pending = pending
        self._limits = limits
        self._counters = counters
        self._notified = notified
        self._stream_per_request = stream_per_request
        self.abandoned: OrderedDict[Id, float] = OrderedDict()
        """Our cancelled requests that are not answered yet, over a pipe, and until when the server may work on each."""
        self._current: dict[Key, InboundRequest] = {}
        self._answered: OrderedDict[StreamKey, None] = OrderedDict()  # over HTTP, where a stream may repeat requests
        self._unprompted = InputCount()  # those while no call is in flight

    @property
    def busy(self) -> bool:
        """Whether any request is being handled."""
        return bool(self._current)

    def take(self, request: Request, session: Session, origin: PendingRequest | None) -> None:
        """Handle *request*, refuse it or count it; *origin* is the request of ours on whose stream it came."""
        key = (session.epoch, request.id)
        # On another stream it is no replay: a server that has restarted, and keeps no sessions, counts from 1 again.
        stream_key = (key, None if origin is None else origin.request.id)
        if not session.era.server_requests:
            self._counters["requests that no server may send"] += 1
        elif request.method == "ping":
            self._sender.send_soon(Success(request.id, {}), session.era, _headers(origin))
        elif key in self._current or stream_key in self._answered:
            self._counters["repeated requests"] += 1
            if not self._stream_per_request:  # over HTTP it is a replay
                self._refuse(request, INVALID_REQUEST, "this id is in use by a request under way", session, origin)
        elif request.method not in session.era.server_requests and session.middleware is None:
            self._refuse(request, METHOD_NOT_FOUND, "this client knows no such method", session, origin)
        elif self._sender.closed or len(self._current) >= self._limits.max_answers:
            self._counters["dropped requests"] += 1  # a flood
        else:
            candidates = [each for each in self._pending.values() if not each.done] if origin is None else [origin]
            nesting = self._nesting(candidates)
            if nesting < self._limits.max_nesting:
                counted = self._count(request.method, candidates)
            else:
                counted = f"max_nesting is {self._limits.max_nesting} handlers within each other"
            if isinstance(counted, str):
                self._remember(stream_key)
                for pending in candidates:
                    pending.restart_idle()  # the server is not silent
                self._refuse(request, ASKED_TOO_MUCH, f"this client's limit {counted}", session, origin)
            else:
                inbound = InboundRequest(key, stream_key, candidates, request.method, nesting, counted, origin)
                self._start(inbound, request, session)

    def _refuse(
        self, request: Request, code: int, reason: str, session: Session, origin: PendingRequest | None
    ) -> None:
        refusal = Failure(request.id, code, reason)
        self._sender.send_soon(refusal, session.era, _headers(origin), partial(_undelivered, request, origin))

    def _start(self, inbound: InboundRequest, request: Request, session: Session) -> None:
        for pending in inbound.candidates:
            pending.asked = True
            pending.timeouts.pause()
        owner = self._owner(inbound.candidates, inbound.origin)
        call = None if owner is None else owner.call
        outer = None if owner is None else owner.outer(inferred=inbound.origin is None)
        run = partial(self._run, inbound, request, session, outer)
        self._current[inbound.key] = inbound
        inbound.scope = self._handlers.start(run, None if call is None else call.context)

    def _owner(self, candidates: list[PendingRequest], origin: PendingRequest | None) -> PendingRequest | None:
        """The request of ours that a request of the server belongs to; None if that is not certain.

        The handler learns who made that call, and runs in its context. So nothing is guessed:

            over HTTP, on the stream of a request     that request
            over HTTP, on the connection's stream     none: it "SHOULD be unrelated" to any
            over a pipe                               the only request in flight, unless the server may
                                                      still be working on one that we have cancelled
        """
        if origin is not None:
            return origin
        if self._stream_per_request or len(candidates) != 1:
            return None
        if self.abandoned:
            self._forget_old_abandoned()
        return None if self.abandoned else candidates[0]

    def _count(self, method: str, candidates: list[PendingRequest]) -> InputCount | str:
        """Count a request of the server with this *method* for one of *candidates*. Returns what counts it, or the limit that it exceeds.

        It counts for every call that it may belong to; for a call and those that handlers make within it only once.
        """
        now = self._alarm.loop.time()
        counts: list[InputCount] = []
        for pending in candidates:
            if (call := pending.call) is not None:
                call.inputs = call.inputs or InputCount()
                if call.inputs not in counts:
                    counts.append(call.inputs)
        counts = counts or [self._unprompted]
        if self._unprompted in counts:
            self._unprompted.forget_until(now - UNPROMPTED_PERIOD)
        exceeded = [count.take((method,), self._limits, now) for count in counts]
        for count, limit in zip(counts, exceeded, strict=True):
            if limit is None:
                return count
        limit = exceeded[0]
        assert limit is not None, "each count exceeds one"
        where = f"in {UNPROMPTED_PERIOD:g} seconds without a call" if counts == [self._unprompted] else "for one call"
        return f"{limit} is {getattr(self._limits, limit)} {where}"

    def _nesting(self, candidates: list[PendingRequest]) -> int:
        """The nesting of the call that a request of the server is for, which is one of *candidates*.

        Most servers await one answer for each call, so it is the outermost call of which no request is being
        handled; or else the innermost. An example: you call *a*, and the handler of a request for *a* calls *b*.
        The next request counts for *b*, because one for *a* is being handled; so does the one after it.
        """
        if len(candidates) == 1 and (call := candidates[0].call) is not None:  # nearly always
            return call.nesting
        nestings = sorted([each.call.nesting for each in candidates if each.call is not None])
        if not nestings or nestings[0] == nestings[-1]:
            return nestings[0] if nestings else 0
        handled = Counter(inbound.nesting for inbound in self._current.values())
        for nesting, calls in Counter(nestings).items():  # in ascending order
            if handled[nesting] < calls:
                return nesting
        return nestings[-1]

    async def _run(self, inbound: InboundRequest, request: Request, session: Session, call: OuterCall | None) -> None:
        try:
            reply = await self._handle(inbound, request, session, call)
        except BaseException:  # cancelled
            self._end(inbound)
            if not inbound.dropped:
                self._refuse(request, CALL_ENDED, "the call that this belonged to has ended", session, inbound.origin)
            raise
        self._end(inbound)
        if inbound.dropped:
            return
        if inbound.scope.cancel_called:  # there is an answer, but this task can await nothing more
            self._sender.send_soon(reply, session.era, _headers(inbound.origin))
        else:
            lost = partial(_undelivered, request, inbound.origin)
            await self._sender.send(reply, session.era, _headers(inbound.origin), lost)

    async def _handle(
        self, inbound: InboundRequest, request: Request, session: Session, call: OuterCall | None
    ) -> Response:
        move_on_after = partial(self._alarm.move_on_after, within=inbound.scope)  # see `TimeoutScope`
        reporter = self._reporter(inbound, request, session)
        try:
            with HandlerScope(nesting=inbound.nesting + 1, inputs=inbound.inputs):
                result = await session.answer(
                    request.method,
                    request.params,
                    call,
                    id=request.id,
                    size=request.size,
                    move_on_after=move_on_after,
                    reporter=reporter,
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
        token = read_id(meta.get("progressToken")) if isinstance(meta, dict) else None
        if token is None or (isinstance(token, str) and len(token) > MAX_ID):
            return None

        async def send(params: Params) -> None:
            if self._current.get(inbound.key) is inbound and not inbound.dropped:
                report = Notification("notifications/progress", params)
                self._notified()
                await self._sender.send(report, session.era, _headers(inbound.origin))

        from mcp_host.server_requests import ProgressReporter  # on demand: many clients have no handlers

        return ProgressReporter(token, send)

    def _end(self, inbound: InboundRequest) -> None:
        del self._current[inbound.key]
        for pending in inbound.candidates:
            pending.timeouts.resume()
        self._remember(inbound.stream_key)

    def _remember(self, stream_key: StreamKey) -> None:
        if self._stream_per_request:
            self._answered[stream_key] = None
            if len(self._answered) > REMEMBERED:
                self._answered.popitem(last=False)

    def cancel(self, key: Key) -> None:
        """The server has cancelled its request: "the receiver SHOULD NOT send a response"."""
        if inbound := self._current.get(key):
            inbound.dropped = True
            inbound.scope.cancel()

    def drop_all(self) -> None:
        """The session has ended: its requests must not be answered in a later one."""
        for key in self._current:
            self.cancel(key)

    def request_abandoned(self, id: Id) -> None:
        """We have cancelled the request with *id*. Servers that respect that never answer it."""
        self._forget_old_abandoned()
        self.abandoned[id] = self._alarm.loop.time() + min(self._limits.idle_timeout, ABANDONED)

    def _forget_old_abandoned(self) -> None:
        now = self._alarm.loop.time()
        while self.abandoned and next(iter(self.abandoned.values())) <= now:
            self.abandoned.popitem(last=False)

    def request_ended(self, pending: PendingRequest, *, answered: bool) -> None:
        """A request of ours has ended: what belonged only to it is cancelled, and refused.

        Not a request for the roots, which a server makes once and for all its calls. Nor what came on the connection's
        stream, if the server has *answered* ours: then it belonged to another, or to none.
        """
        for inbound in self._current.values():
            if pending in inbound.candidates:
                inbound.candidates.remove(pending)
                pending.timeouts.resume()
                is_unrelated = inbound.method == ROOTS or (
                    answered and inbound.origin is None and self._stream_per_request
                )
                if not inbound.candidates and not is_unrelated:
                    inbound.scope.cancel()


def _headers(origin: PendingRequest | None) -> Headers:
    """HTTP headers of an answer: those of the call on whose stream the request came."""
    return {} if origin is None or origin.call is None else origin.call.headers


def _undelivered(request: Request, origin: PendingRequest | None, reason: str, error: Exception | None) -> None:
    """The answer to *request* was not delivered, for this *reason*. With an *error* the server certainly does not have it.

    Then it waits in vain, so the call that the request belongs to ends with that error. Otherwise the call goes on, and
    if it times out, its error says this.
    """
    if origin is None:
        return
    text = f"the answer to {excerpt(request.method)} was not delivered: {reason}"
    if error is None:
        origin.notes += f"; {text}"
        return
    if isinstance(error, McpError):
        error, cause = copy(error), error  # others may raise the same one
        error.args, error.__cause__ = (f"{origin.request.method}: {text}",), cause
        if isinstance(error, ConnectionClosed):
            error.may_have_run = True  # the call has, as far as it got
    origin.unanswered = origin.settle(error)
