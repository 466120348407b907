"""`make conformance`: the official conformance suite against this client, the test server and the proxy, by the strict rule of `verdict`.

Arguments are scenarios of clients, or "servers": ``.venv/bin/python -m tests.conformance.run sse-retry``. The suite is
installed in ``.conformance/``, anew when a pin changes; what the last runs said is in ``.conformance/runs/``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import anyio

from tests.conformance import clients, servers
from tests.conformance.suite import CACHE, install, listing
from tests.conformance.verdict import Outcome, Run, listed
from tests.installation import Unusable

AT_ONCE = 2
SERVERS = "servers"
TAIL = 12  # lines of a failed client's stderr that are shown


def main(arguments: Sequence[str]) -> int:
    try:
        runs = chosen(arguments)
        node = install()
        if not arguments:
            clients.require_all(listed(listing(node)))
    except Unusable as exc:
        print(f"conformance: {exc}", file=sys.stderr)
        return 1
    try:
        outcomes = anyio.run(play_all, runs, not arguments or SERVERS in arguments, node)
    except KeyboardInterrupt:
        return 1
    print(table(outcomes))
    return int(any(outcome.faults for outcome in outcomes))


def chosen(arguments: Sequence[str]) -> list[Run]:
    """The runs of the scenarios of clients among the *arguments*; all where there are none.

    Raises:
        Unusable: One of them is not among the runs.
    """
    runs = [*clients.RUNS, *clients.PROXIED]
    for scenario in arguments:
        if scenario != SERVERS and all(run.scenario != scenario for run in runs):
            raise Unusable(f"there is no run of the scenario {scenario}")
    return [run for run in runs if not arguments or run.scenario in arguments]


async def play_all(runs: Sequence[Run], with_servers: bool, node: str) -> list[Outcome]:
    """The outcome of each run; each is told of as soon as it is known."""
    outcomes: dict[Run, Outcome] = {}
    places = anyio.CapacityLimiter(AT_ONCE)

    async def play_one(run: Run) -> None:
        async with places:
            outcomes[run] = await clients.play(run, node)
        tell(outcomes[run])

    async with anyio.create_task_group() as tasks:
        for run in runs:
            tasks.start_soon(play_one, run)
    of_servers = await servers.play_all(node) if with_servers else []  # not beside clients whose pauses are measured
    for outcome in of_servers:
        tell(outcome)
    return [*(outcomes[run] for run in runs), *of_servers]


def tell(outcome: Outcome) -> None:
    """One line for what passed; for what did not, all that is needed to see why."""
    if not outcome.faults:
        passed = f"{outcome.passed} of {outcome.expected} {outcome.unit}"
        CACHE.say(f"{outcome.name}: {passed} passed in {outcome.seconds:.1f} s")
        return
    CACHE.say(f"{outcome.name}: FAILED, everything said is in {outcome.folder}")
    for fault in outcome.faults:
        CACHE.say(f"  {fault}")
    said = outcome.folder.glob("**/stderr.txt"), outcome.folder.glob("server.txt"), [outcome.folder / "suite.txt"]
    for file in next(files for each in said if (files := [*each])):
        for line in file.read_text(errors="replace").splitlines()[-TAIL:]:
            CACHE.say(f"  | {line}")


def table(outcomes: Sequence[Outcome]) -> str:
    width = max(len(outcome.name) for outcome in outcomes)
    rows = [
        f"  {outcome.name:{width}}  {outcome.passed:2} of {outcome.expected:2} {outcome.unit}"
        f"  {'FAILED' if outcome.faults else 'passed'}"
        for outcome in outcomes
    ]
    good = sum(not outcome.faults for outcome in outcomes)
    left_out = [f"  {name}: not run, {reason}" for name, reason in clients.NOT_RUN.items()]
    left_out += [f"  auth/* through a proxy: not run, {clients.NOT_PROXIED}"]
    excepted = [f"  not passed: {line}" for line in servers.excepted()]
    summary = f"conformance: {good} of {len(outcomes)} runs passed, by the strict rule"
    return "\n".join(["", *rows, "", *left_out, "", *excepted, "", summary])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
