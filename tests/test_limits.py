"""The default limits of a connection, and the values that are refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any

import pytest

from mcp_host import Limits, SamplingLimits, StreamableHttp

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
def test_a_time_may_be_zero_or_infinite_and_a_count_is_at_least_one(name: str) -> None:
    least = 1 if name.startswith("max_") else 0

    assert getattr(with_one(name, least), name) == least
    assert getattr(with_one(name, math.inf), name) == math.inf
    for wrong in (least - 1, math.nan):
        with pytest.raises(ValueError, match=rf"^Limits\.{name} must be at least {least}, not {wrong}$"):
            with_one(name, wrong)


HUGE = "must be at most 1.79769e\\+308, or math.inf for no bound"


@pytest.mark.parametrize(
    ("wrong", "error", "says"),
    [
        ("5", TypeError, "must be a number of seconds, not '5'"),
        (True, TypeError, "must be a number of seconds, not True"),
        (timedelta(seconds=5), TypeError, r"must be a number of seconds, not datetime\.timedelta\(seconds=5\)"),
        (math.nan, ValueError, "must be at least 0, not nan"),
        (-(10**5000), ValueError, r"must be at least 0, not -1\.7976931348623157e\+308"),
        (10**400, ValueError, HUGE),
        (10**5000, ValueError, HUGE),
    ],
    ids=["text", "bool", "timedelta", "nan", "far below zero", "huge", "too long to write"],
)
@pytest.mark.parametrize(
    ("limits", "name"),
    [
        *[(Limits, name) for name in asdict(Limits()) if not name.startswith("max_")],
        (SamplingLimits, "seconds"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_time_that_is_not_a_number_is_refused_by_name(
    limits: Callable[..., object], name: str, wrong: object, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=rf"^{limits.__name__}\.{name} {says}$"):
        limits(**{name: wrong})


@pytest.mark.parametrize(
    ("limits", "name"),
    [
        *[(Limits, name) for name in asdict(Limits()) if name.startswith("max_")],
        *[(SamplingLimits, name) for name in asdict(SamplingLimits()) if name != "seconds"],
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_count_that_is_not_a_number_is_refused_by_name(limits: Callable[..., object], name: str) -> None:
    with pytest.raises(TypeError, match=rf"^{limits.__name__}\.{name} must be a number, not '5'$"):
        limits(**{name: "5"})


def test_max_connections_must_be_a_number() -> None:
    wrong: Any = "5"

    with pytest.raises(TypeError, match=r"^max_connections must be a number, not '5'$"):
        StreamableHttp("https://example.com/mcp", max_connections=wrong)
