"""Servers as short Python programs, for tests that need a real process."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from textwrap import dedent

from mcp_host import Limits, Stdio
from mcp_host.transports._process.child import GRACE
from mcp_host.transports._process.posix import ReadEnd
from mcp_host.transports.stdio import OUTPUT_GRACE, StdioChannel

PREAMBLE = """
import json, os, signal, subprocess, sys, time

def read():
    line = sys.stdin.readline()
    return json.loads(line) if line else sys.exit(0)

def raw(text):
    sys.stdout.write(text)
    sys.stdout.flush()

def say(message):
    raw(json.dumps({"jsonrpc": "2.0"} | message) + "\\n")

def reply(request, result):
    say({"id": request["id"], "result": result})

def refuse(request, code, message):
    say({"id": request["id"], "error": {"code": code, "message": message}})

def shake_hands():
    request = read()
    if request["method"] == "server/discover":
        refuse(request, -32601, "Method not found")
        request = read()
    reply(request, {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "0"}})
    read()

def text(value):
    return {"content": [{"type": "text", "text": value}]}
"""


@dataclass(frozen=True, slots=True, repr=False)
class TimedStdio(Stdio):
    """Whose channels wait so many seconds, and read so many bytes at once."""

    output_grace: float = field(default=OUTPUT_GRACE, kw_only=True)
    grace: float = field(default=GRACE, kw_only=True)
    read_size: int | None = field(default=None, kw_only=True)

    @asynccontextmanager
    async def open(self, limits: Limits) -> AsyncIterator[StdioChannel]:
        async with self._open(limits, output_grace=self.output_grace) as channel:
            channel._child = replace(channel._child, grace=self.grace)
            if self.read_size is not None:
                stdout = channel._child.stdout
                assert isinstance(stdout, ReadEnd)
                stdout.read_size = self.read_size
            yield channel


def python(body: str, *, hands: bool = True) -> list[str]:
    """A command that runs *body* after the helpers above and, unless told otherwise, the handshake, before which a probe is refused."""
    return [sys.executable, "-c", PREAMBLE + ("shake_hands()\n" if hands else "") + dedent(body)]


STATELESS = """
starts = open(STARTS, "a+")
starts.write("x")
starts.flush()
starts.seek(0)
start = len(starts.read())

def discovered():
    reply(read(), {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities":
        {"tools": {}, "resources": {"subscribe": True}}})

"""


def counted(starts: Path, body: str, *, restart: bool | None = None) -> Stdio:
    """A server that writes an "x" into *starts* for each of its starts; in *body*, ``start`` is their number."""
    preamble = STATELESS.replace("STARTS", repr(str(starts)))
    return Stdio(python(preamble + dedent(body), hands=False), restart=restart)


def running(pid: int) -> bool:
    """Whether a process is there and not just waiting to be reaped."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
