"""The strings in JSON, changed one by one, or at each place all at once: a stream has the pieces of a text at one place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TypeAlias

from mcp_host.types.base import JSONValue

Place: TypeAlias = tuple[str | int, ...]


def mapped(value: JSONValue, change: Callable[[str], str]) -> JSONValue:
    """*value* with *change* applied to each string and to each name of a member."""
    match value:
        case str():
            return change(value)
        case dict():
            return {change(key): mapped(inner, change) for key, inner in value.items()}
        case list():
            return [mapped(inner, change) for inner in value]
    return value


def texts_by_place(elements: list[JSONValue]) -> dict[Place, list[str]]:
    """The strings in *elements* at each place, in order."""
    texts: defaultdict[Place, list[str]] = defaultdict(list)

    def collect(place: Place, text: str) -> str:
        texts[place].append(text)
        return text

    for element in elements:
        mapped_by_place(element, collect)
    return texts


def with_texts(elements: list[JSONValue], change: Callable[[list[str]], list[str]]) -> list[JSONValue]:
    """*elements* with *change* applied to the strings at each place, all at once."""
    changed = {place: iter(change(parts)) for place, parts in texts_by_place(elements).items()}
    return [mapped_by_place(element, lambda place, _: next(changed[place])) for element in elements]


def mapped_by_place(value: JSONValue, change: Callable[[Place, str], str], place: Place = ()) -> JSONValue:
    """*value* with *change* applied to each string and its place, which is a path of names and positions.

    An ``index`` is part of the path, as streams tell their blocks apart by it. So is Gemini's ``thought``, which tells
    thoughts from the answer.
    """
    match value:
        case str():
            return change(place, value)
        case dict():
            numbers = [
                inner for name, inner in value.items() if name.endswith(("index", "thought")) and isinstance(inner, int)
            ]
            return {name: mapped_by_place(inner, change, (*place, *numbers, name)) for name, inner in value.items()}
        case list():
            numbered = [isinstance(inner, dict) and isinstance(inner.get("index"), int) for inner in value]
            return [
                mapped_by_place(inner, change, place if by_index else (*place, position))
                for position, (inner, by_index) in enumerate(zip(value, numbered, strict=True))
            ]
    return value
