"""What asyncio and trio do differently."""

from __future__ import annotations

import asyncio
import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from contextlib import suppress
from contextvars import Context, copy_context
from functools import cached_property, partial
from signal import SIGINT, raise_signal
from time import monotonic
from typing import Any, Protocol, TypeAlias

from anyio import CancelScope, get_cancelled_exc_class
from anyio.abc import TaskGroup

Job: TypeAlias = Callable[[], Coroutine[Any, Any, None]]

background_tasks: set[asyncio.Future[None]] = set()  # asyncio itself keeps only weak references to tasks


class Timer(Protocol):
    def cancel(self) -> object: ...


class Loop(ABC):
    """An event loop. Anyio's functions look up the running one each time, which takes longer than what they do."""

    time: Callable[[], float]
    """The time in seconds, like `anyio.current_time`."""

    @cached_property
    def new_scope(self) -> type[CancelScope]:
        """Makes a cancel scope of this backend."""
        return type(CancelScope())

    @staticmethod
    def running() -> Loop:
        """The running event loop. On asyncio, trio is not imported."""
        trio = sys.modules.get("trio")
        if trio is not None and trio.lowlevel.in_trio_task():
            return _TrioLoop(trio)
        return _AsyncioLoop(asyncio.get_running_loop())

    @abstractmethod
    def is_running(self) -> bool:
        """Whether this is the running event loop of the current thread and process."""

    @abstractmethod
    def goes_on(self) -> bool:
        """Whether it runs, perhaps in another thread. Can be called in any thread."""

    signal: Callable[[], Awaitable[None]]
    """Makes an object that one task can await until it is passed to `wake`."""

    @abstractmethod
    def wake(self, signal: Any) -> None: ...

    @abstractmethod
    def call_at(self, time: float, callback: Callable[[], None]) -> Timer:
        """Call *callback*, which raises nothing, at *time*."""

    @abstractmethod
    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call *callback* in the loop. Can be called in any thread, also by a finalizer; does nothing if the loop has ended."""

    @abstractmethod
    def spawn(self, job: Job, at_end: Callable[[], None]) -> None:
        """Run *job* in a task without an owner, see `tasks.spawn`."""

    @abstractmethod
    def start(self, tasks: TaskGroup, job: Job, context: Context) -> asyncio.Task[None] | None:
        """Run *job* in a copy of *context*, on trio in a task of *tasks*.

        On asyncio the task belongs to the loop and has to be awaited by `wait`: what anyio's task groups add
        to a task takes longer than everything before the handler of a server request.
        """

    @abstractmethod
    async def wait(self, started: Iterable[asyncio.Task[None] | None]) -> None:
        """Wait for tasks that are in no task group."""

    @abstractmethod
    async def when_readable(self, fd: int, callback: Callable[[], bool]) -> None:
        """Call *callback* each time that *fd* is readable, until it returns True or `notify_closing` is called.

        Asyncio's event loop calls it itself: waking a task each time would cost two more system calls and one more tick.
        """

    @abstractmethod
    def notify_closing(self, fd: int) -> None:
        """*fd* is about to be closed: nothing waits for it any more."""


class _AsyncioLoop(Loop):
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._readers: dict[int, asyncio.Future[None]] = {}
        own_clock = type(loop).time is not asyncio.BaseEventLoop.time
        self.time = loop.time if own_clock else monotonic  # which is all that asyncio's function calls
        self.signal = loop.create_future

    def is_running(self) -> bool:
        return asyncio._get_running_loop() is self._loop  # raises nothing if there is none

    def goes_on(self) -> bool:
        return self._loop.is_running()

    def wake(self, signal: asyncio.Future[None]) -> None:
        if not signal.done():
            signal.set_result(None)

    def call_at(self, time: float, callback: Callable[[], None]) -> Timer:
        return self._loop.call_at(time, callback)

    def call_soon(self, callback: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(callback)

    def spawn(self, job: Job, at_end: Callable[[], None]) -> None:
        task = asyncio.Task(job(), loop=self._loop)  # by no task factory, as in `start`
        background_tasks.add(task)
        task.add_done_callback(background_tasks.discard)
        task.add_done_callback(lambda _: at_end())

    def start(self, tasks: TaskGroup, job: Job, context: Context) -> asyncio.Task[None]:
        # By no task factory of the application: an eager one would run the job at once. And not by `context.run`:
        # anyio, in a thread of the job, reads in the context where it is.
        return asyncio.Task(job(), loop=self._loop, context=context.copy())

    async def wait(self, started: Iterable[asyncio.Task[None] | None]) -> None:
        if tasks := [task for task in started if task is not None and not task.done()]:
            await asyncio.wait(tasks)

    async def when_readable(self, fd: int, callback: Callable[[], bool]) -> None:
        # sniffio looks for a task, and there is none in a callback of the event loop. anyio has imported it, or does without.
        if (sniffio := sys.modules.get("sniffio")) is not None:
            sniffio.current_async_library_cvar.set("asyncio")
        done = self._readers[fd] = self._loop.create_future()

        def on_readable() -> None:
            if done.done():  # its task has not run yet
                return
            try:
                ends = callback()
            except Exception as exc:  # a bug, for the waiting task to raise
                if done.done():
                    raise
                done.set_exception(exc)
            else:
                if ends and not done.done():  # the callback may have closed *fd*
                    done.set_result(None)

        self._loop.add_reader(fd, on_readable)
        try:
            await done
        finally:
            if self._readers.get(fd) is done:
                self.notify_closing(fd)

    def notify_closing(self, fd: int) -> None:
        if done := self._readers.pop(fd, None):
            self._loop.remove_reader(fd)
            if not done.done():
                done.set_result(None)


class _TrioSignal:
    def __init__(self, new_event: Callable[[], Any]) -> None:
        self.event = new_event()

    def __await__(self) -> Generator[Any, Any, None]:
        return self.event.wait().__await__()  # type: ignore[no-any-return]  # trio is imported on demand


class _TrioLoop(Loop):
    def __init__(self, trio: Any) -> None:
        self._trio = trio
        self._token = trio.lowlevel.current_trio_token()
        self.time = trio.current_time
        self.signal = partial(_TrioSignal, trio.Event)

    def is_running(self) -> bool:
        lowlevel = self._trio.lowlevel
        return bool(lowlevel.in_trio_run() and lowlevel.current_trio_token() is self._token)

    def goes_on(self) -> bool:
        try:
            self._token.run_sync_soon(int)  # does nothing, unless the run is over
        except RuntimeError:
            return False
        return True

    def wake(self, signal: _TrioSignal) -> None:
        signal.event.set()

    def call_at(self, time: float, callback: Callable[[], None]) -> Timer:
        timer = self._trio.CancelScope()

        async def ring() -> None:
            with timer:
                await self._trio.sleep_until(time)
                callback()

        self._trio.lowlevel.spawn_system_task(ring)
        return timer  # type: ignore[no-any-return]  # as above

    def call_soon(self, callback: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the run is over
            self._token.run_sync_soon(callback)

    def spawn(self, job: Job, at_end: Callable[[], None]) -> None:
        self._trio.lowlevel.spawn_system_task(self._run, job, name=job, context=copy_context())

    async def _run(self, job: Job) -> None:
        """Ctrl-C in a task that *job* has started is for the main task: what a system task raises, trio takes for its own error."""
        try:
            await job()
        except* KeyboardInterrupt:
            raise_signal(SIGINT)  # in a system task trio hands it on

    def start(self, tasks: TaskGroup, job: Job, context: Context) -> None:
        context.run(tasks.start_soon, job)  # which copies the context

    async def wait(self, started: Iterable[asyncio.Task[None] | None]) -> None:
        """The task group waits."""

    async def when_readable(self, fd: int, callback: Callable[[], bool]) -> None:
        with suppress(self._trio.ClosedResourceError):
            await self._trio.lowlevel.wait_readable(fd)
            while not callback():
                await self._trio.lowlevel.wait_readable(fd)
        await self._trio.lowlevel.checkpoint()  # as on asyncio, the caller goes on in a later tick than the callback

    def notify_closing(self, fd: int) -> None:
        self._trio.lowlevel.notify_closing(fd)


def is_cancellation(exc: BaseException | None) -> bool:
    """Whether *exc* is a cancellation, or a group of nothing else: trio's task groups raise some."""
    if isinstance(exc, BaseExceptionGroup):
        return all(map(is_cancellation, exc.exceptions))
    return isinstance(exc, get_cancelled_exc_class())


def cancellations() -> int:
    """How often the current task has been cancelled, without those that were undone. On trio always 0."""
    task = None if asyncio._get_running_loop() is None else asyncio.current_task()
    return 0 if task is None else task.cancelling()


def cancels_current_task(exc: BaseException, before: int = 0) -> bool:
    """Whether the cancellation *exc* is of the current task, and not of one that it awaited. Only asyncio confuses them.

    That of another task is a failure of the code that awaited it: raised on, it would end our task, or be swallowed by a
    task group, without a word. *before* are the `cancellations` at the start of what raised it: the task may have survived
    some. In a task of the application 0 is safe: one that has cancelled itself is still to hear of it.
    """
    return not isinstance(exc, asyncio.CancelledError) or cancellations() > before
