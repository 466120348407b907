"""The tables, as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from benchmarks.job import Job, Measurement
from benchmarks.peers import BARE, MCP, OURS, Peer
from benchmarks.scenarios import Scenario
from benchmarks.workers import Outcome, Results

Costs = list[float] | str
"""A client's cost in each round, or the reason for its failure."""


def costs(outcomes: Sequence[Outcome], cost: Callable[[Measurement], float]) -> Costs:
    rounds: list[float] = []
    for outcome in outcomes:
        if "failed" in outcome:
            return outcome["failed"]
        rounds.append(cost(outcome))
    return rounds


def typical(costs: Costs) -> float | None:
    """The median of the rounds, if there are any."""
    return median(costs) if costs and isinstance(costs, list) else None


@dataclass(frozen=True, slots=True)
class Row:
    """One scenario, and its cost for each client: CPU, memory or connections, and elapsed time."""

    scenario: Scenario
    cost: Mapping[str, Costs]
    wall: Mapping[str, Costs]

    @classmethod
    def of(cls, scenario: Scenario, job: Job, peers: Sequence[Peer], results: Results) -> Row:
        outcomes = {peer.name: results.of(job, peer) for peer in peers}
        return cls(
            scenario,
            {name: costs(each, lambda spent: scenario.cost(job, spent)) for name, each in outcomes.items()},
            {name: costs(each, lambda spent: scenario.time(job, spent)) for name, each in outcomes.items()},
        )

    @property
    def ratios(self) -> list[float]:
        """Each round's ratio of our cost to the official Python SDK's."""
        return self.ratios_to(MCP)

    def ratios_to(self, peer: Peer) -> list[float]:
        ours, its = self.cost.get(OURS.name), self.cost.get(peer.name)
        if not isinstance(ours, list) or not isinstance(its, list):
            return []
        return [one / other for one, other in zip(ours, its, strict=True)]

    @property
    def met(self) -> bool | None:
        """Whether our goal is met; None if that cannot be said."""
        ours = self.cost.get(OURS.name, [])
        if self.scenario.goal is not None:
            ratio = typical(self.ratios)
            return None if ratio is None else ratio <= self.scenario.goal
        if self.scenario.at_most is not None:
            cost = typical(ours)
            return None if cost is None else cost <= self.scenario.at_most
        return isinstance(ours, list)


def goals_table(rows: Iterable[Row]) -> str:
    """The ratio of our cost to the official Python SDK's, and the goal."""
    heading = ["what the client does", "goal", "mcp-host / mcp", "lowest to highest", ""]
    return table(heading, map(_goal, rows), numbers_from=1)


def _goal(row: Row) -> list[str]:
    verdict = {True: "met", False: "**missed**", None: "-"}[row.met]
    if row.scenario.at_most is not None:
        both = " / ".join(_cell(costs) for name, costs in row.cost.items() if name in (OURS.name, MCP.name))
        return [row.scenario.title, f"≤ {figure(row.scenario.at_most)}", both, "", verdict]
    ratios = row.ratios
    goal = "works" if row.scenario.goal is None else f"≤ {row.scenario.goal:.2f}"
    spread = f"{ratio(min(ratios))} to {ratio(max(ratios))}" if ratios else ""
    return [row.scenario.title, goal, ratio(median(ratios)) if ratios else "-", spread, verdict]


def cost_table(rows: Iterable[Row], peers: Sequence[Peer]) -> str:
    """Each client's cost in CPU, memory or connections."""
    heading = ["what the client does", "unit", *(peer.title for peer in peers)]
    lines = ([row.scenario.title, row.scenario.unit, *(_cell(row.cost[peer.name]) for peer in peers)] for row in rows)
    return table(heading, lines, numbers_from=2)


def several_servers_table(rows: Iterable[Row], peers: Sequence[Peer]) -> str:
    """Each client's cost in CPU, and in brackets the ratio of ours to it."""
    heading = ["what the client does", "unit", "goal", *(peer.title for peer in peers)]
    lines = (
        [
            row.scenario.title,
            row.scenario.unit,
            f"≤ {row.scenario.goal:.2f}",
            *(_compared(row, peer, None if peer in (OURS, BARE) else row.scenario.goal) for peer in peers),
        ]
        for row in rows
    )
    return table(heading, lines, numbers_from=2)


def relays_table(rows: Iterable[Row], peers: Sequence[Peer], goals: Mapping[tuple[str, str], float]) -> str:
    """Each relay's cost, and in brackets the ratio of ours to it, where there is a goal for that."""
    heading = ["what passes", "unit", *(peer.title for peer in peers)]
    lines = (
        [
            row.scenario.title,
            row.scenario.unit,
            *(_compared(row, peer, goals.get((row.scenario.name, peer.name))) for peer in peers),
        ]
        for row in rows
    )
    return table(heading, lines, numbers_from=2)


def _compared(row: Row, peer: Peer, goal: float | None) -> str:
    """The cost of *peer*, with the ratio of ours to it if there is a *goal* for that."""
    if peer.name not in row.cost:
        return "-"
    cell = _cell(row.cost[peer.name])
    if goal is None or not (ratios := row.ratios_to(peer)):
        return cell
    missed = "" if median(ratios) <= goal else ", **missed**"
    return f"{cell} ({ratio(median(ratios))}{missed})"


def wall_table(rows: Iterable[Row], peers: Sequence[Peer]) -> str:
    """The elapsed time with each client."""
    heading = ["what the client does", "unit", *(peer.title for peer in peers)]
    timed = (row for row in rows if row.scenario.timed)
    lines = ([row.scenario.title, row.scenario.unit, *(_cell(row.wall[peer.name]) for peer in peers)] for row in timed)
    return table(heading, lines, numbers_from=2)


def eras_table(older: Iterable[Row], newer: Iterable[Row], peers: Sequence[Peer]) -> str:
    """Our cost with a server of either revision, and the *peers'* with one of the newer."""
    titles = [f"{OURS.title}, 2025-11-25", *(f"{peer.title}, 2026-07-28" for peer in peers)]
    lines = (
        [
            old.scenario.title,
            old.scenario.unit,
            _cell(old.cost[OURS.name]),
            *(_cell(new.cost[peer.name]) for peer in peers),
        ]
        for old, new in zip(older, newer, strict=True)
    )
    return table(["what the client does", "unit", *titles], lines, numbers_from=2)


def ratios_table(variants: Sequence[str], rows: Iterable[tuple[str, Sequence[Costs]]], goal: float | None) -> str:
    """The ratio of our cost with each variant to that without: the median of all turns, and the quartiles."""
    lines = ([title, *(_spread(ratios, goal) for ratios in cells)] for title, cells in rows)
    return table(["what the client does", *variants], lines, numbers_from=1)


def _spread(ratios: Costs, goal: float | None) -> str:
    if isinstance(ratios, str):
        return _cell(ratios)
    low, middle, high = quantiles(ratios, n=4, method="inclusive")
    shown = f"{ratio(middle)} ({ratio(low)} to {ratio(high)})"
    return shown if goal is None or middle <= goal else f"{shown}, **missed**"


def _cell(costs: Costs) -> str:
    cost = typical(costs)
    return f"fails: {escaped(str(costs))}" if cost is None else figure(cost)


def figure(value: float) -> str:
    """Three significant digits, and all those before the point."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def ratio(value: float) -> str:
    return f"{value:.3f}" if value < 0.2 else f"{value:.2f}"


def table(heading: Sequence[str], lines: Iterable[Sequence[str]], *, numbers_from: int) -> str:
    rule = ["---"] * numbers_from + ["---:"] * (len(heading) - numbers_from)
    return "\n".join(f"| {' | '.join(line)} |" for line in [heading, rule, *lines])


def escaped(text: str) -> str:
    """Another program's text, in a cell."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("`", "'")
