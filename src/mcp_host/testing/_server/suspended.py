"""Functions that outlive the request they answer: since 2026-07-28 they ask inside a result, and a retry answers.

A function is a coroutine with side effects behind it and values in its hands, so it is not
run again for the retry: it stays where it asked, in a task of its own, and the request
state is its handle.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from secrets import token_hex
from time import monotonic
from typing import Any, TypeAlias

from anyio import CancelScope, Event, current_time, get_cancelled_exc_class
from anyio.lowlevel import checkpoint

from mcp_host.protocol.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, Params, Request
from mcp_host.testing._server.request_state import BadState, StateSigner
from mcp_host.testing.context import Call, Caller, Context
from mcp_host.testing.errors import RequestError

SETTLING = 16  # passes of the event loop without a new question, after which a round is complete: see `SuspendedCall`

Tell: TypeAlias = Callable[[str, Params], None]


@dataclass(frozen=True, slots=True)
class Turn:
    """One request in which a function is at work: the first, or a retry."""

    request: Request
    meta: Mapping[str, Any]
    client: Caller
    least_severity: int
    tell: Tell


@dataclass(frozen=True, slots=True)
class Questions:
    """What a function waits for: requests, each under a name of its own."""

    requests: Mapping[str, Params]


class SuspendedCall:
    """One function at work, for as many turns as it takes.

    What it asks at the same time belongs into one round. When a round is complete nobody
    can know for sure: a task that waits for something else than the client may wait for a
    clock, or for another task that waits for the client. So a round is complete when the
    function has asked nothing new for `SETTLING` passes of the event loop, in each of which
    every task that can run does. Tasks that set out together arrive together. One that is
    slower, because it waits for a thread or a clock, goes on between the turns and asks in
    the next round; what it has to tell meanwhile nobody hears.
    """

    def __init__(self, turn: Turn) -> None:
        self.ended = Event()
        self._turn = turn
        self._heard = False
        self._asked: dict[str, _Question] = {}
        self._count = 0
        self._outcome: Params | Exception | None = None
        self._taken = Event()
        self._news = Event()
        self._scope = CancelScope()
        self._call = Call(turn.request.id, turn.meta, turn.client, self._ask, self._tell, self._least_severity)

    async def run(self, work: Callable[[Context], Awaitable[Params]]) -> None:
        """Do the work. Returns when its outcome has been taken, or never will be."""
        try:
            with self._scope:
                try:
                    self._outcome = await work(Context(self._call))
                except Exception as exc:
                    self._outcome = exc  # for whoever answers the client
                self._stir()
                await self._taken.wait()
        finally:
            self.ended.set()
            self._stir()

    async def go_on(self, turn: Turn, answers: Mapping[str, Params]) -> Params | Questions:
        """Let the function go on with *answers*, until it is done or waits for more of them.

        Answers that nobody waits for are ignored. Returns the function's result, and raises
        what it raised. Whoever gives up waiting for that ends the function.
        """
        self._turn, self._heard, self._scope.deadline = turn, True, math.inf
        self._call.id, self._call.meta, self._call.client = turn.request.id, turn.meta, turn.client
        for key, question in self._asked.items():
            if key in answers:
                question.answer = answers[key]
                question.answered.set()
        try:
            questions = await self._next_round()
        except get_cancelled_exc_class():
            self.cancel()
            raise
        finally:
            self._heard = False
        return self._take() if questions is None else questions

    def suspend(self, seconds: float) -> None:
        """Wait for the next turn for so long. After that the function is cancelled."""
        self._scope.deadline = current_time() + seconds

    def cancel(self) -> None:
        self._scope.cancel()

    async def _next_round(self) -> Questions | None:
        while not self._is_over():
            if not self._open_questions():
                await self._news.wait()
                continue
            await self._settle()
            if not self._is_over() and (questions := self._open_questions()):
                return Questions(questions)
        return None

    def _is_over(self) -> bool:
        return self._outcome is not None or self.ended.is_set()

    async def _settle(self) -> None:
        quiet = 0
        while quiet < SETTLING:
            count = self._count
            await checkpoint()
            quiet = quiet + 1 if count == self._count else 0

    def _open_questions(self) -> dict[str, Params]:
        return {key: question.request for key, question in self._asked.items() if not question.answered.is_set()}

    def _take(self) -> Params:
        self._taken.set()
        if isinstance(self._outcome, Exception):
            raise self._outcome
        if self._outcome is None:
            raise RequestError(INTERNAL_ERROR, "the server has given up this request")
        return self._outcome

    async def _ask(self, method: str, params: Params) -> Params:
        self._count += 1
        key = f"{method.partition('/')[0]}-{self._count}"
        question = self._asked[key] = _Question({"method": method, "params": params})
        self._stir()
        try:
            await question.answered.wait()
        finally:
            del self._asked[key]
        return question.answer

    def _tell(self, method: str, params: Params) -> None:
        if self._heard:
            self._turn.tell(method, params)

    def _least_severity(self) -> int:
        return self._turn.least_severity

    def _stir(self) -> None:
        self._news.set()
        self._news = Event()


class _Question:
    """What the function asked, and the answer once it is there."""

    def __init__(self, request: Params) -> None:
        self.request = request
        self.answered = Event()
        self.answer: Params


class SuspendedCalls:
    """The functions that wait for a retry: up to *limit*, each for *seconds*."""

    def __init__(self, limit: int, seconds: float) -> None:
        self._limit = limit
        self._seconds = seconds
        self._seal = StateSigner()
        self._errands: dict[str, SuspendedCall] = {}

    def keep(self, errand: SuspendedCall, request: Request) -> str:
        """Suspend a function; the request state that brings it back, once.

        Raises:
            RequestError: There is no room. The function has been cancelled.
        """
        self._errands = {handle: kept for handle, kept in self._errands.items() if not kept.ended.is_set()}
        if len(self._errands) >= self._limit:
            errand.cancel()
            raise RequestError(INTERNAL_ERROR, f"{self._limit:,} calls wait for input already (max_suspended)")
        handle = token_hex(16)
        self._errands[handle] = errand
        errand.suspend(self._seconds)
        return self._seal.close(handle, request, monotonic() + self._seconds)

    def resume(self, request: Request) -> SuspendedCall:
        """The function that the request's state stands for.

        Raises:
            RequestError: The state is bad, foreign, expired, or used already.
        """
        try:
            handle = self._seal.open(request.params["requestState"], request, monotonic())
        except BadState as exc:
            raise RequestError(INVALID_PARAMS, str(exc)) from None
        errand = self._errands.pop(handle, None)
        if errand is None or errand.ended.is_set():
            raise RequestError(INVALID_PARAMS, "requestState has been used already, or its call has ended")
        return errand
