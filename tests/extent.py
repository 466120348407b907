"""How much runs: on which event loops a test runs, and how many examples the random ones take."""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

THOROUGH = bool(os.environ.get("THOROUGH"))
"""Whether random tests take all of their examples, as in `make faults`."""

# How long an example takes, and how long it takes to make one, is the machine's.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

saturated = settings(max_examples=100 if THOROUGH else 30)
"""For properties of which 30 examples find what 100 do."""

BACKENDS = ("asyncio", "trio")
FOLDERS = {"cli": ("asyncio",), "concurrency": BACKENDS, "transports": BACKENDS}
"""The event loops of the tests in a folder. The mark ``backends`` of a test or of a module comes before it."""

on_both = pytest.mark.backends(*BACKENDS)
"""For tests whose subject waits, cancels, does I/O or runs tasks."""

HERE = Path(__file__).resolve().parent


def backends_of(test: pytest.Item, name: str, wanted: str = "") -> Sequence[str]:
    """The event loops to run the function *name* on: those that are marked, or those of its folder.

    For other logic, which no event loop can change, a checksum of the name chooses one of the two: the same in
    every run. *wanted* is the variable BACKENDS: "both", or one of them, for all tests that can run there.
    """
    path = test.path.relative_to(HERE)
    marked = test.get_closest_marker("backends")
    fixed = marked.args if marked else FOLDERS.get(path.parts[0])
    if wanted == "both":
        return fixed or BACKENDS
    if wanted and (fixed is None or wanted in fixed):
        return (wanted,)
    return fixed or (BACKENDS[zlib.crc32(f"{path.as_posix()}::{name}".encode()) % 2],)
