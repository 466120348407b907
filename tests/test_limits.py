"""What a connection may take unless its client says otherwise, and which bounds are none."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import Any

import pytest

from mcp_host import Limits

MiB = 1024 * 1024


def test_the_defaults_are_those_that_are_documented() -> None:
    assert asdict(Limits()) == {
        "connect_timeout": 30,
        "timeout": 3600,
        "idle_timeout": 120,
        "input_timeout": 3600,
        "close_timeout": 10,
        "max_message": 64 * MiB,
        "max_outbox": 64 * MiB,
        "stall_timeout": 60,
        "max_answers": 1024,
        "max_notifications": 1024,
        "max_pages": 1000,
        "max_idle_rounds": 3,
        "max_nesting": 8,
        "max_inputs_per_round": 64,
        "max_inputs": 500,
        "max_cache": 16 * MiB,
    }


def with_one(name: str, value: Any) -> Limits:
    return replace(Limits(), **{name: value})


@pytest.mark.parametrize("name", asdict(Limits()))
def test_a_time_may_be_zero_or_without_end_and_a_number_is_at_least_one(name: str) -> None:
    least = 1 if name.startswith("max_") else 0

    assert getattr(with_one(name, least), name) == least
    assert getattr(with_one(name, math.inf), name) == math.inf
    for wrong in (least - 1, math.nan):
        with pytest.raises(ValueError, match=rf"^Limits\.{name} must be at least {least}, not {wrong}$"):
            with_one(name, wrong)
