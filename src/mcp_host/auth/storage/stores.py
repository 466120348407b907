"""Stores of tokens: in memory, in a file, in a person's keyring."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from itertools import takewhile
from pathlib import Path
from threading import Lock
from typing import Any, Protocol, TypeAlias, TypeVar

from anyio import CapacityLimiter, current_time, sleep, to_thread
from anyio.lowlevel import RunVar

from mcp_host.asking import asking_person
from mcp_host.auth.errors import TokensError
from mcp_host.errors import excerpt
from mcp_host.limits import check_seconds
from mcp_host.locked_file import LOCK_WAIT, POLL_INTERVAL, LockedFile, LockTimeout, create_private_folder, file_lock

logger = logging.getLogger(__name__)

T = TypeVar("T")
FileContent: TypeAlias = dict[str, Any]
"""``{"version": 1, "tokens": {key: value, ...}}``"""

VERSION = 1
MAX_FILE_SIZE = 16_777_216  # bytes of a file of tokens
DIALOG_WAIT = 120.0  # seconds to wait for another process: its person may be typing the keyring's password
PART_SIZE = 640  # characters of one entry of a keyring: Windows takes 2,560 bytes, and a character may have four
MAX_PARTS = 1_000  # entries of a keyring for one value
RESTORE = "nothing was changed; restore the file, or delete it and log in again"


class TokenStore(Protocol):
    """Where an `OAuth` keeps what must outlive the process. Keys and values are texts; a value is JSON, and secret.

    Of several callers, in this process or in others, one at a time changes a value. If a caller is cancelled, its
    change may be made nevertheless, whole: what must be stored is stored under a shield.

    Raises:
        TokensError: A method cannot read or write. No value has changed.
    """

    async def load(self, key: str) -> str | None:
        """The value of *key*; None if there is none."""
        ...

    async def swap(self, key: str, old: str | None, new: str | None) -> bool:
        """Change the value from *old* to *new*, where None is no value. False if it is not *old*: nothing changes."""
        ...

    async def take(self, key: str) -> str | None:
        """Load the value and delete it. A second caller gets None."""
        ...


class MemoryTokens:
    """Keeps tokens until the process ends. Threads may share it."""

    def __init__(self) -> None:
        self._tokens: dict[str, str] = {}
        self._lock = Lock()

    def __repr__(self) -> str:
        return "MemoryTokens()"

    async def load(self, key: str) -> str | None:
        return self._tokens.get(key)

    async def swap(self, key: str, old: str | None, new: str | None) -> bool:
        with self._lock:
            if self._tokens.get(key) != old:
                return False
            if new is not None:
                self._tokens[key] = new
            else:
                self._tokens.pop(key, None)
            return True

    async def take(self, key: str) -> str | None:
        with self._lock:
            return self._tokens.pop(key, None)


class Turns:
    """Calls functions of one store in threads: one at a time in this event loop, in the order of the callers.

    A function that raises `LockTimeout` is called again a little later, for *lock_wait* seconds. So a caller that waits
    for another process has no thread and no lock, and can be cancelled.
    """

    def __init__(self, lock_wait: float) -> None:
        self._lock_wait = check_seconds("lock_wait", lock_wait)
        self._limiter = RunVar[CapacityLimiter]("turns of a store of tokens")

    async def call(self, function: Callable[[], T]) -> T:
        """Call *function*. If the caller is cancelled meanwhile, it goes on in its thread.

        Raises:
            TokensError: Another process keeps the lock for too long.
        """
        limiter = self._limiter.get(None)
        if limiter is None:
            limiter = CapacityLimiter(1)
            self._limiter.set(limiter)
        end = None
        while True:
            try:
                return await to_thread.run_sync(function, abandon_on_cancel=True, limiter=limiter)
            except LockTimeout as exc:
                if end is None:
                    end = current_time() + self._lock_wait
                if current_time() >= end:
                    raise TokensError(f"the tokens cannot be used: {exc}") from exc
            await sleep(POLL_INTERVAL)


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
        self._file = LockedFile(os.path.expanduser(path), lock_wait=0, private=True, max_size=MAX_FILE_SIZE)
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
        written = self._file.read()
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
        return content

    def _value(self, content: FileContent, key: str) -> str | None:
        value = content["tokens"].get(key)
        if not isinstance(value, str | None):
            raise self._unusable("a value is not a text")
        return value

    def _write(self, content: FileContent, key: str, value: str | None) -> None:
        if value is None:
            del content["tokens"][key]
        else:
            content["tokens"][key] = value
        self._file.write(json.dumps(content, indent=2).encode() + b"\n")

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


class KeyringTokens:
    """Keeps tokens in the keyring of the person (macOS Keychain, Windows Credential Locker, Secret Service, KWallet).

    *service* names the host there: ``OAuth(tokens=KeyringTokens("my-host"))``. It needs the extra ``mcp-host[oauth]``,
    which brings the library ``keyring``; that chooses the keyring and has its settings.

    The system may ask the person to unlock the keyring. Only the store's callers wait for that; a cancelled one no
    longer does. A keyring cannot exchange values, so processes keep each other out with a file,
    ``~/.local/state/mcp-host/<hash of service>.lock``, which has nothing in it and stays. Other machines that share
    the keyring are not kept out.

    The names of entries are hashes of the keys. A value that is too long for one entry takes several.

    *lock_wait* is in seconds: how long to wait for another process, whose person may be asked at the moment.

    Raises:
        ImportError: The library is not installed.
        TypeError: *service* is no text.
        TokensError: A method cannot use the keyring: there is none, it stays locked, or it fails.
    """

    def __init__(self, service: str, *, lock_wait: float = DIALOG_WAIT) -> None:
        try:
            import keyring
        except ModuleNotFoundError as exc:
            raise ImportError("KeyringTokens needs keyring: pip install 'mcp-host[oauth]'") from exc
        if not isinstance(service, str):
            raise TypeError(f"service is the name of your host, not {type(service).__name__}")
        self._keyring = keyring
        self._service = service
        self._lock = Path(os.path.expanduser("~/.local/state/mcp-host"), f"{_hash(service)[:32]}.lock")
        self._turns = Turns(lock_wait)

    def __repr__(self) -> str:
        return f"KeyringTokens({self._service!r})"

    async def load(self, key: str) -> str | None:
        return await self._call(lambda: self._load(_hash(key)))

    async def swap(self, key: str, old: str | None, new: str | None) -> bool:
        return await self._call(lambda: self._swap(_hash(key), old, new))

    async def take(self, key: str) -> str | None:
        return await self._call(lambda: self._take(_hash(key)))

    async def _call(self, function: Callable[[], T]) -> T:
        with asking_person():  # perhaps, to unlock the keyring
            return await self._turns.call(function)

    def _load(self, name: str) -> str | None:
        with self._locked():
            return self._read(name)

    def _swap(self, name: str, old: str | None, new: str | None) -> bool:
        with self._locked():
            if self._read(name) != old:
                return False
            if new != old:
                self._write(name, new)
            return True

    def _take(self, name: str) -> str | None:
        with self._locked():
            value = self._read(name)
            if value is not None:
                self._write(name, None)
            return value

    # The entry *name* is "=" and the value, or says where its parts are: "a3" for `name.a.0` to `name.a.2`. A new
    # value has its parts in the other of the rows "a" and "b". So the change of that one entry is the change.

    def _read(self, name: str) -> str | None:
        """The value of *name*. What lacks a part is lost, and counts as none."""
        entry = self._get(name)
        if entry is None or entry.startswith("="):
            return entry and entry[1:]
        if (where := re.fullmatch(r"([ab])(\d{1,4})", entry)) is not None:
            parts = [self._get(part) for part in _parts(name, where[1], range(int(where[2])))]
            whole = [part for part in parts if part is not None]
            if len(whole) == len(parts):
                return "".join(whole)
        logger.warning("tokens of %r in the keyring are damaged, and are not used", self._service)
        return None

    def _write(self, name: str, value: str | None) -> None:
        row, pieces = "", list[str]()
        if value is None:
            self._delete(name)
        elif len(value) < PART_SIZE:
            self._set(name, f"={value}")
        else:
            row = "b" if (self._get(name) or "").startswith("a") else "a"
            pieces = [value[start : start + PART_SIZE] for start in range(0, len(value), PART_SIZE)]
            if len(pieces) > MAX_PARTS:
                raise TokensError(f"tokens of {len(value)} characters are too long for a keyring")
            for part, piece in zip(_parts(name, row, range(len(pieces))), pieces, strict=True):
                self._set(part, piece)
            self._set(name, f"{row}{len(pieces)}")
        for each in "ab":  # parts of the old value, and of changes whose process was killed
            first = len(pieces) if each == row else 0
            unused = list(takewhile(self._get, _parts(name, each, range(first, MAX_PARTS))))
            for part in reversed(unused):  # the first is the last: a killed process leaves no gap
                self._delete(part)
        if self._read(name) != value:
            raise TokensError(f"{self._description()} does not keep what is stored in it")

    def _get(self, name: str) -> str | None:
        return self._keyring.get_password(self._service, name)

    def _set(self, name: str, value: str) -> None:
        self._keyring.set_password(self._service, name, value)

    def _delete(self, name: str) -> None:
        if self._get(name) is not None:  # keyrings raise several errors for what is not there
            self._keyring.delete_password(self._service, name)

    def _description(self) -> str:
        return f"the keyring ({excerpt(self._keyring.get_keyring().name)})"

    def _check_settings(self) -> None:
        try:
            self._keyring.get_keyring()
        except Exception as exc:  # of the modules that they name
            settings = "the settings of keyring (PYTHON_KEYRING_BACKEND, keyringrc.cfg)"
            raise TokensError(f"{settings} name none that can be loaded: {type(exc).__name__}") from exc

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            create_private_folder(self._lock.parent)
            with file_lock(self._lock, wait=0):
                self._check_settings()
                try:
                    yield
                except TokensError:
                    raise
                except self._keyring.errors.NoKeyringError as exc:
                    raise TokensError("this machine has no keyring that can be used: FileTokens needs none") from exc
                except self._keyring.errors.KeyringError as exc:
                    raise TokensError(f"{self._description()} fails: {excerpt(str(exc))}") from exc
                except Exception as exc:  # of the system's interfaces; what is in their texts is not known
                    raise TokensError(f"{self._description()} fails: {type(exc).__name__}") from None
        except LockTimeout:
            raise
        except OSError as exc:
            raise TokensError(f"the lock of the keyring in {self._lock} cannot be used: {exc.strerror or exc}") from exc


def _hash(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _parts(name: str, row: str, numbers: range) -> Iterator[str]:
    return (f"{name}.{row}.{number}" for number in numbers)
