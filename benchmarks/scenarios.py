"""What is measured: the rows of the table, each with its goal."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Literal

from benchmarks.job import Job, Kind, Spent

Way = Literal["stdio", "json", "stream"]
Unit = Literal["ms / 1k", "ms", "ms / MB", "ms / 1k tools", "KiB", "MiB"]

MiB = 1 << 20
QUESTIONS = 96  # of one call, one after another
ROUNDS = 8  # the same in 2026-07-28, where each is a round, and the official Python SDK allows ten of them
REPORTS = 500  # of one call; more than a thousand may not wait for a slow callback of ours


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One row: a job for every client, the unit in which its cost is told, and what we aim for.

    *goal* is the most that our cost may be of the official Python SDK's; None where it is enough to work.
    """

    name: str
    title: str
    unit: Unit
    goal: float | None
    kind: Kind
    way: Way = "stdio"
    operations: int
    warm_up: int
    in_flight: int = 1
    tools: int = 0
    size: int = 0

    def job(self, url: str, share: float = 1.0, *, stateless: bool = False) -> Job:
        """The job, with the servers over HTTP at *url*, and only a *share* of the operations.

        The servers speak revision 2025-11-25, or where they are *stateless* 2026-07-28.
        """
        era = ["stateless"] if stateless else []
        size = ROUNDS if stateless and self.kind == "sample" else self.size
        operations = self.operations * (self.size or 1) // (size or 1)
        stdio = [sys.executable, "-S", "-m", "benchmarks.servers.stdio", str(self.tools), *era]
        return Job(
            kind=self.kind,
            server=stdio if self.way == "stdio" else "/".join([url, *era, self.way, str(self.tools)]),
            operations=max(1, int(operations * share)),
            warm_up=self.warm_up,
            in_flight=self.in_flight,
            tools=self.tools,
            size=size,
        )

    def cost(self, job: Job, spent: Spent) -> float:
        """What one unit cost of CPU, or of memory."""
        match self.unit:
            case "ms / 1k":
                return spent["cpu"] / self._units(job) * 1e6
            case "ms":
                return spent["cpu"] / self._units(job) * 1e3
            case "ms / MB":
                return spent["cpu"] / self._units(job) * 1e9
            case "ms / 1k tools":
                return spent["cpu"] / (job.operations * job.tools) * 1e6
            case "KiB":
                return spent["memory"] / job.operations / 1024
            case "MiB":
                return spent["memory"] / MiB

    @property
    def timed(self) -> bool:
        """Whether the clock on the wall says something: not of memory, nor where the server pauses."""
        return self.unit not in ("KiB", "MiB") and self.kind != "progress"

    def time(self, job: Job, spent: Spent) -> float:
        """What one unit took by the clock on the wall, servers and all."""
        return self.cost(job, {**spent, "cpu": spent["wall"]})

    def _units(self, job: Job) -> int:
        """Operations, or where these have a size: questions, reports of progress, or bytes."""
        return job.operations * (job.size or 1)


ROWS = [
    Scenario(
        name="stdio-echo",
        title="stdio echo, one at a time",
        unit="ms / 1k",
        goal=0.4,
        kind="echo",
        operations=600,
        warm_up=200,
    ),
    Scenario(
        name="stdio-echo-64",
        title="stdio echo, 64 in flight",
        unit="ms / 1k",
        goal=0.2,
        kind="echo",
        operations=1200,
        warm_up=200,
        in_flight=64,
    ),
    Scenario(
        name="stdio-sampling",
        title="stdio sampling round trip, text",
        unit="ms / 1k",
        goal=0.5,
        kind="sample",
        operations=12,
        warm_up=2,
        size=QUESTIONS,
    ),
    Scenario(
        name="stdio-sampling-tools",
        title="stdio sampling round trip, 16 tools",
        unit="ms / 1k",
        goal=0.4,
        kind="sample",
        operations=12,
        warm_up=2,
        size=QUESTIONS,
        tools=16,
    ),
    Scenario(
        name="stdio-progress",
        title="stdio progress notifications",
        unit="ms / 1k",
        goal=0.15,
        kind="progress",
        operations=6,
        warm_up=2,
        size=REPORTS,
    ),
    Scenario(
        name="stdio-tools",
        title="`tools/list` of 1,000 tools",
        unit="ms",
        goal=0.25,
        kind="tools",
        operations=8,
        warm_up=2,
        tools=1000,
    ),
    Scenario(
        name="http-echo",
        title="HTTP (JSON) echo, one at a time",
        unit="ms / 1k",
        goal=0.45,
        kind="echo",
        way="json",
        operations=150,
        warm_up=50,
    ),
    Scenario(
        name="http-sse-echo",
        title="HTTP (SSE) echo, one at a time",
        unit="ms / 1k",
        goal=0.35,
        kind="echo",
        way="stream",
        operations=200,
        warm_up=50,
    ),
    Scenario(
        name="http-echo-64",
        title="HTTP (JSON) echo, 64 in flight",
        unit="ms / 1k",
        goal=0.5,
        kind="echo",
        way="json",
        operations=320,
        warm_up=128,
        in_flight=64,
    ),
    Scenario(
        name="http-sampling",
        title="HTTP sampling round trip, text",
        unit="ms / 1k",
        goal=0.45,
        kind="sample",
        way="stream",
        operations=4,
        warm_up=2,
        size=QUESTIONS,
    ),
    Scenario(
        name="http-connect",
        title="HTTP connect (warm)",
        unit="ms",
        goal=0.15,
        kind="connect",
        way="json",
        operations=15,
        warm_up=3,
    ),
    Scenario(
        name="http-sessions",
        title="100 HTTP sessions at once",
        unit="ms",
        goal=0.15,
        kind="sessions",
        way="json",
        operations=100,
        warm_up=3,
    ),
    Scenario(
        name="stdio-text",
        title="stdio text of 10 MiB",
        unit="ms / MB",
        goal=0.1,
        kind="text",
        operations=2,
        warm_up=1,
        size=10 * MiB,
    ),
    Scenario(
        name="http-text",
        title="HTTP (SSE) text of 10 MiB",
        unit="ms / MB",
        goal=None,
        kind="text",
        way="stream",
        operations=2,
        warm_up=1,
        size=10 * MiB,
    ),
    Scenario(
        name="import",
        title="import",
        unit="ms",
        goal=0.3,
        kind="import",
        operations=1,
        warm_up=0,
    ),
    Scenario(
        name="session-memory",
        title="memory per HTTP session",
        unit="KiB",
        goal=0.15,
        kind="sessions",
        way="json",
        operations=100,
        warm_up=3,
    ),
    Scenario(
        name="import-memory",
        title="memory after import",
        unit="MiB",
        goal=0.6,
        kind="import",
        operations=1,
        warm_up=0,
    ),
]

BY_REVISION = [row for row in ROWS if row.kind in ("echo", "sample", "progress", "tools", "connect")]
"""What is measured in the newer revision, too: where the server's part of it differs."""

SCENARIOS = {row.name: row for row in ROWS}
