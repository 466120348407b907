"""Arithmetic as people write it in a sentence: found, parsed, and taken apart into steps."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

# More is no question that somebody typed; and neither the parser's recursion nor the
# turns of the dialogue, one for each step that waits for another, may grow without end.
LONGEST = 2000  # characters of text
MOST_TOKENS = 120

EXACT = 2**53  # whole numbers below it are themselves as floats, too

MINUS = "\N{MINUS SIGN}"  # what a word processor makes of a hyphen
TIMES = "\N{MULTIPLICATION SIGN}"
SPELLINGS: Mapping[str, Sequence[str]] = {
    "+": ("plus",),
    "-": (MINUS, "minus"),
    "*": (TIMES, "·", "x", "times", "multiplied by"),
    "/": ("÷", "over", "divided by"),
}
SIGNS = {spelling: sign for sign, spellings in SPELLINGS.items() for spelling in spellings}

_TOKEN = re.compile(
    r"(?P<number>\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)"
    rf"|(?P<sign>[-+*/()·÷{TIMES}{MINUS}]|\b(?:x|times|over|plus|minus|(?:multiplied|divided)\s+by)\b)"
    r"|(?P<foreign>[\^%√])"  # mathematics that must not be skipped like a word
    r"|(?P<prose>[^\W\d]\w*|\S)",
    re.ASCII | re.IGNORECASE,
)


class NoArithmetic(ValueError):
    """There is nothing here to calculate; the text says why, as an answer to whoever asked."""


@dataclass(frozen=True, slots=True)
class Operation:
    """Two operands and what to do with them: one of ``+ - * /``."""

    sign: str
    left: Expression
    right: Expression


Expression: TypeAlias = float | Operation


@dataclass(frozen=True, slots=True)
class Problem:
    """What is to be calculated, and how it was written."""

    source: str
    expression: Operation


def find(text: str) -> Problem:
    """The one calculation that *text* asks for.

    Raises:
        NoArithmetic: It asks for none, for several, or for one that cannot be read.
    """
    if len(text) > LONGEST:
        raise NoArithmetic(f"I read no more than {LONGEST} characters, and this is {len(text)}")
    problems = [problem for run in _runs(text) if (problem := _read(text, run)) is not None]
    if not problems:
        raise NoArithmetic("I can only do arithmetic with + - * / and parentheses, and I find none in this")
    if len(problems) > 1:
        raise NoArithmetic(f"I can do one calculation at a time, and I find {len(problems)} in this")
    return problems[0]


def steps(expression: Expression) -> list[Operation]:
    """The operations that wait for no other, each once, in the order they are written."""
    return list(dict.fromkeys(_ready(expression)))


def settle(expression: Expression, results: Mapping[Operation, float]) -> Expression:
    """The expression with the operations in *results* carried out."""
    if not isinstance(expression, Operation):
        return expression
    if _is_ready(expression):
        return results.get(expression, expression)
    return Operation(expression.sign, settle(expression.left, results), settle(expression.right, results))


def tidy(number: float) -> float:
    """The number as people write it: 21, not 21.0."""
    return int(number) if number.is_integer() and abs(number) < EXACT else number


def _ready(expression: Expression) -> Iterator[Operation]:
    if not isinstance(expression, Operation):
        return
    if _is_ready(expression):
        yield expression
    yield from _ready(expression.left)
    yield from _ready(expression.right)


def _is_ready(operation: Operation) -> bool:
    return not isinstance(operation.left, Operation) and not isinstance(operation.right, Operation)


def _runs(text: str) -> Iterator[Sequence[re.Match[str]]]:
    """The stretches of *text* between its prose that hold a number and a sign."""
    for prose, tokens in groupby(_TOKEN.finditer(text), key=lambda token: token.lastgroup == "prose"):
        run = list(tokens)
        kinds = {token.lastgroup for token in run}
        if not prose and "number" in kinds and len(kinds) > 1:
            yield run


def _read(text: str, run: Sequence[re.Match[str]]) -> Problem | None:
    """The calculation in a stretch of tokens; None for a number by itself."""
    source = text[run[0].start() : run[-1].end()]
    expression = _Parser(source, run).whole()
    return Problem(source, expression) if isinstance(expression, Operation) else None


class _Parser:
    """Recursive descent over one stretch of tokens."""

    def __init__(self, source: str, run: Sequence[re.Match[str]]) -> None:
        if len(run) > MOST_TOKENS:
            raise NoArithmetic(f"I can do calculations of {MOST_TOKENS} numbers and signs, and this has {len(run)}")
        self._source = source
        self._tokens = [_token(match) for match in run]
        self._next = 0

    def whole(self) -> Expression:
        expression = self._sum()
        if self._next < len(self._tokens):
            raise self._unreadable()
        return expression

    def _sum(self) -> Expression:
        left = self._product()
        while sign := self._take("+", "-"):
            left = Operation(sign, left, self._product())
        return left

    def _product(self) -> Expression:
        left = self._factor()
        while sign := self._take("*", "/"):
            left = Operation(sign, left, self._factor())
        return left

    def _factor(self) -> Expression:
        if self._take("-"):
            operand = self._factor()
            return Operation("-", 0, operand) if isinstance(operand, Operation) else -operand
        if self._take("("):
            inner = self._sum()
            if not self._take(")"):
                raise self._unreadable()
            return inner
        return self._number()

    def _number(self) -> float:
        token = self._tokens[self._next] if self._next < len(self._tokens) else ""
        if not isinstance(token, float) or math.isinf(token):
            raise self._unreadable()
        self._next += 1
        return tidy(token)

    def _take(self, *signs: str) -> str | None:
        token = self._tokens[self._next] if self._next < len(self._tokens) else None
        if not isinstance(token, str) or token not in signs:
            return None
        self._next += 1
        return token

    def _unreadable(self) -> NoArithmetic:
        return NoArithmetic(f"I can only do arithmetic with + - * / and parentheses, and cannot read {self._source}")


def _token(match: re.Match[str]) -> str | float:
    """A number, or one of the signs in one spelling."""
    text = match[0]
    if match.lastgroup == "number":
        return float(text.replace(",", ""))
    plain = " ".join(text.lower().split())
    return SIGNS.get(plain, plain)
