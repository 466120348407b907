"""Requests from the server: each is answered at most once, and none in a later session."""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from anyio import CancelScope

from mcp_host.concurrency import Alarm, HandlerTasks
from mcp_host.errors import InputRefused
from mcp_host.handlers import HandlerScope
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
)
from mcp_host.session.call import PendingRequest
from mcp_host.session.features import FAILED, Session
from mcp_host.session.sender import BackgroundSender

if TYPE_CHECKING:
    from mcp_host.server_requests import OuterCall, ProgressReporter

logger = logging.getLogger(__name__)

UNPROMPTED_PERIOD = 3600.0  # seconds in which a server may send `max_inputs` requests while no call is in flight
REMEMBERED = 1024  # answered ids kept to recognise a replay; only recent events are replayed

Key: TypeAlias = tuple[int, Id]  # session epoch, request id
Place: TypeAlias = tuple[Key, Id | None]  # and the id of the request on whose stream it came


@dataclass(slots=True, eq=False)
class InboundRequest:
    """One request of the server while the client handles it."""

    key: Key
    place: Place
    waiting: list[PendingRequest]
    """The requests in flight that it may belong to.

    Their timeouts are paused until it is answered. It is cancelled when the last of them has ended.
    """
    nesting: int
    """The `Call.nesting` of the call that it belongs to, as far as can be told."""
    scope: CancelScope = field(init=False)
    dropped: bool = False
    """Whether it gets no response: the server has cancelled it, or the session has ended."""


class InboundRequests:
    """The requests of the server: each is answered in one of the *application*'s tasks, or refused at once.

    *pending* are the requests of ours in flight.
    """

    def __init__(
        self,
        application: HandlerTasks,
        sender: BackgroundSender,
        alarm: Alarm,
        pending: Mapping[Id, PendingRequest],
        limits: Limits,
        counters: Counter[str],
        *,
        stream_per_request: bool,
    ) -> None:
        self._application = application
        self._sender = sender
        self._alarm = alarm
        self._pending = pending
        self._limits = limits
        self._counters = counters
        self._stream_per_request = stream_per_request
        self.abandoned: OrderedDict[Id, float] = OrderedDict()
        """Our cancelled requests that are not answered yet, over a pipe, and until when the server may work on each."""
        self._current: dict[Key, InboundRequest] = {}
        self._answered: OrderedDict[Place, None] = OrderedDict()  # over HTTP, where a stream may repeat requests
        self._unprompted: deque[float] = deque()  # when requests came while no call was in flight, the oldest first

    def take(self, request: Request, session: Session, origin: PendingRequest | None) -> None:
        """Handle *request*, refuse it or count it; *origin* is the request of ours on whose stream it came."""
        key = (session.epoch, request.id)
        # On another stream it is no replay: a stateless server that has restarted counts from 1 again.
        place = (key, None if origin is None else origin.request.id)
        if not session.era.server_requests:
            self._counters["requests that no server may send"] += 1
        elif request.method == "ping":
            self._reply(Success(request.id, {}), session)
        elif key in self._current or place in self._answered:
            self._counters["repeated requests"] += 1
            if not self._stream_per_request:  # over HTTP it is a replay
                self._reply(Failure(request.id, INVALID_REQUEST, "this id is in use by a request under way"), session)
        elif request.method not in session.era.server_requests:
            self._reply(Failure(request.id, METHOD_NOT_FOUND, "this client knows no such method"), session)
        elif self._sender.closed or len(self._current) >= self._limits.max_answers:
            self._counters["dropped requests"] += 1  # a flood
        else:
            waiting = [each for each in self._pending.values() if not each.done] if origin is None else [origin]
            inbound = InboundRequest(key, place, waiting, self._nesting(waiting))
            if refusal := self._refusal(inbound):
                self._remember(place)
                self._reply(Failure(request.id, ASKED_TOO_MUCH, f"this client's limit {refusal}"), session)
            else:
                self._start(inbound, request, session, origin)

    def _start(
        self, inbound: InboundRequest, request: Request, session: Session, origin: PendingRequest | None
    ) -> None:
        waiting = inbound.waiting
        for pending in waiting:
            pending.timeouts.pause()
        # Over HTTP a request on a call's own stream belongs to that call; on another it "SHOULD be unrelated" to any.
        # Over a pipe it belongs to the only call that the server can be working on.
        named = origin is not None or not (self._stream_per_request or self._serves_abandoned())
        call = waiting[0].call if named and len(waiting) == 1 else None
        outer = None if call is None else call.outer(waiting[0].request.id, inferred=origin is None)
        run = partial(self._run, inbound, request, session, outer)
        self._current[inbound.key] = inbound
        inbound.scope = self._application.start(run, None if call is None else call.context)

    def _refusal(self, inbound: InboundRequest) -> str | None:
        """Count a request, and return the limit that it exceeds, if any."""
        nested, most = self._limits.max_nesting, self._limits.max_inputs
        for pending in inbound.waiting:
            pending.inputs += 1
        if inbound.nesting >= nested:
            return f"max_nesting is {nested} handlers within each other"
        if inbound.waiting:
            too_many = min([pending.inputs for pending in inbound.waiting]) > most
            return f"max_inputs is {most} for one call" if too_many else None
        now = self._alarm.loop.time()
        while self._unprompted and self._unprompted[0] <= now - UNPROMPTED_PERIOD:
            self._unprompted.popleft()
        if len(self._unprompted) >= most:
            return f"max_inputs is {most} in {UNPROMPTED_PERIOD:g} seconds without a call"
        self._unprompted.append(now)
        return None

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

    async def _run(self, inbound: InboundRequest, request: Request, session: Session, call: OuterCall | None) -> None:
        try:
            reply = await self._answer(inbound, request, session, call)
        except BaseException:  # cancelled
            self._end(inbound)
            if not inbound.dropped:
                self._reply(Failure(request.id, CALL_ENDED, "the call that this belonged to has ended"), session)
            raise
        self._end(inbound)
        if inbound.dropped:
            return
        if inbound.scope.cancel_called:  # there is an answer, but this task can await nothing more
            self._reply(reply, session)
        else:
            await self._sender.send(reply, session.era.headers(request.method, {}))

    async def _answer(
        self, inbound: InboundRequest, request: Request, session: Session, call: OuterCall | None
    ) -> Response:
        timeout = partial(self._alarm.timeout, within=inbound.scope)
        reporter = self._reporter(inbound, request, session)
        try:
            with HandlerScope(nesting=inbound.nesting + 1):
                result = await session.answer(
                    request.method, request.params, call, size=request.size, timeout=timeout, reporter=reporter
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
            if self._current.get(inbound.key) is inbound and not inbound.dropped:
                report = Notification("notifications/progress", params)
                await self._sender.send(report, session.era.headers(report.method, params))

        from mcp_host.server_requests import ProgressReporter  # on demand: many clients have no handlers

        return ProgressReporter(token, send)

    def _end(self, inbound: InboundRequest) -> None:
        del self._current[inbound.key]
        for pending in inbound.waiting:
            pending.timeouts.resume()
        self._remember(inbound.place)

    def _remember(self, place: Place) -> None:
        if self._stream_per_request:
            self._answered[place] = None
            if len(self._answered) > REMEMBERED:
                self._answered.popitem(last=False)

    def _reply(self, reply: Success | Failure, session: Session) -> None:
        self._sender.send_soon(reply, session.era.headers("", {}))

    def cancel(self, key: Key) -> None:
        """The server has cancelled its request: "the receiver SHOULD NOT send a response"."""
        if inbound := self._current.get(key):
            inbound.dropped = True
            inbound.scope.cancel()

    def drop_before(self, epoch: float) -> None:
        """The sessions before *epoch* have ended: their requests must not be answered in a later one."""
        for key in self._current:
            if key[0] < epoch:
                self.cancel(key)

    def request_abandoned(self, id: Id) -> None:
        """We have cancelled the request with *id*. Servers that respect that never answer it."""
        self._serves_abandoned()  # which drops old ones
        self.abandoned[id] = self._alarm.loop.time() + self._limits.idle_timeout

    def _serves_abandoned(self) -> bool:
        """Whether, over a pipe, the server may still be working on a request that we have cancelled."""
        now = self._alarm.loop.time()
        while self.abandoned and next(iter(self.abandoned.values())) <= now:
            self.abandoned.popitem(last=False)
        return bool(self.abandoned)

    def request_ended(self, pending: PendingRequest) -> None:
        """A request of ours has ended: what belonged only to it is cancelled."""
        for inbound in self._current.values():
            if pending in inbound.waiting:
                inbound.waiting.remove(pending)
                pending.timeouts.resume()
                if not inbound.waiting:
                    inbound.scope.cancel()
