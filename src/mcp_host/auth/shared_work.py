"""Shared work: what several callers want at once is done once, in a task that outlives each of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from math import inf
from types import TracebackType
from typing import Any, Generic, TypeAlias, TypeVar

from anyio import CancelScope, current_time, get_cancelled_exc_class, move_on_after
from anyio.lowlevel import checkpoint_if_cancelled

from mcp_host.auth.errors import AuthError
from mcp_host.concurrency.asking import JobEnd
from mcp_host.concurrency.backends import Loop
from mcp_host.concurrency.owners import WorkOwner, current_owners, owned_by
from mcp_host.concurrency.tasks import awaited, spawn
from mcp_host.errors import CallerError

T = TypeVar("T")

Uncancelled: TypeAlias = Callable[[], AbstractAsyncContextManager[None]]
"""`SharedWork.uncancelled`, of the work that is under way."""

END_TIME = 5.0  # seconds for work that is `uncancelled` to end, once other work is to be done instead
GRACE = 2.0  # seconds from its start for what is `uncancelled`, once all have left; most endpoints take less


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
        the work goes on for the others; without any, it is cancelled, unless it is `uncancelled`. That goes on for the
        owners of the callers (`concurrency.owners`). Once they have all left it has `GRACE`: an endpoint that hangs must
        not outlive a client that is closed. Where there is no owner, the last caller waits for so long.
        """
        while (work := self._current) is not None and (work.key != key or work.is_abandoned):
            with work.needed():
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
            with work.needed(), move_on_after(END_TIME) as wait:
                await work.ended.wait()
            if wait.cancelled_caught:
                work.scope.cancel()
                await work.ended.wait()
        return await self.do(key, function)

    @asynccontextmanager
    async def uncancelled(self) -> AsyncIterator[None]:
        """For a part of the work: it goes on without a caller, while an owner is there, until the event loop ends."""
        work = self._current
        assert work is not None
        await checkpoint_if_cancelled()
        work.held_since = current_time()
        try:
            yield
        finally:
            work.held_since = None
            if work.is_abandoned:
                work.scope.cancel()  # at its next `await`: what the part has brought can be stored under a shield

    async def _run(self, work: _Work[T], function: Callable[[], Awaitable[T]]) -> None:
        try:
            with work.scope, work.ended.of_job(), owned_by(work.owners):
                work.value = await awaited(function(), "a function of the application", AuthError)
                if not work.is_abandoned:
                    work.failure = None
        except get_cancelled_exc_class():
            raise
        except BaseException as exc:  # for the callers, who have an owner
            work.failure, work.traceback = exc, exc.__traceback__
        finally:
            self._end(work)

    def _end(self, work: _Work[Any]) -> None:
        if self._work is work:
            self._work = None
        work.end()


class _Work(Generic[T]):
    """One piece of work, and those who need it."""

    def __init__(self, key: object) -> None:
        self.key = key
        self.loop = Loop.running()
        self.scope = CancelScope()
        self.held_since: float | None = None
        """When what is `uncancelled` began. None if nothing is."""
        self.is_abandoned = False
        self.ended = JobEnd()
        self.owners: set[WorkOwner] = set()
        self.failure: BaseException | None = AuthError("the event loop ended before there was a token")
        self.value: T  # only if there is no failure
        self.traceback: TracebackType | None = None
        self._callers = 0
        self._needs = 0

    def abandon(self) -> None:
        """Cancel it, at the end of what is `uncancelled`."""
        self.is_abandoned = True
        if self.held_since is None:
            self.scope.cancel()

    async def result(self) -> T:
        with self.needed():
            self._callers += 1
            try:
                await self.ended.wait()
            except get_cancelled_exc_class():
                self._own()  # the caller may be work itself, which has more owners by now
                if self._callers == 1:
                    self.abandon()
                    await self.wait_briefly()
                raise
            finally:
                self._callers -= 1
        if self.failure is not None:
            raise self.failure.with_traceback(self.traceback)  # otherwise each caller would add its frames to it
        return self.value

    @contextmanager
    def needed(self) -> Iterator[None]:
        """Someone waits inside for its end, be it for other work. Their owners are those of the work, too."""
        self._needs += 1
        self._own()
        self._bound()
        try:
            yield
        finally:
            self._needs -= 1
            self._bound()

    def owner_left(self) -> None:
        self._bound()

    async def wait_briefly(self) -> None:
        if self._is_left:
            with CancelScope(deadline=self._grace_end, shield=True):
                await self.ended.wait()

    def end(self) -> None:
        self.ended.set()
        for owner in self.owners:
            owner.work.discard(self)

    def _own(self) -> None:
        for owner in current_owners() - self.owners:
            self.owners.add(owner)
            owner.work.add(self)

    def _bound(self) -> None:
        """Bound it by `GRACE`, if no one needs it and its owners have left. Without owners no one says when that is."""
        is_bounded = not self._needs and self.owners and self._is_left
        self.scope.deadline = self._grace_end if is_bounded else inf

    @property
    def _is_left(self) -> bool:
        """Whether no owner is there."""
        return all(owner.has_left for owner in self.owners)

    @property
    def _grace_end(self) -> float:
        return (current_time() if self.held_since is None else self.held_since) + GRACE
