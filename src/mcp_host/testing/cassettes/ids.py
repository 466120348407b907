"""Random values: in a file they are placeholders, and in a replay the values of the moment.

A placeholder is a kind and a number, such as ``call__1``, of characters that all providers allow in ids.

Values of the other side (a server's `requestState`, a provider's ids) are replayed as the placeholder itself. Values
of our side (ids of requests, keys under ``_meta``) differ in each run: the first value that comes where a placeholder
was recorded is put for this placeholder from then on, in both directions.

A text that only looks like a placeholder, or like the mark of a secret, is recorded with a ``~``, to tell them apart:
``call__~1``, ``<~redacted>``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from mcp_host.testing.cassettes.redaction import REDACTED
from mcp_host.testing.cassettes.texts import mapped
from mcp_host.types.base import JSONObject, JSONValue

KINDS = "request|server|token|call|state|reasoning|trace|id"
PLACEHOLDER = re.compile(rf"({KINDS})__[0-9]{{1,9}}")
LIKE_PLACEHOLDER = re.compile(rf"({KINDS})__(~*)([0-9]{{1,9}})")
LIKE_MARK = re.compile("<(~*)redacted>")

RANDOM_MEMBERS = {
    "toolUseId": "call",
    "tool_use_id": "call",
    "tool_call_id": "call",
    "call_id": "call",
    "requestState": "state",
    "mcp-host/reasoning": "reasoning",
    "traceparent": "trace",
    "responseId": "id",
    "previous_response_id": "id",
    "request_id": "id",
}
"""Members that hold a random value wherever they stand, in MCP and in the APIs of providers, with its kind."""

CALLS = frozenset({"tool_use", "server_tool_use", "function", "function_call"})
"""The ``type`` of an object whose ``id`` is that of a tool call. That of any other object with a type is an ``id``."""

DATA = frozenset(
    {"args", "arguments", "inputSchema", "input_schema", "outputSchema", "parameters", "structuredContent"}
)
"""Members with data of tools and users: an ``id`` in there is theirs."""


class Ids:
    """The placeholders of one cassette, and their values so far."""

    def __init__(self) -> None:
        self._values: dict[str, JSONValue] = {}
        self._names: dict[str, str] = {}
        self._last: Counter[str] = Counter()
        self._given: set[str] = set()  # placeholders
        self._taken: set[str] = set()  # recorded texts that only look like placeholders

    def reserve(self, recorded: JSONValue) -> None:
        """Do not give out the placeholders in *recorded* again."""
        for text in strings(recorded):
            if PLACEHOLDER.fullmatch(text):
                kind, _, number = text.partition("__")
                self._last[kind] = max(self._last[kind], int(number))
                self._given.add(text)
            elif LIKE_PLACEHOLDER.fullmatch(text):
                self._taken.add(unescaped(text))

    def new(self, kind: str) -> str:
        """A placeholder that is not used yet."""
        while True:
            self._last[kind] += 1
            name = f"{kind}__{self._last[kind]}"
            if name not in self._taken:
                self._given.add(name)
                return name

    def hide(self, live: JSONValue) -> JSONValue:
        """*live*, which is `escaped`, as it is recorded: with placeholders for its random values, old and new."""
        for kind, value in random_values(live):
            if value not in self._names and value not in self._given:
                self._names[value] = self.new(kind)
        return self._replaced(live)

    def _replaced(self, live: JSONValue) -> JSONValue:
        match live:
            case str():
                return self._names.get(live, live)
            case dict():
                return {key: value if key in DATA else self._replaced(value) for key, value in live.items()}
            case list():
                return [self._replaced(value) for value in live]
        return live

    def escaped(self, live: JSONObject) -> JSONObject:
        """*live* with a ``~`` in each text that looks like a placeholder or like a mark, but is not one."""

        def escape(text: str) -> str:
            if text not in self._given and LIKE_PLACEHOLDER.fullmatch(text):
                self._taken.add(text)
                return text.replace("__", "__~", 1)
            return LIKE_MARK.sub(r"<~\1redacted>", text)

        return {escape(name): mapped(value, escape) for name, value in live.items()}

    def reveal(self, recorded: JSONValue) -> JSONValue:
        """*recorded* as it is replayed: with the values of placeholders. One without a value stands for itself."""
        match recorded:
            case str() if PLACEHOLDER.fullmatch(recorded):
                value = self._values.setdefault(recorded, recorded)
                return unescaped(value) if isinstance(value, str) else value
            case str():
                return unescaped(recorded)
            case dict():
                return {unescaped(key): self.reveal(value) for key, value in recorded.items()}
            case list():
                return [self.reveal(value) for value in recorded]
        return recorded

    def match(self, recorded: JSONValue, live: JSONValue) -> bool:
        """Whether *live* is what was *recorded*. If so, placeholders have its random values from now on."""
        values = dict(self._values)
        if not _match(recorded, live, values):
            return False
        for placeholder, value in values.items():
            self._values[placeholder] = value
            if isinstance(value, str):
                self._names.setdefault(value, placeholder)
        return True

    def align(self, recorded: JSONValue, live: JSONValue) -> JSONValue:
        """*recorded* with the random values of *live*, so that a comparison shows only the other differences."""
        match recorded, live:
            case str(), str() | int() if _match(recorded, live, dict(self._values)):
                return live
            case str(), _ if PLACEHOLDER.fullmatch(recorded):
                return self._values.get(recorded, recorded)
            case dict(), dict():
                return {key: self.align(value, live.get(key)) for key, value in recorded.items()}
            case list(), list():
                others = [*live, *[None] * len(recorded)]
                return [self.align(value, other) for value, other in zip(recorded, others, strict=False)]
        return recorded


def _match(recorded: JSONValue, live: JSONValue, values: dict[str, JSONValue]) -> bool:
    match recorded, live:
        case str(), str() | int() if PLACEHOLDER.fullmatch(recorded):
            return values.setdefault(recorded, live) == live
        case str(), str() if REDACTED in recorded:
            return _has_in_order(live, recorded.split(REDACTED))
        case dict(), dict():
            return recorded.keys() == live.keys() and all(_match(recorded[key], live[key], values) for key in recorded)
        case list(), list():
            pairs = zip(recorded, live, strict=False)
            return len(recorded) == len(live) and all(_match(one, other, values) for one, other in pairs)
    return type(recorded) is type(live) and recorded == live


def _has_in_order(text: str, parts: Sequence[str]) -> bool:
    """Whether *text* is *parts* with anything between them. Taking each part at its first place is enough."""
    first, *inner, last = parts
    if not text.startswith(first) or not text.endswith(last):
        return False
    at, end = len(first), len(text) - len(last)
    for part in inner:
        if (found := text.find(part, at, max(at, end))) < 0:
            return False
        at = found + len(part)
    return at <= end


def unescaped(text: str) -> str:
    """*text* as it was before `Ids.escaped`."""
    if (found := LIKE_PLACEHOLDER.fullmatch(text)) and found[2]:
        return text.replace("__~", "__", 1)
    return re.sub("<~(~*)redacted>", r"<\1redacted>", text)


def random_values(live: JSONValue) -> Iterator[tuple[str, str]]:
    """The kind and the text of each random value in *live*, in order."""
    if isinstance(live, list):
        for value in live:
            yield from random_values(value)
    elif isinstance(live, dict):
        for key, value in live.items():
            kind = _id_kind(live) if key == "id" else RANDOM_MEMBERS.get(key)
            if kind is not None and isinstance(value, str) and value:
                yield kind, value
            elif key not in DATA and not (key == "input" and live.get("type") in CALLS):
                yield from random_values(value)


def _id_kind(owner: Mapping[str, JSONValue]) -> str | None:
    """The kind of the ``id`` of *owner*; None if it is data. Only typed objects, and Gemini's calls and results, have one."""
    if owner.get("type") in CALLS or ("name" in owner and ("args" in owner or "response" in owner)):
        return "call"
    return "id" if "type" in owner or "object" in owner else None


def strings(value: JSONValue) -> Iterator[str]:
    """All strings in *value*, but not the names of members."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from strings(inner)
