"""Write docs/faults.md from the catalogue and the marks of the tests: ``python docs/reference.py`` does so, too."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

INTRODUCTION = """\
# Faults

What broke other clients of the Model Context Protocol, and the tests that show what this one does instead.
The rows come from the public issue trackers of the official SDKs and of hosts, from the specification's pages on security,
and from servers written to misbehave.
Each is tested once, beside the other tests of the code that it concerns.
`tests/faults` has those that need a real process or a socket: there a raw server, without any SDK, misbehaves,
and each test has to end in time and to leave no task, no process and no file descriptor.
`make test` prints this table with what came of each row.

<!-- Written by docs/faults.py from the catalogue in tests/faults and the marks of the tests. Change those, then run docs/reference.py again. -->"""


def page() -> str:
    """The whole page."""
    sys.path.insert(0, str(ROOT))
    from tests.faults.catalogue import ROWS, SECTIONS, UNTESTED
    from tests.faults.marked import marked

    tests = marked()
    parts = [INTRODUCTION]
    for letter, title in SECTIONS.items():
        rows = {row: fault for row, fault in ROWS.items() if row.startswith(letter)}
        lines = [line(row, fault, tests.get(row, []), UNTESTED.get(row, "")) for row, fault in rows.items()]
        parts.append("\n".join([f"## {letter}. {title}", "", "| | fault | shown by |", "|---|---|---|", *lines]))
    return "\n\n".join(parts) + "\n"


def line(row: str, fault: str, tests: list[str], reason: str) -> str:
    shown = "<br>".join(named(tests)) or f"no test: {reason}"
    return f"| {row} | {fault.replace('|', '&#124;')} | {shown} |"


def named(tests: list[str]) -> Iterator[str]:
    """Each test as a sentence, which links to its file."""
    for test in tests:
        file, _, name = test.partition("::")
        yield f"[{name.removeprefix('test_').replace('_', ' ')}](../tests/{file})"
