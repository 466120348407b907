"""The server's requests that are in our hands, each answered at most once."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable
from typing import TypeAlias

from anyio import CancelScope

from mcp_host.errors import InputRefused
from mcp_host.limits import Limits
from mcp_host.protocol.jsonrpc import ASKED_TOO_MUCH, INTERNAL_ERROR, Failure, Id, Request, Response, Success
from mcp_host.sampling import OuterCall
from mcp_host.sampling.progress import ProgressReporter
from mcp_host.session.call import enter_handler
from mcp_host.session.negotiated import Session
from mcp_host.session.pending import PendingRequest

logger = logging.getLogger(__name__)

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
