"""Describing why a value does not match a schema, in one sentence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jsonschema import ValidationError
from jsonschema.exceptions import best_match

from mcp_host.errors import excerpt, quoted

MAX_PROBLEM = 500  # characters of one message
PATH_SHOWN = 120
TEXT_SHOWN = 60
LISTED = 5  # of the values to choose from


def first_problem(validator: Any, value: object, show_values: bool = True) -> str | None:
    """The first error, with its path. Without *show_values* the text contains nothing of the value but names."""
    error = next(validator.iter_errors(value), None)
    if error is None:
        return None
    if not show_values and (choices := _choices(error)):
        nearest, message = error, _one_of(choices)
    else:
        nearest = best_match([error]) or error  # in the most likely alternative of "anyOf"
        message = nearest.message if show_values else _discreet(nearest)
    path = excerpt(nearest.json_path, PATH_SHOWN)
    return excerpt(message if path == "$" else f"{path}: {message}", MAX_PROBLEM)


def _discreet(error: ValidationError) -> str:
    """What is wrong, in terms of the schema only."""
    keyword, demand = error.validator, error.validator_value
    if keyword is None:
        return "no value is allowed"
    if keyword in _IN_WORDS:
        return _IN_WORDS[keyword](demand)
    if isinstance(error.instance, dict | list):
        return error.message  # which contains names and counts
    return f"it violates {quoted(keyword)}, which is {_shown(demand)}"


def _choices(error: ValidationError) -> Sequence[Any]:
    """The choices, if the alternatives are constants: an enum with titles."""
    if error.validator not in ("anyOf", "oneOf") or not error.context:
        return ()
    parts: Any = error.validator_value
    is_choice = all(isinstance(part, dict) and "const" in part for part in parts)
    return [part["const"] for part in parts] if is_choice else ()


def _one_of(listed: Sequence[Any]) -> str:
    return f"not one of: {listed_briefly(listed)}"


def listed_briefly(values: Sequence[Any]) -> str:
    more = f" or {len(values) - LISTED} more" if len(values) > LISTED else ""
    return ", ".join(map(repr, values[:LISTED])) + more


def _shown(demand: object) -> str:
    return excerpt(repr(demand), TEXT_SHOWN)


def _count(number: Any, noun: str) -> str:
    return f"{_shown(number)} {noun}{'' if number == 1 else 's'}"


_IN_WORDS: dict[str, Callable[[Any], str]] = {
    "type": lambda kinds: f"not of type {listed_briefly(kinds if isinstance(kinds, list) else [kinds])}",
    "enum": _one_of,
    "const": lambda value: f"not {_shown(value)}",
    "minimum": lambda bound: f"less than the minimum of {_shown(bound)}",
    "maximum": lambda bound: f"greater than the maximum of {_shown(bound)}",
    "exclusiveMinimum": lambda bound: f"not greater than {_shown(bound)}",
    "exclusiveMaximum": lambda bound: f"not less than {_shown(bound)}",
    "multipleOf": lambda unit: f"not a multiple of {_shown(unit)}",
    "minLength": lambda bound: f"shorter than {_count(bound, 'character')}",
    "maxLength": lambda bound: f"longer than {_count(bound, 'character')}",
    "pattern": lambda source: f"does not match {_shown(source)}",
    "minItems": lambda bound: f"fewer than {_count(bound, 'item')}",
    "maxItems": lambda bound: f"more than {_count(bound, 'item')}",
}
"""How a value violates each keyword."""
