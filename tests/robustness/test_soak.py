"""A client that is used for a while holds no more afterwards. `make soak` does the same for long."""

from __future__ import annotations

import pytest

from tests.robustness.dialogue import few_ways
from tests.robustness.soak import Footprint, Load, soak

SHORT = Load(calls=250, asks=10, connections=2)


@pytest.mark.parametrize(("over", "era"), few_ways())
async def test_after_many_calls_nothing_has_grown(over: str, era: str) -> None:
    said: list[str] = []

    assert (await soak(over, era, SHORT, said.append)).excess() == {}


def test_one_leaked_object_for_each_call_fails_the_check() -> None:
    grown = Footprint(resident=0, traced=0, objects=50_000, tasks=0, children=0, descriptors=1)

    assert grown.excess() == {"objects": 50_000, "descriptors": 1}
