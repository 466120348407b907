"""Single flight: work that several callers want at once is done once, in a task that outlives each of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Any, Generic, TypeVar

from anyio import CancelScope, Event, get_cancelled_exc_class, move_on_after
from anyio.lowlevel import checkpoint_if_cancelled

from mcp_host.auth.errors import AuthError
from mcp_host.concurrency import spawn

T = TypeVar("T")

GRACE = 2.0  # seconds that the last caller, when it is cancelled, waits for work that goes on


class SingleFlight:
    """Does one piece of work at a time. It has no task while there is none."""

    def __init__(self) -> None:
        self._flight: _Flight[Any] | None = None

    @property
    def is_busy(self) -> bool:
        return self._flight is not None

    async def do(self, key: object, work: Callable[[], Awaitable[T]]) -> T:
        """The result of *work*, or of the work with the same *key* that is under way. Work with another key goes first.

        A failure is raised to all who wait. If a caller is cancelled, the work goes on for the others; without any, it
        is cancelled, unless it is `uncancelled`. The last caller waits for its end, but not for long: an endpoint that
        hangs must not hold up a host that closes.
        """
        while (flight := self._flight) is not None and (flight.key != key or flight.is_abandoned):
            await flight.ended.wait()
        if flight is None:
            flight = self._flight = _Flight[T](key)
            spawn(partial(self._run, flight, work), at_end=partial(self._end, flight))
        return await flight.result()

    @asynccontextmanager
    async def uncancelled(self) -> AsyncIterator[None]:
        """For a part of the work: it goes on without a caller, until the event loop ends."""
        flight = self._flight
        assert flight is not None
        await checkpoint_if_cancelled()
        flight.is_held = True
        try:
            yield
        finally:
            flight.is_held = False
            if flight.is_abandoned:
                flight.scope.cancel()

    async def _run(self, flight: _Flight[T], work: Callable[[], Awaitable[T]]) -> None:
        try:
            with flight.scope:
                flight.outcome = [await work()]
        except get_cancelled_exc_class():
            raise
        except BaseException as exc:  # for the callers, who have an owner
            flight.failure, flight.traceback = exc, exc.__traceback__
        finally:
            self._end(flight)

    def _end(self, flight: _Flight[Any]) -> None:
        if self._flight is flight:
            self._flight = None
            flight.ended.set()


class _Flight(Generic[T]):
    """One piece of work, and those who wait for it."""

    def __init__(self, key: object) -> None:
        self.key = key
        self.scope = CancelScope()
        self.is_held = False
        self.is_abandoned = False
        self.ended = Event()
        self.outcome: list[T] = []
        self.failure: BaseException = AuthError("the event loop ended before there was a token")
        self.traceback: TracebackType | None = None
        self._callers = 0

    async def result(self) -> T:
        self._callers += 1
        try:
            await self.ended.wait()
        except get_cancelled_exc_class():
            if self._callers == 1:
                self.is_abandoned = True
                if not self.is_held:
                    self.scope.cancel()
                with move_on_after(GRACE, shield=True):
                    await self.ended.wait()
            raise
        finally:
            self._callers -= 1
        for outcome in self.outcome:
            return outcome
        raise self.failure.with_traceback(self.traceback)  # else it would grow with each caller
