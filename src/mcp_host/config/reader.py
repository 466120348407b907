"""Reading the servers of a file, in any dialect: nothing is started, expanded or asked for."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mcp_host.config.dialects import DIALECTS, GENERIC
from mcp_host.config.entry import ServerEntry
from mcp_host.config.entry_reader import read_entry
from mcp_host.config.fields import NOT_USED, Unreadable, bounded, kind_of, names
from mcp_host.config.formats.data import Members, member
from mcp_host.config.formats.documents import Document, read_document
from mcp_host.config.places import FoundFile, place_of, project_of
from mcp_host.config.values import Input, Scope, Source
from mcp_host.config.variables import MAX_TEXT, Form, Variable, parse
from mcp_host.errors import ConfigError, excerpt, quoted
from mcp_host.secret import Secret

SERVERS_ONLY = frozenset({"mcpServers", "context_servers", "mcp_servers"})
"""Keys that have servers in every file. Others are of many programs: in the file of another one, what is under them has to look like servers."""
TRANSPORT_KEYS = ("command", "cmd", "url", "httpUrl", "serverUrl", "uri", "type", "transport", "source")
"""Keys of which every server has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServersFile:
    """The servers of a file, in its order, with what is wrong in the file outside of them.

    *at* are the keys that lead to the servers, from the top of the file; if there are none, to where its dialect has them.
    """

    path: Path
    dialect: str
    scope: Scope | None
    servers: tuple[ServerEntry, ...]
    warnings: tuple[str, ...] = ()
    at: tuple[str, ...] = ()


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
    check_dialect(dialect)
    place = path if isinstance(path, FoundFile) else place_of(Path(path))
    try:
        return servers_of(place, read_document(place.path), dialect=dialect, scope=scope)
    except ConfigError as exc:
        error = exc.with_traceback(None)  # its frames have the text of the file, and reports of errors may show them
    raise error


def check_dialect(dialect: str | None) -> None:
    """Raise `ValueError` if there is no such dialect."""
    if dialect is not None and dialect not in DIALECTS:
        raise ValueError(f"there is no dialect {dialect!r}: it is one of {', '.join(DIALECTS)}")


def servers_of(
    place: FoundFile, document: Document, *, dialect: str | None = None, scope: Scope | None = None
) -> ServersFile:
    """The servers in a file that has been read, as `read_servers` returns them.

    Raises:
        ConfigError: There are no servers in it.
    """
    reading = _File(place, document.data, dialect, scope or place.scope)
    return ServersFile(
        path=place.path,
        dialect=reading.source.dialect,
        scope=reading.source.scope,
        servers=tuple(reading.servers()),
        warnings=bounded((*document.warnings, *reading.warnings)),
        at=reading.at,
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
            if first is server:
                continue
            if first.source == server.source:
                path = excerpt(str(server.source.path))
                warnings.append(f"{path} is given more than once: its servers are taken once")
            else:
                places = f"{_place(server.source)}: it is taken from {_place(first.source)}"
                warnings.append(f"{quoted(server.name)} is not taken from {places}")
    return tuple(taken.values()), tuple(dict.fromkeys(warnings))


class _File:
    """One file, while it is read."""

    def __init__(self, place: FoundFile, data: object, dialect: str | None, scope: Scope | None) -> None:
        self.warnings: list[str] = []
        self._path = place.path
        self._data = self._top(data, place.section)
        at = self._find(dialect, place.dialect)
        self._servers: Mapping[str, Any] = {} if at is None else member(self._data, at) or {}
        is_own = place.dialect == GENERIC and scope == "user"  # marks of other hosts in it are of imported entries
        name = dialect or (GENERIC if is_own else _detect(at, self._servers, place.dialect))
        project = project_of(place.path) if scope == "project" and place.project is None else place.project
        self.source = Source(path=place.path, dialect=name, scope=scope, project=project)
        self._dialect = DIALECTS[name]
        self.at = (*place.section, *(self._dialect.at[0] if at is None else at))
        not_used = [at for at in self._dialect.not_used if member(self._data, at) is not None]
        self.warnings += [f"{_dotted(at)}: {NOT_USED}" for at in not_used]
        self._inputs = {each.id: each for each in self._read_inputs(member(self._data, (at or ())[:-1]))}

    def _top(self, data: object, section: tuple[str, ...]) -> Mapping[str, Any]:
        """The part of the file that is read."""
        if data is not None and not isinstance(data, dict):
            raise ConfigError(f"it must be an object of settings, not {kind_of(data)}", path=self._path)
        part = member(data, section)
        return part if isinstance(part, dict) else {}

    def _find(self, dialect: str | None, by_path: str | None) -> tuple[str, ...] | None:
        """Where the servers are. None: a settings file has none."""
        host = dialect or by_path or GENERIC
        expected = DIALECTS[host].at
        possible = expected if dialect else (*expected, *DIALECTS[GENERIC].at)
        found = [at for at in dict.fromkeys(possible) if self._has_servers(at, host)]
        found = found or [at for at in possible if at and self._is_empty(at)]
        if not found:
            self._check_none(expected, may_have_none=by_path is not None and dialect in (None, by_path))
            return None
        taken = found[0]
        for other in found[1:]:
            if other != taken[: len(other)]:
                reason = f"the servers under {_dotted(other)} are not read, since there are some under {_dotted(taken)}"
                self.warnings.append(reason)
        names = [key for depth, key in enumerate(taken) if key in _repeated(member(self._data, taken[:depth]))]
        names += _repeated(member(self._data, taken))
        self.warnings += [f"{quoted(name)} is there more than once: the last one is taken" for name in names]
        return taken

    def _has_servers(self, at: tuple[str, ...], host: str) -> bool:
        servers = member(self._data, at)
        if servers is None:
            return False
        if at and (at[-1] in SERVERS_ONLY or at in _servers_only(host)):
            if not isinstance(servers, dict):
                reason = f"{_dotted(at)} must be an object with a server under each name, not {kind_of(servers)}"
                raise ConfigError(reason, path=self._path)
            return at[-1] in SERVERS_ONLY or bool(servers)
        return isinstance(servers, dict) and any(
            isinstance(server, dict) and any(key in server for key in TRANSPORT_KEYS) for server in servers.values()
        )

    def _is_empty(self, at: tuple[str, ...]) -> bool:
        """Whether there is a place for servers, and none in it."""
        parent = member(self._data, at[:-1])
        return isinstance(parent, dict) and at[-1] in parent and not parent[at[-1]]

    def _check_none(self, expected: tuple[tuple[str, ...], ...], *, may_have_none: bool) -> None:
        """A settings file may have no servers. Any other must say where they are."""
        if any(isinstance(self._data.get(key), str) for key in ("command", "url")):
            raise ConfigError('it is one server without a name: write {"mcpServers": {"NAME": {...}}}', path=self._path)
        if self._data and not may_have_none:
            keys = ", ".join(_dotted(at) for at in expected if at)
            raise ConfigError(f"there are no servers in it: it has none of {keys}", path=self._path)

    def _read_inputs(self, beside: Mapping[str, Any]) -> Iterator[Input]:
        """The inputs that are described *beside* the servers."""
        for index, item in enumerate(_list(beside.get("inputs"))):
            if not isinstance(item, dict) or not isinstance(item.get("id"), str):
                self.warnings.append(f"inputs[{index}]: it has no id, and is ignored")
                continue
            options = [
                option.get("value") if isinstance(option, dict) else option for option in _list(item.get("options"))
            ]
            default = item.get("default")
            texts = [text for text in (default, *options) if isinstance(text, str)]
            if sum(map(len, texts)) > MAX_TEXT:
                self.warnings.append(f"inputs[{index}]: it proposes more than {MAX_TEXT:,} characters, and is ignored")
                continue
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
            entry = read_entry(name, raw, self._dialect, self._inputs, self.source)
            if (allowed is not None and name not in allowed) or name in (excluded or ()):
                entry = replace(entry, enabled=False)
            yield entry

    def _names(self, at: tuple[str, ...]) -> Collection[str] | None:
        """The names of servers in the settings of the host."""
        value = member(self._data, at) if at else None
        if value is None:
            return None
        try:
            return names(_dotted(at), value, self.warnings)
        except Unreadable as exc:
            reason = str(exc)
        raise ConfigError(reason, path=self._path)


def _servers_only(host: str) -> list[tuple[str, ...]]:
    """Where the files of *host* have servers and nothing else. Of two places, one within the other, the inner one may be a server."""
    places = () if host == GENERIC else DIALECTS[host].at
    return [at for at in places if not any(at[:depth] in places for depth in range(1, len(at)))]


def _detect(at: tuple[str, ...] | None, servers: Mapping[str, Any], by_path: str | None) -> str:
    """The dialect of a file with *servers* under *at*."""
    if at is None:
        return by_path or GENERIC
    possible = [name for name, dialect in DIALECTS.items() if at in dialect.at and name != GENERIC]
    if by_path is not None and (by_path in possible or not at):
        return by_path
    if at and len(possible) == 1:
        return possible[0]
    keys = {key for server in servers.values() if isinstance(server, dict) for key in server}
    marked = [name for name in possible if not at or DIALECTS[name].marks & keys]
    # People copy entries from host to host: with variables of another one, the keys of one host prove nothing.
    forms = set(_forms(servers)) & DIALECTS[GENERIC].variables
    if len(marked) == 1 and forms <= DIALECTS[marked[0]].variables:
        return marked[0]
    return GENERIC


def _forms(value: object) -> Iterator[Form]:
    """The forms of the variables in all texts of *value*."""
    if isinstance(value, str):
        yield from (piece.form for piece in parse("", value) if isinstance(piece, Variable) and piece.form)
    elif isinstance(value, dict | list):
        for child in value.values() if isinstance(value, dict) else value:
            yield from _forms(child)


def _place(source: Source) -> str:
    """A file, with the scope that decides which of two is taken. Claude Code has servers of several in one file."""
    return excerpt(str(source.path)) + ("" if source.scope is None else f" ({source.scope})")


def _repeated(data: object) -> tuple[str, ...]:
    return data.repeated if isinstance(data, Members) else ()


def _dotted(at: tuple[str, ...]) -> str:
    return ".".join(at)


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
