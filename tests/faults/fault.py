"""The mark of a test that is about a fault, and what every such test is held to."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import NamedTuple, ParamSpec

import pytest
import sniffio
import trio
from anyio import fail_after, move_on_after, sleep

from tests.faults.catalogue import ROWS

P = ParamSpec("P")
SETTLING = 25.0  # seconds for the event loop to let go of what a test has closed
WITHIN = (
    200.0  # seconds for a test that could hang: beside a load, and measured, one that computes takes ten times as long
)


class Held(NamedTuple):
    """How much of everything that can leak this process has."""

    tasks: int
    children: int
    descriptors: int

    @classmethod
    def now(cls) -> Held:
        return cls(_tasks(), len(children()), len(os.listdir("/proc/self/fd")))

    def beyond(self, before: Held) -> dict[str, int]:
        """What has grown since *before*."""
        pairs = zip(self._fields, self, before, strict=True)
        return {name: now - then for name, now, then in pairs if now > then}


def fault(*rows: str, within: float = WITHIN) -> Callable[[Callable[P, Awaitable[None]]], Callable[P, Awaitable[None]]]:
    """Mark an async test as being about these rows of the catalogue.

    The test must end *within* so many seconds, and leave no task, no child and no descriptor.
    A test that is held to neither is marked with ``pytest.mark.fault`` alone, wherever it is.
    """
    assert rows
    assert set(rows) <= ROWS.keys()

    def decorate(test: Callable[P, Awaitable[None]]) -> Callable[P, Awaitable[None]]:
        @pytest.mark.fault(*rows)
        @wraps(test)
        async def held_to_it(*args: P.args, **kwargs: P.kwargs) -> None:
            async with leaving_nothing():
                with fail_after(within):
                    await test(*args, **kwargs)

        return held_to_it

    return decorate


@asynccontextmanager
async def leaving_nothing() -> AsyncIterator[None]:
    """Check that what runs inside leaves no task, no child, dead or alive, and no descriptor."""
    before = Held.now()
    yield
    left: dict[str, int] = {}
    with move_on_after(SETTLING):
        while left := Held.now().beyond(before):  # noqa: ASYNC110  # no event tells
            await sleep(0.001)  # at a mere checkpoint a fake clock would stand still
    assert left == {}


def children() -> set[int]:
    """The processes that this one has started and not yet waited for."""
    return {int(pid) for tasks in Path("/proc/self/task").iterdir() for pid in _children_of(tasks)}


def _children_of(task: Path) -> list[str]:
    with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended meanwhile
        return (task / "children").read_text(encoding="ascii").split()
    return []


def _tasks() -> int:
    if sniffio.current_async_library() == "asyncio":
        return len(asyncio.all_tasks())
    return trio.lowlevel.current_statistics().tasks_living
