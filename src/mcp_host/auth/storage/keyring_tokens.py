"""A store of tokens in a person's keyring."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from itertools import takewhile
from types import ModuleType
from typing import TypeVar

from mcp_host.auth.errors import TokensError
from mcp_host.auth.storage.turns import Turns
from mcp_host.concurrency.asking import asking_person
from mcp_host.concurrency.locked_file import LockTimeout, create_private_folder, file_lock, home_folder
from mcp_host.errors import excerpt
from mcp_host.secret import Secret

logger = logging.getLogger(__name__)

T = TypeVar("T")

DIALOG_WAIT = 120.0  # seconds to wait for another process: its person may be typing the keyring's password
PART_SIZE = 640  # characters of one entry of a keyring: Windows takes 2,560 bytes, and a character may have four
MAX_PARTS = 1_000  # entries of a keyring for one value


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
        self._lock = home_folder() / f".local/state/mcp-host/{_hash(service)[:32]}.lock"
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
            return entry and Secret(entry[1:])
        if (where := re.fullmatch(r"([ab])(\d{1,4})", entry)) is not None:
            parts = [self._get(part) for part in _parts(name, where[1], range(int(where[2])))]
            whole = [part for part in parts if part is not None]
            if len(whole) == len(parts):
                return Secret("".join(whole))
        logger.warning("tokens of %r in the keyring are damaged, and are not used", self._service)
        return None

    def _write(self, name: str, value: str | None) -> None:
        entry = self._get(name)
        row, pieces = "", list[str]()
        if value is None:
            self._delete(name)  # it is there: keyrings raise several errors for what is not
        elif len(value) < PART_SIZE:
            self._set(name, Secret(f"={value}"))
        else:
            row = "b" if (entry or "").startswith("a") else "a"
            pieces = [Secret(value[start : start + PART_SIZE]) for start in range(0, len(value), PART_SIZE)]
            if len(pieces) > MAX_PARTS:
                raise TokensError(f"tokens of {len(value)} characters are too long for a keyring")
            for part, piece in zip(_parts(name, row, range(len(pieces))), pieces, strict=True):
                self._set(part, piece)
                if self._get(part) != piece:
                    raise self._not_kept()
            self._set(name, f"{row}{len(pieces)}")
        if self._read(name) != value:  # some cut what is long: what was kept before is put back
            if entry is not None:
                self._set(name, entry)
            raise self._not_kept()
        for each in "ab":  # parts of the old value, and of changes whose process was killed
            first = len(pieces) if each == row else 0
            unused = list(takewhile(self._get, _parts(name, each, range(first, MAX_PARTS))))
            for part in reversed(unused):  # the first is the last: a killed process leaves no gap
                self._delete(part)

    def _not_kept(self) -> TokensError:
        return TokensError(f"{_description(self._keyring)} does not keep what is stored in it")

    def _get(self, name: str) -> str | None:
        value: str | None = self._keyring.get_password(self._service, name)
        return value and Secret(value)

    def _set(self, name: str, value: str) -> None:
        self._keyring.set_password(self._service, name, value)

    def _delete(self, name: str) -> None:
        self._keyring.delete_password(self._service, name)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            create_private_folder(self._lock.parent)
            with file_lock(self._lock, wait=0), _failures(self._keyring):
                yield
        except LockTimeout:
            raise
        except OSError as exc:
            raise TokensError(f"the lock of the keyring in {self._lock} cannot be used: {exc.strerror or exc}") from exc


def password(service: str, username: str) -> str | None:
    """An entry of the keyring that the person has made, as by ``keyring set SERVICE USERNAME``. It blocks, perhaps until they unlock it.

    Raises:
        TokensError: The keyring cannot be used.
    """
    import keyring

    with _failures(keyring):
        found: str | None = keyring.get_password(service, username)
    return found and Secret(found)


@contextmanager
def _failures(keyring: ModuleType) -> Iterator[None]:
    """For what uses *keyring*, the library: each of its failures is a `TokensError`."""
    try:
        keyring.get_keyring()
    except Exception as exc:  # of the modules that they name
        settings = "the settings of keyring (PYTHON_KEYRING_BACKEND, keyringrc.cfg)"
        raise TokensError(f"{settings} name none that can be loaded: {type(exc).__name__}") from exc
    try:
        yield
    except TokensError:
        raise
    except keyring.errors.NoKeyringError as exc:
        raise TokensError("this machine has no keyring that can be used: FileTokens needs none") from exc
    except keyring.errors.KeyringError as exc:
        raise TokensError(f"{_description(keyring)} fails: {excerpt(str(exc))}") from exc
    except Exception as exc:  # of the system's interfaces; what is in their texts is not known
        raise TokensError(f"{_description(keyring)} fails: {type(exc).__name__}") from None


def _description(keyring: ModuleType) -> str:
    return f"the keyring ({excerpt(keyring.get_keyring().name)})"


def _hash(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _parts(name: str, row: str, numbers: range) -> Iterator[str]:
    return (f"{name}.{row}.{number}" for number in numbers)
