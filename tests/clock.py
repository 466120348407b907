"""An event loop's clock that takes no time to wait: for tests in memory whose subject is a deadline.

When nothing can run before some moment, the clock jumps to it. So how busy the machine is has no say in
what happens before a deadline and what after it. Not for tests with threads, processes or sockets: the
clock does not wait for these.
"""

from __future__ import annotations

import asyncio
import selectors
from typing import Any

from trio.testing import MockClock


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
