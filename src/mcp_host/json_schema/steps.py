"""Counting what a check against a stranger's schema costs."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeVar

from mcp_host.errors import TooManySteps, UncheckableSchema, excerpt
from mcp_host.json_schema.patterns import MAX_WEIGHT, Pattern

COPIES_PER_STEP = 32  # of values that are copied
LETTERS_PER_STEP = 100  # of a text that is written
MOVES_PER_STEP = 400  # of a pattern's automaton; see `Pattern.weight`
TOO_DEEP = "it nests too deeply"

T = TypeVar("T")


def too_many(steps: int) -> TooManySteps:
    return TooManySteps(f"it takes more than {steps} steps")


@dataclass(frozen=True, slots=True)
class Memory:
    """What one schema remembers from check to check."""

    patterns: dict[str, Pattern] = field(default_factory=dict)
    choices: dict[int, frozenset[str]] = field(default_factory=dict)  # by the id of the list in the schema


@dataclass(slots=True)
class Run:
    """What is being counted."""

    memory: Memory
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
        patterns = self.memory.patterns
        if source not in patterns:
            patterns[source] = Pattern(source)
            if sum([pattern.weight for pattern in list(patterns.values())]) > MAX_WEIGHT:  # another thread may add one
                raise UncheckableSchema("its patterns are too large together")
        return patterns[source]

    def found(self, source: str, text: str) -> bool:
        pattern = self.pattern(source)
        self.spend(1 + len(text) * pattern.weight // MOVES_PER_STEP)
        return pattern.found_in(text)

    def canonical(self, value: object) -> str:
        """A text that two values share exactly when JSON Schema calls them equal."""
        text = _WRITER.encode(value)
        self.spend(1 + len(text) // LETTERS_PER_STEP)
        return text


RUN: ContextVar[Run] = ContextVar("RUN")
_WRITER = json.JSONEncoder(sort_keys=True)


def counted(work: Callable[[], T], memory: Memory, steps: int) -> T:
    """What *work* returns, within so many steps.

    Raises:
        UncheckableSchema: Whatever went wrong, for it is the schema's fault.
    """
    token = RUN.set(Run(memory, steps))
    try:
        return work()
    except UncheckableSchema:
        raise
    except RecursionError:
        raise UncheckableSchema(TOO_DEEP) from None
    except Exception as exc:  # three libraries, fed by a stranger: addresses that are none, numbers too large
        raise UncheckableSchema(f"{type(exc).__name__}: {excerpt(str(exc))}") from exc
    finally:
        RUN.reset(token)
