"""The clients that are measured, and how each is started."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

from benchmarks import installation


@dataclass(frozen=True, slots=True)
class Peer:
    """One client: its name on the command line, its title in a table, and two commands."""

    name: str
    title: str
    worker: tuple[str, ...]  # takes jobs on stdin, one a line, and prints a measurement for each
    importer: tuple[str, ...]  # prints what the import takes


def _python(name: str, title: str, interpreter: str, adapter: str, imports: str) -> Peer:
    worker = (interpreter, "-m", f"benchmarks.clients.{adapter}")
    return Peer(name, title, worker, (interpreter, IMPORTING, imports))


IMPORTING = str(installation.HERE / "clients" / "importing.py")
NODE = ("node", "--expose-gc", str(installation.ADAPTER))
IMPORT_OURS = "from mcp_host import Client, Stdio, StreamableHttp"
IMPORT_MCP = "from mcp import Client, StdioServerParameters"
IMPORT_FASTMCP = "from fastmcp import Client"

OURS = _python("ours", "mcp-host", installation.OURS.python, "ours", IMPORT_OURS)
MCP = _python("mcp", "mcp 2.3.0", installation.MCP.python, "mcp_sdk", IMPORT_MCP)
FASTMCP = _python("fastmcp", "fastmcp 4.1.2", installation.FASTMCP.python, "fastmcp_client", IMPORT_FASTMCP)
TYPESCRIPT = Peer("typescript", "TypeScript 2.4.0", NODE, (*NODE, "import"))
BARE = _python("bare", "bare asyncio + json", sys.executable, "bare", "import asyncio, json")

FASTMCP_CONFIG = replace(
    FASTMCP, name="fastmcp-config", title=f"{FASTMCP.title}, `Client(config)`", worker=(*FASTMCP.worker, "config")
)
"""For several servers. It is no column of the other tables: there it is the same client."""


def _relay(peer: Peer, title: str, *command: str) -> Peer:
    return replace(peer, title=title, worker=(sys.executable, "-m", "benchmarks.clients.relayed", *command))


RELAYS = (
    _relay(OURS, "`mcp-host proxy`", installation.OURS.python, "-m", "mcp_host", "proxy", "--"),
    _relay(
        FASTMCP,
        f"{FASTMCP.title}, `create_proxy`",
        installation.FASTMCP.python,
        "-m",
        "benchmarks.relays.fastmcp_proxy",
    ),
    _relay(BARE, "bare relay", sys.executable, "-m", "benchmarks.relays.bare"),
)

PEERS = {peer.name: peer for peer in (OURS, MCP, FASTMCP, TYPESCRIPT, BARE)}
