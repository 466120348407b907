"""What a test has cost: memory at its most, and time on the processor."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from anyio import sleep

IDLE = 0.1  # seconds


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


async def share_of_cpu() -> float:
    """What this process uses of a processor while it only waits: next to nothing, or all there is in an endless loop.

    It is the least of three: what an earlier step has left to do, such as in a thread, is done once.
    """
    shares = []
    for _ in range(3):
        with busy() as spent:
            await sleep(IDLE)
        shares.append(spent() / IDLE)
    return min(shares)


@contextmanager
def old_garbage_left_alone() -> Iterator[None]:
    """The garbage collector looks at nothing that the tests before have left: that may take longer than what is measured."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
