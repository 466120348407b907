"""``make bench``: install the clients, have each do the same jobs side by side, and say what each took.

``python -m benchmarks --only stdio-echo,http-echo --clients ours,mcp`` is a part of it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence

from benchmarks import growth, page
from benchmarks.installation import install, say
from benchmarks.job import Job
from benchmarks.peers import MCP, OURS, PEERS, Peer
from benchmarks.report import Row, cpu_table, eras_table, goals_table, wall_table
from benchmarks.runs import Results, measure
from benchmarks.scenarios import BY_REVISION, SCENARIOS, Scenario
from benchmarks.workers import Worker, http_server
from tests.installation import Unusable

ROUNDS = 5
ERA_ROUNDS = 3
QUICK_ROUNDS = 2
QUICK_SHARE = 0.3  # of the operations


def main(arguments: Sequence[str]) -> int:
    chosen = read(arguments)
    try:
        install()
    except Unusable as exc:
        print(f"bench: {exc}", file=sys.stderr)
        return 1
    stamp = page.machine()
    with http_server() as url:
        rehearse(PEERS.values())
        tables = beside(url) if chosen.beside else compared(chosen, url)
        if whole(chosen):
            tables |= beside(url) | {"machine": stamp}
            page.PAGE.write_text(page.rewrite(page.PAGE.read_text(encoding="utf-8"), tables), encoding="utf-8")
            say(f"{page.PAGE} has the tables")
    print("\n\n".join(tables.values()))
    return 0


def read(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="fewer rounds and operations, neither growth nor revisions; prints only"
    )
    parser.add_argument("--beside", action="store_true", help="growth and revisions alone; prints only")
    parser.add_argument("--only", type=some_of(SCENARIOS), default=list(SCENARIOS), metavar="NAME,...")
    parser.add_argument("--clients", type=some_of(PEERS), default=list(PEERS), metavar="NAME,...")
    parser.add_argument("--rounds", type=int)
    chosen = parser.parse_args(arguments)
    chosen.rounds = chosen.rounds or (QUICK_ROUNDS if chosen.quick else ROUNDS)
    return chosen


def some_of(known: Iterable[str]) -> Callable[[str], list[str]]:
    def names(text: str) -> list[str]:
        for name in (chosen := text.split(",")):
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        return chosen

    return names


def whole(chosen: argparse.Namespace) -> bool:
    """Whether everything is measured as the page promises."""
    everything = chosen.only == list(SCENARIOS) and chosen.clients == list(PEERS)
    return everything and chosen.rounds >= ROUNDS and not chosen.quick and not chosen.beside


def rehearse(peers: Iterable[Peer]) -> None:
    """Import everything once, so that nobody's import is timed while it is compiled."""
    for peer in peers:
        Worker(peer).do(Job("import", "", 1, 0))


def compared(chosen: argparse.Namespace, url: str) -> dict[str, str]:
    peers = [PEERS[name] for name in chosen.clients]
    scenarios = [SCENARIOS[name] for name in chosen.only]
    rows = compare(scenarios, peers, url, chosen.rounds, QUICK_SHARE if chosen.quick else 1.0)
    return {"goals": goals_table(rows), "cpu": cpu_table(rows, peers), "wall": wall_table(rows, peers)}


def compare(
    scenarios: Sequence[Scenario],
    peers: Sequence[Peer],
    url: str,
    rounds: int,
    share: float = 1.0,
    *,
    stateless: bool = False,
) -> list[Row]:
    jobs = {scenario.name: scenario.job(url, share, stateless=stateless) for scenario in scenarios}
    results = Results()
    measure(jobs, peers, rounds, results)
    return [Row.of(scenario, jobs[scenario.name], peers, results) for scenario in scenarios]


def both_eras(url: str) -> str:
    """Ours with servers of either revision, beside the official Python SDK with one of the newer."""
    older = compare(BY_REVISION, [OURS], url, ERA_ROUNDS)
    newer = compare(BY_REVISION, [OURS, MCP], url, ERA_ROUNDS, stateless=True)
    return eras_table(older, newer, [OURS, MCP])


def beside(url: str) -> dict[str, str]:
    """How cost grows, and what it is in both revisions."""
    results = Results()
    measure(growth.jobs(url), [OURS], growth.ROUNDS, results)
    measure(growth.jobs(url, modest=True), [MCP], 1, results)
    return {"growth": growth.growth_table(url, [OURS, MCP], results), "eras": both_eras(url)}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
