"""How each host wants a server written down: the keys of an entry, and what it has no key for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from mcp_host.config.dialects import DIALECTS, GENERIC
from mcp_host.config.values import EnvironmentVariable, HttpServer, StdioServer
from mcp_host.config.variables import Form, Variable, own, parse
from mcp_host.transports._http.secret import Secret

NOTHING: Mapping[str, str] = {}
STDIO = {"command": "command", "args": "args", "env": "env"}
HTTP = {"url": "url", "headers": "headers"}
IN_FOLDER = {"cwd": "cwd"}
WITH_ENV_FILE = {"env_file": "envFile"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelling:
    """The keys that a host reads. A part of a server that has none cannot be written.

    *stdio* and *http* say what kind of server it is. *environment* is how a value refers to a variable of the environment.
    *off* is the key, and its value, that switches a server off.
    """

    keys: Mapping[str, str] = field(default_factory=lambda: {**STDIO, **HTTP})
    stdio: Mapping[str, str] = field(default_factory=dict)
    http: Mapping[str, str] = field(default_factory=dict)
    environment: Form | None = None
    off: tuple[str, bool] | None = None
    one_list: bool = False
    """Whether the command and its arguments are one list."""


SPELLINGS: Mapping[str, Spelling] = {
    "claude-desktop": Spelling(keys=STDIO),
    "claude-code": Spelling(stdio={"type": "stdio"}, http={"type": "http"}, environment="${V}"),
    "vscode": Spelling(
        keys={**STDIO, **WITH_ENV_FILE, **HTTP},
        stdio={"type": "stdio"},
        http={"type": "http"},
        environment="${env:V}",
    ),
    "cursor": Spelling(keys={**STDIO, **WITH_ENV_FILE, **HTTP}, environment="${env:V}"),
    "windsurf": Spelling(
        keys={**STDIO, "url": "serverUrl", "headers": "headers"}, environment="${env:V}", off=("disabled", True)
    ),
    "zed": Spelling(off=("enabled", False)),
    "cline": Spelling(
        keys={**STDIO, **IN_FOLDER, **HTTP},
        stdio={"type": "stdio"},
        http={"type": "streamableHttp"},
        environment="${env:V}",
        off=("disabled", True),
    ),
    "gemini-cli": Spelling(
        keys={**STDIO, **IN_FOLDER, "url": "httpUrl", "headers": "headers"},
        environment="${V}",
    ),
    "lm-studio": Spelling(),
    "opencode": Spelling(
        keys={"command": "command", "env": "environment", **IN_FOLDER, **HTTP},
        stdio={"type": "local"},
        http={"type": "remote"},
        environment="{env:V}",
        off=("enabled", False),
        one_list=True,
    ),
    "fastmcp": Spelling(keys={**STDIO, **IN_FOLDER, **HTTP}, http={"transport": "http"}),
    "inspector": Spelling(
        keys={**STDIO, **IN_FOLDER, **HTTP}, stdio={"type": "stdio"}, http={"type": "streamable-http"}
    ),
    "sep-2633": Spelling(stdio={"type": "stdio"}, http={"type": "streamable-http"}, environment="${env:V}"),
    GENERIC: Spelling(
        keys={**STDIO, **WITH_ENV_FILE, **IN_FOLDER, **HTTP, "uds": "socket"},
        http={"type": "http"},
        environment="${V}",
        off=("disabled", True),
    ),
}
"""By dialect. Those that are missing are in formats that are only read: TOML and YAML."""


class CannotWrite(Exception):
    """A host has no way to write this. The text says what, and has no value. It does not leave this package."""


def written(server: StdioServer | HttpServer, dialect: str, *, source: str | None = None) -> dict[str, object]:
    """The entry for *server* as the host of *dialect* reads it.

    Its values are written as the host of *source* reads them, by default in the same way. Variables are written anew.

    Raises:
        CannotWrite: That host knows no such thing.
    """
    return _Writer(dialect, source or dialect).entry(server)


class _Writer:
    def __init__(self, dialect: str, source: str) -> None:
        self._title = DIALECTS[dialect].title
        self._spelling = SPELLINGS[dialect]
        self._forms = DIALECTS[dialect].forms
        self._source = DIALECTS[source].forms

    def entry(self, server: StdioServer | HttpServer) -> dict[str, object]:
        spelling = self._spelling
        parts: dict[str, object]
        if isinstance(server, HttpServer):
            entry: dict[str, object] = {**spelling.http}
            parts = {"url": server.url, "headers": server.headers, "uds": server.uds}
        else:
            entry = {**spelling.stdio}
            parts = {"command": server.command, "args": server.args, "env": server.env}
            parts |= {"env_file": server.env_file, "cwd": server.cwd}
            if spelling.one_list:
                parts |= {"command": (Secret(server.command), *server.args), "args": ()}
        for part, value in parts.items():
            if not value:
                continue
            key = self._spelling.keys.get(part)
            if key is None:
                raise CannotWrite(f"{part}: {self._title} has no key for it")
            entry[key] = self._part(part, value)
        return entry

    def _part(self, part: str, value: object) -> object:
        if isinstance(value, Mapping):
            return {name: self._text(f"{part}.{name}", each) for name, each in value.items()}
        if isinstance(value, tuple):
            return [self._text(f"{part}[{index}]", each) for index, each in enumerate(value)]
        return self._text(part, value)

    def _text(self, name: str, value: Any) -> str:
        if isinstance(value, EnvironmentVariable):
            return value.prefix + self._reference(name, value.name)
        return "".join(self._pieces(name, value))

    def _pieces(self, name: str, text: str) -> Iterator[str]:
        for piece in parse(name, text):
            if isinstance(piece, str):
                yield str.__str__(piece)
            elif own(piece, self._source(name)):
                yield self._variable(name, piece)
            elif own(piece, self._forms(name)):
                raise CannotWrite(f"{name}: {self._title} would expand {piece.shown}, which is to stay as it is")
            else:
                yield piece.written

    def _variable(self, name: str, variable: Variable) -> str:
        if own(variable, self._forms(name)):
            return variable.written
        match variable.sources:
            case [("env", of)]:
                return self._reference(name, of)
        raise CannotWrite(f"{name}: {self._title} has no variable for {variable.shown}")

    def _reference(self, name: str, variable: str) -> str:
        form = self._spelling.environment
        if form is None:
            raise CannotWrite(f"{name}: {self._title} does not read variables of the environment here")
        return form.replace("V", variable)
