"""The files of a group: their servers, and what the group has to do when the files have changed."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from mcp_host.concurrency.tasks import awaited, bare
from mcp_host.config import FoundFile, Scope, ServerEntry, merge_servers, read_servers
from mcp_host.errors import ConfigError, escaped, quoted
from mcp_host.group.file_server import FileOptions, FileServer
from mcp_host.group.following import WatchFiles, watcher
from mcp_host.group.names import server_prefix
from mcp_host.handlers import as_async
from mcp_host.limits import check_seconds

ServersPath: TypeAlias = str | os.PathLike[str] | FoundFile

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Difference:
    """What has changed between two readings of the files. All other servers are the same."""

    removed: tuple[str, ...] = ()
    added: tuple[FileServer, ...] = ()
    changed: tuple[str, ...] = ()
    enabled: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()


def difference(old: Mapping[str, FileServer], new: Mapping[str, FileServer]) -> Difference:
    """What has changed from *old* to *new*. What an entry says for people only, or is not obeyed, changes no server."""
    same = {name for name, server in new.items() if name in old and _obeyed(server.entry) == _obeyed(old[name].entry)}
    return Difference(
        removed=tuple(name for name in old if name not in new),
        added=tuple(server for name, server in new.items() if name not in old),
        changed=tuple(name for name in new if name in old and name not in same),
        enabled=tuple(name for name in new if name in same and new[name].enabled > old[name].enabled),
        disabled=tuple(name for name in new if name in same and new[name].enabled < old[name].enabled),
    )


def _obeyed(entry: ServerEntry) -> ServerEntry:
    """The parts of *entry* that decide what runs, without whether it is enabled. Those of its dialect are in the other parts."""
    source = replace(entry.source, dialect="")
    return replace(entry, source=source, enabled=True, digest="", warnings=(), title=None, description=None)


class GroupFiles:
    """The files of a group, and what was read of them last. They are followed if there is a *watch*.

    Raises:
        ConfigError: A file cannot be read, or there are no servers in it.
        TypeError, ValueError, ImportError: An argument is wrong, or watchfiles is not installed.
    """

    def __init__(
        self,
        path: ServersPath | Sequence[ServersPath],
        options: FileOptions,
        *,
        dialect: str | None,
        scope: Scope | None,
        watch: bool | WatchFiles,
        grace: float,
    ) -> None:
        self.grace = check_seconds("grace", grace)
        self._files = (path,) if isinstance(path, str | os.PathLike | FoundFile) else tuple(path)
        self._options = options
        self._dialect, self._scope = dialect, scope
        self._watch = watcher(watch)
        self._problem: str | None = None
        self.servers, self._warnings = self._read()

    @property
    def warnings(self) -> list[str]:
        """What is wrong in the files outside of their servers, and why the last reading failed."""
        return self._warnings if self._problem is None else [*self._warnings, self._problem]

    async def follow(self, apply: Callable[[Difference], bool]) -> None:
        """Read the files now and after each change, and *apply* what has changed, until this is cancelled.

        What it returns False for has changed no server: it counts when the group is opened again.
        """
        if self._watch is None:
            return
        try:
            await self._read_again(apply)
            await awaited(self._watch(self._paths(), partial(self._read_again, apply)), "watch")
        except Exception as exc:  # of the system, which cannot watch so many files, say: the servers go on
            error = bare(exc)
            logger.error("the files of servers are not followed any more", exc_info=error)
            self._problem = f"the files of servers are not followed any more: {type(error).__name__}: {error}"

    async def _read_again(self, apply: Callable[[Difference], bool]) -> None:
        """Read the files. If one cannot be read, because an editor is writing it, say, no server changes."""
        try:
            servers, self._warnings = await as_async(partial(self._read, again=True), argument="read")()
        except ConfigError as exc:
            problem = f"{exc}: all servers stay as they are"
            if problem != self._problem:
                logger.warning("%s", problem)
            self._problem = problem
            return
        self._problem = None
        last, self.servers = self.servers, servers
        if not apply(difference(last, servers)):
            self.servers = last

    def _paths(self) -> list[Path]:
        return [file.path if isinstance(file, FoundFile) else Path(file) for file in self._files]

    def _read(self, *, again: bool = False) -> tuple[dict[str, FileServer], list[str]]:
        """The servers by name, and what is wrong in the files outside of them. It blocks.

        Raises:
            ConfigError: A file cannot be read, or there are no servers in it; or, *again*, it is empty.
        """
        for path in self._paths():
            if again and path.is_file() and not path.stat().st_size:
                raise ConfigError("it is empty", path=path)  # an editor begins to write
        files = [read_servers(each, dialect=self._dialect, scope=self._scope) for each in self._files]
        entries, left_out = merge_servers(files)
        warnings = [f"{escaped(str(file.path))}: {warning}" for file in files for warning in file.warnings]
        warnings += left_out
        servers: dict[str, FileServer] = {}
        names: dict[str, str] = {}
        for entry in entries:
            first = names.setdefault(server_prefix(entry.name), entry.name)
            if first == entry.name:
                servers[first] = FileServer(entry, self._options)
            else:
                both = f"the servers {quoted(first)} and {quoted(entry.name)} would have tools of the same names"
                warnings.append(f"{quoted(entry.name)} is left out: {both}")
        return servers, warnings
