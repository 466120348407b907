"""Results that the server calls fresh, kept for that long (2026-07-28, server/utilities/caching)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from pydantic_core import from_json, to_json

from mcp_host.protocol.eras import Complete
from mcp_host.protocol.jsonrpc import Notification, Params

STALE_BY = {
    "notifications/tools/list_changed": ("tools/list",),
    "notifications/prompts/list_changed": ("prompts/list",),
    "notifications/resources/list_changed": ("resources/list", "resources/templates/list"),
    "notifications/resources/updated": ("resources/read",),
}
"""Which results each notification makes stale, whatever was said of their freshness."""


@dataclass(frozen=True, slots=True)
class Entry:
    body: bytes  # as JSON, so that nobody who gets it can change it for the next
    until: float


class Cache:
    """The results of one client: what it gets with its credentials is for nobody else, whatever `cacheScope` says.

    Holds *limit* bytes at most, and by *clock* (seconds) decides what is fresh. With a limit of 0 it keeps nothing.
    """

    def __init__(self, limit: int, clock: Callable[[], float]) -> None:
        self._limit = limit
        self._clock = clock
        self._entries: OrderedDict[tuple[str, bytes], Entry] = OrderedDict()
        self._size = 0

    def find(self, method: str, params: Params) -> Params | None:
        """The result of this very request, if there is a fresh one."""
        if not self._entries:
            return None
        key = _key(method, params)
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.until <= self._clock():
            self._remove(key)
            return None
        result: Params = from_json(entry.body)
        return result

    def keep(self, method: str, params: Params, result: Complete) -> None:
        """Keep *result* for as long as it is fresh, unless it is too large for all the room there is."""
        if result.fresh_for <= 0 or not self._limit:
            return
        key, body = _key(method, params), to_json(result.value)
        self._remove(key)
        if len(body) > self._limit:
            return
        while self._size + len(body) > self._limit:
            self._remove(next(iter(self._entries)))
        self._entries[key] = Entry(body, self._clock() + result.fresh_for)
        self._size += len(body)

    def heed(self, notification: Notification) -> None:
        """Drop what the server says has changed."""
        stale = STALE_BY.get(notification.method, ())
        uri = notification.params.get("uri")
        for method in stale:
            if method == "resources/read":
                self._remove(_key(method, {"uri": uri}))
            else:
                self.drop(method)

    def drop(self, *methods: str) -> None:
        """Drop all results of *methods*; without any, everything."""
        for key in [key for key in self._entries if not methods or key[0] in methods]:
            self._remove(key)

    def _remove(self, key: tuple[str, bytes]) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._size -= len(entry.body)


def _key(method: str, params: Params) -> tuple[str, bytes]:
    return method, to_json({name: params[name] for name in sorted(params) if name != "_meta"})
