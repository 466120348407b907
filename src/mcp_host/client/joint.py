"""An effort that several callers wait for, and that is made once for all of them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TypeAlias

from anyio import CancelScope, Event, current_time

from mcp_host.client.exchange import Patience
from mcp_host.errors import RequestTimeout

Effort: TypeAlias = Callable[[], Coroutine[object, object, None]]


class Joint:
    """Runs one effort at a time by *spawn*, in a task of nobody's: it must not end because a caller is cancelled."""

    def __init__(self, spawn: Callable[[Effort], object]) -> None:
        self._spawn = spawn
        self._running: _Running | None = None

    @property
    def under_way(self) -> bool:
        return self._running is not None

    def begin(self, effort: Effort) -> None:
        """Make *effort*, unless there is one under way already. What it raises is raised for all who wait."""
        if self._running is None:
            self._running = running = _Running()
            self._spawn(lambda: self._run(running, effort))

    async def wait(self, patience: Patience, late: str) -> None:
        """Wait for the effort under way, if there is one.

        Raises:
            RequestTimeout: It takes longer than the call that waits for it may; the text is *late*.
            Exception: What the effort raised.
        """
        if (running := self._running) is None:
            return
        with CancelScope(deadline=min(patience.end, current_time() + patience.silence)) as scope:
            await running.done.wait()
        if scope.cancelled_caught:
            raise RequestTimeout(late)
        if running.error is not None:
            raise running.error.with_traceback(None)  # the same for everyone who waited

    async def _run(self, running: _Running, effort: Effort) -> None:
        try:
            await effort()
        except Exception as exc:  # nobody else would take it
            running.error = exc
        finally:
            self._running = None
            running.done.set()


class _Running:
    def __init__(self) -> None:
        self.done = Event()
        self.error: Exception | None = None
