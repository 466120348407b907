"""What `make fuzz` runs for long, for a moment: so that no target rots, and each can fail."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz import targets
from fuzz.targets import TARGETS, examples
from mcp_host.transports.stdio import LineBuffer, LongLine
from tests.extent import THOROUGH


@pytest.mark.parametrize("target", TARGETS)
@given(noise=st.binary(max_size=200))
@settings(max_examples=2000 if THOROUGH else 40, deadline=None)
def test_no_bytes_make_a_target_fail(target: str, noise: bytes) -> None:
    TARGETS[target].run(noise)


@pytest.mark.parametrize("target", TARGETS)
def test_no_seed_makes_a_target_fail(target: str) -> None:
    for seed in [*TARGETS[target].seeds, *examples(target)]:
        TARGETS[target].run(seed)
        TARGETS[target].run(seed[: len(seed) // 2])


def test_a_target_fails_where_the_split_of_a_stream_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetful(LineBuffer):
        def feed(self, chunk: bytes) -> Iterator[bytes | bytearray | LongLine]:
            return super().feed(chunk[:50])

    monkeypatch.setattr(targets, "LineBuffer", Forgetful)
    with pytest.raises(AssertionError):
        TARGETS["lines"].run(targets.STREAM + b"a" * 100)
