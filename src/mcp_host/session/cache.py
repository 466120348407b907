"""Results that the server calls fresh, kept for that long (2026-07-28, server/utilities/caching)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from pydantic_core import PydanticSerializationError, from_json, to_json

from mcp_host.protocol.eras import Complete
from mcp_host.protocol.jsonrpc import Notification, Params

STALE_BY = {
    "notifications/tools/list_changed": ("tools/list",),
    "notifications/prompts/list_changed": ("prompts/list",),
    "notifications/resources/list_changed": ("resources/list", "resources/templates/list"),
}
"""Which lists each notification makes stale, whatever was said of their freshness."""

ENTRY_COST = 512  # bytes that an entry takes besides its texts: some 350 as measured, and what the table has to spare

Key: TypeAlias = tuple[str, ...]
"""A method, and by turns the names and the values of its parameters."""


@dataclass(frozen=True, slots=True)
class Entry:
    body: bytes  # as JSON, so that nobody who gets it can change it for the next
    until: float
    size: int


class Cache:
    """The results of one client: what it gets with its credentials is for nobody else, whatever `cacheScope` says.

    Takes *limit* bytes at most, what results are found by included, and by *clock* (seconds)
    decides what is fresh. With a limit of 0 it keeps nothing.
    """

    def __init__(self, limit: int, clock: Callable[[], float]) -> None:
        self._limit = limit
        self._clock = clock
        self._entries: OrderedDict[Key, Entry] = OrderedDict()
        self._size = 0
        self._changes = 0

    def find(self, method: str, params: Params) -> Params | None:
        """The result of this very request, if there is a fresh one."""
        key = _key(method, params) if self._entries else None
        if key is None or key not in self._entries:
            return None
        entry = self._entries[key]
        result = _parsed(entry.body) if self._clock() < entry.until else None
        if result is None:
            self._remove(key)
        return result

    def mark(self) -> int:
        """A number for this moment, to `keep` *since*: for a result that is asked for now and comes later."""
        return self._changes

    def keep(self, method: str, params: Params, result: Complete, *, since: int | None = None) -> None:
        """Keep *result* for as long as it is fresh, if there is room for it.

        It is not kept if anything at all has changed since the `mark` *since*: it may tell of what was before.
        """
        if result.fresh_for <= 0 or not self._limit or since not in (None, self._changes):
            return
        key = _key(method, params)
        if key is None:
            return
        self._remove(key)
        body = _written(result.value)
        size = ENTRY_COST + sum(len(part.encode(errors="surrogatepass")) for part in key) + len(body or b"")
        if body is None or size > self._limit:
            return
        while self._size + size > self._limit:
            self._remove(next(iter(self._entries)))
        self._entries[key] = Entry(body, self._clock() + result.fresh_for, size)
        self._size += size

    def heed(self, notification: Notification) -> None:
        """Drop what the server says has changed."""
        if notification.method == "notifications/resources/updated":
            uri = notification.params.get("uri")
            if isinstance(uri, str):
                self._changes += 1
                self._remove(("resources/read", "uri", uri))
        elif notification.method in STALE_BY:
            self.drop(*STALE_BY[notification.method])

    def drop(self, *methods: str) -> None:
        """Drop all results of *methods*; without any, everything."""
        self._changes += 1
        for key in [key for key in self._entries if not methods or key[0] in methods]:
            self._remove(key)

    def _remove(self, key: Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._size -= entry.size


def _key(method: str, params: Params) -> Key | None:
    """What a result is found by. None where a parameter is not text: no request with results to keep has such."""
    named = {name: value for name, value in params.items() if name != "_meta"}
    if not all(isinstance(value, str) for value in named.values()):
        return None
    return (method, *(part for item in sorted(named.items()) for part in item))


def _written(result: Params) -> bytes | None:
    """*result* as JSON; None if it nests too deeply for our writer, or holds what UTF-8 cannot."""
    try:
        return to_json(result)
    except PydanticSerializationError:
        return None


def _parsed(body: bytes) -> Params | None:
    """The result that was written so; None if it nests too deeply for our reader, which gives up before our writer."""
    try:
        result: Params = from_json(body)
    except ValueError:
        return None
    return result
