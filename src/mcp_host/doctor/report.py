"""Writing what came of the check-ups: as text, as JSON and as JUnit XML."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, get_args
from xml.etree import ElementTree

from mcp_host.doctor.checks import SPECIFICATION, Outcome, Verdict
from mcp_host.doctor.checkup import Checkup
from mcp_host.doctor.seen import Host
from mcp_host.errors import excerpt


def url_of(outcome: Outcome, host: Host) -> str:
    """The section of the specification."""
    return f"{SPECIFICATION}/{host.revision}/{outcome.check.section}"


def told(outcome: Outcome, host: Host) -> str:
    """What was seen, with the rule and its section."""
    return f"{outcome.seen}\n{outcome.check.rule}\n{url_of(outcome, host)}"


def counts(outcomes: Sequence[Outcome]) -> dict[Verdict, int]:
    """How many checks have each verdict."""
    found = Counter(outcome.verdict for outcome in outcomes)
    return {verdict: found[verdict] for verdict in get_args(Verdict)}


def text(checkups: Iterable[Checkup]) -> str:
    """For people: what is wrong first, with the rule and where it is."""
    lines = list[str]()
    for checkup in checkups:
        host, outcomes = checkup.host, checkup.outcomes()
        name = excerpt(f"{host.name} {host.version}".strip()) or "a host without a name"
        numbers = ", ".join(f"{number} {verdict}" for verdict, number in counts(outcomes).items())
        lines += [f"{name}, {host.revision}: {numbers}", ""]
        for verdict in ("failed", "warning", "passed"):
            for outcome in outcomes:
                if outcome.verdict == verdict:
                    check = outcome.check
                    lines.append(f"{verdict:<8} {check.name} ({check.level}): {outcome.seen}")
                    if verdict != "passed":
                        lines += [f"         {check.rule}", f"         {url_of(outcome, host)}"]
        skipped: dict[str, list[str]] = {}
        for outcome in outcomes:
            if outcome.verdict == "skipped":
                skipped.setdefault(outcome.seen, []).append(outcome.check.name)
        lines += [f"skipped  {reason}: {', '.join(names)}" for reason, names in skipped.items()]
        lines.append("")
    return "\n".join(lines)


def document(checkups: Iterable[Checkup]) -> dict[str, Any]:
    """For programs."""
    return {"hosts": [_document(checkup) for checkup in checkups]}


def _document(checkup: Checkup) -> dict[str, Any]:
    host, outcomes = checkup.host, checkup.outcomes()
    return {
        "name": host.name,
        "version": host.version,
        "revision": host.revision,
        "capabilities": host.capabilities,
        "complete": not checkup.remaining,
        "counts": counts(outcomes),
        "checks": [
            {
                "name": outcome.check.name,
                "verdict": outcome.verdict,
                "level": outcome.check.level,
                "rule": outcome.check.rule,
                "section": url_of(outcome, host),
                "seen": outcome.seen,
            }
            for outcome in outcomes
        ],
    }


def as_json(checkups: Iterable[Checkup]) -> str:
    return json.dumps(document(checkups), indent=2) + "\n"


def junit(checkups: Iterable[Checkup]) -> str:
    """For CI servers: a suite for each revision. A warning is a passed test with an output."""
    root = ElementTree.Element("testsuites")
    for checkup in checkups:
        outcomes = checkup.outcomes()
        numbers = counts(outcomes)
        name = f"mcp-host doctor {checkup.host.revision}"
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=name,
            tests=str(len(outcomes)),
            failures=str(numbers["failed"]),
            skipped=str(numbers["skipped"]),
        )
        for outcome in outcomes:
            case = ElementTree.SubElement(suite, "testcase", classname=name, name=outcome.check.name)
            if (tag := TAGS.get(outcome.verdict)) is not None:
                if tag == "system-out":
                    ElementTree.SubElement(case, tag).text = told(outcome, checkup.host)
                else:
                    ElementTree.SubElement(case, tag, message=outcome.seen).text = told(outcome, checkup.host)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


TAGS: Mapping[Verdict, str] = {"failed": "failure", "skipped": "skipped", "warning": "system-out"}
"""The element within a test case."""

FORMATS: Mapping[str, Callable[[Iterable[Checkup]], str]] = {".json": as_json, ".xml": junit}
"""By the suffix of a file; any other is text."""
