"""An effort that several callers wait for, and that is made once for all of them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TypeAlias

from anyio import CancelScope, Event

from mcp_host.session.call import CallTimeouts

Work: TypeAlias = Callable[[], Coroutine[object, object, None]]


class SingleFlight:
    """Runs one effort at a time by *spawn*, in a task of nobody's: it must not end because a caller is cancelled."""

    def __init__(self, spawn: Callable[[Work], object]) -> None:
        self._spawn = spawn
        self._running: _Flight | None = None

    @property
    def under_way(self) -> bool:
        return self._running is not None

    def begin(self, effort: Work) -> None:
        """Make *effort*, unless there is one under way already. What it raises is raised for all who wait."""
        if self._running is None:
            self._running = running = _Flight()
            self._spawn(lambda: self._run(running, effort))

    async def wait(self, timeouts: CallTimeouts, what: str) -> None:
        """Wait for the effort under way, if there is one; *what* it is for stands in the timeout.

        Raises:
            RequestTimeout: It takes longer than the call that waits for it may.
            Exception: What the effort raised, or ended with.
        """
        if (running := self._running) is None:
            return
        with timeouts.bound(what, idle=True):
            await running.done.wait()
        if running.error is not None:
            raise running.error.with_traceback(None)  # the same for everyone who waited

    def end(self, error: Exception | None) -> None:
        """End the effort under way, and with it the waiting for it: with *error*, or as if it were done."""
        if (running := self._running) is not None:
            running.error = error
            running.scope.cancel()
            self._finish(running)

    async def _run(self, running: _Flight, effort: Work) -> None:
        try:
            with running.scope:
                await effort()
        except Exception as exc:  # nobody else would take it
            running.error = exc
        finally:
            self._finish(running)

    def _finish(self, running: _Flight) -> None:
        if self._running is running:
            self._running = None
        running.done.set()


class _Flight:
    def __init__(self) -> None:
        self.scope = CancelScope()
        self.done = Event()
        self.error: Exception | None = None
