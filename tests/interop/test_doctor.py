"""What the check-up says of the clients of others; their sources confirm each line."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from typing import NamedTuple

import pytest
from anyio import fail_after, run_process

from mcp_host.doctor import Doctor
from tests.interop.processes import host_to_check

IN_TIME = 60.0  # seconds for a test; each takes three when the machine is idle

UNCHECKED = dict.fromkeys(("missing-result", "mixed-results", "orphan-result"), "it was answered with a result")
"""No client reads the conversation: it goes to the callback as it came."""
TOOLS = {"undeclared-tools": "it was answered with a result"}
"""Nor does any look at what it has declared."""
ROOTS = {"undeclared-roots": "error -32600: List roots not supported; not -32601"}
"""The official client's default callback answers so."""
METHOD = {"unknown-method": "error -32602: Invalid request parameters; not -32601"}
"""Version 1 validates a request against the union of those that it knows, and reports any failure so."""


class Checked(NamedTuple):
    """A host on a *package*, and what is wrong with it, by check."""

    package: str
    version: int
    capabilities: str
    revision: str
    wrong: Mapping[str, str]


LEGACY, MODERN = "2025-11-25", "2026-07-28"
PYTHON: list[tuple[int, str, Mapping[str, str], Mapping[str, str]]] = [
    (1, LEGACY, METHOD, ROOTS),
    (2, LEGACY, {}, ROOTS),
    (2, MODERN, {}, {}),
]
"""Version, revision, what is always wrong, and what is without roots."""

CHECKED = [
    Checked(package, version, capabilities, revision, {**always, **wrong, **(roots if capabilities != "all" else {})})
    for package in ("sdk", "fastmcp")
    for version, revision, always, roots in PYTHON
    for capabilities, wrong in (("all", UNCHECKED), ("plain", TOOLS), ("none", {}))
] + [
    Checked("typescript", 1, capabilities, LEGACY, wrong)
    for capabilities, wrong in (("all", UNCHECKED), ("plain", TOOLS), ("none", {}))
]


@pytest.mark.parametrize("host", CHECKED, ids=lambda host: "-".join(map(str, host[:4])))
async def test_the_check_up_of_a_client_finds_what_its_source_has(host: Checked) -> None:
    doctor = Doctor(versions=[host.revision])
    with fail_after(IN_TIME):
        async with doctor.http() as url:
            command = host_to_check(host.package, host.version, host.capabilities, host.revision, url)
            ended = await run_process(command, stderr=subprocess.STDOUT, check=False)

    assert ended.returncode == 0, ended.stdout.decode()
    [checkup] = doctor.checkups
    outcomes = checkup.outcomes()
    assert doctor.complete
    assert {each.check.name: each.seen for each in outcomes if each.verdict in ("failed", "warning")} == host.wrong
    assert {each.check.name for each in outcomes if each.verdict == "failed"} == host.wrong.keys() & MUST
    assert len([each for each in outcomes if each.verdict == "passed"]) >= PASSED[host.capabilities]


MUST = {"undeclared-tools", "unknown-method"}
PASSED = {"all": 58, "plain": 18, "none": 1}
"""At least so many rules are kept; since 2026-07-28 the fewest can be seen."""
