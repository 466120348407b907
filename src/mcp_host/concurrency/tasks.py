"""Tasks of handlers, tasks without an owner, and the errors that task groups wrap."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import Context, copy_context
from typing import Any, Generic, NoReturn, TypeVar

from anyio import CancelScope, create_task_group, get_cancelled_exc_class
from anyio.abc import TaskGroup

from mcp_host.concurrency.backends import Job, Loop, cancels_current_task
from mcp_host.concurrency.synchronization import Event
from mcp_host.errors import ConnectionClosed, McpError

logger = logging.getLogger(__name__)

T = TypeVar("T")


def spawn(job: Job, at_end: Callable[[], None] = lambda: None) -> None:
    """Run *job* in a task without an owner, which ends with the event loop at the latest.

    *job* must raise nothing but cancellation. On asyncio, *at_end* is called after it, also if
    the task is cancelled before it begins.
    """
    Loop.running().spawn(job, at_end)


def spawn_in_scope(job: Job) -> CancelScope:
    """As `spawn`, in a cancel scope, which is returned before *job* begins."""
    scope = CancelScope()

    async def run() -> None:
        with scope:
            await job()

    spawn(run)
    return scope


class HandlerTasks:
    """Jobs side by side, each in a task and a cancel scope. Leaving `open` cancels them and waits for them."""

    def __init__(self, tasks: TaskGroup) -> None:
        self._tasks = tasks
        self.loop = Loop.running()
        self._context = copy_context()
        self._started: dict[CancelScope, Any] = {}
        self.cancelled = False
        """Whether every job has been cancelled, and so is each that is started."""
        self._idle: Event | None = None

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator[HandlerTasks]:
        async with create_task_group() as tasks:
            handlers = cls(tasks)
            try:
                yield handlers
            finally:
                handlers.cancel()
                with CancelScope(shield=True):
                    await handlers.loop.wait(handlers._started.values())

    def start(self, job: Callable[[], Awaitable[None]], context: Context | None = None) -> CancelScope:
        """Run *job*, which must raise nothing but cancellation; return its cancel scope.

        It runs in a copy of *context*, by default of the context in which `open` was entered.
        """
        scope = self.loop.new_scope()
        if self.cancelled:
            scope.cancel()

        async def run() -> None:
            try:
                with scope:
                    await job()
            finally:  # not in a done callback, which would cost another turn of the event loop
                del self._started[scope]
                if self._idle is not None and not self._started:
                    self._idle.set()

        self._started[scope] = self.loop.start(self._tasks, run, self._context if context is None else context)
        return scope

    async def idle(self) -> None:
        """Wait until no job runs."""
        if self._started:
            self._idle = Event()
            await self._idle.wait()

    def cancel(self) -> None:
        """Cancel every job, and each that is started later."""
        self.cancelled = True
        self._tasks.cancel_scope.cancel()
        for scope in self._started:
            scope.cancel()


class OwnedContext(Generic[T]):
    """An async context manager that is entered and left by a separate task.

    A task group must be left by the task that entered it, and in reverse order of
    entering. Applications connect in one task and close in another, in any order. So
    each connection lives in a task without an owner, and callers only signal it.
    """

    def __init__(self, manager: AbstractAsyncContextManager[T]) -> None:
        self._manager = manager
        self._scope = CancelScope()
        self._entered = Event()
        self._stop = Event()
        self._ended = Event()
        self._value: T
        self._error: BaseException | None = None

    @property
    def ended(self) -> bool:
        """Whether it has been left, or could not be entered."""
        return self._ended.is_set()

    async def enter(self) -> T:
        """Enter the context manager; raise what entering raised, out of its groups.

        If the caller is cancelled meanwhile, this returns after everything is undone.
        """
        spawn(self._run, self._conclude)
        try:
            await self._entered.wait()
        except BaseException:
            self._scope.cancel()
            with CancelScope(shield=True):  # the manager bounds its clean-up
                await self._ended.wait()
            raise
        if self._error is not None:
            raise self._error
        return self._value

    async def leave(self) -> None:
        """Leave the context manager, or cancel entering it, and wait. Does not raise what leaving raised."""
        self._stop.set()
        if not self._entered.is_set():
            self._scope.cancel()
        await self._ended.wait()

    def cancel(self) -> None:
        """Leave at once: cancel what the manager awaits."""
        self._scope.cancel()

    async def _run(self) -> None:
        try:
            with self._scope:
                async with self._manager as self._value:
                    self._entered.set()
                    await self._stop.wait()
        except Exception as exc:
            self._error = bare(exc)
            if self._entered.is_set():
                logger.debug("closing a connection failed", exc_info=exc)
        finally:
            self._conclude()

    def _conclude(self) -> None:
        if not self._entered.is_set() and self._error is None:
            self._error = ConnectionClosed("closed while it was being opened", may_have_run=False)
        self._entered.set()
        self._ended.set()


async def awaited(awaitable: Awaitable[T], what: str, error: type[McpError] = McpError) -> T:
    """What *awaitable* returns, which code of the application has made. Where another frame costs too much, this is written out.

    Raises:
        McpError: It awaited a task that was cancelled, and ours was not. *what* begins the text, *error* is the type.
    """
    try:
        return await awaitable
    except get_cancelled_exc_class() as exc:
        if cancels_current_task(exc):
            raise
        raise error(f"{what} awaited a task that was cancelled") from exc


def first(group: BaseException) -> BaseException:
    """The first error in nested groups."""
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group


def reraise(error: BaseException) -> NoReturn:
    """Raise *error*, which was in a group, with the cause and the context that it has: `raise` would set the group in their place."""
    context = error.__context__
    try:
        raise error
    finally:
        error.__context__ = context
        del error, context  # the traceback refers to this frame, which must not refer to it


def bare(exc: BaseException) -> BaseException:
    """The error itself, if it is alone in nested groups."""
    while isinstance(exc, BaseExceptionGroup) and len(exc.exceptions) == 1:
        exc = exc.exceptions[0]
    return exc
