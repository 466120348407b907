"""What the parts of a check cost, in steps."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mcp_host.errors import TooManySteps, UncheckableSchema
from mcp_host.json_schema.schema import Schema, SchemaCache, StepBudget, within_budget


def counting(steps: int = 10**9) -> StepBudget:
    return StepBudget(SchemaCache(), steps)


def copy_twice(budget: StepBudget) -> None:
    budget.copy(15)
    budget.copy(15)


STEPS: dict[str, tuple[Callable[[StepBudget], object], int]] = {
    "steps": (lambda budget: budget.spend(7), 7),
    "32 values": (lambda budget: budget.copy(31), 1),
    "31 values": (lambda budget: budget.copy(30), 0),
    "16 values twice": (copy_twice, 1),
    "100 values": (lambda budget: budget.copy(99), 3),
    "99 letters": (lambda budget: budget.canonical("x" * 97), 1),
    "100 letters": (lambda budget: budget.canonical("x" * 98), 2),  # two more letters are quotes
    "a pattern": (lambda budget: budget.matches("a", "b" * 1000), 1 + 1000 * 51 // 400),
}


def test_each_kind_of_work_costs_its_steps(subtests: pytest.Subtests) -> None:
    for case, (work, cost) in STEPS.items():
        with subtests.test(case):
            budget = counting()
            work(budget)

            assert budget.spent == cost


def test_work_may_use_exactly_its_budget() -> None:
    budget = counting(steps=10)
    budget.spend(10)

    with pytest.raises(TooManySteps, match="it takes more than 10 steps"):
        budget.spend(1)


def test_the_order_of_members_does_not_matter_for_equality() -> None:
    assert counting().canonical({"a": 1, "b": [2]}) == counting().canonical({"b": [2], "a": 1})
    assert counting().canonical([1, 2]) != counting().canonical([2, 1])


def test_finding_a_problem_costs_more_than_looking_for_it() -> None:
    checked = Schema({"anyOf": [{"minProperties": 1}] * 1000})
    assert checked.mismatch({"x": 1}) is None  # which prepares the schema: only the value is counted from here on

    assert checked.mismatch({}, steps=6_000) == "fits no alternative: an object of 0 members should be non-empty"
    with pytest.raises(TooManySteps):
        checked.mismatch({}, steps=4_000)  # two for each of the thousand branches, and three for its problem


def test_a_keyword_costs_a_step_and_another_for_each_16_entries() -> None:
    schema = Schema({"minItems": 1})
    assert schema.mismatch([0]) is None  # which prepares the schema
    assert schema.mismatch([0] * 15, steps=1) is None
    assert schema.mismatch([0] * 16, steps=2) is None
    with pytest.raises(TooManySteps):
        schema.mismatch([0] * 16, steps=1)


def fail(error: Exception) -> Callable[[], None]:
    def work() -> None:
        raise error

    return work


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (TooManySteps("it takes more than 5 steps"), "it takes more than 5 steps"),
        (RecursionError(), "it nests too deeply"),
        (ZeroDivisionError("by a schema"), "ZeroDivisionError: by a schema"),
    ],
    ids=["steps", "depth", "a library's error"],
)
def test_every_failure_makes_the_schema_uncheckable(error: Exception, said: str) -> None:
    with pytest.raises(UncheckableSchema) as caught:
        within_budget(fail(error), SchemaCache(), 10)

    assert str(caught.value) == said
