"""The data of a file, as its parser returns it: what is at a place, and the same with a change there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from mcp_host.errors import excerpt

Keys: TypeAlias = Sequence[str | int]
"""Names of members and indexes of items, from the top of the data."""

MAX_DEPTH = 100  # objects and lists within each other
TOO_DEEP = "it nests too deeply"
TOO_LONG = "it has a number that is too long"


class Members(dict[str, object]):
    """The members of an object. *repeated* are the names that the file has more than once: the last value is taken."""

    repeated: tuple[str, ...] = ()


def members_of(pairs: list[tuple[str, object]]) -> Members:
    """The members of an object, from what the file has one after the other."""
    members = Members(pairs)
    if len(members) < len(pairs):
        members.repeated = tuple(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
    return members


def repeated_names(data: object, place: tuple[str, ...] = ()) -> Iterator[str]:
    """The names that objects within *data* have more than once, with their place: ``env.TOKEN``."""
    if isinstance(data, list):
        for index, item in enumerate(data):
            yield from repeated_names(item, (*place, f"[{index}]"))
    elif isinstance(data, dict):
        for name in data.repeated if isinstance(data, Members) else ():
            yield "".join((*place, f".{excerpt(name)}")).removeprefix(".")
        for key, value in data.items():
            if isinstance(value, list | dict):
                yield from repeated_names(value, (*place, f".{excerpt(key)}"))


def is_deep(data: object) -> bool:
    """Whether *data* has more than `MAX_DEPTH` objects and lists within each other."""
    level = [data]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for each in level
            if isinstance(each, dict | list)
            for child in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return False
    return True


def member(data: Any, path: Keys) -> Any:
    """What is at *path*, which names objects only; None if there is nothing."""
    for name in path:
        data = data.get(name) if isinstance(data, dict) else None
    return data


def with_member(data: object, path: Keys, value: object) -> object:
    """*data* with *value* at *path*. Objects and lists on the way are made if they are missing. The next index of a list adds an item."""
    if not path:
        return value
    name, *rest = path
    if isinstance(name, int):
        items = data if isinstance(data, list) else []
        return [*items[:name], with_member(None, rest, value), *items[name + 1 :]]
    members = data if isinstance(data, dict) else {}
    return {**members, name: with_member(members.get(name), rest, value)}


def without_member(data: object, path: Keys) -> object:
    """*data* without what is at *path*, which is there."""
    *way, last = path
    parent = member(data, way)
    if isinstance(last, int):
        return with_member(data, way, [*parent[:last], *parent[last + 1 :]])
    return with_member(data, way, {name: value for name, value in parent.items() if name != last})
