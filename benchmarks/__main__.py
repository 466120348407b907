"""``make bench``: install the clients, measure each at the same jobs in turns, and print the tables.

``python -m benchmarks --only stdio-echo,http-echo --clients ours,mcp`` runs a part of it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence

from benchmarks import growth, page
from benchmarks.installation import install, say
from benchmarks.peers import BARE, FASTMCP, FASTMCP_CONFIG, MCP, OURS, PEERS, RELAYS, Peer
from benchmarks.report import (
    Row,
    cost_table,
    eras_table,
    goals_table,
    relays_table,
    several_servers_table,
    wall_table,
)
from benchmarks.scenarios import (
    BY_REVISION,
    CLIENT_SESSIONS,
    RELAY_GOALS,
    RELAYED,
    RELAYED_SESSIONS,
    SCENARIOS,
    SEVERAL_SERVERS,
    Scenario,
)
from benchmarks.variants import COMPARISONS
from benchmarks.workers import Results, Worker, http_server, measure
from tests.installation import Unusable

ROUNDS = 5
ERA_ROUNDS = 3
QUICK_ROUNDS = 2
QUICK_SHARE = 0.3  # of the operations


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    try:
        install(clients_of(options))
    except Unusable as exc:
        print(f"bench: {exc}", file=sys.stderr)
        return 1
    complete = is_complete(options)
    machine = page.machine() if complete else ""  # before the benchmarks load it
    with http_server() as url:
        if options.middleware:
            tables = variants_tables(url, options.rounds, "middleware")
        elif options.adapters:
            tables = variants_tables(url, options.rounds, "adapters-time", "adapters-cpu")
        elif options.oauth:
            tables = variants_tables(url, options.rounds, "oauth", "refresh")
        elif options.growth:
            tables = growth_tables(url)
        elif options.servers:
            tables = servers_tables(options, url)
        elif options.relays:
            tables = relays_tables(options, url)
        else:
            tables = scenario_tables(options, url)
            if options.only == list(SCENARIOS) and options.clients == list(PEERS):
                tables |= servers_tables(options, url) | relays_tables(options, url)
        if complete:
            tables |= growth_tables(url) | variants_tables(url, options.rounds, *COMPARISONS) | {"machine": machine}
            page.PAGE.write_text(page.rewrite(page.PAGE.read_text(encoding="utf-8"), tables), encoding="utf-8")
            say(f"{page.PAGE} has the tables")
    print("\n\n".join(tables.values()))
    return 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="fewer rounds and operations, no growth, no revisions; only prints"
    )
    parser.add_argument("--growth", action="store_true", help="only growth and revisions; only prints")
    parser.add_argument("--middleware", action="store_true", help="only the cost of middleware; only prints")
    parser.add_argument("--adapters", action="store_true", help="only the cost of adapters of models; only prints")
    parser.add_argument("--oauth", action="store_true", help="only the cost of a token of OAuth; only prints")
    parser.add_argument("--servers", action="store_true", help="only the cost of several servers; only prints")
    parser.add_argument("--relays", action="store_true", help="only the cost of proxies; only prints")
    parser.add_argument("--only", type=some_of(SCENARIOS), default=list(SCENARIOS), metavar="NAME,...")
    parser.add_argument("--clients", type=some_of(PEERS), default=list(PEERS), metavar="NAME,...")
    parser.add_argument("--rounds", type=int)
    options = parser.parse_args(arguments)
    options.rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    return options


def some_of(known: Iterable[str]) -> Callable[[str], list[str]]:
    def parse_names(text: str) -> list[str]:
        names = text.split(",")
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        return names

    return parse_names


def clients_of(options: argparse.Namespace) -> list[str]:
    """The clients to install."""
    if options.middleware or options.adapters or options.oauth:
        return [OURS.name]
    if options.servers:
        return [OURS.name, MCP.name, FASTMCP.name]
    if options.relays:
        return [OURS.name, FASTMCP.name]
    named: list[str] = options.clients
    return [OURS.name, MCP.name] if options.growth else named


def is_complete(options: argparse.Namespace) -> bool:
    """Whether this run measures everything that the page shows."""
    everything = options.only == list(SCENARIOS) and options.clients == list(PEERS)
    a_part = options.quick or options.growth or options.servers or options.relays or options.middleware
    a_part = a_part or options.adapters or options.oauth
    return everything and options.rounds >= ROUNDS and not a_part


def scenario_tables(options: argparse.Namespace, url: str) -> dict[str, str]:
    peers = [PEERS[name] for name in options.clients]
    compile_modules(peers, url)
    scenarios = [SCENARIOS[name] for name in options.only]
    rows = compare(scenarios, peers, url, options.rounds, QUICK_SHARE if options.quick else 1.0)
    return {"goals": goals_table(rows), "cpu": cost_table(rows, peers), "wall": wall_table(rows, peers)}


def servers_tables(options: argparse.Namespace, url: str) -> dict[str, str]:
    """Groups of servers: ours, and each that others have."""
    peers = [OURS, MCP, FASTMCP, FASTMCP_CONFIG, BARE]
    rows = compare(SEVERAL_SERVERS, peers, url, options.rounds, QUICK_SHARE if options.quick else 1.0)
    return {"servers": several_servers_table(rows, peers)}


def relays_tables(options: argparse.Namespace, url: str) -> dict[str, str]:
    """Our proxy, and those of others, between a client and a server."""
    share = QUICK_SHARE if options.quick else 1.0
    rows = compare(RELAYED, RELAYS, url, options.rounds, share)
    rows += compare(RELAYED_SESSIONS, RELAYS[:1], url, options.rounds, share)
    rows += compare(CLIENT_SESSIONS, [OURS], url, options.rounds, share)
    return {"relays": relays_table(rows, RELAYS, RELAY_GOALS)}


def compile_modules(peers: Iterable[Peer], url: str) -> None:
    """Have every client import its modules once, so that no measurement includes compiling them."""
    for peer in peers:
        for name in ("import", "stdio-start", "http-start"):
            Worker(peer).do(SCENARIOS[name].job(url))


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


def variants_tables(url: str, rounds: int, *names: str) -> dict[str, str]:
    """Ours with middleware, an adapter of models or a token of OAuth, and without, in turns."""
    return {name: COMPARISONS[name].table(url, rounds) for name in names}


def growth_tables(url: str) -> dict[str, str]:
    """How cost grows, and the cost in both revisions."""
    compile_modules([OURS, MCP], url)
    results = Results()
    measure(growth.jobs(url), [OURS], growth.ROUNDS, results)
    measure(growth.jobs(url, for_others=True), [MCP], 1, results)
    return {"growth": growth.growth_table(url, [OURS, MCP], results), "eras": revisions(url)}


def revisions(url: str) -> str:
    """Ours with servers of either revision, and the official Python SDK with one of the newer."""
    older = compare(BY_REVISION, [OURS], url, ERA_ROUNDS)
    newer = compare(BY_REVISION, [OURS, MCP], url, ERA_ROUNDS, stateless=True)
    return eras_table(older, newer, [OURS, MCP])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
