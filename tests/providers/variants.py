"""A JSON value with each of its fields and items replaced, removed or repeated."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from functools import partial
from random import Random
from typing import Any, TypeAlias

from tests.extent import THOROUGH

PAIRS = 3000 if THOROUGH else 100  # of changes at once

Path: TypeAlias = tuple[str | int, ...]
Edit: TypeAlias = Callable[[Any, Any], None]
"""Changes a list or an object at an index or a name."""


def paths(value: object, path: Path = ()) -> Iterator[Path]:
    """The ways to all fields and items."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in inside:
        yield (*path, key)
        yield from paths(inner, (*path, key))


def deep() -> object:
    nested: object = 1
    for _ in range(1500):
        nested = {"a": [nested]}
    return nested


# fmt: off
OTHERS: Sequence[Callable[[], object]] = [
    lambda: None, list, dict, lambda: [None], lambda: {"a": None}, lambda: 7, lambda: -1, lambda: 1.5, lambda: 10**400,
    lambda: math.nan, lambda: True, str, lambda: "x", lambda: "[" * 3000, deep,
]
# fmt: on


def put(make: Callable[[], object], container: Any, key: Any) -> None:
    if isinstance(container, dict) and not isinstance(key, str):  # it was a list before another change
        raise TypeError("JSON has no such name")
    container[key] = make()


def remove(container: Any, key: Any) -> None:
    del container[key]


def repeat(container: Any, key: Any) -> None:
    container.insert(key, deepcopy(container[key]))


EDITS: Sequence[Edit] = [*[partial(put, make) for make in OTHERS], remove, repeat]


def changed(value: object, *changes: tuple[Path, Edit]) -> object:
    """A copy of *value* with changes. One whose place is not there, or is no list to repeat an item of, changes nothing.
    Nor does one that repeats what `deep` made: Python does not copy it.
    """
    written = deepcopy(value)
    for (*way, last), edit in changes:
        container: Any = written
        with suppress(LookupError, TypeError, AttributeError, RecursionError):
            for step in way:
                container = container[step]
            edit(container, last)
    return written


def variants(value: object) -> Iterator[object]:
    """*value* with each single change, with several at once, and something else."""
    places = list(paths(value))
    for path in places:
        for edit in EDITS:
            yield changed(value, (path, edit))
    chance = Random(1)
    for _ in range(PAIRS):
        yield changed(value, *[(chance.choice(places), chance.choice(EDITS)) for _ in range(2)])
