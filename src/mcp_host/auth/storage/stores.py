"""Stores of tokens: what they have in common, and the one in memory."""

from __future__ import annotations

from threading import Lock
from typing import Protocol


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
        """Change the value from *old* to *new*, where None is no value. False if it is not *old*: nothing changes.

        *old* is a text that `load` has returned or `swap` has stored. A database must not write it otherwise meanwhile.
        """
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
