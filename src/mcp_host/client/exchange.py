"""A request under way: its deadline, its progress, and the one answer it gets."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from anyio import CancelScope, Event, current_time

from mcp_host.errors import McpError, RequestTimeout
from mcp_host.protocol.jsonrpc import Incoming, Notification, Params, Request, Response

MAX_REPORTS = 1024  # progress that waits for a slow callback; past it the newest replaces the one before

OnReport: TypeAlias = Callable[[Params], Awaitable[None]]
OnEvent: TypeAlias = Callable[[Notification], None]
Ending: TypeAlias = Response | McpError
Route: TypeAlias = "Callable[[Incoming, PendingExchange], None]"


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a call may take."""

    silence: float
    """Seconds without a word of the server about it."""

    end: float
    """When it has to be over, whatever the server says; on the event loop's clock."""

    @classmethod
    def of(cls, silence: float, total: float) -> Patience:
        """Patience from now on, both in seconds; `math.inf` means for ever."""
        return cls(silence, current_time() + total)

    @contextmanager
    def bound(self, what: str) -> Iterator[None]:
        """What runs inside ends when the call has to be over, and then raises `RequestTimeout`."""
        with CancelScope(deadline=self.end) as scope:
            yield
        if scope.cancelled_caught:
            raise RequestTimeout(f"{what}: took longer than its total timeout")

    @contextmanager
    def without_a_word(self, what: str) -> Iterator[None]:
        """The same, for what has no exchange of its own to hear of signs of life: its silence counts as well."""
        with CancelScope(deadline=min(self.end, current_time() + self.silence)) as scope:
            yield
        if scope.cancelled_caught:
            raise RequestTimeout(f"{what}: nothing was heard in time")


class PendingExchange:
    """One request between its sending and its answer. Implements `transports.base.Exchange`."""

    def __init__(
        self,
        request: Request,
        patience: Patience,
        route: Route,
        on_report: OnReport | None,
        on_event: OnEvent | None,
    ) -> None:
        self.request = request
        self.on_event = on_event
        """Takes the notifications of a subscription, if this is one."""
        self.outcome: Ending | None = None
        self.withdrawn = False
        self.callers_own: McpError | None = None
        """What the caller's callback raised: it comes out of the channel, and is no failure of the channel's."""
        self.scope = CancelScope()
        self._route = route
        self._on_report = on_report
        self._reports: deque[Params] = deque()
        self._reporting = False
        self._wake: Event | None = None
        self._inputs = 0
        self._silence = patience.silence
        self._end = patience.end
        self.heard()

    # What a channel uses

    @property
    def answered(self) -> bool:
        return self.outcome is not None

    def receive(self, message: Incoming) -> None:
        self._route(message, self)

    def fail(self, error: McpError) -> None:
        self.settle(error)

    async def response(self) -> None:
        await self.progress()
        while self.outcome is None:
            self._wake = Event()
            await self._wake.wait()
            self._wake = None
            await self.progress()

    async def progress(self) -> None:
        """Await the caller's callback for each report so far, in order. The server's clock stands still meanwhile."""
        if not self._reports or self._on_report is None:
            return
        self._reporting = True
        self.scope.deadline = self._end
        try:
            while self._reports:
                await self._on_report(self._reports.popleft())
        except McpError as exc:
            self.callers_own = exc
            raise
        finally:
            self._reporting = False
            self.heard()

    # What the link uses

    def report(self, params: Params) -> None:
        """The server reported progress."""
        if self.outcome is not None:
            return
        self.heard()
        if self._on_report is None:
            return
        if len(self._reports) >= MAX_REPORTS:
            self._reports.pop()
        self._reports.append(params)
        if self._wake is not None:
            self._wake.set()

    def settle(self, outcome: Ending, *, by: PendingExchange | None = None) -> bool:
        """Take the answer, unless there is one already; *by* is the exchange on whose stream it came."""
        if self.outcome is not None:
            return False
        self.outcome = outcome
        if self._wake is not None:
            self._wake.set()
        elif by is not self and not self._reporting:
            self.scope.cancel()  # its own task sits in a read that nothing more will come to
        return True

    def heard(self) -> None:
        """A sign of life: the server's silence begins anew."""
        if not self._inputs and not self._reporting:
            self.scope.deadline = min(current_time() + self._silence, self._end)

    def pause(self) -> None:
        """It is our turn: the server's silence means nothing until `resume`."""
        self._inputs += 1
        self.scope.deadline = self._end

    def resume(self) -> None:
        self._inputs -= 1
        self.heard()

    def overdue(self) -> str:
        """In words, which of the two deadlines has passed."""
        if current_time() >= self._end:
            return "took longer than its total timeout"
        return f"the server was silent for {self._silence:g} s"
