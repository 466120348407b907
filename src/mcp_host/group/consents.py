"""The consents of a person to start servers of files. After a change of a server, the person is asked again."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from mcp_host.concurrency.locked_file import LockedFile, state_file
from mcp_host.errors import ConfigError, quoted
from mcp_host.sampling.proposed_server import ProposedServer

if TYPE_CHECKING:
    from mcp_host.sampling import Allow, Deny

ApproveServer: TypeAlias = "Callable[[ProposedServer], Awaitable[bool | Allow | Deny] | bool | Allow | Deny]"
"""Decides whether a server that a file brings may be started."""

VERSION = 1
MAX_SIZE = 8_388_608  # bytes of the file: some ten thousand servers
KEPT = 2000  # characters of a command line: one of the longest would take the room of a thousand servers


class Consent(NamedTuple):
    """What was agreed to of one server: `ProposedServer.digest`, and the beginning of `ProposedServer.expanded` to show it."""

    digest: str
    expanded: str


Consents: TypeAlias = dict[str, dict[str, Consent]]
"""By the path of the file, and the name of the server in it."""


class ServerConsents:
    """Remembers which servers of files a person has agreed to: ``ClientGroup.from_file(path, consents=ServerConsents(file))``.

    They are kept in *file*, which several programs and processes may share. By default that is ``mcp-host/consents.json`` in the folder
    of this user's programs for what they keep: ``~/.local/state``, or ``XDG_STATE_HOME``. Other users cannot read it, and a file of
    another user is refused.

    A consent is for one server of one file: for its entry, what that expands to, and the files that its variables are from.
    After a change of any it does not hold.

    The methods may wait for the disk, and up to ten seconds for another process.

    Raises:
        TypeError: *file* is no path.
        ConfigError: A method cannot read or write *file*.
    """

    def __init__(self, file: str | os.PathLike[str] | None = None) -> None:
        if file is not None and not isinstance(file, str | os.PathLike):
            raise TypeError(f"file is the path of a file, not {type(file).__name__}")
        path = state_file("consents.json") if file is None else file
        self._file = LockedFile(path, private=True, max_size=MAX_SIZE)
        self._lock = RLock()  # between threads; that of the file is between processes

    def __repr__(self) -> str:
        return f"ServerConsents({str(self._file.path)!r})"

    def servers(self) -> dict[str, list[str]]:
        """The names of the servers that were agreed to, by the path of their file."""
        return {path: list(names) for path, names in self._load().items()}

    def agree(self, proposed: ProposedServer) -> None:
        """Remember that a person has agreed to *proposed*."""
        with self._update() as consents:
            own = consents.setdefault(_key(proposed.path), {})
            own[proposed.name] = Consent(proposed.digest, proposed.expanded[:KEPT])

    def forget(self, path: str | os.PathLike[str], *names: str) -> None:
        """Forget the consents to these servers of the file at *path*, or to all of them. What is not there is ignored."""
        with self._update() as consents:
            own = consents.get(_key(path), {})
            for name in names or list(own):
                own.pop(name, None)

    # For the group

    def compared(self, proposed: ProposedServer) -> tuple[ProposedServer, bool]:
        """*proposed* with what was agreed to before, and whether that is the same."""
        last = self._load().get(_key(proposed.path), {}).get(proposed.name)
        if last is None or last.digest == proposed.digest:
            return proposed, last is not None
        return replace(proposed, previous=last.expanded), False

    def _load(self) -> Consents:
        try:
            content = self._file.read()
        except OSError as exc:
            raise self._error(f"the consents to servers cannot be read: {exc.strerror}") from exc
        if content is None:
            return {}
        try:
            return _read(json.loads(content))
        except (ValueError, RecursionError) as exc:
            raise self._error(f"there are no consents to servers in it ({exc}): restore or delete it") from exc

    @contextmanager
    def _update(self) -> Iterator[Consents]:
        """Change the consents inside. They are saved if nothing is raised."""
        try:
            with self._lock, self._file.locked():
                consents = self._load()
                yield consents
                self._file.write(json.dumps(_written(consents), indent=2).encode())
        except OSError as exc:
            raise self._error(f"the consents to servers cannot be saved: {exc.strerror or exc}") from exc

    def _error(self, reason: str) -> ConfigError:
        return ConfigError(reason, path=self._file.path)


def _key(path: str | os.PathLike[str]) -> str:
    return str(Path(path).absolute())


def _written(consents: Consents) -> dict[str, object]:
    files = {path: {name: each._asdict() for name, each in own.items()} for path, own in consents.items() if own}
    return {"version": VERSION, "files": files}


def _read(data: object) -> Consents:
    if not isinstance(data, Mapping) or data.get("version") != VERSION:
        raise ValueError(f'not of the form {{"version": {VERSION}, "files": {{...}}}}')
    return {
        path: {name: _consent(name, each) for name, each in _mapping(path, own).items()}
        for path, own in _mapping("files", data.get("files")).items()
    }


def _consent(name: str, data: object) -> Consent:
    members = _mapping(name, data)
    match members.get("digest"), members.get("expanded"):
        case str(digest), str(expanded):
            return Consent(digest, expanded[:KEPT])
    raise ValueError(f"{quoted(name)} has no digest and no server")


def _mapping(name: str, value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{quoted(name)} is not a JSON object")
    return value
