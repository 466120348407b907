"""One job for all callers that need its result."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from anyio import CancelScope

from mcp_host.concurrency.asking import JobEnd


class SingleFlight:
    """Runs one job at a time, for all callers that need its result.

    The job runs in a task that *spawn* starts: it goes on when a waiting caller is cancelled.
    """

    def __init__(self, spawn: Callable[[Callable[[], Coroutine[Any, Any, None]]], object]) -> None:
        self._spawn = spawn
        self.flight: _Flight | None = None
        """The job that runs, if one does."""

    def begin(self, job: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start *job*, unless one is running. What it raises is raised for every caller that waits."""
        if self.flight is None:
            self.flight = flight = _Flight()
            self._spawn(lambda: self._run(flight, job))

    async def wait(self) -> None:
        """Wait for the running job, if there is one; raise what it raised, or what `end` was given."""
        if (flight := self.flight) is not None:
            await flight.done.wait()
            if flight.error is not None:
                raise flight.error.with_traceback(None)  # several callers raise the same one

    def end(self, error: Exception | None) -> None:
        """Cancel the running job. Waiting callers get *error*, or go on."""
        if (flight := self.flight) is not None:
            flight.error = error
            flight.scope.cancel()
            self._finish(flight)

    async def _run(self, flight: _Flight, job: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            with flight.scope, flight.done.of_job():
                await job()
        except Exception as exc:  # raised for those who wait
            flight.error = exc
        finally:
            self._finish(flight)

    def _finish(self, flight: _Flight) -> None:
        if self.flight is flight:
            self.flight = None
        flight.done.set()


class _Flight:
    def __init__(self) -> None:
        self.scope = CancelScope()
        self.done = JobEnd()
        self.error: Exception | None = None
