"""Finding and parsing arithmetic in a sentence, with Python as the oracle."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_host.cli.expressions import Expression, NoArithmetic, Operation, find, settle, steps

OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}

ONLY = "I can only do arithmetic with + - * / and parentheses, "

numbers = st.one_of(
    st.integers(0, 999).map(str),
    st.decimals(0, 999, places=2, allow_nan=False).map(str),
)
operands = st.recursive(
    numbers,
    lambda inner: st.one_of(
        inner.map("({})".format),
        inner.map("-{}".format),
        st.builds("{} {} {}".format, inner, st.sampled_from("+-*/"), inner),
    ),
    max_leaves=10,
)
expressions = st.builds("{} {} {}".format, operands, st.sampled_from("+-*/"), operands)
"""Text with precedence left to the reader, as people write it."""


def python(text: str) -> float:
    """What Python makes of it, all in floats."""
    value: float = eval(re.sub(r"\d+(\.\d+)?", r"float('\g<0>')", text))
    return value


def outcome(calculate: Callable[[], float]) -> float | None:
    """The value, or None where it divides by zero."""
    try:
        return calculate()
    except ZeroDivisionError:
        return None


def evaluate(expression: Expression) -> float:
    if not isinstance(expression, Operation):
        return expression
    return float(OPERATORS[expression.sign](evaluate(expression.left), evaluate(expression.right)))


@given(expressions)
def test_an_expression_means_what_python_says(text: str) -> None:
    found = find(f"What is {text}?")

    assert found.source == text
    assert outcome(lambda: evaluate(found.expression)) == outcome(lambda: python(text))


@pytest.mark.parametrize(
    ("text", "source", "expression"),
    [
        ("What is 3 + 4?", "3 + 4", Operation("+", 3, 4)),
        ("3+4*2", "3+4*2", Operation("+", 3, Operation("*", 4, 2))),
        ("10 - 4 - 3.", "10 - 4 - 3", Operation("-", Operation("-", 10, 4), 3)),
        ("(1 + 2) * -3", "(1 + 2) * -3", Operation("*", Operation("+", 1, 2), -3)),
        ("-(1 + 2)", "-(1 + 2)", Operation("-", 0, Operation("+", 1, 2))),
        ("0.5 * .25", "0.5 * .25", Operation("*", 0.5, 0.25)),
        ("1,250,000 / 2", "1,250,000 / 2", Operation("/", 1250000, 2)),
        ("six is 2 times 3, they say", "2 times 3", Operation("*", 2, 3)),
        ("8 Divided  By 2 plus 1", "8 Divided  By 2 plus 1", Operation("+", Operation("/", 8, 2), 1)),
        ("2 x 3 \N{MULTIPLICATION SIGN} 4", "2 x 3 \N{MULTIPLICATION SIGN} 4", Operation("*", Operation("*", 2, 3), 4)),
        ("9 ÷ 3 \N{MINUS SIGN} 1", "9 ÷ 3 \N{MINUS SIGN} 1", Operation("-", Operation("/", 9, 3), 1)),
        ("Step-by-step, for 7 people: 1 + 1 = ?", "1 + 1", Operation("+", 1, 1)),
    ],
)
def test_a_calculation_is_found_in_a_sentence(text: str, source: str, expression: Operation) -> None:
    found = find(text)

    assert (found.source, found.expression) == (source, expression)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", ONLY + "and I find none in this"),
        ("Who are you?", ONLY + "and I find none in this"),
        ("What is 7?", ONLY + "and I find none in this"),
        ("What is (-7)?", ONLY + "and I find none in this"),
        ("2 ^ 3 + 1", ONLY + "and cannot read 2 ^ 3 + 1"),
        ("50 % 3", ONLY + "and cannot read 50 % 3"),
        ("2 ** 3", ONLY + "and cannot read 2 ** 3"),
        ("(1 + 2", ONLY + "and cannot read (1 + 2"),
        ("1 + 2)", ONLY + "and cannot read 1 + 2)"),
        ("1 +", ONLY + "and cannot read 1 +"),
        ("1 2 + 3", ONLY + "and cannot read 1 2 + 3"),
        ("2y + 3", ONLY + "and cannot read + 3"),
        (f"{'9' * 400} + 1", ONLY + f"and cannot read {'9' * 400} + 1"),
        ("1 + 2, and 3 + 4", "I can do one calculation at a time, and I find 2 in this"),
        ("1" + "+1" * 60, "I can do calculations of 120 numbers and signs, and this has 121"),
        ("hm" * 1001, "I read no more than 2000 characters, and this is 2002"),
    ],
)
def test_what_cannot_be_calculated_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(NoArithmetic) as caught:
        find(text)

    assert str(caught.value) == reason


@pytest.mark.parametrize("text", ["(" * 60 + "1 + 1" + ")" * 57, "1 +" + "-" * 118 + "1"], ids=["parentheses", "minus"])
def test_the_deepest_expression_allowed_is_read_or_refused_but_never_overflows(text: str) -> None:
    try:
        expression: Expression = find(text).expression
    except NoArithmetic:
        return
    assert evaluate(expression) == 2


def test_steps_are_what_waits_for_nothing_and_settling_them_makes_the_next_ones() -> None:
    expression: Expression = find("(1 + 2) * (3 - 4) + (1 + 2)").expression

    assert steps(expression) == [Operation("+", 1, 2), Operation("-", 3, 4)]

    expression = settle(expression, {Operation("+", 1, 2): 3, Operation("-", 3, 4): -1})
    assert expression == Operation("+", Operation("*", 3, -1), 3)
    assert steps(expression) == [Operation("*", 3, -1)]

    expression = settle(expression, {Operation("*", 3, -1): -3})
    assert settle(expression, {Operation("+", -3, 3): 0}) == 0
    assert steps(0) == []
