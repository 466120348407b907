"""How many values JSON has: typed objects are read from it in one step of the event loop, about a microsecond for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mcp_host.protocol.cache import CHANGES
from mcp_host.protocol.eras import DISCOVER, INITIALIZE
from mcp_host.protocol.jsonrpc import Params
from mcp_host.types.base import FREE_FORM

SMALLEST_VALUE = 2  # bytes: "1,"

READ_AT_ONCE = frozenset(CHANGES) | {
    INITIALIZE,
    DISCOVER,
    "tools/call",
    "resources/read",
    "prompts/get",
    "completion/complete",
    "notifications/message",
    "notifications/progress",
    "notifications/elicitation/complete",
}
"""Requests whose results, and notifications whose params, are read in one step.

Lists are read in portions. What is not in here is kept as JSON.
"""


def count_values(value: object, most: float) -> int:
    """The members of objects and items of arrays in JSON, beneath each other; of more than *most*, only some.

    What is inside of `FREE_FORM` members is not counted.
    """
    found = 0
    containers = [value] if isinstance(value, dict | list) else []
    while containers and found <= most:
        container = containers.pop()
        found += len(container)
        if found > most:
            break
        if isinstance(container, dict):
            containers += [
                member
                for name, member in container.items()
                if isinstance(member, dict | list) and name not in FREE_FORM
            ]
        else:
            containers += [item for item in container if isinstance(item, dict | list)]
    return found


def has_too_many_values(method: str, json: Params, most: float) -> bool:
    """Whether the result or the params of *method* have more than *most* values, and would be read in one step."""
    return method in READ_AT_ONCE and count_values(json, most) > most


class Portion(NamedTuple):
    """A part of a list that is read in one step."""

    start: int
    """The position of its first item."""
    items: list[object]
    values: int
    """The number of these and of all in them."""


def portions(items: Sequence[object], length: int, values: float) -> Iterator[Portion]:
    """A list in parts of at most *length* items and *values* values. An item with more is a part by itself."""
    start = found = 0
    for end, item in enumerate(items):
        more = 1 + count_values(item, values)
        if end > start and (end - start == length or found + more > values):
            yield Portion(start, [*items[start:end]], found)
            start, found = end, 0
        found += more
    if items:
        yield Portion(start, [*items[start:]], found)
