"""The strict rule: what makes a run of the conformance suite fail."""

from __future__ import annotations

import json

import pytest

from tests.conformance.clients import NOT_RUN, PROXIED, RUNS, require_all
from tests.conformance.run import SERVERS, chosen
from tests.conformance.verdict import Check, Run, faults, listed, passed, read_checks, shortcomings
from tests.installation import Unusable

RUN = Run("2026-07-28", "tools_call", 2)
TWO = [Check("Called", "SUCCESS"), Check("Valid", "SUCCESS"), Check("Heard", "INFO"), Check("Other", "SKIPPED")]


@pytest.mark.parametrize(
    ("checks", "ended", "expected"),
    [
        (TWO, 0, []),
        ([*TWO, Check("More", "SUCCESS")], 0, []),
        ([*TWO, Check("Bad", "FAILURE", "it was wrong")], 0, ["FAILURE Bad: it was wrong"]),
        ([*TWO, Check("Late", "WARNING")], 0, ["WARNING Late"]),
        ([*TWO, Check("New", "PENDING")], 0, ["PENDING New"]),
        ([], 0, ["0 of 2 checks passed"]),
        (TWO[1:], 0, ["1 of 2 checks passed, skipped: Other"]),
        (TWO, 1, ["the client ended with exit code 1"]),
        (TWO, -9, ["the client was killed by signal 9"]),
        (TWO, None, ["the client did not end in time"]),
        ([Check("Bad", "FAILURE")], 2, ["FAILURE Bad", "0 of 2 checks passed", "the client ended with exit code 2"]),
    ],
    ids=[
        *("passed", "more", "failure", "warning", "unknown-status", "nothing", "skipped", "error", "killed"),
        *("timeout", "everything"),
    ],
)
def test_a_run_passes_only_if_every_check_passed_and_the_client_exited_without_error(
    checks: list[Check], ended: int | None, expected: list[str]
) -> None:
    assert faults(RUN, checks, ended) == expected


@pytest.mark.parametrize(
    ("ended", "expected"),
    [
        (0, []),
        (1, []),
        (-11, ["the client was killed by signal 11"]),
        (None, ["the client did not end in time"]),
    ],
)
def test_an_allowed_error_must_be_the_clients_own(ended: int | None, expected: list[str]) -> None:
    assert faults(Run("2026-07-28", "http-invalid-tool-headers", 2, error_allowed=True), TWO, ended) == expected


@pytest.mark.parametrize(
    ("checks", "excepted", "before", "expected"),
    [
        (TWO, [], [], []),
        (TWO[2:], [], [], ["no check passed"]),
        ([*TWO, Check("Late", "WARNING", "by far")], [], [], ["WARNING Late: by far"]),
        ([*TWO, Check("Late", "WARNING")], ["Late"], [Check("Late", "SUCCESS")], []),
        (TWO, ["Late"], [], ["Late passes, though it is excepted"]),
        (
            TWO,
            [],
            [*TWO, TWO[0], Check("More", "SUCCESS")],
            ["Called passes without the proxy", "More passes without the proxy"],
        ),
        ([*TWO, Check("Bad", "FAILURE")], [], [Check("Bad", "SUCCESS")], ["FAILURE Bad"]),
    ],
    ids=["passed", "nothing", "warning", "excepted", "no-longer-excepted", "lost", "failure"],
)
def test_a_server_passes_a_scenario_if_all_checks_pass_that_are_not_excepted_and_behind_a_proxy_those_of_before(
    checks: list[Check], excepted: list[str], before: list[Check], expected: list[str]
) -> None:
    assert shortcomings(checks, excepted, before) == expected


def test_the_checks_are_read_from_the_file_that_the_suite_writes() -> None:
    written = json.dumps(
        [
            {"id": "a", "name": "A", "status": "SUCCESS", "description": "It does.", "details": {}},
            {"id": "b", "name": "B", "status": "FAILURE", "errorMessage": "It does not."},
        ]
    )

    checks = read_checks(written)

    assert checks == [Check("A", "SUCCESS"), Check("B", "FAILURE", "It does not.")]
    assert passed(checks) == 1


def test_every_run_requires_a_check_and_none_is_listed_twice() -> None:
    assert [str(run) for run in RUNS if run.checks < 1] == []
    assert len({str(run) for run in RUNS}) == len(RUNS)


def test_scenarios_can_be_selected() -> None:
    assert chosen([]) == [*RUNS, *PROXIED]
    alone = ["2025-11-25 tools_call", "2026-07-28 tools_call"]
    assert [str(run) for run in chosen(["tools_call"])] == [*alone, *(f"{run} through a proxy" for run in alone)]
    assert chosen([SERVERS]) == []
    with pytest.raises(Unusable, match="no run of the scenario tool-call"):
        chosen(["tool-call"])


LISTED = """Client scenarios (test against a client):
  - initialize [2025-06-18,2025-11-25]
  - auth/dpop [extension]
"""


def test_the_suites_list_is_read() -> None:
    assert listed(LISTED) == {"2025-06-18 initialize", "2025-11-25 initialize", "extension auth/dpop"}


def test_a_listed_scenario_that_is_neither_run_nor_named_is_refused() -> None:
    known = {run.listed_as for run in RUNS} | NOT_RUN.keys()
    require_all(known)

    with pytest.raises(Unusable, match=r"neither run nor in NOT_RUN: 2026-07-28 new$"):
        require_all(known | {"2026-07-28 new"})
    with pytest.raises(Unusable, match=r"does not list these scenarios: 2025-06-18 initialize$"):
        require_all(known - {"2025-06-18 initialize"})
