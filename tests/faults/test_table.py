"""The catalogue of faults is complete: each row has a test, or a reason why not."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.faults.catalogue import ROWS, UNTESTED

HERE = Path(__file__).parent


def marked() -> set[str]:
    """The rows that some test here is marked with."""
    decorators = [
        decorator
        for module in HERE.glob("test_*.py")
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if isinstance(node, ast.AsyncFunctionDef) and node.name.startswith("test_")
        for decorator in node.decorator_list
    ]
    calls = [each for each in decorators if isinstance(each, ast.Call) and ast.unparse(each.func) == "fault"]
    return {ast.literal_eval(row) for call in calls for row in call.args}


def test_every_row_has_a_test_or_a_reason() -> None:
    assert marked() | UNTESTED.keys() == ROWS.keys()
    assert marked() & UNTESTED.keys() == set()
