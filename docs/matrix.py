"""Write the matrix of docs/providers.md from the data of the contract's tests: ``python docs/reference.py`` does so."""

from __future__ import annotations

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

MATRIX = re.compile(r"(<!-- The matrix: .*? -->\n).*?(\n<!-- The end of the matrix\. -->\n)", re.DOTALL)

NAMES = {
    "anthropic": "Anthropic",
    "openai": "OpenAI Responses",
    "openai-chat": "OpenAI Chat Completions",
    "openai-chat compatible": "other servers of Chat Completions",
    "gemini": "Gemini",
    "ollama": "Ollama",
    "pydantic-ai": "pydantic-ai",
}


def page() -> str:
    """The page, with the matrix as it is in the tests."""
    text = (HERE / "providers.md").read_text(encoding="utf-8")
    written, times = MATRIX.subn(lambda found: f"{found[1]}\n{table()}{found[2]}", text)
    assert times == 1, "the page has one place for it"
    return written


def table() -> str:
    """The matrix as Markdown: a row for each feature, a column for each adapter."""
    sys.path.insert(0, str(HERE.parent))
    from tests.interop.providers.contract.matrix import FEATURES, MATRIX

    lines = [f"| | {' | '.join(NAMES[adapter] for adapter in MATRIX)} |", f"|---|{'---|' * len(MATRIX)}"]
    for feature, words in FEATURES.items():
        cells = [cells[feature] for cells in MATRIX.values()]
        written = [f"{cell.state}: {cell.note}" if cell.note else cell.state for cell in cells]
        lines.append(f"| {words} | {' | '.join(written)} |")
    return "\n".join(lines) + "\n"
