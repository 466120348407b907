"""Reading one entry of a file: what its keys say together, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from mcp_host.config.dialects import Dialect
from mcp_host.config.entry import ServerEntry, digest
from mcp_host.config.fields import MAX_NAME, MAX_NOTES, Meaning, Notes, Unreadable, bounded, kind_of
from mcp_host.config.formats.data import repeated_names
from mcp_host.config.values import (
    EnvironmentVariable,
    HttpServer,
    Input,
    OAuthSettings,
    Source,
    StdioServer,
    ToolFilter,
    Value,
)
from mcp_host.config.variables import Variable, own, parse
from mcp_host.errors import escaped, excerpt, quoted
from mcp_host.secret import Secret, SecretValues

KINDS = {**dict.fromkeys(("stdio", "local"), "stdio"), **dict.fromkeys(("http", "streamablehttp", "remote"), "http")}
"""The types of transports, without regard to case, ``-`` and ``_``."""
INFERRED = frozenset({"custom", ""})  # Zed's older "source": the other keys tell
NO_WEBSOCKETS = "there is no transport for WebSockets"
NO_CONTAINERS = "containers are not started: write the command that does, such as docker run -i --rm IMAGE"
NOT_SUPPORTED: Mapping[str, str] = {
    "sse": "HTTP+SSE, the transport of 2024-11-05, is not supported: if the server has Streamable HTTP too, use its URL",
    **dict.fromkeys(("ws", "websocket"), NO_WEBSOCKETS),
    **dict.fromkeys(("builtin", "platform", "frontend", "sdk"), "it is built into its host"),
    "inlinepython": "code in the file is not run",
    "extension": "an extension of its editor starts it",
    **dict.fromkeys(("docker", "oci"), NO_CONTAINERS),
    "mcpb": "bundles are not unpacked",
}
COMMENTS = ("_", "$", "//", "#", "x-")
"""What keys begin with that are no keys."""
NESTED: Mapping[str, Mapping[str, str]] = {"transport": {}, "command": {"path": "command"}}
"""The keys that may have an object with others in it, and what those are called there."""
OTHER_KIND = {
    StdioServer: ("url", "headers", "oauth"),
    HttpServer: ("command", "args", "env", "env_file", "cwd"),
}
"""The parts that servers of the other kind have."""


def read_entry(name: str, raw: object, dialect: Dialect, inputs: Mapping[str, Input], source: Source) -> ServerEntry:
    """The server *name* of a file, whose entry is *raw*. *inputs* are those that the file describes."""
    return _Entry(dialect, inputs, source, raw).read(name)


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
        self._variables: Notes = []
        self._used: dict[Input, None] = {}

    def read(self, name: str) -> ServerEntry:
        server = oauth = None
        if not name:
            self._problems.append("it has no name")
        if isinstance(self._raw, dict):
            self._read_members(self._raw)
            server, oauth = self._server(), self._oauth()
        else:
            self._problems.append(f"it must be an object, not {kind_of(self._raw)}")
        if server is not None:
            server.map(self._find_variables)
        if oauth is not None:
            oauth.map(self._find_variables)
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
            inputs=tuple(self._used),
            variables=tuple(dict.fromkeys(map(escaped, self._variables))),
            warnings=bounded(self._notes),
            problem=escaped("; ".join(self._problems)) or None,
        )

    def _read_members(self, raw: Mapping[str, object]) -> None:
        repeated = repeated_names(raw)
        self._notes += [f"{name}: it is there more than once: the last one is taken" for name in repeated]
        members = _flat(raw, self._notes)
        meanings = self._dialect.meanings()
        self._warn_unknown(members, meanings)
        taken: dict[str, str] = {}
        for key, meaning in meanings.items():
            value = members.get(key)
            if value is None:
                continue
            if isinstance(meaning, str):
                self._notes += [f"{key}: {meaning}"] if meaning else []
                continue
            try:
                read = meaning.read(key, value, self._notes)
            except Unreadable as exc:
                (self._problems if meaning.decides else self._notes).append(str(exc))
                continue
            self._put(meaning.part, read, key, taken)

    def _warn_unknown(self, members: Mapping[str, object], meanings: Mapping[str, Meaning]) -> None:
        unknown = [key for key in members if key not in meanings and not key.startswith(COMMENTS)]
        for index, key in enumerate(unknown):
            close = get_close_matches(key[:MAX_NAME], meanings, n=1, cutoff=0.8) if index < MAX_NOTES else ()
            hint = f": did you mean {quoted(close[0])}?" if close else ""
            self._notes.append(f"{excerpt(key)}: the key is unknown, and ignored{hint}")

    def _put(self, part: str, value: object, key: str, taken: dict[str, str]) -> None:
        """Keep the *value* of a part. *taken* has the key of each part that was read before."""
        if part not in taken:
            self._parts[part], taken[part] = value, key
        elif (merged := _merged(part, self._parts[part], value)) is not None:
            self._parts[part] = merged
        elif self._parts[part] != value:
            self._notes.append(f"{key}: it is not used, because {taken[part]} is there")

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
            self._problems.append(NO_WEBSOCKETS)
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
        self._warn_unused(StdioServer)
        env: dict[str, Value] = parts.get("env", {})
        for name in [name for name in env if name.upper() in self._dialect.forbidden]:
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
        scheme = scheme.lower()
        if scheme == "unix":
            uds, _, route = rest.partition("#")
            url = Secret(f"http://localhost{route or '/'}")
        elif scheme in ("pipe", "ws", "wss"):
            self._problems.append("there is no transport for named pipes" if scheme == "pipe" else NO_WEBSOCKETS)
            return None
        elif inferred and url.partition("?")[0].rstrip("/").endswith("/sse"):
            self._notes.append("url: it looks like one of HTTP+SSE, which is not supported: Streamable HTTP is tried")
        self._warn_unused(HttpServer)
        headers: dict[str, Value] = parts.get("headers", {})
        token = parts.get("oauth")
        if isinstance(token, str):
            headers.setdefault("Authorization", Secret(f"Bearer {token}"))
        return HttpServer(url=url, headers=SecretValues(headers), uds=uds)

    def _warn_unused(self, kind: type[StdioServer | HttpServer]) -> None:
        what = "is started" if kind is StdioServer else "is not started"
        self._notes += [
            f"{part}: it is not used for a server that {what}" for part in OTHER_KIND[kind] if self._parts.get(part)
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

    def _find_variables(self, name: str, value: Value) -> None:
        """Find the variables in a value. A warning names what looks like one of another dialect."""
        if isinstance(value, EnvironmentVariable):
            self._variables.append(f"{name}: the variable {excerpt(value.name)}")
            return
        for piece in parse(name, value):
            if variable := own(piece, self._dialect.forms(name)):
                self._variables.append(f"{name}: {variable.origin}")
                ids = [id for scheme, id in variable.sources if scheme == "input"]
                self._used.update(dict.fromkeys(each for id in ids if (each := self._input(id))))
            elif isinstance(piece, Variable):
                title = self._dialect.title
                self._notes.append(f"{name}: {piece.shown} stays as it is written: {title} does not expand it")

    def _input(self, id: str) -> Input | None:
        described = self._inputs.get(id)
        if described is None and self._dialect.any_input:
            return Input(path=self._source.path, id=id, password=True)
        return described


def _flat(raw: Mapping[str, Any], notes: Notes) -> Mapping[str, Any]:
    """An entry whose transport is an object in it (Cline), or whose command is one (Zed, formerly), without that."""
    members = dict(raw)
    for outer, names in NESTED.items():
        if isinstance(inner := members.get(outer), dict):
            del members[outer]
            found = {names.get(key, key): value for key, value in inner.items()}
            differ = [key for key, value in found.items() if members.get(key, value) != value]
            notes += [f"{excerpt(key)}: it is there more than once: that in {outer} is taken" for key in differ]
            members.update(found)
    return members


def _merged(part: str, first: Any, second: Any) -> object:
    """What two keys of one meaning say together, so that neither is weakened. None if only one of them can hold."""
    match first, second:
        case dict(), dict():
            return {**first, **second}
        case bool(), bool():
            return first and second
        case frozenset(), frozenset():
            return first | second if part == "exclude" else first & second
        case (None, frozenset() as names) | (frozenset() as names, None):
            return names
    return None
