"""The table of faults, printed at the end of a run that has tested some.

The conftest at the top has the hooks: a run that hands its tests to others loads no other one.
"""

from __future__ import annotations

from collections import defaultdict

import pytest

from tests.faults.catalogue import ROWS, SECTIONS, UNTESTED

OUTCOMES = ("failed", "error", "skipped", "passed")  # the worst first


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.user_properties += [("fault", row) for mark in item.iter_markers("fault") for row in mark.args]


def print_outcomes(terminalreporter: pytest.TerminalReporter) -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for outcome in OUTCOMES:
        for report in terminalreporter.stats.get(outcome, []):
            for row in (value for name, value in getattr(report, "user_properties", []) if name == "fault"):
                found[row].append(outcome)
    rows = ROWS if len(found) > len(ROWS) / 2 else sorted(found)  # of a few tests, only their rows
    if found:
        terminalreporter.section("faults")
    section = ""
    for row in rows:
        if row[0] != section:
            section = row[0]
            terminalreporter.write_line(f"{section}  {SECTIONS[section]}")
        terminalreporter.write_line(f"  {row}  {_verdict(row, found[row])}  {ROWS[row]}")


def _verdict(row: str, outcomes: list[str]) -> str:
    """What came of the tests of one row: "passed x 4", or the worst of them."""
    if not outcomes:
        return f"{'no test' if row in UNTESTED else 'not run':12}"
    return f"{outcomes[0]} x {outcomes.count(outcomes[0])}".ljust(12)
