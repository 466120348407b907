"""Having every client do every job, in turns, so that a noisy machine is unfair to nobody."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from benchmarks.installation import say
from benchmarks.job import Job
from benchmarks.peers import Peer
from benchmarks.workers import Outcome, Worker


@dataclass(slots=True)
class Results:
    """What came out: one outcome for each round, by job and client."""

    outcomes: dict[tuple[str, str], list[Outcome]] = field(default_factory=dict)

    def of(self, job: Job, peer: Peer) -> list[Outcome]:
        return self.outcomes.setdefault((json.dumps(job), peer.name), [])


def measure(jobs: Mapping[str, Job], peers: Sequence[Peer], rounds: int, results: Results) -> None:
    """In each round every client does every job once, in a process of the round's own, and another client is the first.

    Equal jobs are done once, and none that *results* have already. Who failed at a job is not tried at it again.
    """
    named: dict[str, tuple[str, Job]] = {}
    for name, job in jobs.items():
        named.setdefault(json.dumps(job), (name, job))
    steps = rounds * len(named) * len(peers)
    for number in range(rounds):
        order = [*peers[number % len(peers) :], *peers[: number % len(peers)]]
        with ExitStack() as stack:
            workers = {peer.name: Worker(peer) for peer in order}
            for worker in workers.values():
                stack.callback(worker.close)
            for place, (name, job) in enumerate(named.values(), start=number * len(named)):
                for turn, peer in enumerate(order, start=1):
                    outcomes = results.of(job, peer)
                    if len(outcomes) == number and not any("failed" in outcome for outcome in outcomes):
                        outcomes.append(workers[peer.name].do(job))
                        say(f"{place * len(peers) + turn}/{steps} {name}, {peer.name}: {told(outcomes[-1])}")


def told(outcome: Outcome) -> str:
    if "failed" in outcome:
        return f"fails: {outcome['failed']}"
    return f"{outcome['cpu'] * 1000:.0f} ms of CPU in {outcome['wall'] * 1000:.0f} ms"
