"""Functions that ask the client for input in 2026-07-28, where a result asks and a retry answers.

A running coroutine cannot be repeated for the retry: it has side effects and local
variables. So it stays suspended where it asked, in a task that outlives the request, and
the `requestState` of the result refers to it.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from secrets import token_urlsafe
from typing import Any, TypeAlias

from anyio import CancelScope, Event, current_time, get_cancelled_exc_class
from anyio.lowlevel import checkpoint

from mcp_host.protocol.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, Params, Request
from mcp_host.testing._server.dispatcher import Future
from mcp_host.testing.context import Call, Context
from mcp_host.testing.errors import RequestError

QUIET_PASSES = 16  # passes of the event loop without a new question, after which a round is complete

Spawn: TypeAlias = Callable[[Callable[[], Coroutine[Any, Any, None]]], object]
"""Starts a task that may outlive the current request."""


class SuspendedCall:
    """One function, over the request that called it and all its retries.

    Questions that the function asks at the same time go into one round. A round is complete
    when the function has asked nothing new for `QUIET_PASSES` passes of the event loop, in
    each of which every task that can run does run. (Whether a waiting task will ask later
    cannot be known: it may wait for a clock, a thread, or another task's answer.) A task
    that asks later does so in the next round; its notifications in between are lost.
    """

    def __init__(self, call: Call) -> None:
        self.ended = Event()
        self._call = replace(call, notify=self._notify)
        self._current: Call | None = None
        """The request that waits for this function, if there is one."""
        self._questions: dict[str, tuple[Params, Future[Params]]] = {}
        self._count = 0
        self._outcome: Params | Exception = RequestError(INTERNAL_ERROR, "the server has given up this request")
        self._changed = Event()
        self._scope = CancelScope()

    async def run(self, function: Callable[[Context], Awaitable[Params]]) -> None:
        """Run *function* until it has ended."""
        try:
            with self._scope:
                try:
                    self._outcome = await function(Context(self._call, self._request))
                except Exception as exc:
                    self._outcome = exc  # raised by `result`
        finally:
            self.ended.set()
            self._changed.set()

    async def resume(self, call: Call, answers: Mapping[str, Params]) -> dict[str, Params]:
        """Continue with *answers* until the function has ended or asks again; return its open questions.

        Unknown answers are ignored. If the caller is cancelled, so is the function.
        """
        self._current, self._scope.deadline = call, math.inf
        self._call.request, self._call.client = call.request, call.client
        for key, (_, answer) in self._questions.items():
            if key in answers:
                answer.set(answers[key])
        try:
            return await self._next_round()
        except get_cancelled_exc_class():
            self.cancel()
            raise
        finally:
            self._current = None

    def result(self) -> Params:
        """What the function returned; raises what it raised."""
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome

    def cancel_at(self, deadline: float) -> None:
        self._scope.deadline = deadline

    def cancel(self) -> None:
        self._scope.cancel()

    async def _next_round(self) -> dict[str, Params]:
        quiet = 0
        while not self.ended.is_set():
            count = self._count
            questions = {key: question for key, (question, answer) in self._questions.items() if not answer.done}
            if not questions:
                self._changed = Event()
                await self._changed.wait()
            elif quiet == QUIET_PASSES:
                return questions
            else:
                await checkpoint()
            quiet = quiet + 1 if questions and count == self._count else 0
        return {}

    async def _request(self, method: str, params: Params) -> Params:
        self._count += 1
        key, answer = f"{method.partition('/')[0]}-{self._count}", Future[Params]()
        self._questions[key] = {"method": method, "params": params}, answer
        self._changed.set()
        try:
            return await answer.wait()
        finally:
            del self._questions[key]

    def _notify(self, method: str, params: Params) -> None:
        if self._current is not None:
            self._current.notify(method, params)


@dataclass(frozen=True, slots=True)
class SuspendedState:
    """What a `requestState` refers to."""

    call: SuspendedCall
    request: tuple[object, ...]
    expires: float

    @staticmethod
    def identity(request: Request) -> tuple[object, ...]:
        """What a retry has in common with the request that it repeats."""
        params = request.params
        return request.method, params.get("name"), params.get("uri"), params.get("arguments") or {}


class SuspendedCalls:
    """All calls of one connection or HTTP endpoint that may ask for input.

    Up to *limit* of them are suspended at a time, each for *timeout* seconds. A request
    state is a random key, valid once and for a retry of the same request: "an identifier
    for the originating request" and "a short expiry" (basic/patterns/mrtr).
    """

    def __init__(self, spawn: Spawn, limit: int, timeout: float) -> None:
        self._spawn = spawn
        self._limit = limit
        self._timeout = timeout
        self._running: set[SuspendedCall] = set()
        self._states: dict[str, SuspendedState] = {}

    def start(self, call: Call, function: Callable[[Context], Awaitable[Params]]) -> SuspendedCall:
        """Run *function* in a task."""
        suspended = SuspendedCall(call)

        async def run() -> None:
            self._running.add(suspended)
            try:
                await suspended.run(function)
            finally:
                self._running.discard(suspended)

        self._spawn(run)
        return suspended

    def suspend(self, suspended: SuspendedCall, request: Request) -> str:
        """Keep a call for its retry, and return the request state that resumes it.

        Raises:
            RequestError: Too many calls are suspended. This one has been cancelled.
        """
        now = current_time()
        self._states = {key: state for key, state in self._states.items() if now < state.expires}
        if len(self._states) >= self._limit:
            suspended.cancel()
            raise RequestError(INTERNAL_ERROR, f"{self._limit:,} calls wait for input already (max_suspended)")
        key, expires = token_urlsafe(32), now + self._timeout
        self._states[key] = SuspendedState(suspended, SuspendedState.identity(request), expires)
        suspended.cancel_at(expires)
        return key

    def resume(self, request: Request) -> SuspendedCall:
        """Look up the call of a retry. Its request state is used up.

        Raises:
            RequestError: The state is unknown, expired, used, or of another request.
        """
        key = request.params["requestState"]
        state = self._states.get(key) if isinstance(key, str) else None
        if state is None:
            raise RequestError(INVALID_PARAMS, "requestState is unknown, or has been used already")
        if state.request != SuspendedState.identity(request):
            raise RequestError(INVALID_PARAMS, "requestState belongs to another request")
        del self._states[key]
        if current_time() >= state.expires:
            raise RequestError(INVALID_PARAMS, "requestState has expired")
        return state.call

    async def aclose(self) -> None:
        """Cancel every call and wait until it has ended."""
        for suspended in list(self._running):
            suspended.cancel()
        for suspended in list(self._running):
            await suspended.ended.wait()
