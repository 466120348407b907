"""The tables, as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.job import Job, Spent
from benchmarks.peers import MCP, OURS, Peer
from benchmarks.runs import Results
from benchmarks.scenarios import Scenario


@dataclass(frozen=True, slots=True)
class Row:
    """One scenario: what each client's rounds cost, or why it failed."""

    scenario: Scenario
    costs: Mapping[str, list[float] | str]

    @classmethod
    def of(cls, scenario: Scenario, job: Job, peers: Sequence[Peer], results: Results) -> Row:
        return cls(scenario, costs(results, job, peers, lambda spent: scenario.cost(job, spent)))

    def typical(self, peer: Peer) -> float | None:
        rounds = self.costs.get(peer.name)
        return median(rounds) if isinstance(rounds, list) else None

    def ratio(self, peer: Peer) -> float | None:
        """The median of the rounds' ratios to the official Python SDK; the two of a round ran side by side."""
        ours, its = self.costs.get(peer.name), self.costs.get(MCP.name)
        if not isinstance(ours, list) or not isinstance(its, list):
            return None
        return median(one / other for one, other in zip(ours, its, strict=True))

    @property
    def met(self) -> bool | None:
        """Whether we are where we want to be; None where that cannot be said."""
        if self.scenario.goal is None:
            return self.typical(OURS) is not None
        ratio = self.ratio(OURS)
        return None if ratio is None else ratio <= self.scenario.goal


def costs(
    results: Results, job: Job, peers: Iterable[Peer], cost: Callable[[Spent], float]
) -> dict[str, list[float] | str]:
    """Each client's cost in each round, or the reason for its failure."""
    told: dict[str, list[float] | str] = {}
    for peer in peers:
        rounds: list[float] = []
        for outcome in results.of(job, peer):
            if "failed" in outcome:
                told[peer.name] = outcome["failed"]
                break
            rounds.append(cost(outcome))
        else:
            told[peer.name] = rounds
    return told


def main_table(rows: Sequence[Row], peers: Sequence[Peer]) -> str:
    """Every client's cost with its ratio to the official Python SDK, and what we aim for."""
    heading = ["what the client does", "unit", "goal", "", *(peer.title for peer in peers)]
    return table(heading, [_main_line(row, peers) for row in rows], numbers_from=2)


def _main_line(row: Row, peers: Sequence[Peer]) -> list[str]:
    scenario = row.scenario
    goal = "works" if scenario.goal is None else f"≤ {scenario.goal:.2f} x"
    verdict = {True: "met", False: "**missed**", None: "-"}[row.met]
    return [scenario.title, scenario.unit, goal, verdict, *(_cell(row, peer) for peer in peers)]


def _cell(row: Row, peer: Peer) -> str:
    typical, ratio = row.typical(peer), row.ratio(peer)
    if typical is None:
        return f"fails: {escaped(str(row.costs[peer.name]))}"
    return figure(typical) if ratio is None or peer is MCP else f"{figure(typical)} ({times(ratio)})"


def figure(value: float) -> str:
    """Three digits that count, or as many as there are before the point."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def times(ratio: float) -> str:
    return f"{ratio:.3f} x" if ratio < 0.2 else f"{ratio:.2f} x"


def table(heading: Sequence[str], lines: Iterable[Sequence[str]], *, numbers_from: int) -> str:
    rule = ["---"] * numbers_from + ["---:"] * (len(heading) - numbers_from)
    return "\n".join(f"| {' | '.join(line)} |" for line in [heading, rule, *lines])


def escaped(text: str) -> str:
    """A stranger's words, in a cell."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("`", "'")
