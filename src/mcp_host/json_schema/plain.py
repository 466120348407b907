"""A quick check for the schemas that most tools have: an object of named members with plain types.

It says "yes" or "perhaps not", and never why: the full check (`mcp_host.json_schema.schema`) does that. It prepares
nothing and imports no library. For a usual call of a tool it takes 2 µs; the full check takes 20, after 1,000 to
prepare the schema and 100,000 to import `jsonschema`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import ge, gt, le, lt
from typing import Any, TypeAlias

MAX_BRANCHES = 8
MAX_PARTS = 256  # of one value; also choices, and required members: so the work is bounded for any schema

TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),  # so is 3.0: the full check knows
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}

SCALARS = (str, int, bool, type(None))

DIALECTS = frozenset(  # in these, the keywords below mean the same
    {
        "https://json-schema.org/draft/2020-12/schema",
        "https://json-schema.org/draft/2019-09/schema",
        "http://json-schema.org/draft-07/schema#",
    }
)

ANNOTATIONS = frozenset(
    {"$comment", "default", "deprecated", "description", "examples", "format", "readOnly", "title", "writeOnly"}
)
Bound: TypeAlias = tuple[str, Callable[[Any], int | float] | None, Callable[[Any, Any], bool]]

NUMBERS: Sequence[Bound] = (
    ("minimum", None, ge),
    ("maximum", None, le),
    ("exclusiveMinimum", None, gt),
    ("exclusiveMaximum", None, lt),
)
BOUNDS: dict[type, Sequence[Bound]] = {
    str: (("minLength", len, ge), ("maxLength", len, le)),
    int: NUMBERS,
    float: NUMBERS,
    list: (("minItems", len, ge), ("maxItems", len, le)),
    dict: (("minProperties", len, ge), ("maxProperties", len, le)),
}
"""By the type of the value: the keyword, what of the value it bounds (None for the value itself), and how."""

KEYWORDS = ANNOTATIONS.union(
    ("$schema", "additionalProperties", "anyOf", "enum", "items", "properties", "required", "type"),
    (keyword for bounds in BOUNDS.values() for keyword, _, _ in bounds),
)


def conforms(schema: object, value: object) -> bool:
    """Whether a decoded JSON value certainly conforms to *schema*.

    What applies to no part of the value is not looked at: there the schema may even be invalid.
    """
    todo: list[tuple[object, object]] = [(schema, value)]
    for part, found in todo:  # which grows meanwhile
        if type(part) is not dict or not KEYWORDS.issuperset(part):
            return False
        if not _may_be(part, found):
            return False
        if "anyOf" in part:
            todo.append((_branch(part["anyOf"], found), found))
        if "$schema" in part and part["$schema"] not in DIALECTS:
            return False
        if type(found) is dict and not _add_members(todo, part, found):
            return False
        if type(found) is list and "items" in part:
            todo += [(part["items"], item) for item in found[:MAX_PARTS]]
        if len(todo) > MAX_PARTS:
            return False
    return True


def _may_be(part: dict[str, object], found: object) -> bool:
    """Whether the value itself conforms, apart from its members and items."""
    if "type" in part and type(found) not in _types(part["type"]):
        return False
    return ("enum" not in part or _is_choice(found, part["enum"])) and _is_within(part, found)


def _types(named: object) -> Sequence[type]:
    if type(named) is str:
        return TYPES.get(named, ())
    if type(named) is not list:
        return ()
    return [kind for name in named if type(name) is str for kind in TYPES.get(name, ())]


def _is_choice(found: object, choices: object) -> bool:
    if type(found) not in SCALARS or type(choices) is not list or len(choices) > MAX_PARTS:
        return False
    return any(type(choice) is type(found) and choice == found for choice in choices)


def _is_within(part: dict[str, object], found: object) -> bool:
    for keyword, measure, holds in BOUNDS.get(type(found), ()):
        if keyword in part:
            bound = part[keyword]
            if type(bound) not in (int, float) or not holds(found if measure is None else measure(found), bound):
                return False
    return True


def _branch(branches: object, found: object) -> object:
    """The first of the *branches* for the type of the value, as of an optional parameter; None if there is none."""
    for branch in branches[:MAX_BRANCHES] if type(branches) is list else ():
        if type(branch) is dict and type(found) in _types(branch.get("type")):
            return branch
    return None


def _add_members(todo: list[tuple[object, object]], part: dict[str, object], found: dict[str, object]) -> bool:
    """Add the members of *found* to what is to be checked. False if there may be too many or too few."""
    properties, required = part.get("properties", {}), part.get("required", [])
    if type(properties) is not dict or type(required) is not list or max(len(found), len(required)) > MAX_PARTS:
        return False
    for name in required:
        if type(name) is not str or name not in found:
            return False
    others = part.get("additionalProperties", True)
    for name, member in found.items():
        if name in properties:
            todo.append((properties[name], member))
        elif others is not True:
            todo.append((others, member))  # False is no dict, so it does not conform
    return True
