"""The tables in docs/performance.md, each between two markers."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from tests.installation import ROOT, node_version

PAGE = ROOT / "docs" / "performance.md"


def rewrite(page: str, tables: Mapping[str, str]) -> str:
    """The *page* with each table in its place.

    Raises:
        ValueError: The page has no place for one.
    """
    for name, table in tables.items():
        place = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        if not place.search(page):
            raise ValueError(f"{PAGE} has no place for the table {name!r}")
        page = place.sub(lambda found, table=table: f"{found[1]}\n{table}\n\n{found[2]}", page)  # type: ignore[misc]
    return page


def machine() -> str:
    """What the figures were measured on, in a sentence."""
    system = f"{platform.system()} on {_processor()}, {os.cpu_count()} cores"
    day = datetime.now(UTC).strftime("%d %B %Y").lstrip("0")
    return f"Measured on {day}: {system}, Python {platform.python_version()}, node {node_version().lstrip('v')}{_commit()}."


def _processor() -> str:
    named = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return named[1] if named else platform.machine()


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return f", commit {done.stdout.strip()}" if done.returncode == 0 else ""
