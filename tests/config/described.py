"""What the tests compare: the servers of a file, and those that a host would make by hand."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from mcp_host import Stdio, StreamableHttp
from mcp_host.config import OAuthSettings, Scope, ServerEntry, ToolFilter, read_servers
from mcp_host.errors import ConfigError
from mcp_host.transports.base import Transport

ENVIRONMENT = {
    "TOKEN": "t0k3n",
    "EMPTY": "",
    "PORT": "8931",
    "TOOLS": "/opt/tools",
    "TRICK": "${TOKEN} $TOKEN ${env:TOKEN}",
}
ANSWERS = {"key": "answer-1", "region": "eu", "trick": "${env:TOKEN}"}
HOME = "/home/u"
WORKSPACE = "/projects/shop"


class Server(NamedTuple):
    """A server, as it should be read and expanded."""

    name: str
    transport: Transport | None
    enabled: bool = True
    timeout: float | None = None
    connect_timeout: float | None = None
    tools: ToolFilter = ToolFilter()
    oauth: OAuthSettings | None = None
    title: str | None = None
    description: str | None = None
    warnings: tuple[str, ...] = ()
    problem: str | None = None


class File(NamedTuple):
    """A file of a user: its name, its text, and what should be read."""

    name: str
    text: str
    dialect: str
    servers: list[Server]
    scope: Scope | None = None
    warnings: tuple[str, ...] = ()
    given: str | None = None
    """The dialect that the reader is told."""


def written(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def read(file: File, folder: Path) -> File:
    """The *file* as the package reads it."""
    result = read_servers(written(folder, file.name, file.text), dialect=file.given)
    servers = [expanded(entry) for entry in result.servers]
    return file._replace(dialect=result.dialect, servers=servers, scope=result.scope, warnings=result.warnings)


def expanded(entry: ServerEntry) -> Server:
    """The entry after expansion. If that fails, the error is its problem."""
    transport, oauth, problem, warnings = None, entry.oauth, entry.problem, entry.warnings
    if entry.transport is not None:
        answers = {each: ANSWERS[each.id] for each in entry.inputs if each.id in ANSWERS}
        try:
            result = entry.expand(ENVIRONMENT, answers=answers, workspace=WORKSPACE, home=HOME)
        except ConfigError as exc:
            problem = f"{exc.field}: {exc.reason}"
        else:
            transport, oauth, warnings = result.transport, result.oauth, warnings + result.warnings
    return Server(
        *(entry.name, transport, entry.enabled, entry.timeout, entry.connect_timeout, entry.tools),
        *(oauth, entry.title, entry.description, warnings, problem),
    )


def comparable(file: File) -> object:
    """The same, with transports that can be compared: two of HTTP are never equal, since each may have a login."""
    return [*file[2:3], *file[4:], *([parts_of(server.transport), *server[2:]] for server in file.servers)]


def parts_of(transport: Transport | None) -> object:
    match transport:
        case StreamableHttp():
            return (transport.url, dict(transport.headers or {}), transport.uds)
        case Stdio():
            cwd = None if transport.cwd == WORKSPACE else transport.cwd
            return (list(transport.command), dict(transport.env or {}), cwd)
    return transport
