"""Checks of the bounds that an application sets, made where it sets them."""

from __future__ import annotations

import math
import sys
from numbers import Real

LARGEST = sys.float_info.max  # an integer past it is no float, and one of 4,300 digits cannot even be written


def check_seconds(name: str, seconds: float) -> None:
    """Make sure that *seconds* is a time: at least 0; `math.inf` is no bound.

    Raises:
        TypeError: It is no number.
        ValueError: It is negative, nan, or an integer that is no float.
    """
    _check(name, seconds, least=0, what="a number of seconds")


def check_count(name: str, count: float, *, least: int = 1) -> None:
    """Make sure that *count* is a number of things or of bytes, *least* or more.

    Raises:
        TypeError: It is no number.
        ValueError: It is smaller, or nan.
    """
    _check(name, count, least=least, what="a number")


def _check(name: str, value: float, *, least: int, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be {what}, not {value!r}")
    if not value >= least:  # which nan is not, either
        raise ValueError(f"{name} must be at least {least}, not {max(value, -LARGEST)}")
    if LARGEST < value < math.inf:
        raise ValueError(f"{name} must be at most {LARGEST:g}, or math.inf for no bound")
