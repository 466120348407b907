"""Runs of the conformance suite against the test server: by itself, and behind a proxy, in each pair of revisions."""

from __future__ import annotations

import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import TypeAlias

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream

from tests.conformance.suite import emptied, folder_of, required_of_servers, run_suite
from tests.conformance.verdict import Check, Outcome, read_checks, shortcomings
from tests.installation import ROOT

WHOLE_RUN = 180.0  # seconds for all scenarios; most of it, the suite waits for what should not come
LONGEST_URL = 100  # bytes
STARTING = 30.0  # seconds
ENDING = 10.0
TRIES = 3  # of a scenario: the suite waits for some messages for half a second, which a busy machine may need

LEGACY, MODERN = "2025-11-25", "2026-07-28"

Checks: TypeAlias = Mapping[str, list[Check]]
"""By scenario."""


@dataclass(frozen=True)
class ServerRun:
    """All that a revision requires of a server, on its wire."""

    version: str
    behind: str | None = None
    """The revision of the server behind a proxy. None: there is no proxy, and the server speaks both."""

    def __str__(self) -> str:
        return f"{self.version} server" + ("" if self.behind is None else f" of {self.behind} through a proxy")


RUNS = [
    ServerRun(LEGACY),
    ServerRun(MODERN),
    *(ServerRun(version, behind) for version in (LEGACY, MODERN) for behind in (LEGACY, MODERN)),
]

OF_ITS_OWN = {
    "input-required-result-basic-elicitation: InputRequiredResultElicitationIncomplete": (
        "the test server chooses the keys of its input requests; the suite looks for user_name"
    ),
    "input-required-result-ignore-extra-params: IgnoreUnexpectedParams": (
        "the suite answers what was not asked, without a requestState; the test server asks first"
    ),
}
UNSAID = "until 2025-11-25 no error says that the client lacks a capability: it is the text of a failed tool"
EXCEPTIONS: Mapping[ServerRun, Mapping[str, str]] = {
    ServerRun(MODERN): OF_ITS_OWN,
    ServerRun(MODERN, MODERN): OF_ITS_OWN,
    ServerRun(MODERN, LEGACY): {
        **OF_ITS_OWN,
        "server-stateless: ServerRejectsUndeclaredCapability": UNSAID,
        "server-stateless: MissingCapabilityHttp400": UNSAID,
    },
}
"""What does not pass, as "scenario: Check", and why."""

NOT_REQUIRED = {
    "tasks-*": "the test server has no tasks",
    "json-schema-2020-12": "the test server makes the schemas of its tools from their signatures",
    "server-sse-polling": "no tool of the test server ends the stream of its own call",
}
"""What is played and not required, and does not pass. The others that are not required do."""


async def play_all(node: str) -> list[Outcome]:
    """The outcome of each run. They are played at the same time, because they mostly wait."""
    found: dict[ServerRun, Checks] = {}
    seconds: dict[ServerRun, float] = {}

    async def play_one(run: ServerRun) -> None:
        begun = time.monotonic()
        found[run] = await play(run, node)
        seconds[run] = time.monotonic() - begun

    async with anyio.create_task_group() as tasks:
        for run in RUNS:
            tasks.start_soon(play_one, run)
    return [outcome_of(run, found[run], found[ServerRun(run.version)], seconds[run]) for run in RUNS]


async def play(run: ServerRun, node: str) -> Checks:
    """Let the suite test what is served for a run."""
    folder = emptied(str(run))
    async with served(run, folder) as url:
        server = ["server", "--url", url]
        await run_suite(node, [*server, "--requirements", run.version], folder, WHOLE_RUN)
        for _ in range(TRIES - 1):
            found = found_in(folder)
            for scenario in required_of_servers(run.version):
                if judge(run, scenario, found):
                    again = ["--scenario", scenario, "--spec-version", run.version]
                    await run_suite(node, [*server, *again], folder, WHOLE_RUN)
    return found_in(folder)


@asynccontextmanager
async def served(run: ServerRun, folder: Path) -> AsyncIterator[str]:
    """Start what is tested; the value is its URL.

    The proxy's server is behind HTTP, too. Over a pipe each session would start a Python, which takes longer than the suite
    waits for some results.
    """
    server = [sys.executable, "-m", "tests.conformance.server"]
    if run.behind is None:
        async with url_of(server, folder) as url:
            yield url
    else:
        proxy = [sys.executable, "-m", "mcp_host", "proxy", "--http", "0"]
        async with url_of([*server, run.behind], folder) as url, url_of([*proxy, url], folder) as proxied:
            yield proxied


@asynccontextmanager
async def url_of(command: list[str], folder: Path) -> AsyncIterator[str]:
    """Run a server until this is left. The first line on its stdout is the URL."""
    with (folder / "server.txt").open("ab") as said:
        process = await anyio.open_process(command, cwd=ROOT, stdin=DEVNULL, stdout=PIPE, stderr=said)
    async with process:
        assert process.stdout is not None
        with anyio.fail_after(STARTING):
            url = await BufferedByteReceiveStream(process.stdout).receive_until(b"\n", LONGEST_URL)
        yield url.decode()
        process.send_signal(signal.SIGTERM)
        with anyio.move_on_after(ENDING):
            await process.wait()


def found_in(folder: Path) -> Checks:
    """What the suite has checked, the last time that it played a scenario."""
    files = sorted(folder.glob("server-*/checks.json"))  # the names of their folders end with the time
    return {
        re.sub(r"^server-|-\d{4}-\d\d-\d\dT.*$", "", file.parent.name): read_checks(file.read_text()) for file in files
    }


def judge(run: ServerRun, scenario: str, found: Checks, alone: Checks | None = None) -> list[str]:
    """Why the run does not pass a scenario, a sentence each. Each check that passes for the server *alone* has to pass."""
    before = [] if alone is None else alone.get(scenario, [])
    exceptions = EXCEPTIONS.get(run, {})
    excepted = {name.removeprefix(f"{scenario}: ") for name in exceptions if name.startswith(f"{scenario}: ")}
    return [f"{scenario}: {each}" for each in shortcomings(found.get(scenario, []), excepted, before)]


def outcome_of(run: ServerRun, found: Checks, alone: Checks, seconds: float) -> Outcome:
    """A scenario that is not required has to pass behind a proxy if the server passes it *alone*."""
    required = required_of_servers(run.version)
    also = [name for name in alone if name not in required and run.behind and not judge(run, name, alone)]
    faults = {name: judge(run, name, found, alone) for name in [*required, *also]}
    good = sum(not each for each in faults.values())
    problems = [problem for each in faults.values() for problem in each]
    return Outcome(str(run), good, len(faults), "scenarios", problems, folder_of(str(run)), seconds)


def excepted() -> list[str]:
    """What does not pass, and why, a line each."""
    required = [f"{run}, {name}: {reason}" for run, each in EXCEPTIONS.items() for name, reason in each.items()]
    return required + [f"servers, {name}, which is not required: {reason}" for name, reason in NOT_REQUIRED.items()]
