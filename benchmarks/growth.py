"""Whether the cost of one unit stays what it is when there are many: larger messages, longer lists, more at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.job import Job
from benchmarks.peers import Peer
from benchmarks.report import Told, costs, escaped, figure, table, typical
from benchmarks.runs import Results
from benchmarks.scenarios import MiB, Scenario, Unit, Way

ROUNDS = 3  # of ours; the official Python SDK is here for comparison and goes once
FEW = 100  # sessions at once, past which only we are measured: a thousand of the other's take a minute
SMALL = 16 * MiB  # a message over stdio, past which only we are: there its cost grows with the square


@dataclass(frozen=True, slots=True)
class Sweep:
    """One thing that grows, in steps."""

    title: str
    steps: tuple[tuple[str, Scenario], ...]

    @property
    def unit(self) -> Unit:
        return self.steps[0][1].unit


def messages(title: str, way: Way) -> Sweep:
    scenarios = (
        (f"{size} MiB", Scenario(
            name=f"{way}-message-{size}", title=title, unit="ms / MB", goal=None,
            kind="text", way=way, operations=max(1, 8 // size), warm_up=1, size=size * MiB,
        ))
        for size in (1, 4, 16, 64)
    )  # fmt: skip
    return Sweep(title, tuple(scenarios))


def lists(title: str, way: Way) -> Sweep:
    scenarios = (
        (f"{tools:,}", Scenario(
            name=f"{way}-tools-{tools}", title=title, unit="ms / 1k tools", goal=None,
            kind="tools", way=way, operations=max(2, 2000 // tools), warm_up=1, tools=tools,
        ))
        for tools in (10, 100, 1000, 10_000)
    )  # fmt: skip
    return Sweep(title, tuple(scenarios))


def in_flight(title: str, way: Way) -> Sweep:
    scenarios = (
        (f"{many:,}", Scenario(
            name=f"{way}-in-flight-{many}", title=title, unit="ms / 1k", goal=None,
            kind="echo", way=way, operations=max(300, many), warm_up=max(30, many), in_flight=many,
        ))
        for many in (1, 10, 100, 1000)
    )  # fmt: skip
    return Sweep(title, tuple(scenarios))


def sessions(title: str, unit: Unit, steps: Sequence[int]) -> Sweep:
    scenarios = (
        (f"{many:,}", Scenario(
            name=f"sessions-{many}", title=title, unit=unit, goal=None,
            kind="sessions", way="json", operations=many, warm_up=3,
        ))
        for many in steps
    )  # fmt: skip
    return Sweep(title, tuple(scenarios))


SWEEPS = (
    messages("a message over stdio", "stdio"),
    messages("a message over HTTP, as JSON", "json"),
    messages("a message over HTTP, in an event stream", "stream"),
    lists("tools in a list, over stdio", "stdio"),
    lists("tools in a list, over HTTP", "json"),
    in_flight("calls in flight, over stdio", "stdio"),
    in_flight("calls in flight, over HTTP", "json"),
    sessions("HTTP sessions at once", "ms", (1, 10, 100, 1000)),
    sessions("HTTP sessions at once, memory of each", "KiB", (10, 100, 1000)),
)


def jobs(url: str, *, modest: bool = False) -> dict[str, Job]:
    """Every step's job by name; where they are to be *modest*, without those that take the other client a minute."""
    scenarios = (scenario for sweep in SWEEPS for _, scenario in sweep.steps)
    return {scenario.name: scenario.job(url) for scenario in scenarios if not (modest and takes_long(scenario))}


def takes_long(scenario: Scenario) -> bool:
    if scenario.kind == "sessions":
        return scenario.operations > FEW
    return scenario.way == "stdio" and scenario.size > SMALL


def growth_table(url: str, peers: Sequence[Peer], results: Results) -> str:
    """A line for each sweep and client: the cost of a unit at every step, and how it grew; beneath, why any failed."""
    heading = ["what grows", "unit", "client", "smallest", "", "", "largest", "/ smallest", "/ cheapest"]
    lines = [line(sweep, peer, url, results) for sweep in SWEEPS for peer in peers]
    failed = (reason for sweep in SWEEPS for peer in peers for reason in failures(sweep, peer, url, results))
    return "\n\n".join([table(heading, lines, numbers_from=3), "\n".join(failed)]).strip()


def line(sweep: Sweep, peer: Peer, url: str, results: Results) -> list[str]:
    told = [outcome(scenario, peer, url, results) for _, scenario in sweep.steps]
    cells = [f"{label}: {shown(each)}" for (label, _), each in zip(sweep.steps, told, strict=True)]
    cells[1:1] = [""] * (4 - len(cells))
    return [sweep.title, sweep.unit, peer.title, *cells, *growth([typical(each) for each in told])]


def growth(steps: Sequence[float | None]) -> list[str]:
    """The last step's cost over the first's, and over that of the cheapest."""
    first, last = steps[0], steps[-1]
    if first is None or last is None:
        return ["", ""]
    return [figure(last / first), figure(last / min(step for step in steps if step is not None))]


def failures(sweep: Sweep, peer: Peer, url: str, results: Results) -> Iterator[str]:
    for label, scenario in sweep.steps:
        told = outcome(scenario, peer, url, results)
        if isinstance(told, str):
            yield f"- {peer.title} fails at {sweep.title} of {label}: {escaped(told)}"


def outcome(scenario: Scenario, peer: Peer, url: str, results: Results) -> Told:
    job = scenario.job(url)
    return costs(results.of(job, peer), lambda spent: scenario.cost(job, spent))


def shown(told: Told) -> str:
    cost = typical(told)
    if cost is not None:
        return figure(cost)
    return "fails" if told else "not run"
