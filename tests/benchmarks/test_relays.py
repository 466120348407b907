"""What a relay costs is measured in its own process, beside a relay that does nothing else."""

from __future__ import annotations

from benchmarks.job import Measurement
from benchmarks.peers import BARE, FASTMCP, OURS, RELAYS
from benchmarks.report import Row, relays_table
from benchmarks.scenarios import RELAY_GOALS, RELAYED
from benchmarks.workers import Process, Results

ECHO, _, LATENCY = RELAYED


def measured(cpu: float, latency: float) -> Measurement:
    return Measurement(cpu=cpu, wall=1.0, memory=0, latency=latency)


def test_the_bare_relay_passes_calls_on_and_is_measured() -> None:
    job = LATENCY.job("http://127.0.0.1:1", 0.1)
    with Process[Measurement](RELAYS[-1].worker) as process:
        spent = process.do(job)

    assert "failed" not in spent, spent
    assert 0 < spent["cpu"] < spent["wall"] * 2
    assert 0 < spent["latency"] < spent["wall"]


def test_a_goal_is_beside_each_relay_that_it_is_for() -> None:
    costs = {OURS: measured(0.072, 0.003), FASTMCP: measured(0.144, 0.1), BARE: measured(0.036, 0.001)}
    rows = []
    for scenario in (ECHO, LATENCY):
        results, job = Results(), scenario.job("http://127.0.0.1:1")
        for peer, cost in costs.items():
            results.of(job, peer).append(cost)
        rows.append(Row.of(scenario, job, RELAYS, results))

    echo, latency = relays_table(rows, RELAYS, RELAY_GOALS).splitlines()[2:]
    assert echo.split(" | ")[2:] == ["120", "240 (0.50, **missed**)", "60.0 (2.00) |"]
    assert latency.split(" | ")[2:] == ["3.00", "100", "1.00 (3.00, **missed**) |"]
