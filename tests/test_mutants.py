"""The pure parts: which changes a statement has, where a mutant is found again, and which tests run for it."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from mutants import report
from mutants.draw import Mutant, changes, draw, locate, places, read_drawn, shares
from mutants.report import Result
from mutants.run import select
from mutants.schemata import instrumented

SOURCE = '''
"""A module."""
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import other

__all__ = ["f"]
LIMIT = 2


class Shape(Protocol):
    size: int = 3


def f(x, y=1):
    """A function."""
    if x < LIMIT:
        return y
    if x < LIMIT:
        raise ValueError("not this")
    return x
'''
MUTANT = Mutant(1, "package/module.py", "f", 18, "if x < LIMIT:", 1, "if x <= LIMIT:")


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("if a < b: c()", ["if a <= b:", "if a >= b:"]),
        ("if a: b()", ["if not a:"]),
        ("while not a: b()", ["while a:"]),
        ("a = b and c", ["a = b or c"]),
        ("a = b + 1", ["a = b - 1", "a = b + 2", "a = b + 0"]),
        ("a += True", ["a -= True", "a += False"]),
        ("a = b if c else d", ["a = b if not c else d"]),
        ("a = [b for b in c if b]", ["a = [b for b in c if not b]"]),
        ("a = 'word'", ["a = ''"]),
        ("a = 'a text for people'", []),
        ("a = f'{b}'", ["a = ''"]),
        ("a.b = c", ["pass"]),
        ("a = c", []),
        ("return a", ["return None"]),
        ("return", ["pass"]),
        ("raise A('word')", ["pass"]),
        ("logger.info('word')", ["pass"]),
        ("break", ["continue"]),
        ("continue", ["break"]),
        ("async def f(a: int = 1, *, b: 'A' = None) -> 'B': return 2", ["async def f(a: int=2, *, b: 'A'=None) -> 'B':", "async def f(a: int=0, *, b: 'A'=None) -> 'B':"]),
        ("with a(1): b(2)", ["with a(2):", "with a(0):"]),
        ("class A(b=1): c = 2", []),
    ],
)  # fmt: skip
def test_a_statement_has_these_mutants(statement: str, expected: list[str]) -> None:
    _, place, *_ = places(f"while 1:\n  {statement}")

    assert changes(place) == expected


def test_only_what_runs_is_mutated() -> None:
    originals = [place.original for place in places(SOURCE) if changes(place)]

    assert originals == [
        "LIMIT = 2",
        "def f(x, y=1):",
        "if x < LIMIT:",
        "return y",
        "if x < LIMIT:",
        "raise ValueError('not this')",
        "return x",
    ]


def test_a_mutant_is_found_after_its_statement_or_its_file_has_moved() -> None:
    moved = SOURCE.replace("LIMIT = 2", "LIMIT = 2\n\n\ndef g(): ...")

    [(file, place)] = locate([MUTANT], {"package/module.py": moved}).values()
    [(other, _)] = locate([MUTANT], {"package/new.py": moved}).values()

    assert (file, place.statement.lineno, place.at_import) == ("package/module.py", 23, False)
    assert other == "package/new.py"


@pytest.mark.parametrize(
    "sources",
    [
        {"package/module.py": SOURCE.replace("if x < LIMIT:\n        raise", "if x < 2:\n        raise")},
        {"package/one.py": SOURCE, "package/two.py": SOURCE},
    ],
    ids=["changed", "ambiguous"],
)
def test_a_mutant_whose_statement_is_gone_is_lost(sources: dict[str, str]) -> None:
    assert locate([MUTANT], sources) == {}


def test_a_module_behaves_as_its_active_mutant() -> None:
    default = Mutant(2, "package/module.py", "", 15, "def f(x, y=1):", 0, "def f(x, y=2):")
    removed = Mutant(3, "package/module.py", "f", 19, "raise ValueError('not this')", 0, "pass")
    second = replace(MUTANT, id=4, occurrence=0)
    code = compile(instrumented(SOURCE, [default, removed, second]), "module", "exec")

    def result(active: int, x: int) -> object:
        names: dict[str, object] = {"mutant_is_reached": active.__eq__}
        exec(code, names)
        f = names["f"]
        assert callable(f)
        return f(x)

    assert [result(active, 1) for active in (0, 2, 3, 4)] == [1, 2, 1, 1]
    assert [result(active, 2) for active in (0, 2, 3, 4)] == [2, 2, 2, 1]


def test_packages_have_mutants_by_their_lines() -> None:
    sources = {"a/one.py": SOURCE * 3, "a/two.py": SOURCE, "b.py": SOURCE}

    drawn = draw(sources, 5, seed=1)

    assert shares({"a": 100, "b": 51, "c": 49}, 5) == {"a": 3, "b": 1, "c": 1}
    assert [mutant.id for mutant in drawn] == [1, 2, 3, 4, 5]
    assert sorted(mutant.package for mutant in drawn) == ["(top level)", *["a"] * 4]
    assert draw(sources, 5, seed=1) == drawn


def test_every_mutant_in_the_list_is_python_and_differs_from_its_original() -> None:
    mutants = read_drawn()

    assert len({mutant.id for mutant in mutants}) == len(mutants) >= 200
    assert [mutant for mutant in mutants if mutant.mutated == mutant.original] == []
    assert all(ast.parse(text + ("\n    pass" if text[-1] == ":" else "")) for text in (m.mutated for m in mutants))


def test_the_cheapest_and_nearest_tests_run_first_and_some_of_every_file() -> None:
    durations = {
        "tests/other/test_a.py::slow": 60.0,
        "tests/other/test_a.py::quick": 0.01,
        "tests/package/test_module.py::slow": 2.0,
        "tests/package/test_module.py::quick": 0.01,
        "tests/package/test_other.py::quick": 0.01,
    }

    assert select(MUTANT, {*durations, "failed"}, durations, 10.0) == [
        "tests/package/test_module.py::quick",
        "tests/package/test_other.py::quick",
        "tests/other/test_a.py::quick",
        "tests/package/test_module.py::slow",
    ]


def test_the_report_counts_by_package_and_lists_what_survives() -> None:
    mutants = [replace(MUTANT, id=number) for number in range(1, 5)]
    mutants[3] = replace(mutants[3], equivalent="It is the same.")
    results = {1: Result(1, "killed", by="a test"), 2: Result(2, "survived", ran=3, of=4)}

    lines = report.report(mutants, {1, 2, 4}, results).splitlines()

    assert [line.split() for line in lines[1:3]] == [[name, *"11110"] for name in ("package", "all")]
    assert "  2  package/module.py:18  if x < LIMIT:  ->  if x <= LIMIT: (3 of 4 tests)" in lines[5]
    assert lines[7] == "lost:"


def test_what_was_killed_before_and_is_not_any_more_is_listed(tmp_path: Path) -> None:
    mutants = [replace(MUTANT, id=number) for number in range(1, 4)]
    killed, survived = (Result(1, "killed", by="test"), Result(1, "survived", ran=1, of=1))
    report.store(mutants, {1, 2, 3}, {1: killed, 2: killed, 3: survived}, tmp_path / "before.json")

    text = report.lost_kills(mutants, {1, 2, 3}, {1: killed, 2: survived, 3: survived}, tmp_path / "before.json")

    assert text.splitlines() == [
        "killed before: 2; of these not killed now: 1",
        f"    2  {mutants[1]}: survived; before it was killed by test",
    ]
