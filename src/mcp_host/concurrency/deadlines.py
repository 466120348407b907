"""Deadlines of many waits, with one timer for all of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, TypeAlias

from anyio import CancelScope

from mcp_host.concurrency.backends import Loop, Timer, is_cancellation

Timeout: TypeAlias = Callable[[float], AbstractContextManager[object]]
"""Cancels what runs inside after so many seconds, and goes on behind it, like anyio's `move_on_after`."""


class Expiring(Protocol):
    """A wait with a deadline that an `Alarm` watches."""

    deadline: float
    """On the event loop's clock."""

    def expire(self) -> None:
        """The deadline has passed. Sets a later one, or none (`math.inf`)."""


class Alarm:
    """Expires each of many waits at its deadline, with one timer for all of them.

    Few deadlines are ever reached, and a timer for each would cost more than the rest of its request's bookkeeping.
    A deadline may move at any time. If it becomes earlier than `next`, call `ring_at`.
    """

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.waits: set[Expiring] = set()
        self.next = math.inf
        """When the alarm rings."""
        self._timer: Timer | None = None

    def move_on_after(self, seconds: float, *, within: CancelScope | None = None) -> TimeoutScope:
        """Like anyio's `move_on_after`."""
        return TimeoutScope(self, self.loop.time() + seconds, within)

    def ring_at(self, deadline: float) -> None:
        """Ring at *deadline*, which is earlier than `next`."""
        if self._timer is not None:
            self._timer.cancel()
        self.next = deadline
        self._timer = self.loop.call_at(deadline, self._ring)

    def stop(self) -> None:
        """Never ring again: what still waits is cancelled by other means."""
        self.next = -math.inf
        if self._timer is not None:
            self._timer.cancel()

    def _ring(self) -> None:
        now = self.loop.time()
        for wait in self.waits:
            if wait.deadline <= now:
                wait.expire()
        self._timer, self.next = None, math.inf
        first = min((wait.deadline for wait in self.waits), default=math.inf)
        if first < math.inf:
            self.ring_at(first)


@dataclass(slots=True, eq=False)
class TimeoutScope:
    """Cancels what runs inside at *deadline*; `expired` tells so.

    By default it creates a cancel scope. With *within*, a scope that encloses this one, it cancels that one instead:
    for a block at the end of *within*, since nothing can be awaited there after the timeout. A request of the server
    has such a scope, so the timeout of its model needs no other. That saves 8 microseconds, 6 % of a call with one
    sampling request over a pipe.
    """

    alarm: Alarm
    deadline: float
    within: CancelScope | None = None
    scope: CancelScope = field(init=False)
    """The one that is cancelled; from entering on."""
    expired: bool = False

    def expire(self) -> None:
        self.deadline = math.inf
        self.expired = True
        self.scope.cancel()

    def __enter__(self) -> TimeoutScope:
        alarm, within = self.alarm, self.within
        self.scope = CancelScope().__enter__() if within is None else within
        alarm.waits.add(self)
        if self.deadline < alarm.next:
            if self.deadline <= alarm.loop.time():
                self.expire()
            else:
                alarm.ring_at(self.deadline)
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> bool:
        self.alarm.waits.discard(self)
        if self.within is None:
            return self.scope.__exit__(exc_type, exc, tb)
        return self.expired and is_cancellation(exc)
