"""Entries of a store: one value each.

``server <url>``                    which authorization the MCP server at *url* wants
``token <place>``                   an authorization: its token, and what the token is bound to
``client <issuer>``                 the client that was registered at an authorization server
``login <state>``                   a login of a web host that waits for its redirect
``logins <place>``                  which of these are for an authorization

A place is ``<resource> <issuer>``, and ``<resource> <issuer> <url>`` for the server at *url* alone: see `Place`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from mcp_host.auth.errors import TokensError
from mcp_host.auth.storage.stores import TokenStore
from mcp_host.concurrency.tasks import awaited
from mcp_host.secret import Secret

logger = logging.getLogger(__name__)

T = TypeVar("T")

STORE = "the store of tokens"
MAX_REFUSED = 100  # changes in a row: other processes make one now and then


class Entry(Generic[T]):
    """One value of a store, as it was last loaded or saved."""

    def __init__(self, store: TokenStore, key: str, type: TypeAdapter[T]) -> None:
        self._store = store
        self._key = key
        self._type = type
        self._text: str | None = None
        """What the store has, once it `_is_read`."""
        self._is_read = False
        self._unsaved: Callable[[T | None], bool] | None = None
        """What the value replaces, if it could not be saved."""
        self._refused = 0
        """How many changes the store has refused since the last that it made."""
        self.value: T | None = None
        self.is_loaded = False

    async def load(self) -> T | None:
        """The value. None if there is none, or it cannot be read: another version may have stored it.

        Raises:
            TokensError: The store cannot be read.
        """
        if self._unsaved is None:
            self._read(await self._stored())
        else:
            with suppress(TokensError):  # it has been logged
                if not self._is_read:
                    self._text = await self._stored()
                if self._is_read or self._unsaved(self._parsed(self._text)):
                    await self.save(self.value)  # unless another process has stored something
                self._unsaved = None
                self._read(await self._stored())
        self.is_loaded = True
        return self.value

    async def peek(self) -> T | None:
        """What the store has, or will have when it can be written. It may be called during any other method.

        Raises:
            TokensError: The store cannot be read.
        """
        return self.value if self._unsaved is not None else self._parsed(await self._stored())

    async def save(self, value: T | None) -> bool:
        """Store *value* in the place of what was loaded. False if the store has something else meanwhile.

        Raises:
            TokensError: The store cannot be written.
        """
        text = None if value is None else Secret(self._type.dump_json(value).decode())
        if await awaited(self._store.swap(self._key, self._text, text), STORE, TokensError):
            self._text, self.value, self._unsaved, self._refused = text, value, None, 0
            return True
        self._refused += 1
        if self._refused % MAX_REFUSED == 0:
            raise TokensError("the store makes no change: its swap has to compare with the text that its load gives")
        return False

    async def keep(self, value: T | None, replaces: Callable[[T | None], bool] = lambda _: True) -> None:
        """Store *value*, which cannot be gotten again, in the place of what it *replaces*: else the store's stays.

        If the store fails, it is kept in memory, and `load` tries again.
        """
        try:
            while replaces(await self.load()) and not await self.save(value):
                pass
        except TokensError as exc:
            if not self.is_loaded or replaces(self.value):
                logger.warning("%s; what cannot be stored is lost when the process ends", exc)
                self.value, self._unsaved = value, replaces

    async def take(self) -> T | None:
        """The value, which is deleted. A second caller gets None.

        Raises:
            TokensError: The store cannot be read or written.
        """
        self._read(await awaited(self._store.take(self._key), STORE, TokensError))
        return self.value

    async def _stored(self) -> str | None:
        return await awaited(self._store.load(self._key), STORE, TokensError)

    def _read(self, text: str | None) -> None:
        self._text, self.value, self._is_read = text and Secret(text), self._parsed(text), True

    def _parsed(self, text: str | None) -> T | None:
        if text is None:
            return None
        try:
            return self._type.validate_json(text)
        except ValidationError:  # its text may have secrets in it, as the key of a login has
            logger.warning("what is stored of a %s cannot be read, and is not used", self._key.partition(" ")[0])
            return None
