"""`make soak`: one client, used for a very long time. What it holds at the end is what it held after its first calls."""

from __future__ import annotations

import gc
import os
import sys
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from dataclasses import astuple, dataclass, fields
from functools import partial
from pathlib import Path
from typing import TypeAlias

import anyio
from anyio import create_task_group
from pydantic_core import from_json, to_json

from mcp_host import Limits
from mcp_host.transports.base import Transport
from tests.faults.fault import Held
from tests.robustness.dialogue import Dialogue, lean_server, texts

AT_ONCE = 8  # calls
EVERY = 10.0  # seconds between two lines
KiB = 1024

Say: TypeAlias = Callable[[str], None]


@dataclass(frozen=True)
class Load:
    """How much is asked of one client, and before that, of the same client, to warm up."""

    calls: int
    asks: int
    connections: int

    def share(self, part: float) -> Load:
        return Load(*(max(1, round(count * part)) for count in astuple(self)))


FULL = Load(calls=50_000, asks=5_000, connections=500)
"""For each transport in each era: 100,000 calls, 10,000 sampling round trips and 1,000 connections for a transport."""


@dataclass(frozen=True)
class Footprint:
    """What a process holds: KiB of memory that it has, KiB that Python has allocated since tracing began, and the rest."""

    resident: int
    traced: int
    objects: int
    tasks: int
    children: int
    descriptors: int

    @classmethod
    def now(cls) -> Footprint:
        gc.collect()
        held = Held.now()
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        resident = pages * os.sysconf("SC_PAGE_SIZE") // KiB
        traced = tracemalloc.get_traced_memory()[0] // KiB
        return cls(resident, traced, len(gc.get_objects()), held.tasks, held.children, held.descriptors)

    def since(self, before: Footprint) -> Footprint:
        return Footprint(*(now - then for now, then in zip(astuple(self), astuple(before), strict=True)))

    def excess(self) -> dict[str, int]:
        """What has grown by more than it may."""
        grown = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: growth for name, growth in grown.items() if growth > TOLERANCE[name]}


TOLERANCE = {
    "resident": 8 * KiB,  # KiB: what the allocator keeps for later comes and goes by some MiB
    "traced": 512,
    "objects": 2_000,  # full caches of the interpreter, and 1,024 remembered ids
    "tasks": 0,
    "children": 0,
    "descriptors": 0,
}


class Progress:
    """Counts what is done, and says so now and then."""

    def __init__(self, title: str, total: int, say: Say) -> None:
        self._title = title
        self._total = total
        self._say = say
        self._done = 0
        self._next = time.monotonic() + EVERY

    def step(self) -> None:
        self._done += 1
        if time.monotonic() >= self._next:
            self._next += EVERY
            self._say(f"  {self._title}: {self._done:,} of {self._total:,}")


async def repeat(count: int, work: Callable[[], Awaitable[None]], step: Callable[[], None]) -> None:
    """*work*, *count* times, some at a time."""
    left = iter(range(count))

    async def worker() -> None:
        for _ in left:
            await work()
            step()

    async with create_task_group() as tasks:
        for _ in range(AT_ONCE):
            tasks.start_soon(worker)


async def call(dialogue: Dialogue) -> None:
    assert texts(await dialogue.client.call_tool("echo", {"text": "é" * 20})) == ["é" * 20]


async def ask(dialogue: Dialogue) -> None:
    assert texts(await dialogue.client.call_tool("ask")) == ["2"]


async def use(transport: Transport, load: Load, step: Callable[[], None]) -> Footprint:
    """Put *load* on one client, which then connects and closes again and again. What is held after that."""
    dialogue = Dialogue(transport, Limits())
    await dialogue.connect()
    await repeat(load.calls, partial(call, dialogue), step)
    await repeat(load.asks, partial(ask, dialogue), step)
    await dialogue.close()
    for _ in range(load.connections):
        await dialogue.connect()
        await call(dialogue)
        await dialogue.close()
        step()
    return Footprint.now()


def fill_string_cache() -> None:
    """Have the JSON reader keep as many short strings as it ever will (16,384), whose growth would be taken for ours."""
    from_json(to_json([f"{number:021}" for number in range(3 * 16_384)]))


async def soak(over: str, era: str, load: Load, say: Say) -> Footprint:
    """By how much the footprint has grown since a tenth of *load*."""
    async with lean_server(over, era) as transport:
        progress = Progress(f"{over}, {era}", sum(astuple(load)), say)
        tracemalloc.start()
        fill_string_cache()
        try:
            before = await use(transport, load.share(0.1), lambda: None)
            after = await use(transport, load, progress.step)
        finally:
            tracemalloc.stop()
    return after.since(before)


def main() -> int:
    """Soak both transports in both eras; print what has grown."""
    say = partial(print, flush=True)
    rows = []
    for over in ("stdio", "http"):
        for era in ("legacy", "modern"):
            began = time.monotonic()
            grown = anyio.run(soak, over, era, FULL, say)
            rows.append((f"{over}, {era}", grown, time.monotonic() - began))
    say(
        f"\n{FULL.calls:,} calls, {FULL.asks:,} sampling round trips and {FULL.connections:,} connections each; growth:"
    )
    say(
        f"{'':16}{'KiB resident':>14}{'KiB traced':>12}{'objects':>9}{'tasks':>7}{'children':>10}{'descriptors':>13}{'seconds':>9}"
    )
    for name, grown, seconds in rows:
        counts = "".join(
            f"{count:>{width},}" for count, width in zip(astuple(grown), (14, 12, 9, 7, 10, 13), strict=True)
        )
        say(f"{name:16}{counts}{seconds:>9.0f}" + (f"  TOO MUCH: {grown.excess()}" if grown.excess() else ""))
    return 1 if any(grown.excess() for _, grown, _ in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
