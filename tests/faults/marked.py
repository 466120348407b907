"""Which tests, in any folder, are marked with which rows of the catalogue, read off the source."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
MARKS = ("fault", "pytest.mark.fault")  # with what `tests.faults.fault` holds a test to, or without


def marked() -> dict[str, list[str]]:
    """The tests of each row, as ``faults/test_process.py::test_name``."""
    tests: dict[str, list[str]] = defaultdict(list)
    for module in sorted(TESTS.rglob("test_*.py")):
        source = module.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)) if "fault(" in source else ():
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                for row in rows_of(node):
                    tests[row].append(f"{module.relative_to(TESTS).as_posix()}::{node.name}")
    return tests


def rows_of(test: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    for decorator in test.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) in MARKS:
            yield from (ast.literal_eval(row) for row in decorator.args)
