"""Counting the steps that tasks take, and doing something right after one of them: on asyncio and on trio."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import sniffio
import trio


class Steps:
    """How many steps all tasks together have taken: each runs from one suspension to the next.

    Right after step number *at*, *action* is called, wherever all the other tasks stand.
    """

    def __init__(self) -> None:
        self.count = 0
        self.at = -1
        self.action: Callable[[], object] = lambda: None

    def take(self) -> None:
        self.count += 1
        if self.count == self.at:
            self.action()

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count the steps of the tasks that are started inside; on trio, of all that are."""
        if sniffio.current_async_library() == "trio":
            instrument = _Instrument(self)
            trio.lowlevel.add_instrument(instrument)
            try:
                yield
            finally:
                trio.lowlevel.remove_instrument(instrument)
            return
        loop = asyncio.get_running_loop()
        factory = loop.get_task_factory()

        def start(loop: asyncio.AbstractEventLoop, coro: Any, **kwargs: Any) -> asyncio.Task[Any]:
            return asyncio.Task(_stepped(coro, self.take), loop=loop, **kwargs)

        loop.set_task_factory(start)
        try:
            yield
        finally:
            loop.set_task_factory(factory)


class _Instrument(trio.abc.Instrument):
    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self._steps.take()


async def _stepped(coro: Coroutine[Any, Any, Any], take: Callable[[], None]) -> Any:
    return await _driven(coro, take)


@types.coroutine
def _driven(coro: Coroutine[Any, Any, Any], take: Callable[[], None]) -> Generator[Any, Any, Any]:
    """Run *coro*, calling *take* at each of its suspensions."""
    resume: Callable[[Any], Any] = coro.send
    value: Any = None
    while True:
        try:
            suspension = resume(value)
        except StopIteration as ended:
            return ended.value
        take()
        try:
            resume, value = coro.send, (yield suspension)
        except BaseException as exc:  # also the cancellation, which is for the coroutine
            resume, value = coro.throw, exc
