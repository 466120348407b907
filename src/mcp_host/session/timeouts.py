"""The clocks of one call: its bound, the server's silence, and how long input for the server may stop both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

from anyio import CancelScope, current_time

from mcp_host.bounds import check_seconds
from mcp_host.errors import RequestTimeout
from mcp_host.limits import Limits


class CallTimeouts:
    """How long one call may take, in seconds, over all its requests: `math.inf` is no bound.

    Two clocks run. *timeout* bounds the call as a whole, *idle_timeout* how long the server may
    say nothing about it. Both stop while our side answers what the server asked (`pause`), for
    *input_timeout* in all; what overlaps counts once. After that they run again, so that no
    server can stretch a call by asking. A server that asks is not silent: once it is answered,
    its silence begins anew.
    """

    __slots__ = ("_clock", "_end", "_idle", "_input", "_input_left", "_observers", "_paused_at", "_pauses", "_timeout")

    def __init__(
        self,
        *,
        timeout: float,
        idle_timeout: float,
        input_timeout: float = 0.0,
        clock: Callable[[], float] = current_time,
    ) -> None:
        self._clock = clock
        self._timeout = timeout
        self._idle = idle_timeout
        self._input = self._input_left = input_timeout
        self._end = clock() + timeout
        self._pauses = 0
        self._paused_at = 0.0
        self._observers: list[Callable[[float], None]] = []

    @classmethod
    def of(cls, limits: Limits, clock: Callable[[], float], timeout: float | None, idle_timeout: float | None) -> Self:
        """The clocks of a call that begins now, with the *limits* of its client where it has none of its own.

        Raises:
            TypeError, ValueError: One of them is no time, see `check_seconds`.
        """
        if timeout is None:
            timeout = limits.timeout
        else:
            check_seconds("timeout", timeout)
        if idle_timeout is None:
            idle_timeout = limits.idle_timeout
        else:
            check_seconds("idle_timeout", idle_timeout)
        return cls(timeout=timeout, idle_timeout=idle_timeout, input_timeout=limits.input_timeout, clock=clock)

    @classmethod
    def connecting(cls, seconds: float, input_timeout: float, clock: Callable[[], float]) -> Self:
        """The clock of connecting: it may take so many *seconds*, however long the server says nothing."""
        return cls(timeout=seconds, idle_timeout=seconds, input_timeout=input_timeout, clock=clock)

    @property
    def end(self) -> float:
        """When the call has to be over, on the event loop's clock. Later if the clocks are stopped, or stop again."""
        return self._end + self._input_left if self._pauses else self._end

    def idle_end(self, now: float) -> float:
        """When the call has to be over if the server says nothing about it from *now* on."""
        end = self._end
        if self._pauses:
            now = max(now, self._paused_at + self._input_left)  # when the clocks run again at the latest
            end += self._input_left
        idle_end = now + self._idle
        return idle_end if idle_end < end else end

    def pause(self) -> None:
        """It is our turn: both clocks stop until as many times `resume`, or until the time for input is used up."""
        self._pauses += 1
        if self._pauses == 1:
            self._paused_at = now = self._clock()
            self._changed(now)

    def resume(self) -> None:
        """The server's turn again. Its silence begins anew."""
        self._pauses -= 1
        if not self._pauses:
            now = self._clock()
            taken = min(now - self._paused_at, self._input_left)
            self._input_left -= taken
            self._end += taken
            self._changed(now)

    def observe(self, changed: Callable[[float], None]) -> None:
        """Have *changed* called with the time whenever the clocks stop or go on: `end` and `idle_end` are others then."""
        self._observers.append(changed)

    def unobserve(self, changed: Callable[[float], None]) -> None:
        self._observers.remove(changed)

    def _changed(self, now: float) -> None:
        for changed in self._observers:
            changed(now)

    @contextmanager
    def scope(self, *, idle: bool = False) -> Iterator[CancelScope]:
        """A cancel scope that ends when the call has to be over; with *idle* also when nothing was heard for too long."""

        def update(now: float) -> None:
            scope.deadline = self.idle_end(now) if idle else self.end

        with CancelScope() as scope:
            update(self._clock())
            self.observe(update)
            try:
                yield scope
            finally:
                self.unobserve(update)

    @contextmanager
    def bound(self, what: str, *, idle: bool = False) -> Iterator[None]:
        """The same, and then it raises `RequestTimeout`, which says *what* took too long."""
        with self.scope(idle=idle) as scope:
            yield
        if scope.cancelled_caught:
            raise RequestTimeout(f"{what}: {self.overdue()}")

    def overdue(self) -> str:
        """In words: which of the clocks has run out."""
        now = self._clock()
        if now >= self.end:
            ran_out = f"took longer than {self._timeout:g} s (timeout)"
        else:
            ran_out = f"the server was silent for {self._idle:g} s (idle_timeout)"
        left = self._input_left - (now - self._paused_at) if self._pauses else self._input_left
        if left <= 0 < self._input:
            ran_out += f", after its input had taken {self._input:g} s (input_timeout)"
        return ran_out
