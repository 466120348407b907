"""Write the matrix of docs/providers.md from the table that the tests prove: ``python docs/reference.py`` does so."""

from __future__ import annotations

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

MATRIX = re.compile(r"(<!-- The matrix: .*? -->\n).*?(\n<!-- The end of the matrix\. -->\n)", re.DOTALL)


def page() -> str:
    """The page, with the matrix as it is in the tests."""
    sys.path.insert(0, str(HERE.parent))
    from tests.providers.matrix import table

    text = (HERE / "providers.md").read_text(encoding="utf-8")
    written, times = MATRIX.subn(lambda found: f"{found[1]}\n{table()}{found[2]}", text)
    assert times == 1, "the page has one place for it"
    return written
