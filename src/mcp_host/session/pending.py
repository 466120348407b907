"""A request in flight: a state machine that ends with one outcome.

            queued() ends            a report arrives
    QUEUED ───────────────► WAITING ◄────────────────► REPORTING
       │                       │      callback is done     │
       └───────────────────────┼───────────────────────────┘
                               ▼
          outcome set: a response, or an error     (`settle`)
          expired: a timeout has passed            (`expire`)

The deadline is the end of the call's *idle_timeout* while WAITING, and of its *timeout* in
QUEUED and REPORTING: then it is not the server that is slow.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

from anyio import CancelScope, sleep_forever

from mcp_host._backends import Loop, Signal
from mcp_host.errors import ConnectionClosed, HttpStatusError, McpError, RequestTimeout
from mcp_host.handlers import HandlerScope
from mcp_host.protocol.jsonrpc import Failure, Id, Incoming, Notification, Params, Request, Response, Success
from mcp_host.session.call import Call, CallTimeouts, OnReport, server_error

MAX_REPORTS = 1024  # progress reports kept for a slow callback; after that a new one replaces the last

OnEvent: TypeAlias = Callable[[Notification], None]
Route: TypeAlias = "Callable[[Incoming, PendingRequest], None]"


class PendingRequest:
    """One request until its outcome. Implements `transports.base.RequestHandle`."""

    def __init__(
        self,
        request: Request,
        timeouts: CallTimeouts,
        route: Route,
        alarm: DeadlineAlarm,
        on_report: OnReport | None = None,
        on_event: OnEvent | None = None,
        call: Call | None = None,
        *,
        stateless: bool = False,
    ) -> None:
        self.request = request
        self.stateless = stateless
        self.timeouts = timeouts
        self.call = call
        """The application's call that this request belongs to, if any."""
        self.on_report = on_report
        """Takes progress, if the request has a progress token."""
        self.on_event = on_event
        """Takes the notifications of a subscription, if this is one."""
        self.inputs = 0
        """How many requests of the server may have belonged to this one."""
        self.outcome: Response | McpError | None = None
        self.unsent = False
        self.callback_error: McpError | None = None
        """What the progress callback raised. It passes through the channel, but is no failure of the channel."""
        self.deadline = math.inf
        """When to `expire`, on the event loop's clock."""
        self._route = route
        self._alarm = alarm
        self.reports: deque[Params] = deque()
        self._queued = False
        self._reporting = False
        self._expired = False
        self._wake: Signal | None = None
        self._scope: CancelScope | None = None
        timeouts.observe(self.restart_idle)
        self.restart_idle()

    # For channels

    @property
    def answered(self) -> bool:
        return self.outcome is not None

    @property
    def done(self) -> bool:
        return self._expired or self.outcome is not None

    def receive(self, message: Incoming) -> None:
        self._route(message, self)

    def fail(self, error: McpError) -> None:
        self.settle(error)

    async def wait(self) -> None:
        while True:
            if self.reports:
                await self.deliver_progress()
            if self._expired or self.outcome is not None:
                return
            self._wake = self._alarm.loop.signal()
            await self._wake.wait()
            self._wake = None

    @contextmanager
    def queued(self) -> Iterator[None]:
        self.unsent = self._queued = True  # stays so if the block raises
        self.restart_idle()
        yield
        self.unsent = self._queued = False
        self.restart_idle()

    @contextmanager
    def bounded(self) -> Iterator[None]:
        try:
            with CancelScope() as self._scope:
                if self.done:
                    self._scope.cancel()
                yield
        finally:
            self._scope = None

    async def deliver_progress(self) -> None:
        """Await the caller's callback for each report so far, in order. *idle_timeout* is paused meanwhile."""
        if not self.reports or self.on_report is None:
            return
        if self._expired and (self.outcome is None or self._alarm.loop.time() >= self.timeouts.end):
            return  # reports that came with an answer in time are delivered
        self._reporting = True
        self.restart_idle()
        try:
            # This needs its own scope: the callback may outlive the connection and its alarm.
            with HandlerScope(), self.timeouts.scope() as scope:
                while self.reports:
                    await self.on_report(self.reports.popleft())
        except McpError as exc:
            self.callback_error = exc
            raise
        finally:
            self._reporting = False
            self.restart_idle()
        if scope.cancelled_caught:
            self.expire()

    # For the dispatcher

    def report(self, params: Params) -> None:
        """The server has reported progress."""
        if self.outcome is not None:
            return
        if len(self.reports) >= MAX_REPORTS:
            self.reports.pop()
        self.reports.append(params)
        if self._wake is None:
            self.restart_idle()
        else:
            self.deadline = self.timeouts.end  # REPORTING begins
            self._wake.set()

    def settle(self, outcome: Response | McpError, *, by: PendingRequest | None = None) -> bool:
        """Set the outcome, unless there is one; *by* is the request on whose stream it came."""
        if self.outcome is not None:
            return False
        self.outcome = outcome
        if self._wake is not None:
            self._wake.set()
        elif by is not self and not self._reporting and self._scope is not None:
            self._scope.cancel()  # its task may be reading a stream on which nothing more comes
        return True

    def result(self) -> Success:
        """The response, once the channel has returned.

        Raises:
            McpError: The outcome is another one.
        """
        match self.outcome:
            case Success() as response:
                return response
            case None:
                text = f"{self.request.method}: {self.timeouts.overdue()}"
                raise RequestTimeout(text, may_have_run=not self.unsent)
            case Failure() as refusal:
                raise server_error(self.request, refusal)
            case HttpStatusError() as status if (typed := server_error(self.request, status)) is not status:
                raise typed from status
            case ConnectionClosed() as closed if self.unsent:
                closed.may_have_run = False
                raise closed
            case error:
                raise error

    @property
    def can_expire(self) -> bool:
        return not self._expired and (self.outcome is None or self._reporting)

    def expire(self) -> None:
        """A timeout has passed."""
        self._expired = True
        if self._wake is not None:
            self._wake.set()
        elif self._scope is not None:
            self._scope.cancel()

    def restart_idle(self, now: float | None = None) -> None:
        """Set the deadline anew: the server has sent something, or the call's timeouts were paused or resumed."""
        if self._reporting or self._queued:
            self.deadline = self.timeouts.end
        else:
            self.deadline = self.timeouts.idle_end(self._alarm.loop.time() if now is None else now)
        if self.deadline < self._alarm.next:
            self._alarm.ring_at(self.deadline)


class DeadlineAlarm:
    """Expires each of the *pending* requests at its deadline.

    There is one timer for all: few deadlines are ever reached, and a timer per request
    would cost more than the rest of its bookkeeping.
    """

    def __init__(self, pending: Mapping[Id, PendingRequest], loop: Loop) -> None:
        self.loop = loop
        self.next = math.inf
        """When the alarm rings."""
        self._pending = pending
        self._scope = CancelScope()

    def ring_at(self, deadline: float) -> None:
        """Set the alarm to *deadline*, which has to be earlier than `next`."""
        self.next = self._scope.deadline = deadline

    async def run(self) -> None:
        """Expire requests until the connection ends."""
        while True:
            with CancelScope(deadline=self.next) as self._scope:
                await sleep_forever()
            now = self.loop.time()
            for pending in self._pending.values():
                if pending.can_expire and pending.deadline <= now:
                    pending.expire()
            self.next = min((each.deadline for each in self._pending.values() if each.can_expire), default=math.inf)
