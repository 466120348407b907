"""Writing 30.0 as 30 where a schema has an integer.

Both are one integer (JSON Schema 2020-12, 4.2.3), and models write either. Servers in Go, or in Rust with serde, take
only the second.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias, TypeVar

from mcp_host.json_schema.references import target

LARGEST = 2**53  # beyond, a float may stand for another integer than the one that was written
MAX_PARTS = 64  # subschemas that are looked at for one value
MAX_VALUES = 10_000  # of arguments; larger ones stay as they are, and so do objects that contain themselves

BRANCHES = ("allOf", "anyOf", "oneOf")

Part: TypeAlias = dict[str, Any]

T = TypeVar("T")


def with_integers(schema: Mapping[str, object], value: T) -> T:
    """The decoded JSON *value* with integers for whole floats where *schema*, or any of its alternatives, has the type
    "integer" or lists that integer. It is *value* itself if no float in it is whole, or if it is large.

    Patterns for names, conditions, and references to other documents are not followed.
    """
    if not _has_whole_float(value):
        return value
    root = [value]
    todo: list[tuple[list[Part], Any, Any]] = [(_applying([schema], schema), root, 0)]
    for parts, within, place in todo:  # which grows meanwhile
        found = within[place]
        if type(found) is float:
            if found.is_integer() and abs(found) <= LARGEST and any(_has_integer(part, found) for part in parts):
                within[place] = int(found)
        elif type(found) is dict and parts:
            within[place] = members = dict(found)
            todo += [(_applying(_of_member(parts, name), schema), members, name) for name in members]
        elif type(found) is list and parts:
            within[place] = items = list(found)
            todo += [(applying, items, index) for index, applying in enumerate(_of_items(parts, len(items), schema))]
    return root[0]


def _has_whole_float(value: object) -> bool:
    """Whether a float in *value* is whole, unless it has more than `MAX_VALUES`."""
    found = False
    todo = [value]
    for each in todo:
        if type(each) is float:
            found |= each.is_integer()
        elif type(each) is dict:
            todo += each.values()
        elif type(each) is list:
            todo += each
        if len(todo) > MAX_VALUES:
            return False
    return found


def _has_integer(part: Part, found: float) -> bool:
    """Whether *part* has the type "integer", alone or among others, or lists the integer that *found* is."""
    kinds, choices = part.get("type"), part.get("enum", [part.get("const")])
    if kinds == "integer" or (type(kinds) is list and "integer" in kinds):
        return True
    return type(choices) is list and any(type(choice) is int and choice == found for choice in choices)


def _applying(parts: Iterable[object], root: Mapping[str, object]) -> list[Part]:
    """The schemas among *parts*, with what they refer to and their alternatives."""
    found = [part for part in parts if type(part) is dict]
    for part in found:  # which grows meanwhile
        if len(found) > MAX_PARTS:
            break
        if type(reference := part.get("$ref")) is str:
            found.append(target(reference, root))
        for keyword in BRANCHES:
            if type(branches := part.get(keyword)) is list:
                found += [branch for branch in branches if type(branch) is dict]
    return found


def _of_member(parts: list[Part], name: str) -> Iterator[object]:
    for part in parts:
        properties = part.get("properties")
        others = part.get("additionalProperties")
        yield properties[name] if type(properties) is dict and name in properties else others


def _of_items(parts: list[Part], length: int, root: Mapping[str, object]) -> Iterator[list[Part]]:
    """The schemas that apply to each of so many items."""
    firsts = [first for part in parts if type(first := part.get("prefixItems", part.get("items"))) is list]
    others = _applying([part.get("items") for part in parts], root)
    for index in range(length):
        own = [first[index] for first in firsts if index < len(first)]
        yield _applying(own, root) if own else others
