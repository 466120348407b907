"""Random values: in a file they are placeholders, and in a replay the values of the moment.

A placeholder is a word and a number, such as ``call__1``, of characters that all providers allow in ids. What the
recorded side made (a server's `requestState`, a provider's ids) is replayed as the placeholder itself. What our side
makes (ids of requests, keys under ``_meta``) is another value in each run: the first that stands where a placeholder
was recorded is its value from then on, in both directions. A text that only looks like a placeholder, or like the
mark of a secret, is recorded with a ``~``: ``call__~1``, ``<~redacted>``. So neither is taken for the other.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from mcp_host.testing.cassettes.redaction import REDACTED, mapped
from mcp_host.types.base import JSONObject, JSONValue

KIND = "request|server|token|call|state|reasoning|trace|id"
PLACEHOLDER = re.compile(rf"({KIND})__[0-9]{{1,9}}")
LOOKS_SO = re.compile(rf"({KIND})__(~*)([0-9]{{1,9}})")
LOOKS_MARKED = re.compile("<(~*)redacted>")

KINDS = {
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
"""The members that hold a random value wherever they stand, in MCP and in the APIs of providers."""

CALLS = frozenset({"tool_use", "server_tool_use", "function", "function_call"})
"""The ``type`` of an object whose ``id`` is that of a tool call. That of any other object with a type is an ``id``."""

DATA = frozenset(
    {"args", "arguments", "inputSchema", "input_schema", "outputSchema", "parameters", "structuredContent"}
)
"""Members that belong to tools and users: an ``id`` in there is theirs."""


class Ids:
    """The placeholders of one cassette, and their values so far."""

    def __init__(self) -> None:
        self._values: dict[str, JSONValue] = {}
        self._names: dict[str, str] = {}
        self._last: Counter[str] = Counter()
        self._given: set[str] = set()
        self._taken: set[str] = set()  # by texts that only look so

    def reserve(self, recorded: JSONValue) -> None:
        """Give out no placeholder that *recorded* has."""
        for text in strings(recorded):
            if PLACEHOLDER.fullmatch(text):
                kind, _, number = text.partition("__")
                self._last[kind] = max(self._last[kind], int(number))
                self._given.add(text)
            elif LOOKS_SO.fullmatch(text):
                self._taken.add(unescaped(text))

    def new(self, kind: str) -> str:
        """A placeholder that was not given out yet."""
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
        """*live*, as it came, with a ``~`` in what looks like a mark or like a placeholder, but is none."""

        def escape(text: str) -> str:
            if text not in self._given and LOOKS_SO.fullmatch(text):
                self._taken.add(text)
                return text.replace("__", "__~", 1)
            return LOOKS_MARKED.sub(r"<~\1redacted>", text)

        return {escape(name): mapped(value, escape) for name, value in live.items()}

    def reveal(self, recorded: JSONValue) -> JSONValue:
        """*recorded* as it is replayed. A placeholder without a value gets itself as its value."""
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
        """Whether *live* is what was recorded. If so, its random values are those of the placeholders from now on."""
        values = dict(self._values)
        if not _match(recorded, live, values):
            return False
        for placeholder, value in values.items():
            self._values[placeholder] = value
            if isinstance(value, str):
                self._names.setdefault(value, placeholder)
        return True

    def align(self, recorded: JSONValue, live: JSONValue) -> JSONValue:
        """*recorded* with the random values of *live*, so that a comparison shows only what differs otherwise."""
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
    """Whether *text* is *parts* with anything between them. The first place of each is the best: nothing is tried twice."""
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
    if (found := LOOKS_SO.fullmatch(text)) and found[2]:
        return text.replace("__~", "__", 1)
    return re.sub("<~(~*)redacted>", r"<\1redacted>", text)


def random_values(live: JSONValue) -> Iterator[tuple[str, str]]:
    """Each random value in *live* with its kind, in the order in which they stand."""
    if isinstance(live, list):
        for value in live:
            yield from random_values(value)
    elif isinstance(live, dict):
        for key, value in live.items():
            kind = _id_kind(live) if key == "id" else KINDS.get(key)
            if kind is not None and isinstance(value, str) and value:
                yield kind, value
            elif key not in DATA and not (key == "input" and live.get("type") in CALLS):
                yield from random_values(value)


def _id_kind(owner: Mapping[str, JSONValue]) -> str | None:
    """What the ``id`` of *owner* is: none of ours, unless it has a type, or is a call or its result of Gemini's."""
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
