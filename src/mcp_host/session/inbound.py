"""The server's requests: each is answered at most once, and none in a later session."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from anyio import CancelScope, move_on_after, sleep
from anyio.abc import TaskGroup

from mcp_host.concurrency import HandlerTasks
from mcp_host.errors import CallerError, ConnectionClosed, HttpStatusError, InputRefused, McpError, SessionLost
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
from mcp_host.sampling import OuterCall
from mcp_host.sampling.progress import ProgressReporter
from mcp_host.session.call import enter_handler
from mcp_host.session.config import Session
from mcp_host.session.pending import PendingRequest
from mcp_host.transports.base import Channel, Headers

if TYPE_CHECKING:
    from mcp_host.session.dispatcher import Dispatcher


logger = logging.getLogger(__name__)


ANSWER_DEADLINE = 30.0  # seconds for delivering an answer or a cancellation: short of any sensible call timeout


class BackgroundSender:
    """Sends over *channel*, *limit* messages at a time; *on_done* is called whenever one of them is out of hand."""

    def __init__(
        self, channel: Channel, tasks: TaskGroup, limit: int, counters: Counter[str], on_done: Callable[[], None]
    ) -> None:
        self.under_way = 0
        self._channel = channel
        self._tasks = tasks
        self._limit = limit
        self._counters = counters
        self._on_done = on_done

    def soon(self, message: Notification | Success | Failure, headers: Headers) -> None:
        """Send *message*: now, where that takes no waiting, or `later`."""
        if not self.at_once(message):
            self.later(message, headers)

    def later(self, message: Notification | Success | Failure, headers: Headers) -> None:
        """Send *message* in a task of its own, unless too many are on their way."""
        if self.under_way >= self._limit:
            self._counters["dropped answers"] += 1  # a flood of pings, say, by somebody who reads no answers
        else:
            self.under_way += 1
            self._tasks.start_soon(self._counted, message, headers)

    async def now(self, message: Notification | Success | Failure, headers: Headers) -> None:
        """Send *message*, and wait for that. Never raises: the link may have died, and everyone knows."""
        await self._deliver(message, headers)

    def at_once(self, message: Notification | Success | Failure) -> bool:
        """Send *message* if that takes no waiting; whether it is out of hand."""
        try:
            return self._channel.send_now(message)
        except CallerError:
            return False  # to be found out again where it is dealt with
        except McpError as exc:
            self._undelivered(exc)
            return True

    def _undelivered(self, error: McpError) -> None:
        self._counters["undelivered messages"] += 1
        logger.debug("not delivered: %s", error)

    async def _deliver(self, message: Notification | Success | Failure, headers: Headers) -> None:
        with move_on_after(ANSWER_DEADLINE):
            try:
                await self._send(message, headers)
            except CallerError:
                logger.exception("what was to be sent is not JSON")
                if isinstance(message, Success | Failure):  # the server must not wait for ever
                    await self._deliver(Failure(message.id, INTERNAL_ERROR, FAILED), headers)
            except McpError as exc:
                self._undelivered(exc)

    async def _send(self, message: Notification | Success | Failure, headers: Headers) -> None:
        """Send *message*; an answer again if it may have been lost on its way, for a server takes it but once."""
        is_answer = isinstance(message, Success | Failure)
        for pause in RETRY_DELAYS if is_answer and self._channel.stream_per_request else ():
            try:
                return await self._channel.send(message, headers)
            except McpError as exc:
                if not _may_pass(exc):
                    raise
            await sleep(pause)
        return await self._channel.send(message, headers)

    async def _counted(self, message: Notification | Success | Failure, headers: Headers) -> None:
        try:
            await self._deliver(message, headers)
        finally:
            self.under_way -= 1
            self._on_done()


def _may_pass(error: McpError) -> bool:
    """Whether what kept a message from its server may be over in a moment."""
    if isinstance(error, HttpStatusError):
        return error.transient
    return isinstance(error, ConnectionClosed) and not isinstance(error, SessionLost)


FAILED = "this client failed to answer"  # what a server is told, and nothing of the reason

UNPROMPTED_PERIOD = 3600.0  # seconds in which a server may ask as much between calls as within one: `max_inputs`

REMEMBERED = 1024  # answered ids kept to recognise a replay; resumption replays recent events only

Key: TypeAlias = tuple[int, Id]  # (session epoch, request id)
Place: TypeAlias = tuple[Key, Id | None]  # and the call on whose stream it came


class InboundRequest:
    """One request of the server's, being answered."""

    def __init__(self, key: Key, origin: PendingRequest | None, waiting: list[PendingRequest]) -> None:
        self.key = key
        self.origin = origin
        """The call of ours on whose stream it came, where that is known."""
        self.scope: CancelScope
        """What it is answered in."""
        self.ended = False
        self.unwanted = False
        """The server cancelled it: "the receiver SHOULD NOT send a response"."""
        self.refusal: InputRefused | None = None
        """Why it is not to be answered."""
        self.waiting = waiting
        """The calls in flight that it may belong to: they cannot go on before it is answered, and it ends with
        the last of them. Empty for what came between calls."""
        self.nesting = 0
        """That of the call that it belongs to, as far as can be told."""
        for pending_request in waiting:
            pending_request.pause()

    async def find(
        self, request: Request, session: Session, call: OuterCall | None, reporter: ProgressReporter | None
    ) -> Response:
        """What to say to *request*, whatever it takes to find that out."""
        try:
            if self.refusal is not None:
                raise self.refusal
            enter_handler(self.nesting)
            result = await session.inputs.answer(
                request.method, request.params, call, size=request.size, within=self.scope, reporter=reporter
            )
            return Success(request.id, result)
        except InputRefused as exc:
            return Failure(request.id, exc.code, str(exc), exc.data)
        except Exception:  # a bug of ours or of a handler: ours to log, not the server's to read
            logger.exception("answering %s failed", request.method)
            return Failure(request.id, INTERNAL_ERROR, FAILED)

    def finish(self) -> None:
        self.ended = True
        for pending_request in self.waiting:
            pending_request.resume()

    def call_ended(self, pending_request: PendingRequest) -> None:
        """A call is over. With the last that this may belong to, the question is moot."""
        if pending_request in self.waiting:
            self.waiting.remove(pending_request)
            if not self.waiting:
                self.scope.cancel()

    def drop(self) -> None:
        """Stop answering; nobody waits for it."""
        self.unwanted = True
        self.scope.cancel()


class InboundRequests:
    """All requests in our hands, by session and id. Where a stream may *replay* some, those answered are remembered."""

    def __init__(self, limits: Limits, clock: Callable[[], float], *, replays: bool) -> None:
        self._limits = limits
        self._clock = clock
        self._replays = replays
        self._unprompted: deque[float] = deque()  # when those came that no call waits for, the oldest first
        self._current: dict[Key, InboundRequest] = {}
        self._done: deque[Place] = deque(maxlen=REMEMBERED)
        self._seen: set[Place] = set()

    def __contains__(self, key: Key) -> bool:
        return key in self._current

    def full(self) -> bool:
        return len(self._current) >= self._limits.max_answers

    def answered(self, key: Key, origin: PendingRequest | None) -> bool:
        """Whether this very request has been answered before, on the same stream.

        On another it is no replay: a server without sessions that was started again counts anew.
        """
        return self._replays and _place(key, origin) in self._seen

    def begin(self, answer: InboundRequest) -> None:
        answer.nesting = self._nesting(answer.waiting)
        self._current[answer.key] = answer
        for pending_request in answer.waiting:
            pending_request.asked += 1
        most = self._limits.max_inputs
        if answer.nesting >= self._limits.max_nesting:
            answer.refusal = _asked_too_much("max_nesting", f"{self._limits.max_nesting} handlers within each other")
        elif not answer.waiting:
            if not self._has_room_for_unprompted(most):
                answer.refusal = _asked_too_much(
                    "max_inputs", f"{most} in {UNPROMPTED_PERIOD:g} seconds without a call"
                )
        elif min([pending_request.asked for pending_request in answer.waiting]) > most:
            answer.refusal = _asked_too_much("max_inputs", f"{most} for one call")

    def _nesting(self, waiting: list[PendingRequest]) -> int:
        """The nesting of the call that asks, which is one of *waiting*.

        Where there are several, it is the outermost that can be expected to ask: most servers await
        one answer for each call. Where each call has asked already, it is the innermost.
        """
        nestings = sorted([each.call.nesting for each in waiting if each.call is not None])
        if not nestings or nestings[0] == nestings[-1]:
            return nestings[0] if nestings else 0
        asked = Counter(answer.nesting for answer in self._current.values())
        for nesting, calls in Counter(nestings).items():  # in order
            if asked[nesting] < calls:
                return nesting
        return nestings[-1]

    def _has_room_for_unprompted(self, most: int) -> bool:
        """Take note of a request that no call waits for, unless there were as many in the last period."""
        now = self._clock()
        while self._unprompted and self._unprompted[0] <= now - UNPROMPTED_PERIOD:
            self._unprompted.popleft()
        if len(self._unprompted) >= most:
            return False
        self._unprompted.append(now)
        return True

    def end(self, answer: InboundRequest) -> None:
        del self._current[answer.key]
        answer.finish()
        if self._replays:
            self._remember(_place(answer.key, answer.origin))

    def _remember(self, place: Place) -> None:
        if len(self._done) == REMEMBERED:
            self._seen.discard(self._done[0])
        self._done.append(place)
        self._seen.add(place)

    def cancel(self, key: Key) -> None:
        """The server wants no answer any more."""
        if answer := self._current.get(key):
            answer.drop()

    def call_ended(self, pending_request: PendingRequest) -> None:
        """A call is over: whatever the server asked on its behalf is moot."""
        if self._current:
            for answer in list(self._current.values()):
                answer.call_ended(pending_request)

    def drop_before(self, epoch: float) -> None:
        """The sessions before *epoch* are over: their requests must not be answered into the next one."""
        for answer in list(self._current.values()):
            if answer.key[0] < epoch:
                answer.drop()


def _asked_too_much(limit: str, bound: str) -> InputRefused:
    return InputRefused(ASKED_TOO_MUCH, f"this client's limit {limit} is {bound}")


def _place(key: Key, origin: PendingRequest | None) -> Place:
    return key, None if origin is None else origin.request.id


class RequestHandler:
    """Takes the server's requests, and has each answered by one of the *application*'s jobs."""

    def __init__(
        self, dispatcher: Dispatcher, application: HandlerTasks, answers: InboundRequests, sender: BackgroundSender
    ) -> None:
        self._dispatcher = dispatcher
        self._application = application
        self._answers = answers
        self._sender = sender

    def take(self, request: Request, session: Session, origin: PendingRequest | None) -> None:
        """Answer *request*, or say or count why not; *origin* is the call on whose stream it came."""
        key = (session.epoch, request.id)
        if not session.era.server_requests:
            self._dispatcher.counters["requests that no server may send"] += 1
        elif request.method == "ping":
            self._reply(Success(request.id, {}), session)
        elif key in self._answers or self._answers.answered(key, origin):
            self._repeated(request, session)
        elif request.method not in session.era.server_requests:
            self._reply(Failure(request.id, METHOD_NOT_FOUND, "this client knows no such method"), session)
        elif not self._dispatcher.alive or self._answers.full():
            self._dispatcher.counters["dropped requests"] += 1  # a flood that does not even wait for its answers
        else:
            self._begin(request, session, origin)

    def _begin(self, request: Request, session: Session, origin: PendingRequest | None) -> None:
        waiting = (
            [origin]
            if origin is not None
            else [each for each in self._dispatcher.pending.values() if not each.answered]
        )
        outer = waiting[0] if len(waiting) == 1 else None
        # Over HTTP a call's own stream names it; what comes on another "SHOULD be unrelated" to any call.
        # A pipe names none: a question is of the only call that the server can be working on.
        named = origin is not None or not (
            self._dispatcher.stream_per_request or self._dispatcher.serves_abandoned_calls
        )
        made = outer.call if outer is not None and named else None
        call = None if made is None else made.outer(waiting[0].request.id, inferred=origin is None)
        context = None if made is None else made.context
        answer = InboundRequest((session.epoch, request.id), origin, waiting)
        self._answers.begin(answer)
        answer.scope = self._application.start(partial(self._answer, answer, request, session, call), context)

    def _repeated(self, request: Request, session: Session) -> None:
        """The same id again: over HTTP a replay after resumption, elsewhere a mistake of the server's."""
        self._dispatcher.counters["repeated requests"] += 1
        if not self._dispatcher.stream_per_request:
            self._reply(Failure(request.id, INVALID_REQUEST, "this id is in use by a request under way"), session)

    async def _answer(self, answer: InboundRequest, request: Request, session: Session, call: OuterCall | None) -> None:
        try:
            reply = await answer.find(request, session, call, self._reporter(answer, request, session))
        except BaseException:  # cancelled: it is not wanted any more, or nobody waits for what it was asked for
            self._answers.end(answer)
            if self._is_wanted(answer, session):
                self._reply(Failure(request.id, CALL_ENDED, "the call that this belonged to has ended"), session)
            raise
        self._answers.end(answer)
        if not self._is_wanted(answer, session):
            return
        if answer.scope.cancel_called:  # it was found all the same, but nothing can be awaited here any more
            self._reply(reply, session)
        elif not self._sender.at_once(reply):
            await self._sender.now(reply, session.era.headers(request.method, {}))

    def _reporter(self, answer: InboundRequest, request: Request, session: Session) -> ProgressReporter | None:
        """How a handler tells the server of its progress, if the server has given a token for that."""
        meta = request.params.get("_meta")
        token = meta.get("progressToken") if isinstance(meta, dict) else None
        if not isinstance(token, str | int) or isinstance(token, bool):
            return None

        async def send(params: Params) -> None:
            report = Notification("notifications/progress", params)
            may_be_sent = not answer.ended and self._dispatcher.alive and self._is_wanted(answer, session)
            if may_be_sent and not self._sender.at_once(report):
                await self._sender.now(report, session.era.headers(report.method, params))

        return ProgressReporter(token, send)

    def _is_wanted(self, answer: InboundRequest, session: Session) -> bool:
        current = self._dispatcher.session
        return not answer.unwanted and current is not None and current.epoch == session.epoch

    def _reply(self, reply: Success | Failure, session: Session) -> None:
        if self._dispatcher.alive:
            self._sender.soon(reply, session.era.headers("", {}))
