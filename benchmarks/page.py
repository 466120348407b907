"""The tables in docs/performance.md, each between two markers."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from tests.installation import ROOT, node_version

IDLE = 0.5  # processes, in the load average of the last minute
PAGE = ROOT / "docs" / "performance.md"


def rewrite(page: str, tables: Mapping[str, str]) -> str:
    """The *page* with each table in its place.

    Raises:
        ValueError: The page has no place for a table.
    """
    for name, table in tables.items():
        place = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        if not place.search(page):
            raise ValueError(f"{PAGE} has no place for the table {name!r}")
        page = place.sub(lambda found, table=table: f"{found[1]}\n{table}\n\n{found[2]}", page)  # type: ignore[misc]
    return page


def machine() -> str:
    """The day, the machine and the commit, in two sentences. Call it before the benchmarks load the machine."""
    system = f"{platform.system()} on {_processor()}, {os.cpu_count()} cores"
    day = datetime.now(UTC).strftime("%d %B %Y").lstrip("0")
    versions = f"Python {platform.python_version()}, node {node_version().lstrip('v')}"
    return f"Measured on {day}: {system}, {versions}, {_commit()}. {_busy(os.getloadavg()[0])}"


def _processor() -> str:
    named = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return named[1] if named else platform.machine()


def _commit() -> str:
    """The commit of the package that is measured."""
    commit = _git("rev-parse", "--short", "HEAD").strip()
    if not commit:
        return "no commit"
    return f"commit {commit} with changes" if _git("status", "--porcelain", "src") else f"commit {commit}"


def _git(*arguments: str) -> str:
    if shutil.which("git") is None:
        return ""
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout


def _busy(load: float) -> str:
    if load < IDLE:
        return "No other program used the machine."
    return f"Other programs ran, too (load {load:.1f} at the start), so the ratios are noisier."
