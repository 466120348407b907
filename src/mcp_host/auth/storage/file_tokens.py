"""A store of tokens in a file."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias

from mcp_host.auth.errors import TokensError
from mcp_host.auth.storage.turns import Turns
from mcp_host.concurrency.locked_file import LOCK_WAIT, LockedFile, LockTimeout, expand_home
from mcp_host.secret import Secret, SecretBytes, SecretValues

logger = logging.getLogger(__name__)

FileContent: TypeAlias = dict[str, Any]
"""``{"version": 1, "tokens": {key: value, ...}}``"""

VERSION = 1
MAX_FILE_SIZE = 16_777_216  # bytes of a file of tokens
RESTORE = "nothing was changed; restore the file, or delete it and log in again"


class FileTokens:
    """Keeps tokens in a JSON file at *path*, for several processes: ``OAuth(tokens=FileTokens("~/.my-host/tokens.json"))``.

    The tokens are not encrypted. Only this user may read the file (mode 0600); its folder is created if it is missing
    (0700). If other users are allowed to read a file that is there already, a line in the log says so, once, and the
    next change takes the permission away. A file that belongs to another user is refused.

    Each change writes a whole new file and renames it, so a process that is killed, a full disk or a power cut leave
    the old tokens or the new ones. If *path* is a link, the file it leads to is replaced, and the link stays. Two more
    files lie beside that file: one that ends in ``.lock``, which stays, and, for a moment, one that ends in ``.new``.

    *lock_wait* is in seconds: how long to wait for another process that writes.

    Raises:
        TypeError: *path* is no path.
        TokensError: A method cannot read or write the file, or it contains something else. The text names it.
    """

    def __init__(self, path: str | os.PathLike[str], *, lock_wait: float = LOCK_WAIT) -> None:
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"path is the path of a file, not {type(path).__name__}")
        self._file = LockedFile(expand_home(path), lock_wait=0, private=True, max_size=MAX_FILE_SIZE)
        self._turns = Turns(lock_wait)
        self._warned = False

    def __repr__(self) -> str:
        return f"FileTokens({str(self._file.path)!r})"

    async def load(self, key: str) -> str | None:
        return await self._turns.call(lambda: self._load(key))

    async def swap(self, key: str, old: str | None, new: str | None) -> bool:
        return await self._turns.call(lambda: self._swap(key, old, new))

    async def take(self, key: str) -> str | None:
        return await self._turns.call(lambda: self._take(key))

    def _load(self, key: str) -> str | None:
        with self._failures("read"):
            return self._value(self._read(), key)

    def _swap(self, key: str, old: str | None, new: str | None) -> bool:
        with self._failures("saved"), self._file.locked():
            content = self._read()
            if self._value(content, key) != old:
                return False
            if new != old:
                self._write(content, key, new)
            return True

    def _take(self, key: str) -> str | None:
        with self._failures("saved"), self._file.locked():
            content = self._read()
            value = self._value(content, key)
            if value is not None:
                self._write(content, key, None)
            return value

    def _read(self) -> FileContent:
        """What the file contains, with what another version of this program may have added."""
        written = SecretBytes(self._file.read() or b"")
        if self._file.exposed and not self._warned:
            self._warned = True
            logger.warning(
                "other users may read the tokens in %s, until the next change makes it private (0600)", self._file.path
            )
        if not written:  # missing, or created empty by hand
            return {"version": VERSION, "tokens": {}}
        content: object = None
        with suppress(ValueError, RecursionError):  # these have the tokens in them, so none is a cause of ours
            content = json.loads(written)
        if not isinstance(content, dict):
            raise self._unusable("it is not a JSON object")
        if content.get("version") != VERSION:
            raise self._unusable(f"it does not say that its version is {VERSION}")
        if not isinstance(content.get("tokens"), dict):
            raise self._unusable("'tokens' is not a JSON object")
        return SecretValues(content)

    def _value(self, content: FileContent, key: str) -> str | None:
        value = content["tokens"].get(key)
        if not isinstance(value, str | None):
            raise self._unusable("a value is not a text")
        return value and Secret(value)

    def _write(self, content: FileContent, key: str, value: str | None) -> None:
        if value is None:
            del content["tokens"][key]
        else:
            content["tokens"][key] = value
        self._file.write(SecretBytes(json.dumps(content, indent=2).encode() + b"\n"))

    def _unusable(self, reason: str) -> TokensError:
        return TokensError(f"{self._file.path} is no file of tokens that this program reads ({reason}): {RESTORE}")

    @contextmanager
    def _failures(self, step: str) -> Iterator[None]:
        path = str(self._file.path)
        try:
            yield
        except LockTimeout:
            raise
        except OSError as exc:
            reason = f"{exc.strerror or exc}" + (f" ({exc.filename})" if exc.filename not in (None, path) else "")
            raise TokensError(f"the tokens cannot be {step} in {path}: {reason}") from exc
