"""``make bench``: install the clients, have each do the same jobs side by side, and say what each took.

``python -m benchmarks --only stdio-echo,http-echo --clients ours,mcp`` is a part of it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks.installation import install
from benchmarks.job import Job
from benchmarks.peers import PEERS, Peer
from benchmarks.report import Row, main_table
from benchmarks.runs import measure
from benchmarks.scenarios import SCENARIOS, Scenario
from benchmarks.workers import Worker, http_server
from tests.installation import Unusable

ROUNDS = 5
QUICK_ROUNDS = 2
QUICK_SHARE = 0.3  # of the operations


def main(arguments: Sequence[str]) -> int:
    chosen = read(arguments)
    try:
        install()
    except Unusable as exc:
        print(f"bench: {exc}", file=sys.stderr)
        return 1
    peers = [PEERS[name] for name in chosen.clients]
    scenarios = [SCENARIOS[name] for name in chosen.only]
    with http_server() as url:
        rehearse(peers)
        rows = compare(scenarios, peers, url, chosen.rounds, QUICK_SHARE if chosen.quick else 1.0)
    print(main_table(rows, peers))
    return 0


def read(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and operations; leaves the page as it is")
    parser.add_argument("--only", type=one_of(SCENARIOS), default=list(SCENARIOS), metavar="NAME,...")
    parser.add_argument("--clients", type=one_of(PEERS), default=list(PEERS), metavar="NAME,...")
    parser.add_argument("--rounds", type=int)
    chosen = parser.parse_args(arguments)
    chosen.rounds = chosen.rounds or (QUICK_ROUNDS if chosen.quick else ROUNDS)
    return chosen


def one_of(known: dict[str, Scenario] | dict[str, Peer]):  # type: ignore[no-untyped-def]
    def names(text: str) -> list[str]:
        for name in (chosen := text.split(",")):
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name} is none of {', '.join(known)}")
        return chosen

    return names


def rehearse(peers: Sequence[Peer]) -> None:
    """Import everything once, so that nobody's import is timed while it is compiled."""
    for peer in peers:
        Worker(peer).do(Job("import", "", 1, 0))


def compare(scenarios: Sequence[Scenario], peers: Sequence[Peer], url: str, rounds: int, share: float) -> list[Row]:
    jobs = {scenario.name: scenario.job(url, share) for scenario in scenarios}
    results = measure(jobs, peers, rounds)
    return [Row.of(scenario, jobs[scenario.name], peers, results) for scenario in scenarios]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
