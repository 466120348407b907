"""A request under way: its deadline, its progress, and the one answer it gets."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

from anyio import CancelScope, sleep_forever

from mcp_host._backends import Loop, Signal
from mcp_host.errors import McpError
from mcp_host.handlers import HandlerScope
from mcp_host.protocol.jsonrpc import Id, Incoming, Notification, Params, Request, Response
from mcp_host.session.call import Call, CallTimeouts, OnReport

MAX_REPORTS = 1024  # progress that waits for a slow callback; past it the newest replaces the one before

OnEvent: TypeAlias = Callable[[Notification], None]
Ending: TypeAlias = Response | McpError
Route: TypeAlias = "Callable[[Incoming, PendingRequest], None]"


class PendingRequest:
    """One request between its sending and its answer. Implements `transports.base.Exchange`."""

    def __init__(
        self,
        request: Request,
        timeouts: CallTimeouts,
        route: Route,
        deadlines: Deadlines,
        on_report: OnReport | None,
        on_event: OnEvent | None,
        call: Call | None = None,
    ) -> None:
        self.request = request
        self.call = call
        """The application's call that this is a request of, if it is of any."""
        self.on_event = on_event
        """Takes the notifications of a subscription, if this is one."""
        self.asked = 0
        """How many requests of the server's may have been for this."""
        self.outcome: Ending | None = None
        self.withdrawn = False
        self.callers_own: McpError | None = None
        """What the caller's callback raised: it comes out of the channel, and is no failure of the channel's."""
        self.deadline = math.inf
        """When to `expire`, on the event loop's clock."""
        self._route = route
        self._deadlines = deadlines
        self._on_report = on_report
        self._reports: deque[Params] = deque()
        self._reporting = False
        self._waits_its_turn = False
        self._expired = False
        self._wake: Signal | None = None
        self._scope: CancelScope | None = None
        self._inputs = 0
        self._timeouts = timeouts
        timeouts.observe(self.heard)
        self.heard()

    # What a channel uses

    @property
    def answered(self) -> bool:
        return self.outcome is not None

    @property
    def over(self) -> bool:
        return self._expired or self.outcome is not None

    def receive(self, message: Incoming) -> None:
        self._route(message, self)

    def fail(self, error: McpError) -> None:
        self.settle(error)

    async def response(self) -> None:
        while True:
            if self._reports:
                await self.progress()
            if self._expired or self.outcome is not None:
                return
            self._wake = self._deadlines.loop.signal()
            await self._wake.wait()
            self._wake = None

    @contextmanager
    def unsent(self) -> Iterator[None]:
        self.withdrawn = self._waits_its_turn = True  # unless it comes to its end
        self.heard()
        yield
        self.withdrawn = self._waits_its_turn = False
        self.heard()

    @contextmanager
    def bounded(self) -> Iterator[None]:
        try:
            with CancelScope() as self._scope:
                if self.over:
                    self._scope.cancel()
                yield
        finally:
            self._scope = None

    async def progress(self) -> None:
        """Await the caller's callback for each report so far, in order. The server's silence does not count meanwhile."""
        if not self._reports or self._on_report is None or (self._expired and not self._answered_in_time()):
            return
        self._reporting = True
        self.heard()
        try:
            # A scope of its own, for the callback may outlive the link and its alarm.
            with HandlerScope(), self._timeouts.scope() as scope:
                while self._reports:
                    await self._on_report(self._reports.popleft())
        except McpError as exc:
            self.callers_own = exc
            raise
        finally:
            self._reporting = False
            self.heard()
        if scope.cancelled_caught:
            self.expire()

    def _answered_in_time(self) -> bool:
        """Whether there is an answer, and the call's timeout has not passed: then its reports are delivered, too."""
        return self.outcome is not None and self._deadlines.loop.time() < self._timeouts.end

    # What the link uses

    @property
    def wants_reports(self) -> bool:
        """Whether it has a progress token: then reports are a sign of life."""
        return self._on_report is not None

    def report(self, params: Params) -> None:
        """The server reported progress."""
        if self.outcome is not None:
            return
        if len(self._reports) >= MAX_REPORTS:
            self._reports.pop()
        self._reports.append(params)
        if self._wake is None:
            self.heard()
        else:
            self.deadline = self._timeouts.end  # the callback's turn: see `progress`
            self._wake.set()

    def settle(self, outcome: Ending, *, by: PendingRequest | None = None) -> bool:
        """Take the answer, unless there is one already; *by* is the exchange on whose stream it came."""
        if self.outcome is not None:
            return False
        self.outcome = outcome
        if by is not self and not self._reporting:
            self._rouse()
        return True

    @property
    def waiting(self) -> bool:
        """Whether time matters to it: there is no answer yet, or the caller's callback is at work."""
        return not self._expired and (self.outcome is None or self._reporting)

    def expire(self) -> None:
        """Its time is up."""
        self._expired = True
        self._rouse()

    def _rouse(self) -> None:
        """Have its own task go on, whether it waits for a signal or in a read that nothing more will come to."""
        if self._wake is not None:
            self._wake.set()
        elif self._scope is not None:
            self._scope.cancel()

    def heard(self, now: float | None = None) -> None:
        """A sign of life: the server's silence begins anew. Also called when the call's clocks stop or go on, at *now*."""
        if self._reporting or self._waits_its_turn:  # it is our side that takes its time
            self.deadline = self._timeouts.end
        else:
            self.deadline = self._timeouts.idle_end(self._deadlines.loop.time() if now is None else now)
        if self.deadline < self._deadlines.next:
            self._deadlines.ring_at(self.deadline)

    def pause(self) -> None:
        """It is our turn: the call's clocks stop until `resume`, or until this is over."""
        if not self._inputs:
            self._timeouts.pause()
        self._inputs += 1

    def resume(self) -> None:
        if self._inputs:  # else this has been left meanwhile
            self._inputs -= 1
            if not self._inputs:
                self._timeouts.resume()

    def leave(self) -> None:
        """This is over. The call's clocks go on with its next request, whatever is still being answered."""
        self._timeouts.unobserve(self.heard)
        if self._inputs:
            self._inputs = 0
            self._timeouts.resume()

    def overdue(self) -> str:
        """In words, which of the call's clocks has run out."""
        return self._timeouts.overdue()


class Deadlines:
    """Has each of the *pending* exchanges expire when its time is up.

    One alarm serves them all: most deadlines never come, and a timer for each would
    cost more than the rest of a call's bookkeeping.
    """

    def __init__(self, pending: Mapping[Id, PendingRequest], loop: Loop) -> None:
        self.loop = loop
        self._pending = pending
        self.next = math.inf
        """When the alarm rings."""
        self._alarm = CancelScope()

    def ring_at(self, deadline: float) -> None:
        """Set the alarm to *deadline*, which is sooner than it would ring."""
        self.next = self._alarm.deadline = deadline

    async def run(self) -> None:
        """Ring for as long as the connection lasts."""
        while True:
            with CancelScope(deadline=self.next) as self._alarm:
                await sleep_forever()
            self._expire()

    def _expire(self) -> None:
        now = self.loop.time()
        for pending_request in self._pending.values():
            if pending_request.waiting and pending_request.deadline <= now:
                pending_request.expire()
        self.next = min((each.deadline for each in self._pending.values() if each.waiting), default=math.inf)
