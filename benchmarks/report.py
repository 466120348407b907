"""The tables, as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.job import Job, Spent
from benchmarks.peers import MCP, OURS, Peer
from benchmarks.runs import Results
from benchmarks.scenarios import Scenario
from benchmarks.workers import Outcome

Told = list[float] | str
"""What a client's rounds cost, or why it failed."""


def costs(outcomes: Sequence[Outcome], cost: Callable[[Spent], float]) -> Told:
    rounds: list[float] = []
    for outcome in outcomes:
        if "failed" in outcome:
            return outcome["failed"]
        rounds.append(cost(outcome))
    return rounds


def typical(told: Told) -> float | None:
    """The median of the rounds, if there are any."""
    return median(told) if told and isinstance(told, list) else None


@dataclass(frozen=True, slots=True)
class Row:
    """One scenario: what it cost each client, by CPU and by the clock."""

    scenario: Scenario
    cpu: Mapping[str, Told]
    wall: Mapping[str, Told]

    @classmethod
    def of(cls, scenario: Scenario, job: Job, peers: Sequence[Peer], results: Results) -> Row:
        outcomes = {peer.name: results.of(job, peer) for peer in peers}
        return cls(
            scenario,
            {name: costs(each, lambda spent: scenario.cost(job, spent)) for name, each in outcomes.items()},
            {name: costs(each, lambda spent: scenario.time(job, spent)) for name, each in outcomes.items()},
        )

    def ratios(self, peer: Peer) -> list[float]:
        """Each round's ratio to the official Python SDK, which ran beside it."""
        ours, its = self.cpu.get(peer.name), self.cpu.get(MCP.name)
        if not isinstance(ours, list) or not isinstance(its, list):
            return []
        return [one / other for one, other in zip(ours, its, strict=True)]

    @property
    def met(self) -> bool | None:
        """Whether we are where we want to be; None where that cannot be said."""
        if self.scenario.goal is None:
            return isinstance(self.cpu.get(OURS.name), list)
        ratio = typical(self.ratios(OURS))
        return None if ratio is None else ratio <= self.scenario.goal


def goals_table(rows: Iterable[Row]) -> str:
    """What we cost as a part of what the official Python SDK costs, and what we aim for."""
    heading = ["what the client does", "goal", "mcp-host / mcp", "of all rounds", ""]
    return table(heading, map(_goal, rows), numbers_from=1)


def _goal(row: Row) -> list[str]:
    ratios = row.ratios(OURS)
    ratio = times(median(ratios)) if ratios else "-"
    goal = "works" if row.scenario.goal is None else f"≤ {row.scenario.goal:.2f}"
    verdict = {True: "met", False: "**missed**", None: "-"}[row.met]
    return [row.scenario.title, goal, ratio, f"{times(min(ratios))} to {times(max(ratios))}" if ratios else "", verdict]


def cpu_table(rows: Iterable[Row], peers: Sequence[Peer]) -> str:
    """What each client costs of CPU or memory."""
    heading = ["what the client does", "unit", *(peer.title for peer in peers)]
    lines = ([row.scenario.title, row.scenario.unit, *(_cell(row.cpu[peer.name]) for peer in peers)] for row in rows)
    return table(heading, lines, numbers_from=2)


def wall_table(rows: Iterable[Row], peers: Sequence[Peer]) -> str:
    """How long it takes with each client."""
    heading = ["what the client does", "unit", *(peer.title for peer in peers)]
    timed = (row for row in rows if row.scenario.timed)
    lines = ([row.scenario.title, row.scenario.unit, *(_cell(row.wall[peer.name]) for peer in peers)] for row in timed)
    return table(heading, lines, numbers_from=2)


def eras_table(rows: Iterable[Row], newer: Iterable[Row], peers: Sequence[Peer]) -> str:
    """What we cost with a server of either revision, and what others cost with one of the newer."""
    heading = [
        "what the client does",
        "unit",
        f"{OURS.title}, 2025-11-25",
        *(f"{peer.title}, 2026-07-28" for peer in peers),
    ]
    lines = (
        [
            row.scenario.title,
            row.scenario.unit,
            _cell(row.cpu[OURS.name]),
            *(_cell(new.cpu[peer.name]) for peer in peers),
        ]
        for row, new in zip(rows, newer, strict=True)
    )
    return table(heading, lines, numbers_from=2)


def _cell(told: Told) -> str:
    cost = typical(told)
    return f"fails: {escaped(str(told))}" if cost is None else figure(cost)


def figure(value: float) -> str:
    """Three digits that count, or as many as there are before the point."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def times(ratio: float) -> str:
    return f"{ratio:.3f}" if ratio < 0.2 else f"{ratio:.2f}"


def table(heading: Sequence[str], lines: Iterable[Sequence[str]], *, numbers_from: int) -> str:
    rule = ["---"] * numbers_from + ["---:"] * (len(heading) - numbers_from)
    return "\n".join(f"| {' | '.join(line)} |" for line in [heading, rule, *lines])


def escaped(text: str) -> str:
    """A stranger's words, in a cell."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("`", "'")
