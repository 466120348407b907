"""Values made from the JSON Schema of a revision: everything that it allows, with some unknown fields."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

from tests import spec

WORDS = st.text("abcé☃ \n\x00", max_size=4)
NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=4,
)
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "string": WORDS,
    "integer": st.integers(-(2**70), 2**70),
    "number": NUMBERS,
    "boolean": st.booleans(),
    "null": st.none(),
}
UNKNOWN = st.dictionaries(st.sampled_from(["x-new", "max_tokens", "_private"]), JSON, max_size=1)

# The schema says "string" where its text says that only this one value makes sense.
CONSTANT = {"InputRequiredResult": {"resultType": "input_required"}}


# Any JSON: recursive in the schema, bounded here, and without what the schema's JSONValue forgets (null, fractions).
PLAIN = st.recursive(
    st.booleans() | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=4,
)
ANYTHING = {"JSONValue": PLAIN, "JSONObject": st.dictionaries(WORDS, PLAIN, max_size=2)}


@cache
def instances(revision: str, name: str) -> st.SearchStrategy[Any]:
    """Values that are valid as the named definition of a revision."""
    if name in ANYTHING:
        return ANYTHING[name]
    made = from_schema(spec.definitions(revision)[name], revision)
    return made.map(lambda value: {**value, **CONSTANT[name]}) if name in CONSTANT else made


def from_schema(schema: dict[str, Any], revision: str) -> st.SearchStrategy[Any]:
    if "$ref" in schema:
        return instances(revision, schema["$ref"].split("/")[-1])
    if "anyOf" in schema:
        return st.one_of([from_schema(part, revision) for part in schema["anyOf"]])
    if "allOf" in schema:
        return st.tuples(*[from_schema(part, revision) for part in schema["allOf"]]).map(merged)
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema.get("type") == "object" or "properties" in schema:
        return objects(schema, revision)
    if schema.get("type") == "array":
        return st.lists(from_schema(schema["items"], revision), max_size=2)
    if isinstance(schema.get("type"), list):
        return st.one_of([SCALARS[kind] for kind in schema["type"]])
    return scalars(schema)


def scalars(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    if "minimum" in schema or "maximum" in schema:
        low, high = schema.get("minimum"), schema.get("maximum")
        whole = st.integers(low, high)
        return whole if schema["type"] == "integer" else whole | st.floats(low, high)
    return SCALARS[schema["type"]] if "type" in schema else JSON


def objects(schema: dict[str, Any], revision: str) -> st.SearchStrategy[dict[str, Any]]:
    needed = set(schema.get("required", []))
    fields = {name: from_schema(part, revision) for name, part in schema.get("properties", {}).items()}
    known = st.fixed_dictionaries(
        {name: made for name, made in fields.items() if name in needed},
        optional={name: made for name, made in fields.items() if name not in needed},
    )
    extra = schema.get("additionalProperties")
    others = st.dictionaries(WORDS, from_schema(extra, revision), max_size=2) if isinstance(extra, dict) else UNKNOWN
    return st.tuples(others, known).map(merged)


def merged(parts: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    return {key: value for part in parts for key, value in part.items()}
