"""What is measured: the rows of the tables, each with its goal."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Literal

from benchmarks.job import ADDRESSES, Job, Kind, Measurement, Server

Transport = Literal["stdio", "json", "stream"]  # of HTTP; "sse" in a path makes fastmcp speak an older transport
Unit = Literal["ms / 1k", "ms", "ms, p99", "ms / MB", "ms / 1k tools", "KiB", "MiB", "connections"]

MiB = 1 << 20
REQUESTS = 96  # sampling requests of one call, one after another
INPUT_ROUNDS = 8  # the same in 2026-07-28, where each is a round of input; the official Python SDK allows ten
REPORTS = 500  # progress notifications of one call; our client lets at most a thousand wait for a slow callback


@dataclass(frozen=True, slots=True)
class Scenario:
    """One row: a job for every client, the unit of its cost, and our goal.

    *goal* is the highest ratio of our cost to the official Python SDK's; *at_most* is a highest cost instead.
    With neither, the goal is that the job succeeds.
    """

    name: str
    title: str
    unit: Unit
    goal: float | None
    kind: Kind
    transport: Transport = "stdio"
    operations: int = 1
    warm_up: int = 0
    in_flight: int = 1
    tools: int = 0
    messages: int = 1
    size: int = 0
    stateless: bool = False
    at_most: float | None = None
    stdio_servers: int = 0
    http_servers: int = 0

    def job(self, url: str, share: float = 1.0, *, stateless: bool = False) -> Job:
        """The job, with the HTTP server at *url*, and only a *share* of the operations.

        The server speaks revision 2025-11-25; if *stateless*, or if the scenario is, 2026-07-28.
        """
        stateless = stateless or self.stateless
        era = ["stateless"] if stateless else []
        size = INPUT_ROUNDS if stateless and self.kind == "sample" else self.size
        operations = self.operations * (self.size or 1) // (size or 1)

        def server(transport: Transport, number: int = 0) -> Server:
            if transport == "stdio":
                return [sys.executable, "-S", "-m", "benchmarks.servers.stdio", str(self.tools), *era]
            return "/".join([url.replace(ADDRESSES[0], ADDRESSES[number]), *era, transport, str(self.tools)])

        return Job(
            kind=self.kind,
            server=server(self.transport),
            operations=max(1, self.in_flight, int(operations * share)),
            warm_up=self.warm_up,
            in_flight=self.in_flight,
            tools=self.tools,
            messages=self.messages,
            size=size,
            servers={f"stdio{number}": server("stdio") for number in range(self.stdio_servers)}
            | {f"http{number}": server("json", number) for number in range(self.http_servers)},
        )

    def cost(self, job: Job, spent: Measurement) -> float:
        """The cost of one unit: CPU, memory or connections."""
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
            case "connections":
                return spent["connections"]
            case "ms, p99":
                return spent["latency"] * 1e3

    @property
    def timed(self) -> bool:
        """Whether elapsed time means anything: not for memory or connections, nor where the server pauses."""
        return self.unit not in ("KiB", "MiB", "connections") and self.kind != "progress"

    def time(self, job: Job, spent: Measurement) -> float:
        """The elapsed time of one unit, servers included."""
        return self.cost(job, {**spent, "cpu": spent["wall"]})

    def _units(self, job: Job) -> int:
        """Operations; where these have a size: sampling requests, progress notifications, calls, or bytes."""
        return job.operations * (job.size or 1)


# fmt: off
ROWS = [
    Scenario("stdio-echo", "stdio echo, one at a time", "ms / 1k", 0.22, "echo", operations=600, warm_up=200),
    Scenario("stdio-echo-64", "stdio echo, 64 in flight", "ms / 1k", 0.13, "echo",
             operations=1200, warm_up=200, in_flight=64),
    Scenario("stdio-sampling", "stdio sampling round trip, text", "ms / 1k", 0.36, "sample",
             operations=12, warm_up=2, size=REQUESTS),
    Scenario("stdio-sampling-tools", "stdio sampling round trip, 16 tools", "ms / 1k", 0.27, "sample",
             operations=12, warm_up=2, size=REQUESTS, tools=16),
    Scenario("stdio-sampling-history", "stdio sampling round trip, 512 messages", "ms / 1k", 0.35, "sample",
             operations=1, warm_up=1, size=REQUESTS, messages=512),
    Scenario("stdio-input-round", "a round of input in 2026-07-28, stdio", "ms / 1k", 0.35, "sample",
             operations=48, warm_up=8, size=INPUT_ROUNDS, stateless=True),
    Scenario("stdio-progress", "stdio progress notifications", "ms / 1k", 0.15, "progress",
             operations=6, warm_up=2, size=REPORTS),
    Scenario("stdio-tools", "`tools/list` of 1,000 tools", "ms", 0.25, "tools", operations=8, warm_up=2, tools=1000),
    Scenario("stdio-connect", "stdio connect: spawn, handshake, close", "ms", 1.0, "connect",
             operations=10, warm_up=2),
    Scenario("http-echo", "HTTP (JSON) echo, one at a time", "ms / 1k", 0.2, "echo", "json",
             operations=150, warm_up=50),
    Scenario("http-sse-echo", "HTTP (SSE) echo, one at a time", "ms / 1k", 0.16, "echo", "stream",
             operations=200, warm_up=50),
    Scenario("http-echo-64", "HTTP (JSON) echo, 64 in flight", "ms / 1k", 0.2, "echo", "json",
             operations=320, warm_up=128, in_flight=64),
    Scenario("http-sampling", "HTTP sampling round trip, text", "ms / 1k", 0.24, "sample", "stream",
             operations=4, warm_up=2, size=REQUESTS),
    Scenario("http-input-round", "a round of input in 2026-07-28, HTTP (JSON)", "ms / 1k", 0.3, "sample", "json",
             operations=24, warm_up=4, size=INPUT_ROUNDS, stateless=True),
    Scenario("http-connect", "HTTP connect (warm)", "ms", 0.15, "connect", "json", operations=15, warm_up=3),
    Scenario("http-sessions", "100 HTTP sessions at once", "ms", 0.15, "sessions", "json", operations=100, warm_up=3),
    Scenario("http-connections", "HTTP connections for 1,000 calls in flight", "connections", None, "echo", "json",
             in_flight=1000, at_most=100),
    Scenario("stdio-text", "stdio text of 10 MiB", "ms / MB", 0.1, "text", operations=2, warm_up=1, size=10 * MiB),
    Scenario("http-text", "HTTP (JSON) text of 10 MiB", "ms / MB", 0.9, "text", "json",
             operations=2, warm_up=1, size=10 * MiB),
    Scenario("http-sse-text", "HTTP (SSE) text of 10 MiB", "ms / MB", None, "text", "stream",
             operations=2, warm_up=1, size=10 * MiB),
    Scenario("import", "import", "ms", 0.25, "import"),
    Scenario("stdio-start", "cold start to the end of one call, stdio", "ms", 0.34, "start"),
    Scenario("http-start", "cold start to the end of one call, HTTP (JSON)", "ms", None, "start", "json"),
    Scenario("session-memory", "memory per HTTP session", "KiB", 0.15, "sessions", "json", operations=100, warm_up=3),
    Scenario("import-memory", "memory after import", "MiB", 0.6, "import"),
]

SEVERAL_SERVERS = [
    Scenario("servers", "ten stdio servers and ten HTTP servers", "ms", 0.4, "group",
             operations=10, warm_up=1, tools=10, stdio_servers=10, http_servers=10),
    Scenario("stdio-servers", "ten stdio servers", "ms", 0.4, "group",
             operations=10, warm_up=1, tools=10, stdio_servers=10),
    Scenario("http-servers", "ten HTTP servers", "ms", 0.4, "group",
             operations=10, warm_up=1, tools=10, http_servers=10),
]
"""What `ClientGroup` does: connect to all at once, list the tools of all, call one of each, close."""

RELAYED = [
    Scenario("relay-echo", "relayed stdio echo, one at a time: CPU", "ms / 1k", None, "echo",
             operations=600, warm_up=200),
    Scenario("relay-echo-64", "relayed stdio echo, 64 in flight: CPU", "ms / 1k", None, "echo",
             operations=1200, warm_up=200, in_flight=64),
    Scenario("relay-latency-64", "relayed stdio echo, 64 in flight: latency", "ms, p99", None, "echo",
             operations=1200, warm_up=200, in_flight=64),
]
"""What a relay between a client and a server costs: its own process, or the time of a call."""

RELAYED_SESSIONS = [
    Scenario("relay-sessions", "500 HTTP sessions at once: memory of each", "KiB", None, "sessions", "json",
             operations=500, warm_up=20),
]
"""The same for our proxy alone, over HTTP."""

CLIENT_SESSIONS = [replace(row, name="client-sessions", title="the same of our client") for row in RELAYED_SESSIONS]
"""What a session takes without a proxy."""
# fmt: on

RELAY_GOALS = {
    ("relay-echo", "bare"): 2.2,
    ("relay-latency-64", "bare"): 2.5,
    ("relay-echo", "fastmcp"): 0.33,
    ("relay-echo-64", "fastmcp"): 0.33,
}
"""The highest ratio of our relay's cost to that of another, by scenario and name."""

SERVER_DIFFERS = ("echo", "sample", "progress", "tools", "connect")
BY_REVISION = [row for row in ROWS if row.kind in SERVER_DIFFERS and not row.stateless and row.at_most is None]
"""What is measured in both revisions."""

SCENARIOS = {row.name: row for row in ROWS}
