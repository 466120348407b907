"""Whether a run of the conformance suite passed, by a rule stricter than the suite's own.

The suite counts a run as passed where nothing failed: it accepts checks that were skipped,
and a client that was killed by a signal.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

PASSED = "SUCCESS"
HARMLESS = frozenset((PASSED, "SKIPPED", "INFO"))  # "SKIPPED" is not enough, though: see `Run.checks`


@dataclass(frozen=True)
class Run:
    """A scenario of the suite, on the wire of one revision."""

    version: str
    scenario: str

    checks: int
    """How many have to pass: all that can be reached on this wire. One that is skipped shows nothing."""

    error_allowed: bool = False
    """Whether the client may end with an error, for what it is asked to do may be wrong."""

    is_extension: bool = False
    """Whether it is of an extension, and so of no revision: the suite takes the *version* for the wire by itself."""

    proxied: bool = False
    """Whether a proxy is between the client and the suite's server."""

    def __str__(self) -> str:
        return f"{self.version} {self.scenario}{' through a proxy' if self.proxied else ''}"

    @property
    def listed_as(self) -> str:
        """As `listed` names it."""
        return f"{'extension' if self.is_extension else self.version} {self.scenario}"


@dataclass(frozen=True)
class Check:
    """What the suite looked at, and found."""

    name: str
    status: str
    message: str = ""


@dataclass(frozen=True)
class Outcome:
    """How a run went: so many of its checks or scenarios passed, and what is wrong, a sentence each."""

    name: str
    passed: int
    expected: int
    unit: str
    faults: list[str]
    folder: Path
    """Where all is that was said."""
    seconds: float


def listed(text: str) -> set[str]:
    """What the suite's ``list --client`` prints, as names like "2025-11-25 sse-retry" or "extension auth/dpop"."""
    return {
        f"{version.strip()} {scenario}"
        for scenario, versions in re.findall(r"^ +- (\S+) \[(.+)\]$", text, re.MULTILINE)
        for version in versions.split(",")
    }


def read_checks(text: str) -> list[Check]:
    """The checks in a ``checks.json``."""
    return [Check(check["name"], check["status"], check.get("errorMessage") or "") for check in json.loads(text)]


def passed(checks: Sequence[Check]) -> int:
    """How many of the *checks* passed."""
    return sum(check.status == PASSED for check in checks)


def faults(run: Run, checks: Sequence[Check], ended: int | None) -> list[str]:
    """Why this run did not pass, a sentence each; nothing where it did.

    *ended* is the client's exit code, negative for the signal that killed it, None where it did not end in time.
    """
    found = [_sentence(check) for check in checks if check.status not in HARMLESS]
    if passed(checks) < run.checks:
        others = [check.name for check in checks if check.status == "SKIPPED"]
        skipped = f", skipped: {', '.join(others)}" if others else ""
        found.append(f"{passed(checks)} of {run.checks} checks passed{skipped}")
    if ended is None:
        found.append("the client did not end in time")
    elif ended < 0:
        found.append(f"the client was killed by signal {-ended}")
    elif ended > 0 and not run.error_allowed:
        found.append(f"the client ended with exit code {ended}")
    return found


def shortcomings(checks: Sequence[Check], excepted: Collection[str], before: Sequence[Check] = ()) -> list[str]:
    """Why a server does not pass a scenario, a sentence each.

    At least one check passes, and none fails but those *excepted*, which do not pass. So does each that passed *before*.
    """
    bad = {check.name: check for check in checks if check.status not in HARMLESS}
    found = [_sentence(check) for name, check in bad.items() if name not in excepted]
    if not passed(checks):
        found.append("no check passed")
    lost = Counter(_passed_names(before)) - Counter(_passed_names(checks))
    found += [f"{name} passes without the proxy" for name in lost if name not in bad and name not in excepted]
    return found + [f"{name} passes, though it is excepted" for name in excepted if name not in bad]


def _sentence(check: Check) -> str:
    return f"{check.status} {check.name}: {check.message}".removesuffix(": ")


def _passed_names(checks: Sequence[Check]) -> list[str]:
    return [check.name for check in checks if check.status == PASSED]
