"""Turns at a store that blocks: in threads, one caller after the other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from anyio import CapacityLimiter, current_time, sleep, to_thread
from anyio.lowlevel import RunVar

from mcp_host.auth.errors import TokensError
from mcp_host.concurrency.locked_file import POLL_INTERVAL, LockTimeout
from mcp_host.limits import check_seconds

T = TypeVar("T")


class Turns:
    """Calls functions of one store in threads: one at a time in this event loop, in the order of the callers.

    A function that raises `LockTimeout` is called again a little later, for *lock_wait* seconds. So a caller that waits
    for another process has no thread and no lock, and can be cancelled.
    """

    def __init__(self, lock_wait: float, *, sleep: Callable[[float], Awaitable[None]] = sleep) -> None:
        self._sleep = sleep
        self._lock_wait = check_seconds("lock_wait", lock_wait)
        self._limiter = RunVar[CapacityLimiter]("turns of a store of tokens")

    async def call(self, function: Callable[[], T]) -> T:
        """Call *function*. If the caller is cancelled meanwhile, it goes on in its thread.

        Raises:
            TokensError: Another process keeps the lock for too long.
        """
        limiter = self._limiter.get(None)
        if limiter is None:
            limiter = CapacityLimiter(1)
            self._limiter.set(limiter)
        end = None
        while True:
            try:
                return await to_thread.run_sync(function, abandon_on_cancel=True, limiter=limiter)
            except LockTimeout as exc:
                if end is None:
                    end = current_time() + self._lock_wait
                if current_time() >= end:
                    raise TokensError(f"the tokens cannot be used: {exc}") from exc
            await self._sleep(POLL_INTERVAL)
