"""Results that the server calls fresh, kept for that long (2026-07-28, server/utilities/caching)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from enum import Enum
from typing import NamedTuple, TypeAlias

from pydantic_core import PydanticSerializationError, from_json, to_json

from mcp_host.protocol.callers import caller_key
from mcp_host.protocol.eras import Complete
from mcp_host.protocol.jsonrpc import Notification, Params

CHANGES = {
    "notifications/tools/list_changed": ("tools/list",),
    "notifications/prompts/list_changed": ("prompts/list",),
    "notifications/resources/list_changed": ("resources/list", "resources/templates/list"),
    "notifications/resources/updated": ("resources/read",),
}
"""The notifications of changes, and the requests whose cached results each makes stale."""

ENTRY_COST = (
    512  # bytes that an entry takes besides its key and body: about 350 as measured, and its share of the table
)

Request: TypeAlias = tuple[str, ...]
"""A method, then the names and values of its parameters in turn, its ``_meta``, and the names and values of its HTTP headers."""

TRACE_CONTEXT = frozenset({"traceparent", "tracestate"})
"""Keys of ``_meta`` that differ in each request and say nothing of its result."""

NO_HEADERS: Mapping[str, str] = {}


class _Everyone(Enum):
    EVERYONE = 0


class Key(NamedTuple):
    request: Request
    caller: Hashable
    """The `caller_key` of `Call.caller`, or EVERYONE for a result whose `cacheScope` is "public"."""


class Entry(NamedTuple):
    body: bytes  # as JSON, so that no caller can change it for the next
    until: float
    size: int


class Cache:
    """The results of one client. Not shared, even if `cacheScope` is "public": another client may have other credentials.

    It takes at most *limit* bytes, keys included; 0 turns it off. *clock* is in seconds.
    """

    def __init__(self, limit: int, clock: Callable[[], float]) -> None:
        self._limit = limit
        self._clock = clock
        self._entries: OrderedDict[Key, Entry] = OrderedDict()
        self._size = 0
        self._context: Hashable = None
        """The authorization context of what is private."""
        self.changes = 0
        """Grows with every change. Read it before a request and pass it to `keep`."""
        self.tool_changes = 0
        """Grows with every change after which a listing of tools may be stale."""

    def find(
        self, method: str, params: Params, headers: Mapping[str, str] = NO_HEADERS, *, caller: object = None
    ) -> Params | None:
        """The result of this request, if there is a fresh one. *headers* are HTTP headers that middleware has added.

        One that is not "public" is for the same *caller* only.
        """
        for key in _keys(method, params, headers, caller) if self._entries else ():
            if (entry := self._entries.get(key)) is None:
                continue
            if self._clock() < entry.until:
                with suppress(ValueError):  # it nests too deeply: the parser allows less than the writer
                    result: Params = from_json(entry.body)
                    return result
            self._remove(key)
        return None

    def keep(
        self,
        method: str,
        params: Params,
        result: Complete,
        headers: Mapping[str, str] = NO_HEADERS,
        *,
        caller: object = None,
        since: int | None = None,
    ) -> None:
        """Keep *result* while it is fresh, if it fits.

        If anything has changed *since* (the value of `changes` before the request), it may be stale and is not kept.
        """
        if result.fresh_for <= 0 or not self._limit or since not in (None, self.changes):
            return
        keys = _keys(method, params, headers, caller)
        for key in keys:
            self._remove(key)
        if not keys:
            return
        private, public = keys
        key = public if result.value.get("cacheScope") == "public" else private
        try:
            body = to_json(result.value)
        except PydanticSerializationError:  # it nests too deeply, or cannot be encoded in UTF-8
            return
        size = ENTRY_COST + sum(len(part.encode(errors="surrogatepass")) for part in key.request) + len(body)
        if size > self._limit:
            return
        while self._size + size > self._limit:
            self._remove(next(iter(self._entries)))
        self._entries[key] = Entry(body, self._clock() + result.fresh_for, size)
        self._size += size

    def invalidate(self, notification: Notification) -> None:
        """Drop what the server says has changed."""
        if notification.method == "notifications/resources/updated":
            if isinstance(uri := notification.params.get("uri"), str):
                self.changes += 1
                read = ("resources/read", "uri", uri)
                for key in [key for key in self._entries if key.request[:3] == read]:
                    self._remove(key)
        elif notification.method in CHANGES:
            self.drop(*CHANGES[notification.method])

    def drop(self, *methods: str) -> None:
        """Drop all results of *methods*; without arguments, all results."""
        self.changes += 1
        if not methods or "tools/list" in methods:
            self.tool_changes += 1
        for key in [key for key in self._entries if not methods or key.request[0] in methods]:
            self._remove(key)

    def enter(self, context: Hashable) -> None:
        """Drop what is private to another authorization than that of *context*."""
        if context == self._context:
            return
        self._context = context
        self.changes += 1
        self.tool_changes += 1
        for key in [key for key in self._entries if key.caller is not _Everyone.EVERYONE]:
            self._remove(key)

    def _remove(self, key: Key) -> None:
        if (entry := self._entries.pop(key, None)) is not None:
            self._size -= entry.size


def _keys(method: str, params: Params, headers: Mapping[str, str], caller: object) -> tuple[Key, Key] | tuple[()]:
    """The keys of a request: that for the *caller* alone, and that for everyone.

    None if a parameter is not text, as those of all cacheable requests are.
    ``_meta`` and headers may say for which user the request is.
    """
    named = {name: value for name, value in params.items() if name != "_meta"}
    if not all(isinstance(value, str) for value in named.values()):
        return ()
    parts = sorted(named.items())
    if meta := {name: value for name, value in params.get("_meta", {}).items() if name not in TRACE_CONTEXT}:
        try:
            parts.append(("_meta", to_json(sorted(meta.items())).decode()))
        except PydanticSerializationError:
            return ()
    request = (method, *(part for item in (*parts, *sorted(headers.items())) for part in item))
    return Key(request, caller_key(caller)), Key(request, _Everyone.EVERYONE)
