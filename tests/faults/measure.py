"""What a test has cost: memory at its most, and time on the processor."""

from __future__ import annotations

import gc
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from types import FrameType

from anyio import sleep

IDLE = 0.1  # seconds, real ones: only that time passes tells an endless loop from one that waits
FEW_CALLS = 2_000  # of Python functions within that time
TRIES = 5
LINEAR = 24  # times as long, for eight times the size: as far from linear time as from quadratic


@contextmanager
def peak() -> Iterator[Callable[[], int]]:
    """Gives what the most bytes were that Python held at any moment inside, beyond what it held before."""
    most = 0
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    try:
        yield lambda: most
        most = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


@contextmanager
def busy() -> Iterator[Callable[[], float]]:
    """Gives the seconds that this process has computed inside, however long it waited."""
    spent = 0.0
    with old_garbage_left_alone():
        before = time.process_time()
        yield lambda: spent
        spent = time.process_time() - before


def grows_linearly(work: Callable[[int], object], size: int) -> bool:
    """Whether eight times the *size* takes *work* about eight times as long, and not 64 times: by the shortest of some tries."""
    small = large = inf
    for _ in range(TRIES):
        small = min(small, processor_time(lambda: work(size)))
        large = min(large, processor_time(lambda: work(8 * size)))
        if large < LINEAR * small:
            return True
    return False


def processor_time(work: Callable[[], object]) -> float:
    with busy() as spent:
        work()
    return spent()


async def calls_while_idle() -> int:
    """How many functions this thread calls while it only waits: some hundreds, or tens of thousands in an endless loop."""
    calls = 0

    def watch(frame: FrameType, event: str, arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(watch)
    try:
        await sleep(IDLE)
    finally:
        sys.setprofile(None)
    return calls


@contextmanager
def old_garbage_left_alone() -> Iterator[None]:
    """The garbage collector looks at nothing that the tests before have left: that may take longer than what is measured."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
