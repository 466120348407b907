"""A quick check for the schemas that most tools have: an object of named members with plain types.

It says "yes" or "perhaps not", and never why: the full check (`mcp_host.json_schema.schema`) does that. It prepares
nothing and imports no library. For a usual call of a tool it takes 2 µs; the full check takes 20, after 1,000 to
prepare the schema and 100,000 to import `jsonschema`.
"""

from __future__ import annotations

from collections.abc import Sequence

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
KEYWORDS = ANNOTATIONS | {"$schema", "additionalProperties", "enum", "items", "properties", "required", "type"}


def conforms(schema: object, value: object) -> bool:
    """Whether a decoded JSON value certainly conforms to *schema*.

    What applies to no part of the value is not looked at: there the schema may even be invalid.
    """
    todo: list[tuple[object, object]] = [(schema, value)]
    for part, found in todo:  # which grows meanwhile
        if type(part) is not dict or not KEYWORDS.issuperset(part):
            return False
        if "type" in part and type(found) not in _types(part["type"]):
            return False
        if "enum" in part and not _is_choice(found, part["enum"]):
            return False
        if "$schema" in part and part["$schema"] not in DIALECTS:
            return False
        if type(found) is dict and not _add_members(todo, part, found):
            return False
        if type(found) is list and "items" in part:
            todo += [(part["items"], item) for item in found[:MAX_PARTS]]
        if len(todo) > MAX_PARTS:
            return False
    return True


def _types(named: object) -> Sequence[type]:
    if type(named) is str:
        return TYPES.get(named, ())
    if type(named) is not list:
        return ()
    return [kind for name in named if type(name) is str for kind in TYPES.get(name, ())]


def _is_choice(found: object, choices: object) -> bool:
    return type(found) is str and type(choices) is list and len(choices) <= MAX_PARTS and found in choices


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
