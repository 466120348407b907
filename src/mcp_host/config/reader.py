"""Reading the servers of a file, whatever its dialect: nothing is started, expanded or asked for."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mcp_host.config.dialects import DIALECTS, GENERIC, Dialect
from mcp_host.config.documents import read_document, repeated_names
from mcp_host.config.entry import ServerEntry, digest
from mcp_host.config.fields import Notes, Unreadable, kind_of, names_of_servers
from mcp_host.config.places import FoundFile, place_of, project_of
from mcp_host.config.values import (
    HttpServer,
    Input,
    OAuthSettings,
    Scope,
    Source,
    StdioServer,
    ToolFilter,
    Value,
)
from mcp_host.config.variables import Variable, own, parse
from mcp_host.errors import ConfigError, excerpt, quoted
from mcp_host.transports._http.secret import Secret, SecretValues

SOLE_KEYS = frozenset({"mcpServers", "context_servers", "mcp_servers"})
"""Keys that have servers and nothing else in every file. Others are of many programs: what is under them has to look like servers."""
WAYS = ("command", "cmd", "url", "httpUrl", "serverUrl", "uri", "type", "transport", "source")
"""Keys of which any server has one."""

KINDS: Mapping[str, str] = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "streamablehttp": "http",
    "remote": "http",
}
"""The types of transports, without regard to case, ``-`` and ``_``."""
INFERRED = frozenset({"custom", ""})  # Zed's older "source": the other keys tell
NOT_SUPPORTED: Mapping[str, str] = {
    "sse": "HTTP+SSE, the transport of 2024-11-05, is not supported: if the server has Streamable HTTP too, use its URL",
    "ws": "there is no transport for WebSockets",
    "websocket": "there is no transport for WebSockets",
    "builtin": "it is built into its host",
    "platform": "it is built into its host",
    "frontend": "it is built into its host",
    "sdk": "it is built into its host",
    "inlinepython": "code in the file is not run",
    "extension": "an extension of its editor starts it",
    "docker": "containers are not started: write the command that does, such as docker run -i --rm IMAGE",
    "oci": "containers are not started: write the command that does, such as docker run -i --rm IMAGE",
    "mcpb": "bundles are not unpacked",
}
OTHER_KIND = {
    StdioServer: ("url", "headers", "oauth"),
    HttpServer: ("command", "args", "env", "env_file", "cwd"),
}
"""The parts that servers of the other kind have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServersFile:
    """The servers of a file, in its order, with what is wrong in the file besides them."""

    path: Path
    dialect: str
    scope: Scope | None
    servers: tuple[ServerEntry, ...]
    warnings: tuple[str, ...] = ()


def read_servers(
    path: str | os.PathLike[str] | FoundFile, *, dialect: str | None = None, scope: Scope | None = None
) -> ServersFile:
    """The servers in the file at *path*: JSON (with comments and trailing commas), TOML or YAML (``mcp-host[yaml]``).

    *dialect* is one of `DIALECTS`. By default it is found from the keys that the file has, and from its path. A file that may
    be of several is "mcp-host", which has the keys and nearly all variables of the others. *scope* says whose
    the file is, by default what its path tells. A file that `find_servers` has found has both.

    A server that cannot be used is among the others, with its `problem`. This reads the file and blocks; it starts, expands
    and asks nothing.

    Raises:
        ConfigError: The file cannot be read, its syntax is wrong, or there are no servers in it.
        ValueError: There is no such dialect.
    """
    if dialect is not None and dialect not in DIALECTS:
        raise ValueError(f"there is no dialect {dialect!r}: it is one of {', '.join(DIALECTS)}")
    place = path if isinstance(path, FoundFile) else place_of(Path(path))
    document = read_document(place.path)
    reading = _File(place, document.data, dialect, scope or place.scope)
    return ServersFile(
        path=place.path,
        dialect=reading.source.dialect,
        scope=reading.source.scope,
        servers=tuple(reading.servers()),
        warnings=(*document.warnings, *reading.warnings),
    )


def merge_servers(files: Iterable[ServersFile]) -> tuple[tuple[ServerEntry, ...], tuple[str, ...]]:
    """The servers of several files, one for each name, and a warning for each that is left out.

    Of two with one name, that of the narrower scope is taken: "managed" before "local", "project" and "user". In one scope
    it is that of the earlier file.
    """
    order: dict[Scope | None, int] = {"managed": 0, "local": 1, "project": 2, "user": 3}
    taken: dict[str, ServerEntry] = {}
    warnings: list[str] = []
    for file in sorted(files, key=lambda file: order.get(file.scope, len(order))):
        for server in file.servers:
            first = taken.setdefault(server.name, server)
            if first is not server:
                paths = f"{excerpt(str(server.source.path))}: it is taken from {excerpt(str(first.source.path))}"
                warnings.append(f"{quoted(server.name)} is not taken from {paths}")
    return tuple(taken.values()), tuple(warnings)


class _File:
    """One file, while it is read."""

    def __init__(self, place: FoundFile, data: object, dialect: str | None, scope: Scope | None) -> None:
        self.warnings: list[str] = []
        self._path = place.path
        self._data = self._top(data, place.section)
        at = self._find(dialect, place.dialect)
        self._servers: Mapping[str, Any] = {} if at is None else _get(self._data, at)
        name = dialect or _detect(at, self._servers, place.dialect)
        project = project_of(place.path) if scope == "project" and place.project is None else place.project
        self.source = Source(path=place.path, dialect=name, scope=scope, project=project)
        self._dialect = DIALECTS[name]
        self._inputs = {each.id: each for each in self._read_inputs()}

    def _top(self, data: object, section: tuple[str, ...]) -> Mapping[str, Any]:
        """The part of the file that is read."""
        if data is not None and not isinstance(data, dict):
            raise ConfigError(f"it must be an object of settings, not {kind_of(data)}", path=self._path)
        part = _get(data, section)
        return part if isinstance(part, dict) else {}

    def _find(self, dialect: str | None, by_path: str | None) -> tuple[str, ...] | None:
        """Where the servers are. None: a settings file has none."""
        expected = DIALECTS[dialect or by_path or GENERIC].at
        possible = expected if dialect else (*expected, *DIALECTS[GENERIC].at)
        found = [at for at in dict.fromkeys(possible) if self._has_servers(at)]
        if not found:
            self._check_none(expected, may_have_none=by_path is not None and dialect in (None, by_path))
            return None
        taken = found[0]
        for other in found[1:]:
            if other != taken[: len(other)]:
                reason = f"the servers under {_dotted(other)} are not read, since there are some under {_dotted(taken)}"
                self.warnings.append(reason)
        names = getattr(_get(self._data, taken), "repeated", ())
        self.warnings += [f"{quoted(name)} is there more than once: the last one is taken" for name in names]
        return taken

    def _has_servers(self, at: tuple[str, ...]) -> bool:
        servers = _get(self._data, at)
        if servers is None:
            return False
        if at and at[-1] in SOLE_KEYS:
            if not isinstance(servers, dict):
                reason = f"{_dotted(at)} must be an object with a server under each name, not {kind_of(servers)}"
                raise ConfigError(reason, path=self._path)
            return True
        return isinstance(servers, dict) and any(
            isinstance(server, dict) and any(way in server for way in WAYS) for server in servers.values()
        )

    def _check_none(self, expected: tuple[tuple[str, ...], ...], *, may_have_none: bool) -> None:
        """A settings file may have no servers. Any other must say where they are."""
        if any(isinstance(self._data.get(way), str) for way in ("command", "url")):
            raise ConfigError('it is one server without a name: write {"mcpServers": {"NAME": {...}}}', path=self._path)
        if self._data and not may_have_none:
            keys = ", ".join(_dotted(at) for at in expected if at)
            raise ConfigError(f"there are no servers in it: it has none of {keys}", path=self._path)

    def _read_inputs(self) -> Iterator[Input]:
        described = self._data.get("inputs")
        for index, item in enumerate(described if isinstance(described, list) else []):
            if not isinstance(item, dict) or not isinstance(item.get("id"), str):
                self.warnings.append(f"inputs[{index}]: it has no id, and is ignored")
                continue
            options = [
                option.get("value") if isinstance(option, dict) else option for option in _list(item.get("options"))
            ]
            default = item.get("default")
            yield Input(
                path=self._path,
                id=item["id"],
                type=str(item.get("type", "promptString")),
                description=str(item.get("description") or ""),
                default=Secret(default) if isinstance(default, str) else None,
                password=item.get("password") is True,
                options=tuple(option for option in options if isinstance(option, str)),
            )

    def servers(self) -> Iterator[ServerEntry]:
        allowed, excluded = self._names(self._dialect.allowed), self._names(self._dialect.excluded)
        for name, raw in self._servers.items():
            entry = _Entry(self._dialect, self._inputs, self.source, raw).read(name)
            if (allowed is not None and name not in allowed) or name in (excluded or ()):
                entry = replace(entry, enabled=False)
            yield entry

    def _names(self, at: tuple[str, ...]) -> Collection[str] | None:
        """The names of servers in the settings of the host."""
        value = _get(self._data, at) if at else None
        if value is None:
            return None
        try:
            return names_of_servers(_dotted(at), value, self.warnings)
        except Unreadable as exc:
            reason = str(exc)
        raise ConfigError(reason, path=self._path)


class _Entry:
    """One entry, while it is read."""

    def __init__(self, dialect: Dialect, inputs: Mapping[str, Input], source: Source, raw: object) -> None:
        self._dialect = dialect
        self._inputs = inputs
        self._source = source
        self._raw = raw
        self._parts: dict[str, Any] = {}
        self._notes: Notes = []
        self._problems: Notes = []

    def read(self, name: str) -> ServerEntry:
        server = oauth = None
        if not name:
            self._problems.append("it has no name")
        if isinstance(self._raw, dict):
            self._read_members(_flat(self._raw))
            server, oauth = self._server(), self._oauth()
        else:
            self._problems.append(f"it must be an object, not {kind_of(self._raw)}")
        used = self._used(server, oauth)
        part = self._parts.get
        return ServerEntry(
            name=name,
            transport=None if self._problems else server,
            source=self._source,
            digest=digest(self._raw),
            enabled=part("enabled", True),
            timeout=part("timeout"),
            connect_timeout=part("connect_timeout"),
            tools=ToolFilter(part("allow"), part("exclude", frozenset())),
            oauth=oauth,
            title=part("title"),
            description=part("description"),
            inputs=tuple(used),
            warnings=tuple(self._notes),
            problem="; ".join(self._problems) or None,
        )

    def _read_members(self, members: Mapping[str, object]) -> None:
        meanings = self._dialect.meanings()
        self._notes += [
            f"{name}: it is there more than once: the last one is taken" for name in repeated_names(self._raw)
        ]
        for key in members:
            if key not in meanings and not key.startswith(("_", "$", "//", "#", "x-")):
                close = get_close_matches(key, meanings, n=1, cutoff=0.8)
                hint = f": did you mean {quoted(close[0])}?" if close else ""
                self._notes.append(f"{excerpt(key)}: the key is unknown, and ignored{hint}")
        taken: dict[str, str] = {}
        for key, meaning in meanings.items():
            value = members.get(key)
            if value is None:
                continue
            if isinstance(meaning, str):
                if meaning:
                    self._notes.append(f"{key}: {meaning}")
                continue
            try:
                read = meaning.read(key, value, self._notes)
            except Unreadable as exc:
                (self._problems if meaning.decides else self._notes).append(str(exc))
                continue
            first = self._parts.get(meaning.part)
            if isinstance(first, dict) and isinstance(read, dict):
                first.update(read)
            elif meaning.part in taken and first != read:
                self._notes.append(f"{key}: it is not used, because {taken[meaning.part]} is there")
            else:
                self._parts[meaning.part] = read
                taken[meaning.part] = key

    def _server(self) -> StdioServer | HttpServer | None:
        """The server, or None with a problem."""
        parts = self._parts
        kind = parts.get("kind", "").lower().replace("-", "").replace("_", "")
        known = KINDS.get(kind)
        if known is None and kind not in INFERRED:
            reason = NOT_SUPPORTED.get(kind, f"the type {quoted(parts['kind'])} is unknown")
            self._problems.append(reason)
            return None
        if "websocket" in parts:
            self._problems.append(NOT_SUPPORTED["ws"])
        elif "command" in parts and "url" in parts:
            self._problems.append("it has both a command and a URL")
        elif "command" in parts and known != "http":
            return self._stdio()
        elif "url" in parts and known != "stdio":
            return self._http(inferred=known is None)
        elif not self._problems:
            wanted = {"stdio": "no command", "http": "no URL"}.get(known or "", "neither a command nor a URL")
            self._problems.append(f"it has {wanted}")
        return None

    def _stdio(self) -> StdioServer | None:
        parts = self._parts
        command = parts["command"]
        if not command or not command[0].strip():
            self._problems.append("command: it is empty")
            return None
        self._tell_unused(StdioServer)
        env: dict[str, Value] = parts.get("env", {})
        for name in self._dialect.forbidden & env.keys():
            self._notes.append(f"env.{name}: it is not set, since {self._dialect.title} lets no server set it")
            del env[name]
        return StdioServer(
            command=str.__str__(command[0]),
            args=(*command[1:], *parts.get("args", ())),
            env=SecretValues(env),
            env_file=parts.get("env_file"),
            cwd=parts.get("cwd"),
        )

    def _http(self, *, inferred: bool) -> HttpServer | None:
        parts = self._parts
        url, uds = parts["url"], parts.get("uds")
        scheme, _, rest = url.partition("://")
        if scheme == "unix":
            uds, _, route = rest.partition("#")
            url = Secret(f"http://localhost{route or '/'}")
        elif scheme in ("pipe", "ws", "wss"):
            self._problems.append("there is no transport for named pipes" if scheme == "pipe" else NOT_SUPPORTED["ws"])
            return None
        elif inferred and urlsplit(url).path.rstrip("/").endswith("/sse"):
            self._notes.append("url: it looks like one of HTTP+SSE, which is not supported: Streamable HTTP is tried")
        self._tell_unused(HttpServer)
        headers: dict[str, Value] = parts.get("headers", {})
        token = parts.get("oauth")
        if isinstance(token, str):
            headers.setdefault("Authorization", Secret(f"Bearer {token}"))
        return HttpServer(url=url, headers=SecretValues(headers), uds=uds)

    def _tell_unused(self, kind: type[StdioServer | HttpServer]) -> None:
        what = "is started" if kind is StdioServer else "is not started"
        self._notes += [
            f"{part}: it is not used for a server that {what}" for part in OTHER_KIND[kind] if part in self._parts
        ]

    def _oauth(self) -> OAuthSettings | None:
        settings = self._parts.get("oauth")
        if not isinstance(settings, dict):
            return None
        oauth = OAuthSettings(**settings)
        if oauth.enabled and any(name.lower() == "authorization" for name in self._parts.get("headers", {})):
            self._notes.append("oauth: it is not used, because the headers have Authorization")
            return None
        return oauth

    def _used(self, server: StdioServer | HttpServer | None, oauth: OAuthSettings | None) -> dict[Input, None]:
        """The inputs that the values ask for. What looks like a variable of another dialect is told of."""
        used: dict[Input, None] = {}

        def look(name: str, value: Value) -> Secret | None:
            if isinstance(value, Secret):
                for piece in parse(value):
                    if variable := own(piece, self._dialect.forms(name)):
                        ids = [id for scheme, id in variable.sources if scheme == "input"]
                        used.update(dict.fromkeys(each for id in ids if (each := self._input(id))))
                    elif isinstance(piece, Variable):
                        title = self._dialect.title
                        self._notes.append(f"{name}: {piece.shown} stays as it is written: {title} does not expand it")
            return None

        if server is not None:
            server.map(look)
        if oauth is not None:
            oauth.map(look)
        return used

    def _input(self, id: str) -> Input | None:
        described = self._inputs.get(id)
        if described is None and self._dialect.any_input:
            return Input(path=self._source.path, id=id, password=True)
        return described


def _flat(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """An entry whose transport is an object in it (Cline), or whose command is one (Zed, formerly), without that."""
    members = dict(raw)
    if isinstance(inner := raw.get("transport"), dict):
        del members["transport"]
        members.update(inner)
    if isinstance(inner := members.get("command"), dict):
        del members["command"]
        members.update({"command" if key == "path" else key: value for key, value in inner.items()})
    return members


def _detect(at: tuple[str, ...] | None, servers: Mapping[str, Any], by_path: str | None) -> str:
    """The dialect of a file with *servers* under *at*."""
    if at is None:
        return by_path or GENERIC
    possible = [name for name, dialect in DIALECTS.items() if at in dialect.at and name != GENERIC]
    if by_path in possible:
        return by_path
    keys = {key for server in servers.values() if isinstance(server, dict) for key in server}
    marked = [name for name in possible if DIALECTS[name].marks & keys]
    for names in (possible, marked):
        if len(names) == 1:
            return names[0]
    return GENERIC


def _get(data: Any, at: tuple[str, ...]) -> Any:
    for key in at:
        data = data.get(key) if isinstance(data, dict) else None
    return data


def _dotted(at: tuple[str, ...]) -> str:
    return ".".join(at)


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
