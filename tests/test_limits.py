"""The default limits of a connection, and the values that are refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from datetime import timedelta
from itertools import product
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
        "max_values": 30_000,
        "max_outbox": 64 * MiB,
        "stall_timeout": 60,
        "max_answers": 1024,
        "max_notifications": 1024,
        "max_pages": 1000,
        "max_idle_rounds": 3,
        "max_nesting": 8,
        "max_inputs_per_round": 64,
        "max_inputs": 500,
        "max_model_calls": 100,
        "max_cache": 16 * MiB,
    }


def with_one(name: str, value: Any) -> Limits:
    return replace(Limits(), **{name: value})


def test_a_time_may_be_zero_or_infinite_and_a_count_is_at_least_one(subtests: pytest.Subtests) -> None:
    for name in asdict(Limits()):
        with subtests.test(name=name):
            least = 1 if name.startswith("max_") else 0

            assert getattr(with_one(name, least), name) == least
            assert getattr(with_one(name, math.inf), name) == math.inf
            for wrong in (least - 1, math.nan):
                with pytest.raises(ValueError, match=rf"^Limits\.{name} must be at least {least}, not {wrong}$"):
                    with_one(name, wrong)


HUGE = "must be at most 1.79769e\\+308, or math.inf for no bound"


NO_TIMES: dict[str, tuple[object, type[Exception], str]] = {
    "text": ("5", TypeError, "must be a number of seconds, not '5'"),
    "bool": (True, TypeError, "must be a number of seconds, not True"),
    "timedelta": (
        timedelta(seconds=5),
        TypeError,
        r"must be a number of seconds, not datetime\.timedelta\(seconds=5\)",
    ),
    "nan": (math.nan, ValueError, "must be at least 0, not nan"),
    "far below zero": (-(10**5000), ValueError, r"must be at least 0, not -1\.7976931348623157e\+308"),
    "huge": (10**400, ValueError, HUGE),
    "too long to write": (10**5000, ValueError, HUGE),
}

KINDS: list[Callable[..., Any]] = [Limits, SamplingLimits]
FIELDS = [(limits, limit) for limits in KINDS for limit in fields(limits())]
TIMES = [(limits, limit.name) for limits, limit in FIELDS if isinstance(limit.default, float)]
COUNTS = [(limits, limit.name) for limits, limit in FIELDS if not isinstance(limit.default, float)]


def test_a_time_that_is_not_a_number_is_refused_by_name(subtests: pytest.Subtests) -> None:
    for (case, (wrong, error, says)), (limits, name) in product(NO_TIMES.items(), TIMES):
        with (
            subtests.test(case, limit=f"{limits.__name__}.{name}"),
            pytest.raises(error, match=rf"^{limits.__name__}\.{name} {says}$"),
        ):
            limits(**{name: wrong})


def test_a_count_that_is_not_a_number_is_refused_by_name(subtests: pytest.Subtests) -> None:
    for limits, name in COUNTS:
        with (
            subtests.test(f"{limits.__name__}.{name}"),
            pytest.raises(TypeError, match=rf"^{limits.__name__}\.{name} must be a number, not '5'$"),
        ):
            limits(**{name: "5"})


def test_max_connections_must_be_a_number() -> None:
    wrong: Any = "5"

    with pytest.raises(TypeError, match=r"^max_connections must be a number, not '5'$"):
        StreamableHttp("https://example.com/mcp", max_connections=wrong)
