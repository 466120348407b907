"""Whether the cost of one unit stays the same as its number grows: larger messages, longer lists, more at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.job import Job
from benchmarks.peers import Peer
from benchmarks.report import Costs, costs, escaped, figure, table, typical
from benchmarks.scenarios import MiB, Scenario, Transport, Unit
from benchmarks.workers import Results

ROUNDS = 3  # of ours; the official Python SDK, for comparison, has one
OTHERS_SESSIONS = 100  # sessions at once, at most, for the official SDK: a thousand take it a minute
OTHERS_MESSAGE = 16 * MiB  # a message over stdio, at most, for the official SDK: its cost grows with the square


@dataclass(frozen=True, slots=True)
class Sweep:
    """One number that grows in steps."""

    title: str
    steps: Sequence[tuple[str, Scenario]]

    @property
    def unit(self) -> Unit:
        return self.steps[0][1].unit


def sweep(title: str, scenarios: Iterable[tuple[str, Scenario]]) -> Sweep:
    return Sweep(title, tuple(scenarios))


# fmt: off
def messages(title: str, transport: Transport) -> Sweep:
    return sweep(title, (
        (f"{size} MiB", Scenario(f"{transport}-message-{size}", title, "ms / MB", None, "text", transport,
                                 operations=max(1, 8 // size), warm_up=1, size=size * MiB))
        for size in (1, 4, 16, 64)
    ))


def lists(title: str, transport: Transport) -> Sweep:
    return sweep(title, (
        (f"{tools:,}", Scenario(f"{transport}-tools-{tools}", title, "ms / 1k tools", None, "tools", transport,
                                operations=max(2, 2000 // tools), warm_up=1, tools=tools))
        for tools in (10, 100, 1000, 10_000)
    ))


def in_flight(title: str, transport: Transport) -> Sweep:
    return sweep(title, (
        (f"{calls:,}", Scenario(f"{transport}-in-flight-{calls}", title, "ms / 1k", None, "echo", transport,
                                operations=max(300, calls), warm_up=max(30, calls), in_flight=calls))
        for calls in (1, 10, 100, 1000)
    ))


def sessions(title: str, unit: Unit, steps: Sequence[int]) -> Sweep:
    return sweep(title, (
        (f"{sessions:,}", Scenario(f"sessions-{sessions}", title, unit, None, "sessions", "json",
                                   operations=sessions, warm_up=3))
        for sessions in steps
    ))
# fmt: on


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


def jobs(url: str, *, for_others: bool = False) -> dict[str, Job]:
    """Every step's job by name; *for_others*, without those that take the official SDK a minute."""
    scenarios = (scenario for sweep in SWEEPS for _, scenario in sweep.steps)
    return {each.name: each.job(url) for each in scenarios if not (for_others and _takes_others_long(each))}


def _takes_others_long(scenario: Scenario) -> bool:
    if scenario.kind == "sessions":
        return scenario.operations > OTHERS_SESSIONS
    return scenario.transport == "stdio" and scenario.size > OTHERS_MESSAGE


def growth_table(url: str, peers: Sequence[Peer], results: Results) -> str:
    """A line for each sweep and client: the cost of one unit at every step, and its growth; then why any failed."""
    heading = ["what grows", "unit", "client", "smallest", "", "", "largest", "/ smallest", "/ cheapest"]
    lines: list[list[str]] = []
    failures: list[str] = []
    for sweep in SWEEPS:
        for peer in peers:
            steps = {label: _costs(scenario, peer, url, results) for label, scenario in sweep.steps}
            cells = [f"{label}: {_cell(each)}" for label, each in steps.items()]
            cells[1:1] = [""] * (4 - len(cells))
            lines.append([sweep.title, sweep.unit, peer.title, *cells, *_growth([*map(typical, steps.values())])])
            failures += _failures(sweep, peer, steps)
    return "\n\n".join([table(heading, lines, numbers_from=3), "\n".join(failures)]).strip()


def _growth(steps: Sequence[float | None]) -> list[str]:
    """The last step's cost over the first's, and over that of the cheapest."""
    first, last = steps[0], steps[-1]
    if first is None or last is None:
        return ["", ""]
    return [figure(last / first), figure(last / min(step for step in steps if step is not None))]


def _failures(sweep: Sweep, peer: Peer, steps: dict[str, Costs]) -> Iterator[str]:
    for label, each in steps.items():
        if isinstance(each, str):
            yield f"- {peer.title} fails at {sweep.title} of {label}: {escaped(each)}"


def _costs(scenario: Scenario, peer: Peer, url: str, results: Results) -> Costs:
    job = scenario.job(url)
    return costs(results.of(job, peer), lambda spent: scenario.cost(job, spent))


def _cell(costs: Costs) -> str:
    cost = typical(costs)
    if cost is not None:
        return figure(cost)
    return "fails" if costs else "not run"
