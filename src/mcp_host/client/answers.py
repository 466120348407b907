"""The server's requests that are in our hands, each answered at most once."""

from __future__ import annotations

import logging
import math
from collections import Counter, deque
from typing import TypeAlias

from anyio import CancelScope

from mcp_host.client.exchange import PendingExchange
from mcp_host.client.session import Session
from mcp_host.errors import InputRefused
from mcp_host.limits import Limits
from mcp_host.protocol.codes import ASKED_TOO_MUCH
from mcp_host.protocol.jsonrpc import INTERNAL_ERROR, Failure, Id, Request, Response, Success
from mcp_host.sampling import OuterCall

logger = logging.getLogger(__name__)

FAILED = "this client failed to answer"  # what a server is told, and nothing of the reason

REMEMBERED = 1024  # answered ids kept to recognise a replay; resumption replays recent events only

Key: TypeAlias = tuple[int, Id]  # (session epoch, request id)
Place: TypeAlias = tuple[Key, Id | None]  # and the call on whose stream it came


class Answer:
    """One request of the server's, being answered."""

    def __init__(
        self, key: Key, origin: PendingExchange | None, outer: PendingExchange | None, waiting: list[PendingExchange]
    ) -> None:
        self.key = key
        self.origin = origin
        """The call of ours on whose stream it came, where that is known."""
        self.outer = outer
        self.scope: CancelScope
        """What it is answered in."""
        self.unwanted = False
        """The server cancelled it: "the receiver SHOULD NOT send a response"."""
        self.refusal: InputRefused | None = None
        """Why it is not to be answered."""
        self.waiting = waiting
        """The calls that cannot go on before this is answered."""
        for exchange in waiting:
            exchange.pause()

    async def find(self, request: Request, session: Session, call: OuterCall | None) -> Response:
        """What to say to *request*, whatever it takes to find that out."""
        try:
            if self.refusal is not None:
                raise self.refusal
            result = await session.inputs.answer(
                request.method, request.params, call, size=request.size, within=self.scope
            )
            return Success(request.id, result)
        except InputRefused as exc:
            return Failure(request.id, exc.code, str(exc), exc.data)
        except Exception:  # a bug of ours or of a handler: ours to log, not the server's to read
            logger.exception("answering %s failed", request.method)
            return Failure(request.id, INTERNAL_ERROR, FAILED)

    def finish(self) -> None:
        for exchange in self.waiting:
            exchange.resume()

    def drop(self) -> None:
        """Stop answering; nobody waits for it."""
        self.unwanted = True
        self.scope.cancel()


class Answers:
    """All requests in our hands, by session and id. Where a stream may *replay* some, those answered are remembered."""

    def __init__(self, limits: Limits, *, replays: bool) -> None:
        self._limits = limits
        self._replays = replays
        self._asked: Counter[PendingExchange | None] = Counter()  # for each call that waits, and between calls
        self._current: dict[Key, Answer] = {}
        self._done: deque[Place] = deque(maxlen=REMEMBERED)
        self._seen: set[Place] = set()

    def __contains__(self, key: Key) -> bool:
        return key in self._current

    def full(self) -> bool:
        return len(self._current) >= self._limits.max_answers

    def answered(self, key: Key, origin: PendingExchange | None) -> bool:
        """Whether this very request has been answered before, on the same stream.

        On another it is no replay: a server without sessions that was started again counts anew.
        """
        return self._replays and _place(key, origin) in self._seen

    def begin(self, answer: Answer) -> None:
        self._current[answer.key] = answer
        least = math.inf
        for exchange in answer.waiting or (None,):
            self._asked[exchange] += 1
            least = min(least, self._asked[exchange])
        most = self._limits.max_inputs
        if least > most:
            answer.refusal = InputRefused(ASKED_TOO_MUCH, f"this client's limit max_inputs is {most} for one call")

    def end(self, answer: Answer) -> None:
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

    def call_ended(self, exchange: PendingExchange) -> None:
        """A call is over: whatever the server asked on its behalf is moot."""
        if self._asked:
            del self._asked[exchange], self._asked[None]  # a Counter does not mind what it has not
        if self._current:
            for answer in list(self._current.values()):
                if answer.outer is exchange:
                    answer.scope.cancel()

    def drop_before(self, epoch: float) -> None:
        """The sessions before *epoch* are over: their requests must not be answered into the next one."""
        for answer in list(self._current.values()):
            if answer.key[0] < epoch:
                answer.drop()


def _place(key: Key, origin: PendingExchange | None) -> Place:
    return key, None if origin is None else origin.request.id
