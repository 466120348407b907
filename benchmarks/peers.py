"""The clients that are measured, and how each is started."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from benchmarks import installation


@dataclass(frozen=True, slots=True)
class Peer:
    """One client: its name on the command line, its title in a table, and two commands."""

    name: str
    title: str
    worker: tuple[str, ...]  # takes jobs on stdin, one a line, and prints a measurement for each
    importer: tuple[str, ...]  # prints what the import takes


def _python(name: str, title: str, interpreter: str, adapter: str, imports: str, *options: str) -> Peer:
    worker = (interpreter, "-m", f"benchmarks.clients.{adapter}", *options)
    return Peer(name, title, worker, (interpreter, IMPORTING, imports))


def _ours(name: str, title: str, *options: str) -> Peer:
    return _python(name, title, installation.OURS.python, "ours", IMPORT_OURS, *options)


IMPORTING = str(installation.HERE / "clients" / "importing.py")
NODE = ("node", "--expose-gc", str(installation.ADAPTER))
IMPORT_OURS = "from mcp_host import Client, Stdio, StreamableHttp"
IMPORT_MCP = "from mcp import Client, StdioServerParameters"
IMPORT_FASTMCP = "from fastmcp import Client"

OURS = _ours("ours", "mcp-host")
MCP = _python("mcp", "mcp 2.3.0", installation.MCP.python, "mcp_sdk", IMPORT_MCP)
FASTMCP = _python("fastmcp", "fastmcp 4.1.2", installation.FASTMCP.python, "fastmcp_client", IMPORT_FASTMCP)
TYPESCRIPT = Peer("typescript", "TypeScript 2.4.0", NODE, (*NODE, "import"))
BARE = _python("bare", "bare asyncio + json", sys.executable, "bare", "import asyncio, json")

PEERS = {peer.name: peer for peer in (OURS, MCP, FASTMCP, TYPESCRIPT, BARE)}

WITH_MIDDLEWARE = [
    _ours("function", "a function that passes requests on", "function"),
    _ours("otel-api", "`OpenTelemetry()` without an SDK", "otel-api"),
    _ours("otel-sdk", "`OpenTelemetry()` with an SDK that exports to memory", "otel-sdk"),
]
"""Our client with one middleware."""

WITH_ADAPTER = [_ours("adapter", "`AnthropicModel`", "adapter")]
"""Our client with an adapter of models instead of a function."""

WITHOUT_OAUTH = [
    _ours("pool", "over our own pool", "no-oauth"),
    _ours("httpx", "over httpx", "no-oauth", "httpx"),
]
WITH_OAUTH = [
    _ours("oauth", "`OAuth`, over our own pool", "oauth"),
    _ours("oauth-httpx", "`OAuth`, over httpx", "oauth", "httpx"),
]
"""Our client with a token of OAuth that is good, each against the same without."""

WITH_REFRESH = [
    _ours("refresh", "over our own pool", "oauth", "refresh"),
    _ours("refresh-httpx", "over httpx", "oauth", "refresh", "httpx"),
]
"""The same with a token that has ended before each burst of calls."""
