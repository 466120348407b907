"""The clients' processes, and the rounds in which the clients take turns, so that a busy machine disturbs all alike."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import IO, Generic, TypeVar
from urllib.parse import urljoin
from urllib.request import urlopen

from benchmarks.installation import say
from benchmarks.job import ADDRESSES, Failure, Job, Measurement
from benchmarks.peers import Peer
from tests.installation import ROOT

JOB_TIMEOUT = 60.0  # seconds; a job takes a few at most
REASON_LENGTH = 100  # characters
ERROR = re.compile(r"(?:\w+\.)*(\w*(?:Error|Exception|Timeout|Refused|Closed|Failed)\w*: .+)")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
FRESH = frozenset({"import", "start", "sessions"})  # kinds that need a new process

Outcome = Measurement | Failure


class Results:
    """The outcomes, one for each round, by job and client."""

    def __init__(self) -> None:
        self._outcomes: dict[tuple[str, str], list[Outcome]] = {}

    def of(self, job: Job, peer: Peer) -> list[Outcome]:
        return self._outcomes.setdefault((json.dumps(job), peer.name), [])


def measure(jobs: Mapping[str, Job], peers: Sequence[Peer], rounds: int, results: Results) -> None:
    """In each round every client does every job once, in a process of that round; another client starts each round.

    Equal jobs are done once, and those in *results* are not repeated. A client that failed at a job skips it from then.
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
                        say(f"{place * len(peers) + turn}/{steps} {name}, {peer.name}: {summary(outcomes[-1])}")


def summary(outcome: Outcome) -> str:
    if "failed" in outcome:
        return f"fails: {outcome['failed']}"
    return f"{outcome['cpu'] * 1000:.0f} ms of CPU in {outcome['wall'] * 1000:.0f} ms"


class Worker:
    """One client's process, started anew after a failure and for the jobs that need it."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._process: Process[Measurement] | None = None

    def do(self, job: Job) -> Outcome:
        if not isinstance(job.server, str):
            return self._do(job)
        before = connections(job.server)
        outcome = self._do(job)
        if "failed" not in outcome:
            outcome["connections"] = connections(job.server) - before - 1  # the one that asked for the number
        return outcome

    def _do(self, job: Job) -> Outcome:
        if job.kind in FRESH:
            with Process[Measurement](self._peer.importer if job.kind == "import" else self._peer.worker) as process:
                return process.do(job)
        if self._process is None:
            self._process = Process(self._peer.worker)
        outcome = self._process.do(job)
        if "failed" in outcome:
            self.close()
        return outcome

    def close(self) -> None:
        if self._process is not None:
            self._process.close()
        self._process = None


Answer = TypeVar("Answer")


class Process(Generic[Answer]):
    """A command that takes jobs on stdin and answers each with a line on stdout."""

    def __init__(self, command: Sequence[str]) -> None:
        self._stderr: IO[str] = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - closed by close()
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> Process[Answer]:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def do(self, job: Job) -> Answer | Failure:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        if not select.select([self._process.stdout], [], [], JOB_TIMEOUT)[0]:
            return Failure(failed=f"not done within {JOB_TIMEOUT:.0f} s")
        if line := self._process.stdout.readline():
            answer: Answer = json.loads(line)
            return answer
        code = self._process.wait()
        self._stderr.seek(0)
        return Failure(failed=reason(self._stderr.read()) or f"exit code {code}")

    def close(self) -> None:
        """Kill it and its children."""
        with suppress(ProcessLookupError):  # it has exited
            os.killpg(self._process.pid, signal.SIGKILL)
        with suppress(BrokenPipeError):  # it has not read its last job
            self._process.communicate()
        self._stderr.close()


def reason(stderr: str) -> str:
    """The last error that a traceback names; of an exception group, the last one inside."""
    named = [error for error in ERROR.findall(stderr) if not error.startswith(("ExceptionGroup", "BaseException"))]
    text = named[-1] if named else (stderr.strip().splitlines() or [""])[-1]
    return text if len(text) <= REASON_LENGTH else text[: REASON_LENGTH - 1] + "…"


def connections(server: str) -> int:
    """How many connections have been opened to the HTTP server so far, this one included."""
    with urlopen(urljoin(server, "/connections"), timeout=JOB_TIMEOUT) as response:
        return int(response.read())


@contextmanager
def http_server() -> Iterator[str]:
    """The HTTP server, one for all clients; gives its URL."""
    command = [sys.executable, "-S", "-m", "benchmarks.servers.http"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    try:
        yield f"http://{ADDRESSES[0]}:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.communicate()
