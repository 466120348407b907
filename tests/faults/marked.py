"""Which tests are marked with which rows of the catalogue, read off the source."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent


def marked() -> dict[str, list[str]]:
    """The tests of each row, as ``test_process.py::test_name``."""
    tests: dict[str, list[str]] = defaultdict(list)
    for module in sorted(HERE.glob("test_*.py")):
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if isinstance(node, ast.AsyncFunctionDef) and node.name.startswith("test_"):
                for row in rows_of(node):
                    tests[row].append(f"{module.name}::{node.name}")
    return tests


def rows_of(test: ast.AsyncFunctionDef) -> Iterator[str]:
    for decorator in test.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "fault":
            yield from (ast.literal_eval(row) for row in decorator.args)
