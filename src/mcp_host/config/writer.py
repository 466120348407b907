"""Changing a file of servers: what is not changed stays as it is written, and nothing is written that would read otherwise."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from mcp_host.concurrency.locked_file import LockedFile, create_private_folder, home_folder
from mcp_host.config.dialects import DIALECTS
from mcp_host.config.entry import ServerEntry
from mcp_host.config.fields import Key, as_written
from mcp_host.config.formats.data import Keys, member, with_member, without_member
from mcp_host.config.formats.documents import MAX_FILE, Document, Editor, Text, decode, parse_document
from mcp_host.config.places import FoundFile, place_of
from mcp_host.config.reader import ServersFile, check_dialect, servers_of
from mcp_host.config.spelling import SPELLINGS, CannotWrite, Written, written
from mcp_host.config.values import HttpServer, Input, StdioServer
from mcp_host.errors import ConfigError, escaped, quoted
from mcp_host.protocol.server_names import check_server_name

THERE_ALREADY = "there is one already: to replace it, pass replace=True"
NO_SWITCH = "{} has no switch for a server in its file: remove it, or switch it off there"
OTHERWISE = "this change is not possible without changing more of the file: change it in an editor"
"""Why a text that is not read as it should be is not written."""


def add_server(
    path: str | os.PathLike[str] | FoundFile,
    name: str,
    server: StdioServer | HttpServer | ServerEntry,
    *,
    replace: bool = False,
    dialect: str | None = None,
    source: str | None = None,
) -> tuple[str, ...]:
    """Write *server* into a file, under *name*, with the keys that the file's dialect has. The file is made if there is none.

    *server* may be an entry of another file: then what its host says of limits, tools and logins is written, too. The result
    says what is not: unknown keys, approvals, and what the file's dialect has no key for but can do without, such as a title.

    *dialect* is that of the file, as for `read_servers`. *source* is that which the values of *server* are from: variables are
    written as the file's dialect has them. By default they stay as they are. `EnvironmentVariable` becomes a reference.

    All else in the file stays as it is, with its comments and its unknown keys. It blocks, and keeps others out who do this;
    what another program has changed meanwhile is not lost.

    Raises:
        ConfigError: There is a server of that name and *replace* is not set; *name* is not one to 64 visible characters;
            the dialect cannot say what *server* is; or the file cannot be read, changed or written. Then it is as it was.
    """
    check_name(path.path if isinstance(path, FoundFile) else Path(path), name)
    notes: Sequence[str] = ()

    def change(file: ServersFile, edit: Edit) -> None:
        nonlocal notes
        if not replace and any(each.name == name for each in file.servers):
            raise ConfigError(THERE_ALREADY, path=file.path, server=name)
        result = _written(file, name, server, source)
        edit.set((*file.at, name), result.entry)
        for each in result.inputs:
            _describe(file, edit, name, each)
        notes = result.notes

    change_file(path, dialect, change)
    return tuple(notes)


def check_name(path: Path, name: str) -> None:
    """Raise `ConfigError` if no server in the file at *path* may be called *name*: no host could use it."""
    try:
        check_server_name(name)
    except ValueError as exc:
        raise ConfigError(str(exc), path=path, server=name) from None


def remove_server(path: str | os.PathLike[str] | FoundFile, name: str, *, dialect: str | None = None) -> None:
    """Remove the server *name* from a file. Comments beside its entry stay.

    Raises:
        ConfigError: There is no such server, or the file cannot be read, changed or written. Then it is as it was.
    """

    def change(file: ServersFile, edit: Edit) -> None:
        _known(file, name)
        edit.remove((*file.at, name))

    change_file(path, dialect, change)


def set_enabled(
    path: str | os.PathLike[str] | FoundFile, name: str, enabled: bool, *, dialect: str | None = None
) -> None:
    """Switch the server *name* of a file on or off.

    Raises:
        ConfigError: There is no such server, its host has no such switch, or the file cannot be read, changed or written.
            Then it is as it was.
    """

    def change(file: ServersFile, edit: Edit) -> None:
        server = _known(file, name)
        host = DIALECTS[file.dialect]
        meanings, entry = host.meanings(), edit.get((*file.at, name))
        if not isinstance(entry, dict):
            raise ConfigError(str(server.problem), path=file.path, server=name)
        keys = [key for key in entry if isinstance(known := meanings.get(key), Key) and known.part == "enabled"]
        if not (keys or enabled or host.excluded):
            if (off := SPELLINGS[file.dialect].keys.get("enabled")) is None:
                raise ConfigError(NO_SWITCH.format(host.title), path=file.path, server=name)
            keys = [off]
        for key in keys:
            edit.set((*file.at, name, key), as_written(meanings[key], enabled))
        if host.excluded:
            _list(edit, host.excluded, name, is_in=not enabled)
            if enabled and edit.get(host.allowed) is not None:
                _list(edit, host.allowed, name, is_in=True)

    change_file(path, dialect, change)


class Edit:
    """The text of a file and its data, changed together."""

    def __init__(self, text: str, data: object, editor: Editor) -> None:
        self.text = text
        self.data = data
        self._editor = editor

    def get(self, path: Sequence[str]) -> Any:
        """What is at *path*; None if there is nothing."""
        return member(self.data, path)

    def set(self, path: Keys, value: object) -> None:
        """Set what is at *path*. The next index of a list adds an item."""
        self.text = self._editor.set_member(self.text, path, value)
        self.data = with_member(self.data, path, value)

    def remove(self, path: Keys) -> None:
        """Remove what is at *path*."""
        self.text = self._editor.remove_member(self.text, path)
        self.data = without_member(self.data, path)


def _list(edit: Edit, at: Sequence[str], name: str, *, is_in: bool) -> None:
    """Have *name* in a list of names, or not."""
    names = edit.get(at) or []
    if is_in and name not in names:
        edit.set((*at, len(names)), name)
    while not is_in and name in (names := edit.get(at) or []):
        edit.remove((*at, names.index(name)))


def _describe(file: ServersFile, edit: Edit, server: str, each: Input) -> None:
    """Have an input described in the file, beside the servers."""
    at = (*file.at[:-1], "inputs")
    described = edit.get(at) or []
    same = [item for item in described if isinstance(item, dict) and item.get("id") == each.id]
    wanted = {
        "type": each.type,
        "id": each.id,
        "description": each.description or each.id,
        **({} if each.default is None else {"default": str.__str__(each.default)}),
        **({"password": True} if each.password else {}),
        **({"options": list(each.options)} if each.options else {}),
    }
    others = [entry for entry in file.servers if entry.name != server]
    is_used = any(used.id == each.id for entry in others for used in entry.inputs)
    if not same and not is_used:
        edit.set((*at, len(described)), wanted)
    elif same != [wanted]:
        reason = f"the file has another input {quoted(each.id)}: change the id of one of them"
        raise ConfigError(reason, path=file.path, server=server)


def _written(
    file: ServersFile, name: str, server: StdioServer | HttpServer | ServerEntry, source: str | None
) -> Written:
    reason = ""
    try:
        return written(server, file.dialect, source=source)
    except CannotWrite as exc:
        reason = str(exc)
    raise ConfigError(reason, path=file.path, server=name)


def _known(file: ServersFile, name: str) -> ServerEntry:
    for each in file.servers:
        if each.name == name:
            return each
    raise ConfigError("there is no such server", path=file.path, server=name)


def change_file(
    path: str | os.PathLike[str] | FoundFile, dialect: str | None, change: Callable[[ServersFile, Edit], None]
) -> None:
    """Have *change* change what a file says, and write that, if the file is still what it was.

    Raises:
        ConfigError: It is not, or it cannot be read, changed or written.
    """
    check_dialect(dialect)
    place = path if isinstance(path, FoundFile) else place_of(Path(path))
    try:
        return _rewrite(place, dialect, change)
    except ConfigError as exc:
        error = exc.with_traceback(None)  # its frames have the text of the file, as with `read_servers`
    except OSError as exc:  # `LockTimeout` is one, without a code of the system
        reason = f"it cannot be written: {exc.strerror or exc}"
        if exc.filename not in (None, str(place.path)):  # the folder of its lock, say
            reason += f" ({escaped(str(exc.filename))})"
        error = ConfigError(reason, path=place.path)
    raise error


def _rewrite(place: FoundFile, dialect: str | None, change: Callable[[ServersFile, Edit], None]) -> None:
    file = LockedFile(place.path, lock_path=_lock_path(place.path), max_size=MAX_FILE)
    create_private_folder(file.lock_path.parent)
    with file.locked():
        before = file.read()
        content = changed(place, before, dialect, change)
        if file.read() != before:
            raise ConfigError("another program has changed it meanwhile: nothing was written", path=place.path)
        if content != before:
            create_private_folder(file.path.parent)
            file.write(content)


def changed(
    place: FoundFile, before: bytes | None, dialect: str | None, change: Callable[[ServersFile, Edit], None]
) -> bytes:
    """The content of a file after *change*. *before* is None if there is no file.

    Raises:
        ConfigError: It cannot be read or changed.
    """
    text = Text("") if before is None else decode(place.path, before)
    document = parse_document(place.path, text)
    file = servers_of(place, document, dialect=dialect)
    edit = Edit(text.text, document.data, _editor(file, document))
    change(file, edit)
    return encoded(place.path, text, edit)


def _editor(file: ServersFile, document: Document) -> Editor:
    """What changes the file.

    Raises:
        ConfigError: Its format or its dialect is only read.
    """
    if document.format.editor is None:
        raise ConfigError(f"{document.format.title} is only read: change it in an editor", path=file.path)
    if file.dialect not in SPELLINGS:
        title = DIALECTS[file.dialect].title
        raise ConfigError(f"servers of {title} are only read: change them in an editor", path=file.path)
    return document.format.editor


def encoded(path: Path, before: Text, edit: Edit) -> bytes:
    """The content of the file with the text of *edit*, which is read as its data.

    Raises:
        ConfigError: It is not, or cannot be written.
    """
    content = None
    with suppress(UnicodeEncodeError):
        content = before.encode(edit.text)
    if content is None:  # raised here, because what was raised there has the whole text
        raise ConfigError("it is not Unicode text", path=path)
    data = None
    with suppress(ConfigError):
        data = parse_document(path, Text(edit.text)).data
    if _comparable(data) != _comparable(edit.data):
        raise ConfigError(OTHERWISE, path=path)
    return content


def _comparable(data: object) -> str:
    """Data as text, without the order of its keys, which tables of TOML do not keep; one not-a-number is like the other."""
    return json.dumps(data, sort_keys=True, default=repr)


def _lock_path(path: Path) -> Path:
    """A lock that is not beside the file: some hosts have locks of that name, of another kind."""
    digest = sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:32]
    return home_folder() / f".local/state/mcp-host/{digest}.lock"
