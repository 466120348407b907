"""The running event loop, tasks that no caller owns, and the one place that meets exception groups."""

from __future__ import annotations

import asyncio
import logging
import math
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from contextvars import Context, copy_context
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from anyio import CancelScope, Event, create_task_group, current_time, get_cancelled_exc_class
from anyio.abc import TaskGroup
from anyio.lowlevel import EventLoopToken

from mcp_host.errors import ConnectionClosed

logger = logging.getLogger(__name__)

T = TypeVar("T")

_running: set[asyncio.Future[None]] = set()  # asyncio itself keeps only weak references to tasks


def _in_trio() -> Any:
    """The module, where the caller runs in a task of trio's; else None. Nobody who runs asyncio pays for importing it."""
    trio = sys.modules.get("trio")
    return trio if trio is not None and trio.lowlevel.in_trio_task() else None


class Signal(Protocol):
    """Wakes the one task that waits for it."""

    def set(self) -> None: ...
    def wait(self) -> Awaitable[object]: ...


@dataclass(frozen=True, slots=True)
class Loop:
    """The running event loop's own means. Anyio's find the loop anew each time, which takes longer than what they do."""

    time: Callable[[], float]
    """Seconds on its clock, which is `anyio.current_time`."""

    signal: Callable[[], Signal]

    @classmethod
    def running(cls) -> Loop:
        if (trio := _in_trio()) is not None:
            return cls(trio.current_time, trio.Event)
        return cls(asyncio.get_running_loop().time, _FutureSignal)


class _FutureSignal:
    """A signal on asyncio: half the work of an `asyncio.Event`."""

    __slots__ = ("_future",)

    def __init__(self) -> None:
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def set(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    def wait(self) -> Awaitable[None]:
        return self._future


def spawn(run: Callable[[], Coroutine[Any, Any, None]], at_end: Callable[[], None] = lambda: None) -> None:
    """Run *run* in a task of its own, which ends with the event loop at the latest.

    *run* must let no exception out but cancellation: there is nobody to take it. It calls *at_end*
    itself, which is called on asyncio once more: a task that is cancelled before it begins never does.
    """
    if (trio := _in_trio()) is not None:
        trio.lowlevel.spawn_system_task(run, name=run, context=copy_context())
        return
    task = asyncio.get_running_loop().create_task(run())
    _running.add(task)
    task.add_done_callback(_running.discard)
    task.add_done_callback(lambda _: at_end())


class HandlerTasks:
    """Jobs side by side, each in a task and a cancel scope of its own, until the crew is left.

    On asyncio the tasks are the event loop's own: what anyio's task groups add to a task
    takes longer than all that comes before it when a server asks something.
    """

    def __init__(self, tasks: TaskGroup) -> None:
        self._tasks = tasks
        self._loop = None if _in_trio() else asyncio.get_running_loop()
        self._scope = type(CancelScope())  # the backend's own, which anyio would look up each time
        self._context = copy_context()
        self._at_work: dict[CancelScope, asyncio.Task[None]] = {}  # the tasks that are not of the group
        self._cancelled = False

    @classmethod
    @asynccontextmanager
    async def gathered(cls) -> AsyncIterator[HandlerTasks]:
        """A crew that on leaving is cancelled, and waited for."""
        async with create_task_group() as tasks:
            crew = cls(tasks)
            try:
                yield crew
            finally:
                crew.cancel()
                with CancelScope(shield=True):
                    await crew._ended()

    def start(self, job: Callable[[], Awaitable[None]], context: Context | None = None) -> CancelScope:
        """Run *job*, which lets no exception out but cancellation; return the scope that it runs in.

        It gets a copy of *context*, or else of the one in which the crew was gathered.
        """
        scope = self._scope()
        if context is None:
            context = self._context
        if self._cancelled:
            scope.cancel()
        if self._loop is None:
            context.run(self._tasks.start_soon, _within, scope, job)  # trio copies the context that it is called in
        else:
            # Not in the context of a callback, which has to say to anyio where it is: a thread of the job's may not.
            # And not by the application's task factory: an eager one would begin before anybody has the scope.
            work = self._work(scope, job)
            self._at_work[scope] = asyncio.Task(work, loop=self._loop, context=context.copy())
        return scope

    def cancel(self) -> None:
        """End every job, and each that is yet to start."""
        self._cancelled = True
        self._tasks.cancel_scope.cancel()
        for scope in self._at_work:
            scope.cancel()

    async def _work(self, scope: CancelScope, job: Callable[[], Awaitable[None]]) -> None:
        """One job on asyncio. It signs off itself: a done callback would cost another turn of the event loop."""
        try:
            with scope:
                await job()
        finally:
            del self._at_work[scope]

    async def _ended(self) -> None:
        # A task that was cancelled before it began could not sign off.
        while tasks := [task for task in self._at_work.values() if not task.done()]:
            await asyncio.wait(tasks)


async def _within(scope: CancelScope, job: Callable[[], Awaitable[None]]) -> None:
    with scope:
        await job()


class SharedTimeout:
    """The same timeout of so many *seconds* for many scopes, with one timer for all of them.

    Such a timeout rarely fires, and on asyncio a timer for each scope costs more than the rest of
    the scope. It can serve one event loop after another, but not two at the same time.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ends: dict[TimeoutScope, float] = {}  # the first to end comes first
        self._armed = False

    def scope(self, within: CancelScope | None = None) -> TimeoutScope:
        """Cancels what runs inside when its time is up; `TimeoutScope.expired` tells so.

        *within* is a cancel scope that the caller runs in, and nothing else: then no scope is created, *within*
        itself is cancelled, and the caller can await nothing more after the timeout.
        """
        return TimeoutScope(self, within)

    def _enter(self, scope: TimeoutScope) -> None:
        if self._seconds <= 0:
            scope.expire()
        elif _in_trio() is not None:
            scope.scope.deadline = current_time() + self._seconds  # on trio a number, not a timer
        elif self._seconds < math.inf:
            loop = asyncio.get_running_loop()
            if loop is not self._loop:
                self._loop, self._ends, self._armed = loop, {}, False
            self._ends[scope] = loop.time() + self._seconds
            if not self._armed:
                self._arm(loop)

    def _exit(self, scope: TimeoutScope) -> None:
        self._ends.pop(scope, None)
        scope.scope.deadline = math.inf

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        end = next((end for scope, end in self._ends.items() if not scope.expired), None)
        self._armed = end is not None
        if end is not None:
            loop.call_at(end, self._expire, loop)

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for scope, end in self._ends.items():
            if end <= now:
                scope.expire()
        self._arm(loop)


class TimeoutScope:
    """One use of a `SharedTimeout`. Made by `SharedTimeout.scope`."""

    __slots__ = ("_expired", "_is_own", "_timeout", "scope")

    def __init__(self, timeout: SharedTimeout, within: CancelScope | None) -> None:
        self._timeout = timeout
        self._is_own = within is None
        self._expired = False
        self.scope = within or CancelScope()

    @property
    def expired(self) -> bool:
        return self._expired or (self.scope.cancel_called and current_time() >= self.scope.deadline)

    def expire(self) -> None:
        self._expired = True
        self.scope.cancel()

    def __enter__(self) -> TimeoutScope:
        if self._is_own:
            self.scope.__enter__()
        self._timeout._enter(self)
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> bool:
        self._expired = self.expired
        self._timeout._exit(self)
        if self._is_own:
            return self.scope.__exit__(exc_type, exc, tb)
        return self._expired and _is_cancellation(exc)


def _is_cancellation(exc: BaseException | None) -> bool:
    """Whether *exc* is nothing else, in however many groups: trio's task groups raise some."""
    if isinstance(exc, BaseExceptionGroup):
        return all(map(_is_cancellation, exc.exceptions))
    return isinstance(exc, get_cancelled_exc_class())


def detector() -> Callable[[], bool]:
    """Tells whether the event loop that runs now is the one that runs where it is called: in that thread and process."""
    if (trio := _in_trio()) is not None:
        token = trio.lowlevel.current_trio_token()
        return lambda: trio.lowlevel.in_trio_run() and trio.lowlevel.current_trio_token() is token
    loop = asyncio.get_running_loop()
    return lambda: asyncio._get_running_loop() is loop  # which raises nothing where there is none


def call_soon(loop: EventLoopToken, call: Callable[[], None]) -> None:
    """Have *loop* call something, from whichever thread and even from a finalizer. Does nothing if it has ended."""
    native: Any = loop.native_token
    schedule = native.call_soon_threadsafe if isinstance(native, asyncio.AbstractEventLoop) else native.run_sync_soon
    with suppress(RuntimeError):  # what both backends raise once they have ended
        schedule(call)


class OwnedContext(Generic[T]):
    """An async context manager entered and left by a task of its own.

    A task group must be left by the task that entered it, and in reverse order of
    entering. People connect in one task and close in another, in any order. So
    each connection lives in a task that belongs to nobody, and callers only signal it.
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
    def leaving(self) -> bool:
        """Whether somebody has asked to leave."""
        return self._stop.is_set()

    async def enter(self) -> T:
        """Enter the context manager; raise what entering raised, bare.

        If the caller is cancelled while it waits, everything is undone before this returns.
        """
        spawn(self._hold, self._conclude)
        try:
            await self._entered.wait()
        except BaseException:
            self._scope.cancel()
            with CancelScope(shield=True):  # bounded: whoever wrote the manager bounds its clean-up
                await self._ended.wait()
            raise
        if self._error is not None:
            raise self._error
        return self._value

    async def leave(self) -> None:
        """Leave the context manager and wait until that is done. Never raises what leaving raised.

        One that is still being entered is cancelled instead.
        """
        self._stop.set()
        if not self._entered.is_set():
            self._scope.cancel()
        await self._ended.wait()

    def cancel(self) -> None:
        """Leave at once: whatever the manager awaits is cancelled."""
        self._scope.cancel()

    async def _hold(self) -> None:
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


def first(group: BaseException) -> BaseException:
    """One error out of a group, however many there are: for those of which one says as much as all."""
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group


def bare(exc: BaseException) -> BaseException:
    """The error itself, out of however many groups of one it was wrapped in."""
    while isinstance(exc, BaseExceptionGroup) and len(exc.exceptions) == 1:
        exc = exc.exceptions[0]
    return exc


class SingleFlight:
    """Runs one job at a time, for all callers that need its result.

    The job runs in a task that *spawn* starts: it goes on when a waiting caller is cancelled.
    """

    def __init__(self, spawn: Callable[[Callable[[], Coroutine[Any, Any, None]]], object]) -> None:
        self._spawn = spawn
        self._flight: _Flight | None = None

    @property
    def running(self) -> bool:
        return self._flight is not None

    def begin(self, job: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start *job*, unless one is running. What it raises is raised for every caller that waits."""
        if self._flight is None:
            self._flight = flight = _Flight()
            self._spawn(lambda: self._run(flight, job))

    async def wait(self) -> None:
        """Wait for the running job, if there is one; raise what it raised, or what `end` was given."""
        if (flight := self._flight) is not None:
            await flight.done.wait()
            if flight.error is not None:
                raise flight.error.with_traceback(None)  # several callers raise the same one

    def end(self, error: Exception | None) -> None:
        """Cancel the running job. Waiting callers get *error*, or go on."""
        if (flight := self._flight) is not None:
            flight.error = error
            flight.scope.cancel()
            self._finish(flight)

    async def _run(self, flight: _Flight, job: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            with flight.scope:
                await job()
        except Exception as exc:  # raised for those who wait
            flight.error = exc
        finally:
            self._finish(flight)

    def _finish(self, flight: _Flight) -> None:
        if self._flight is flight:
            self._flight = None
        flight.done.set()


class _Flight:
    def __init__(self) -> None:
        self.scope = CancelScope()
        self.done = Event()
        self.error: Exception | None = None
