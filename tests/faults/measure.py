"""What a test has cost: memory at its most, and time on the processor."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager


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
    before = time.process_time()
    yield lambda: spent
    spent = time.process_time() - before
