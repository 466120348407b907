"""Shared work: what several callers want at once is done once, in a task that outlives each of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Any, Generic, TypeAlias, TypeVar

from anyio import CancelScope, get_cancelled_exc_class, move_on_after
from anyio.lowlevel import checkpoint_if_cancelled

from mcp_host.auth.errors import AuthError
from mcp_host.concurrency.asking import JobEnd
from mcp_host.concurrency.backends import Loop, cancels_current_task
from mcp_host.concurrency.tasks import spawn
from mcp_host.errors import CallerError

T = TypeVar("T")

Uncancelled: TypeAlias = Callable[[], AbstractAsyncContextManager[None]]
"""`SharedWork.uncancelled`, of the work that is under way."""

END_TIME = 5.0  # seconds for work that is `uncancelled` to end, once other work is to be done instead
GRACE = 2.0  # seconds that the last caller, when it is cancelled, waits for work that goes on


class SharedWork:
    """Does one piece of work at a time. It has no task while there is none."""

    def __init__(self) -> None:
        self._work: _Work[Any] | None = None

    @property
    def is_busy(self) -> bool:
        return self._current is not None

    @property
    def _current(self) -> _Work[Any] | None:
        """The work that is under way. An event loop of asyncio may have been closed during other work, which never ends.

        Raises:
            CallerError: It is under way in another event loop.
        """
        work = self._work
        if work is None or work.loop.is_running():
            return work
        if work.loop.goes_on():
            raise CallerError(
                "this OAuth is used in another event loop: make one for each thread, with the same tokens"
            )
        return None

    async def do(self, key: object, function: Callable[[], Awaitable[T]]) -> T:
        """The result of *function*, or of the work with the same *key* that is under way.

        It waits for the end of work with another key. A failure is raised to all who wait. If a caller is cancelled,
        the work goes on for the others; without any, it is cancelled, unless it is `uncancelled`. The last caller
        waits for its end, but not for long: an endpoint that hangs must not hold up a host that closes.
        """
        while (work := self._current) is not None and (work.key != key or work.is_abandoned):
            await work.ended.wait()
        if work is None:
            work = self._work = _Work[T](key)
            spawn(partial(self._run, work, function), at_end=partial(self._end, work))
        return await work.result()

    async def do_instead(self, key: object, function: Callable[[], Awaitable[T]], failure: Exception) -> T:
        """Like `do`, but other work is cancelled, and its callers get *failure*.

        Work that is `uncancelled` has `END_TIME` to end first.
        """
        while (work := self._current) is not None and work.key != key:
            work.failure = failure
            work.abandon()
            with move_on_after(END_TIME) as wait:
                await work.ended.wait()
            if wait.cancelled_caught:
                work.scope.cancel()
                await work.ended.wait()
        return await self.do(key, function)

    @asynccontextmanager
    async def uncancelled(self) -> AsyncIterator[None]:
        """For a part of the work: it goes on without a caller, until the event loop ends."""
        work = self._current
        assert work is not None
        await checkpoint_if_cancelled()
        work.is_held = True
        try:
            yield
        finally:
            work.is_held = False
            if work.is_abandoned:
                work.scope.cancel()  # at its next `await`: what the part has brought can be stored under a shield

    async def _run(self, work: _Work[T], function: Callable[[], Awaitable[T]]) -> None:
        try:
            with work.scope, work.ended.of_job():
                work.value = await function()
                if not work.is_abandoned:
                    work.failure = None
        except get_cancelled_exc_class() as exc:
            if cancels_current_task(exc, 0):
                raise
            cancelled = AuthError("a function of the application was cancelled before there was a token")
            cancelled.__cause__ = exc
            work.failure = cancelled
        except BaseException as exc:  # for the callers, who have an owner
            work.failure, work.traceback = exc, exc.__traceback__
        finally:
            self._end(work)

    def _end(self, work: _Work[Any]) -> None:
        if self._work is work:
            self._work = None
        work.ended.set()


class _Work(Generic[T]):
    """One piece of work, and those who wait for it."""

    def __init__(self, key: object) -> None:
        self.key = key
        self.loop = Loop.running()
        self.scope = CancelScope()
        self.is_held = False
        self.is_abandoned = False
        self.ended = JobEnd()
        self.failure: BaseException | None = AuthError("the event loop ended before there was a token")
        self.value: T  # only if there is no failure
        self.traceback: TracebackType | None = None
        self._callers = 0

    def abandon(self) -> None:
        """Cancel it, at the end of what is `uncancelled`."""
        self.is_abandoned = True
        if not self.is_held:
            self.scope.cancel()

    async def result(self) -> T:
        self._callers += 1
        try:
            await self.ended.wait()
        except get_cancelled_exc_class():
            if self._callers == 1:
                self.abandon()
                with move_on_after(GRACE, shield=True):
                    await self.ended.wait()
            raise
        finally:
            self._callers -= 1
        if self.failure is not None:
            raise self.failure.with_traceback(self.traceback)  # otherwise each caller would add its frames to it
        return self.value
