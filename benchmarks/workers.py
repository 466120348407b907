"""The processes of the clients, which are given one job after another."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO

from benchmarks.job import Failed, Job, Spent
from benchmarks.peers import Peer
from tests.installation import ROOT

PATIENCE = 60.0  # seconds for one job, which takes a few at most
SHOWN = 100  # characters of the reason for a failure
ERROR = re.compile(r"(?:\w+\.)*(\w*(?:Error|Exception|Timeout|Refused|Closed|Failed)\w*: .+)")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
SEPARATE = frozenset({"import", "sessions"})  # where it matters what the process has done before

Outcome = Spent | Failed


class Worker:
    """One client's process, or the next one where a job failed."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._process: Process | None = None

    def do(self, job: Job) -> Outcome:
        if job.kind in SEPARATE:
            with Process(self._peer.importer if job.kind == "import" else self._peer.worker) as process:
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


class Process:
    """A command that takes jobs on stdin and answers each with a line on stdout."""

    def __init__(self, command: Sequence[str]) -> None:
        self._complaints: IO[str] = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - closed by close()
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def do(self, job: Job) -> Outcome:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        if not select.select([self._process.stdout], [], [], PATIENCE)[0]:
            return Failed(failed=f"no end within {PATIENCE:.0f} s")
        if line := self._process.stdout.readline():
            spent: Spent = json.loads(line)
            return spent
        code = self._process.wait()
        self._complaints.seek(0)
        return Failed(failed=reason(self._complaints.read()) or f"exit code {code}")

    def close(self) -> None:
        """End it, and whatever it has started."""
        with suppress(ProcessLookupError):  # it has ended
            os.killpg(self._process.pid, signal.SIGKILL)
        with suppress(BrokenPipeError):  # it has not read its last job
            self._process.communicate()
        self._complaints.close()


def reason(complaint: str) -> str:
    """The last error that a traceback names, which is what came of it; of a group it is the last inside."""
    named = [error for error in ERROR.findall(complaint) if not error.startswith(("ExceptionGroup", "BaseException"))]
    text = named[-1] if named else (complaint.strip().splitlines() or [""])[-1]
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


@contextmanager
def http_server() -> Iterator[str]:
    """The server over HTTP, one for all; gives its URL."""
    command = [sys.executable, "-S", "-m", "benchmarks.servers.http"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.communicate()
