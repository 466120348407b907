"""How each host wants a server written down: the keys of an entry, and what it has no key for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from mcp_host.config.dialects import DIALECTS, GENERIC
from mcp_host.config.entry import ServerEntry
from mcp_host.config.fields import Notes, as_written
from mcp_host.config.values import EnvironmentVariable, HttpServer, Input, OAuthSettings, Source, StdioServer, Value
from mcp_host.config.variables import OF_USER, Form, Variable, own, parse
from mcp_host.secret import Secret, SecretValues

Server = StdioServer | HttpServer

SHOWN = frozenset({"title", "description", "timeout", "connect_timeout"})
"""The parts without which an entry is still the same server. It is written without them, with a note."""


def keys(*same: str, **others: str) -> dict[str, str]:
    """The keys by the parts: some are called as the part is."""
    return {**{part: part for part in same}, **others}


LOCAL = ("command", "args", "env")
BASIC = (*LOCAL, "url", "headers")
TIMES_IN_SECONDS = {"timeout": "tool_timeout_sec", "connect_timeout": "startup_timeout_sec"}
TOOLS = {"allow": "enabled_tools", "exclude": "disabled_tools"}
LOGIN = {
    **keys("enabled", "scopes", client_id="clientId", client_secret="clientSecret", redirect_uri="redirectUri"),
    **keys(authorization_url="authorizationUrl", token_url="tokenUrl"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelling:
    """The keys that a host reads, by the part of the entry, none of which marks another host. A part that has none cannot be written.
    "env_headers" and "bearer" are headers that are variables of the environment, "oauth.scopes" is a part of the login beside it.

    *stdio* and *http* say what kind of server it is. *login* are the keys in "oauth". *environment* is how a value refers to a
    variable of the environment.
    """

    keys: Mapping[str, str]
    stdio: Mapping[str, str] = field(default_factory=dict)
    http: Mapping[str, str] = field(default_factory=dict)
    login: Mapping[str, str] = field(default_factory=dict)
    environment: Form | None = None
    one_list: bool = False
    """Whether the command and its arguments are one list."""
    scopes_in_one: bool = False
    """Whether the scopes of the login are one text."""
    inputs: bool = False
    """Whether the file describes inputs."""


SPELLINGS: Mapping[str, Spelling] = {
    "claude-desktop": Spelling(keys=keys(*LOCAL)),
    "claude-code": Spelling(
        keys=keys(*BASIC, "timeout", "oauth"),
        stdio={"type": "stdio"},
        http={"type": "http"},
        login=keys("scopes", client_id="clientId", callback_port="callbackPort", metadata_url="authServerMetadataUrl"),
        environment="${V}",
        scopes_in_one=True,
    ),
    "vscode": Spelling(
        keys=keys(*BASIC, "oauth", env_file="envFile"),
        stdio={"type": "stdio"},
        http={"type": "http"},
        login=keys(client_id="clientId"),
        environment="${env:V}",
        inputs=True,
    ),
    "cursor": Spelling(
        keys=keys(*BASIC, env_file="envFile", oauth="auth"),
        login=keys("scopes", client_id="CLIENT_ID", client_secret="CLIENT_SECRET"),
        environment="${env:V}",
    ),
    "windsurf": Spelling(
        keys=keys(*LOCAL, "headers", url="serverUrl", exclude="disabledTools", enabled="disabled"),
        environment="${env:V}",
    ),
    "zed": Spelling(keys=keys(*BASIC, "enabled")),
    "cline": Spelling(
        keys=keys(*BASIC, "cwd", "timeout", enabled="disabled"),
        stdio={"type": "stdio"},
        http={"type": "streamableHttp"},
        environment="${env:V}",
    ),
    "gemini-cli": Spelling(
        keys={
            **keys(*LOCAL, "cwd", "headers", "description", "timeout", "oauth"),
            **keys(url="httpUrl", allow="includeTools", exclude="excludeTools"),
        },
        login=LOGIN,
        environment="${V}",
    ),
    "lm-studio": Spelling(keys=keys(*BASIC)),
    "codex": Spelling(
        keys={
            **keys(*LOCAL, "cwd", "url", "oauth", "enabled", optional_env="env_vars", headers="http_headers"),
            **keys(env_headers="env_http_headers", bearer="bearer_token_env_var", **TOOLS, **TIMES_IN_SECONDS),
            "oauth.scopes": "scopes",
            "oauth.resource": "oauth_resource",
        },
        login=keys("client_id"),
    ),
    "opencode": Spelling(
        keys=keys("command", "cwd", "url", "headers", "enabled", env="environment", connect_timeout="timeout"),
        stdio={"type": "local"},
        http={"type": "remote"},
        environment="{env:V}",
        one_list=True,
    ),
    "fastmcp": Spelling(keys=keys(*BASIC, "cwd", "description", "timeout"), http={"transport": "http"}),
    "inspector": Spelling(keys=keys(*BASIC, "cwd"), stdio={"type": "stdio"}, http={"type": "streamable-http"}),
    "sep-2633": Spelling(
        keys=keys(*BASIC, "description", "title", "oauth"),
        stdio={"type": "stdio"},
        http={"type": "streamable-http"},
        login=keys("scopes", client_id="clientId", redirect_uri="redirectUri"),
        environment="${env:V}",
    ),
    GENERIC: Spelling(
        keys={
            **keys(*BASIC, "cwd", "description", "title", "oauth", env_file="envFile", uds="socket"),
            **keys(optional_env="env_vars", enabled="disabled", **TOOLS, **TIMES_IN_SECONDS),
        },
        http={"type": "http"},
        login={**LOGIN, **keys("resource", callback_port="callbackPort", metadata_url="authServerMetadataUrl")},
        environment="${V}",
        inputs=True,
    ),
}
"""By dialect. Goose is missing: YAML is only read."""


class CannotWrite(Exception):
    """A host has no way to write this. The text says what, and has no value. It does not leave this package."""


@dataclass(frozen=True, slots=True)
class Written:
    """An entry for a file, and the *inputs* that the file has to describe. *notes* say what it has no key for."""

    entry: dict[str, object]
    inputs: Sequence[Input] = ()
    notes: Sequence[str] = ()


def written(server: Server | ServerEntry, dialect: str, *, source: str | None = None) -> Written:
    """The entry for *server* as the host of *dialect* reads it.

    Its values are written as the host of *source* reads them: by default that of the entry, or the same. Variables are
    written anew. Paths of an entry, and what is of the folder of its project, name the folder that they are from.

    Raises:
        CannotWrite: That host knows no such thing.
    """
    if isinstance(server, ServerEntry):
        writer = _Writer(dialect, server.source.dialect, server.source)
        return Written(writer.whole(server), server.inputs if SPELLINGS[dialect].inputs else (), writer.notes)
    writer = _Writer(dialect, source or dialect)
    return Written(writer.server(server))


class _Writer:
    """One entry, while it is written."""

    def __init__(self, dialect: str, source: str, file: Source | None = None) -> None:
        self.notes: Notes = []
        self._title = DIALECTS[dialect].title
        self._spelling = SPELLINGS[dialect]
        self._meanings = DIALECTS[dialect].meanings()
        self._forms = DIALECTS[dialect].forms
        self._source = DIALECTS[source].forms
        self._project = None if file is None else file.project
        self._folder = None if file is None else file.project or file.path.absolute().parent
        """Where relative paths are from, if it is known."""

    def whole(self, entry: ServerEntry) -> dict[str, object]:
        """All that an entry says."""
        server = entry.transport
        if server is None:
            raise CannotWrite(entry.problem or "it has no transport")
        self.notes += entry.warnings
        parts = {
            "title": entry.title,
            "description": entry.description,
            "allow": None if entry.tools.allow is None else sorted(entry.tools.allow),
            "exclude": sorted(entry.tools.exclude) or None,
            "timeout": entry.timeout,
            "connect_timeout": entry.connect_timeout,
            "enabled": None if entry.enabled else False,
        }
        result = {**self.server(server), **({} if entry.oauth is None else self._oauth(entry.oauth))}
        for part, value in parts.items():
            if value is not None and (key := self._key(part)):
                result[key] = as_written(self._meanings[key], value)
        return result

    def server(self, server: Server) -> dict[str, object]:
        """What says how to reach a server."""
        parts = self._stdio(server) if isinstance(server, StdioServer) else self._http(server)
        kind = self._spelling.stdio if isinstance(server, StdioServer) else self._spelling.http
        return {**kind, **{self._key(part): self._value(part, value) for part, value in parts.items() if value}}

    def _stdio(self, server: StdioServer) -> dict[str, object]:
        passed_on = [name for name, value in server.env.items() if self._is_passed_on(name, value)]
        env = {name: value for name, value in server.env.items() if name not in passed_on}
        command = (Secret(server.command), *server.args)
        return {
            "command": command if self._spelling.one_list else server.command,
            "args": () if self._spelling.one_list else server.args,
            "env": SecretValues(env),
            "optional_env": tuple(map(Secret, passed_on)),
            "env_file": server.env_file,
            "cwd": server.cwd or (self._project and "."),  # servers of a project are started there
        }

    def _is_passed_on(self, name: str, value: Value) -> bool:
        """Whether the file has only the name of this variable: it is optional, or the host has no other way."""
        if isinstance(value, EnvironmentVariable) and value.optional:
            return True
        has_no_other = self._spelling.environment is None and "optional_env" in self._spelling.keys
        return has_no_other and self._variable(f"env.{name}", value) == ("", name)

    def _http(self, server: HttpServer) -> dict[str, object]:
        headers: dict[str, Value] = {}
        variables: dict[str, str] = {}
        bearer = None
        for name, value in server.headers.items():
            match self._variable(f"headers.{name}", value):
                case "", variable if "env_headers" in self._spelling.keys:
                    variables[name] = variable
                case "Bearer ", variable if "bearer" in self._spelling.keys and name.lower() == "authorization":
                    bearer = variable
                case _:
                    headers[name] = value
        return {
            "url": server.url,
            "headers": SecretValues(headers),
            "env_headers": variables,
            "bearer": bearer,
            "uds": server.uds,
        }

    def _variable(self, name: str, value: Value) -> tuple[str, str] | None:
        """What is before the one variable of the environment that *value* is, and its name. None if there is more."""
        match list(self._pieces(name, value)):
            case [Variable(sources=(("env", variable),))]:
                return "", variable
            case [str(before), Variable(sources=(("env", variable),))]:
                return before, variable
        return None

    def _oauth(self, settings: OAuthSettings) -> dict[str, object]:
        at, keys = self._spelling.keys.get("oauth"), self._spelling.login
        default = OAuthSettings()
        login: dict[str, object] = {}
        beside: dict[str, object] = {}
        for part in (each.name for each in fields(settings)):
            value = getattr(settings, part)
            if value == getattr(default, part):
                continue
            name = f"oauth.{part}"
            key = keys.get(part) or self._key(name)
            if part == "scopes":
                spelled: object = " ".join(value) if self._spelling.scopes_in_one else list(value)
            else:
                spelled = self._text(name, value) if isinstance(value, str) else value
            (login if part in keys else beside)[key] = spelled
        return {**({at: login} if at and (login or not beside) else {}), **beside}

    def _key(self, part: str) -> str:
        """The key of a part. It is empty if the entry can do without the part, which is noted."""
        key = self._spelling.keys.get(part)
        if key is None and part not in SHOWN:
            purpose = "that switches a server off" if part == "enabled" else "for it"
            raise CannotWrite(f"{part}: {self._title} has no key {purpose}")
        if key is None:
            self.notes.append(f"{part}: it is left out: {self._title} has no key for it")
        return key or ""

    def _value(self, part: str, value: object) -> object:
        if part in ("cwd", "env_file", "uds"):
            return self._whole_path(part, self._text(part, value))
        if isinstance(value, Mapping):
            return {name: self._text(f"{part}.{name}", each) for name, each in value.items()}
        if isinstance(value, tuple):
            return [self._text(f"{part}[{index}]", each) for index, each in enumerate(value)]
        return self._text(part, value)

    def _whole_path(self, part: str, path: str) -> str:
        """A path from the folder of its file. One that begins with a variable of the environment is taken for a whole one."""
        if self._folder is None:
            return path
        if first := own(next(parse(part, path)), self._forms(part)):
            if all(os.path.isabs(text) for scheme, text in first.sources if scheme == "value"):
                return path
            raise CannotWrite(f"{part}: the text that its variable may have is a path from another folder")
        whole = str(self._folder / path)
        if self._variables(part, whole) != self._variables(part, path):
            raise self._would_expand(part)
        return whole

    def _variables(self, name: str, text: str) -> list[Variable]:
        """Those that this host finds in *text*."""
        return [variable for piece in parse(name, text) if (variable := own(piece, self._forms(name)))]

    def _would_expand(self, name: str) -> CannotWrite:
        return CannotWrite(f"{name}: {self._title} would expand what is to stay as it is")

    def _text(self, name: str, value: Any) -> str:
        """A value, with its variables as this host has them."""
        wanted = list(self._pieces(name, value))
        text = "".join(self._spelled(name, piece) for piece in wanted)
        if _meaning(wanted) != _meaning(_expanding(name, text, self._forms(name))):
            raise self._would_expand(name)
        return text

    def _pieces(self, name: str, value: Value | str) -> Iterator[str | Variable]:
        if isinstance(value, EnvironmentVariable):
            yield from filter(None, (value.prefix, Variable(None, (("env", value.name),), "")))
            return
        for piece in _expanding(name, value, self._source(name)):
            yield self._moved(piece) if isinstance(piece, Variable) else piece

    def _moved(self, variable: Variable) -> str | Variable:
        """What stands for *variable* in a file of another folder."""
        [(scheme, name), *_] = variable.sources
        if scheme == "file" and self._folder is not None and not name.startswith(OF_USER):
            path = str(self._folder / name)
            return Variable(variable.form, (("file", path),), str(variable.form).replace("/p", path))
        if scheme != "place" or self._project is None:
            return variable
        places = {"workspaceFolder": str(self._project), "workspaceFolderBasename": self._project.name}
        return places.get(name, variable)

    def _spelled(self, name: str, piece: str | Variable) -> str:
        if isinstance(piece, str):
            return piece
        if own(piece, self._forms(name)):
            return piece.written
        form = self._spelling.environment
        match piece.sources:
            case [("env", variable)] if form is not None:
                return form.replace("V", variable)
            case [("env", _)]:
                raise CannotWrite(f"{name}: {self._title} does not read variables of the environment here")
        raise CannotWrite(f"{name}: {self._title} has no variable for {piece.shown}")


def _expanding(name: str, text: str, forms: frozenset[Form]) -> Iterator[str | Variable]:
    """The pieces of *text* for a host with these *forms* of variables: to it, others are text."""
    for piece in parse(name, text):
        yield piece.written if isinstance(piece, Variable) and not own(piece, forms) else piece


def _meaning(pieces: Iterable[str | Variable]) -> list[object]:
    """What pieces say, however their variables are written."""
    meaning: list[object] = [""]
    for piece in pieces:
        meaning[-1:] = [meaning[-1], piece.sources, ""] if isinstance(piece, Variable) else [f"{meaning[-1]}{piece}"]
    return meaning
