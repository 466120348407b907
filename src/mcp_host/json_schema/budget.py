"""Counting the steps of a check."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeVar

from mcp_host.errors import TooManySteps, UncheckableSchema, excerpt
from mcp_host.json_schema.patterns import MAX_WEIGHT, Pattern

COPIES_PER_STEP = 32  # values
LETTERS_PER_STEP = 100  # characters of a text
MOVES_PER_STEP = 400  # of a pattern's automaton; see `Pattern.weight`
TOO_DEEP = "it nests too deeply"

T = TypeVar("T")


def too_many(steps: int) -> TooManySteps:
    return TooManySteps(f"it takes more than {steps} steps")


@dataclass(frozen=True, slots=True)
class SchemaCache:
    """What a schema keeps between checks."""

    patterns: dict[str, Pattern] = field(default_factory=dict)
    choices: dict[int, frozenset[str]] = field(default_factory=dict)  # by the id of the list in the schema


@dataclass(slots=True)
class StepBudget:
    """The steps of one check, and their limit."""

    cache: SchemaCache
    steps: int
    spent: int = 0
    copied: int = 0
    depth: int = 0

    def spend(self, steps: int) -> None:
        self.spent += steps
        if self.spent > self.steps:
            raise too_many(self.steps)

    def copy(self, values: int) -> None:
        self.copied += 1 + values
        self.spend(self.copied // COPIES_PER_STEP)
        self.copied %= COPIES_PER_STEP

    def pattern(self, source: str) -> Pattern:
        patterns = self.cache.patterns
        if source not in patterns:
            patterns[source] = Pattern(source)
            if (
                sum([pattern.weight for pattern in list(patterns.values())]) > MAX_WEIGHT
            ):  # a copy, because another thread may add one
                raise UncheckableSchema("its patterns are too large together")
        return patterns[source]

    def matches(self, source: str, text: str) -> bool:
        pattern = self.pattern(source)
        self.spend(1 + len(text) * pattern.weight // MOVES_PER_STEP)
        return pattern.matches(text)

    def canonical(self, value: object) -> str:
        """A text that is the same for two values exactly if JSON Schema calls them equal."""
        text = _WRITER.encode(value)
        self.spend(1 + len(text) // LETTERS_PER_STEP)
        return text


BUDGET: ContextVar[StepBudget] = ContextVar("BUDGET")
_WRITER = json.JSONEncoder(sort_keys=True)


def within_budget(work: Callable[[], T], cache: SchemaCache, steps: int) -> T:
    """Run *work* with a budget of so many steps.

    Raises:
        UncheckableSchema: Any failure, because the schema caused it.
    """
    token = BUDGET.set(StepBudget(cache, steps))
    try:
        return work()
    except UncheckableSchema:
        raise
    except RecursionError:
        raise UncheckableSchema(TOO_DEEP) from None
    except Exception as exc:  # from three libraries: invalid URIs, numbers that are too large
        raise UncheckableSchema(f"{type(exc).__name__}: {excerpt(str(exc))}") from exc
    finally:
        BUDGET.reset(token)
