"""The tables show failures as failures, and missed goals as missed."""

from __future__ import annotations

import pytest

from benchmarks.job import Failure, Job, Measurement
from benchmarks.page import rewrite
from benchmarks.peers import BARE, FASTMCP, FASTMCP_CONFIG, MCP, OURS
from benchmarks.report import Row, cost_table, figure, goals_table, ratios_table, several_servers_table, typical
from benchmarks.scenarios import SCENARIOS, SEVERAL_SERVERS
from benchmarks.workers import Outcome, Results, reason

SCENARIO = SCENARIOS["stdio-echo"]
JOB = SCENARIO.job("http://127.0.0.1:1")


def row(ours: list[Outcome], mcp: list[Outcome], job: Job = JOB, scenario: str = "stdio-echo") -> Row:
    results = Results()
    results.of(job, OURS).extend(ours)
    results.of(job, MCP).extend(mcp)
    return Row.of(SCENARIOS[scenario], job, [OURS, MCP], results)


def spent(*cpu: float) -> list[Outcome]:
    return [Measurement(cpu=seconds, wall=2 * seconds, memory=0) for seconds in cpu]


def test_a_ratio_is_the_median_of_the_ratios_of_rounds_not_the_ratio_of_medians() -> None:
    """The second round was disturbed, and both clients with it."""
    measured = row(spent(1.0, 9.0, 3.0), spent(4.0, 18.0, 10.0))

    assert measured.ratios == [0.25, 0.5, 0.3]
    assert typical(measured.ratios) == 0.3


@pytest.mark.parametrize(
    ("cpu", "verdict"),
    [(0.220, "met"), (0.221, "**missed**")],
    ids=["at the goal", "a little above it, which rounding would hide"],
)
def test_a_goal_is_met_only_when_the_ratio_is_not_above_it(cpu: float, verdict: str) -> None:
    table = goals_table([row(spent(cpu), spent(1.0))])

    assert table.splitlines()[-1].split(" | ")[-1] == f"{verdict} |"


def test_a_client_that_failed_in_any_round_has_no_figure() -> None:
    failed = row(spent(1.0), [*spent(4.0), Failure(failed="got '<b>' instead")])

    assert cost_table([failed], [OURS, MCP]).splitlines()[-1].split(" | ")[3] == "fails: got '&lt;b>' instead |"
    assert failed.ratios == []
    assert failed.met is None


def test_if_the_goal_is_to_work_only_a_failure_misses_it() -> None:
    job = SCENARIOS["http-sse-text"].job("http://127.0.0.1:1")

    assert row(spent(1.0), [Failure(failed="too large")], job, "http-sse-text").met is True
    assert row([Failure(failed="too large")], spent(1.0), job, "http-sse-text").met is False


@pytest.mark.parametrize(
    ("connections", "cells"),
    [(100, ["≤ 100", "100 / 8.00", "", "met |"]), (101, ["≤ 100", "101 / 8.00", "", "**missed** |"])],
    ids=["at the goal", "above it"],
)
def test_a_goal_for_connections_is_a_number_not_a_ratio(connections: int, cells: list[str]) -> None:
    job = SCENARIOS["http-connections"].job("http://127.0.0.1:1")
    ours, mcp = (Measurement(cpu=1.0, wall=1.0, memory=0, connections=count) for count in (connections, 8))

    table = goals_table([row([ours], [mcp], job, "http-connections")])

    assert table.splitlines()[-1].split(" | ")[1:] == cells


def test_all_calls_are_in_flight_however_few_operations_are_asked_for() -> None:
    job = SCENARIOS["http-connections"].job("http://127.0.0.1:1", 0.3)

    assert (job.operations, job.in_flight) == (1000, 1000)


@pytest.mark.parametrize(
    ("scenario", "cost"),
    [
        ("stdio-echo", 3e6 / 600),
        ("stdio-progress", 3e6 / (6 * 500)),
        ("stdio-sampling", 3e6 / (12 * 96)),
        ("stdio-sampling-history", 3e6 / 96),
        ("stdio-input-round", 3e6 / (48 * 8)),
        ("stdio-tools", 3e3 / 8),
        ("stdio-text", 3e3 / (2 * 10 * 1.048576)),
        ("session-memory", 7e6 / 1024 / 100),
        ("import-memory", 7e6 / 1024 / 1024),
    ],
)
def test_the_unit_of_the_row_decides_what_its_cost_is(scenario: str, cost: float) -> None:
    chosen = SCENARIOS[scenario]
    job = chosen.job("http://127.0.0.1:1")

    assert chosen.cost(job, Measurement(cpu=3.0, wall=4.0, memory=7_000_000)) == pytest.approx(cost)


@pytest.mark.parametrize(
    ("value", "shown"), [(1234.5, "1,234"), (99.94, "99.9"), (9.949, "9.95"), (0.0512, "0.05"), (-14.9, "-14.9")]
)
def test_figures_have_three_significant_digits(value: float, shown: str) -> None:
    assert figure(value) == shown


GROUP = """\
  + Exception Group Traceback (most recent call last):
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    | httpx.HTTPStatusError: Client error '405 Method Not Allowed'
    +------------------------------------
"""


@pytest.mark.parametrize(
    ("stderr", "expected"),
    [
        (GROUP, "HTTPStatusError: Client error '405 Method Not Allowed'"),
        ("Traceback\nValueError: first\n\nduring which\n\nTimeoutError: second\n", "TimeoutError: second"),
        ("Killed\n", "Killed"),
        ("", ""),
    ],
    ids=["inside a group", "the last of two", "no traceback", "nothing"],
)
def test_the_reason_for_a_failure_is_the_last_error_that_the_traceback_names(stderr: str, expected: str) -> None:
    assert reason(stderr) == expected


@pytest.mark.parametrize(
    ("goal", "cell"),
    [
        (None, "1.10 (1.05 to 1.15)"),
        (1.1, "1.10 (1.05 to 1.15)"),
        (1.09, "1.10 (1.05 to 1.15), **missed**"),
    ],
    ids=["no goal", "at the goal", "above it"],
)
def test_a_ratio_to_a_base_is_the_median_of_the_turns_with_the_quartiles(goal: float | None, cell: str) -> None:
    """The last turn was disturbed."""
    table = ratios_table(["`OAuth`"], [("echo", [[1.0, 1.05, 1.1, 1.15, 9.0]])], goal)

    assert table == f"| what the client does | `OAuth` |\n| --- | ---: |\n| echo | {cell} |"


def test_with_several_servers_each_other_client_is_compared_and_the_floor_is_not() -> None:
    job = SEVERAL_SERVERS[0].job("http://127.0.0.1:1")
    results = Results()
    for peer, seconds in ((OURS, 1.0), (MCP, 2.5), (FASTMCP, 2.4), (BARE, 0.5)):
        results.of(job, peer).extend(spent(seconds))
    results.of(job, FASTMCP_CONFIG).append(Failure(failed="closed"))
    peers = [OURS, MCP, FASTMCP, FASTMCP_CONFIG, BARE]

    table = several_servers_table([Row.of(SEVERAL_SERVERS[0], job, peers, results)], peers)

    cells = ["≤ 0.40", "100", "250 (0.40)", "240 (0.42, **missed**)", "fails: closed", "50.0 |"]
    assert table.splitlines()[-1].split(" | ")[2:] == cells


def test_a_variant_that_failed_has_no_ratio() -> None:
    table = ratios_table(["`OAuth`"], [("echo", ["got '<b>' instead"])], 1.05)

    assert table.splitlines()[-1] == "| echo | fails: got '&lt;b>' instead |"


def test_a_table_is_replaced_and_the_rest_of_the_page_stays() -> None:
    page = "Before.\n<!-- cpu -->\nold\n<!-- end of cpu -->\nAfter.\n"

    once = rewrite(page, {"cpu": r"| \1 |"})

    assert once == "Before.\n<!-- cpu -->\n\n| \\1 |\n\n<!-- end of cpu -->\nAfter.\n"
    assert rewrite(once, {"cpu": r"| \1 |"}) == once


def test_a_page_without_a_place_for_a_table_is_refused() -> None:
    with pytest.raises(ValueError, match="'growth'"):
        rewrite("Nothing here.", {"growth": "| |"})
