"""Event loops' clocks for tests whose subject is a deadline: how busy the machine is has no say in what comes before it.

The fake clock takes no time to wait: when nothing can run before some moment, it jumps to it. Not for tests
with threads, processes or sockets: the clock does not wait for these.

The adjustable clock is for those. It runs as clocks do, and `advance` puts it forward: a test has a deadline of
a minute, and lets that pass as soon as it has seen what has to come before.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Iterable
from itertools import count
from time import perf_counter
from typing import Any

import trio
from anyio.lowlevel import checkpoint
from trio.testing import MockClock

from mcp_host.transports.base import TURN_TIME


class Pauses(list[float]):
    """A `sleep` to pass to what pauses: the seconds of each pause, which takes no time."""

    async def __call__(self, seconds: float) -> None:
        self.append(round(seconds, 3))
        await checkpoint()


def stopped() -> float:
    """A clock for turns of a reader: no time passes."""
    return 0.0


def stepping() -> Callable[[], float]:
    """One that moves on by more than half a turn each time that it is read."""
    readings = count(1)
    return lambda: next(readings) * TURN_TIME * 0.6


def turns_of(steps: Iterable[None]) -> int:
    """After how many steps others have their turn."""
    return len(list(steps))


class _Jump(selectors.DefaultSelector):
    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(timeout if timeout is None else 0)
        if not ready and timeout is not None:
            self.now += max(timeout, 0)
        return ready


class _JumpingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.now


def with_fake_clock(backend: str) -> tuple[str, dict[str, Any]]:
    """*backend*, for anyio to run with such a clock."""
    if backend == "trio":
        return backend, {"clock": MockClock(autojump_threshold=0)}
    return backend, {"loop_factory": _JumpingLoop}


class _AdjustableLoop(asyncio.SelectorEventLoop):
    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


class _AdjustableClock(trio.abc.Clock):
    ahead = 0.0

    def start_clock(self) -> None:
        """There is nothing to start."""

    def current_time(self) -> float:
        return perf_counter() + self.ahead

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return deadline - self.current_time()


def with_adjustable_clock(backend: str) -> tuple[str, dict[str, Any]]:
    """*backend*, for anyio to run with such a clock."""
    if backend == "trio":
        return backend, {"clock": _AdjustableClock()}
    return backend, {"loop_factory": _AdjustableLoop}


def advance(seconds: float) -> None:
    """Put the adjustable clock of the running event loop forward. What is due then comes in the loop's next turn."""
    clock = trio.lowlevel.current_clock() if trio.lowlevel.in_trio_run() else asyncio.get_running_loop()
    assert isinstance(clock, _AdjustableClock | _AdjustableLoop), "for tests that are marked adjustable_clock"
    clock.ahead += seconds
