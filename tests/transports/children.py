"""Servers as short Python programs, for tests that need a real process."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent

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


def python(body: str, *, hands: bool = True) -> list[str]:
    """A command that runs *body* after the helpers above and, unless told otherwise, the handshake, before which a probe is refused."""
    return [sys.executable, "-c", PREAMBLE + ("shake_hands()\n" if hands else "") + dedent(body)]


def running(pid: int) -> bool:
    """Whether a process is there and not just waiting to be reaped."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
