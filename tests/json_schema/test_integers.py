"""30.0 where a schema has an integer: rows of a schema, the value that a model wrote, and the JSON that is sent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcp_host.json_schema.integers import MAX_VALUES, with_integers

INTEGER: dict[str, Any] = {"type": "integer"}
OPTIONAL: dict[str, Any] = {"anyOf": [INTEGER, {"type": "null"}]}
TREE: dict[str, Any] = {"properties": {"n": INTEGER, "sub": {"items": {"$ref": "#"}}}}
NESTED: dict[str, Any] = {"properties": {"a": {"items": {"properties": {"n": OPTIONAL}}}}}

ROWS: list[tuple[dict[str, Any], str, str]] = [
    (INTEGER, "30.0", "30"),
    (INTEGER, "-0.0", "0"),
    (INTEGER, "9007199254740992.0", "9007199254740992"),
    (INTEGER, "1e16", "1e+16"),
    (INTEGER, "1e308", "1e+308"),
    (INTEGER, "2.5", "2.5"),
    (INTEGER, "NaN", "NaN"),
    ({"type": "number"}, "30.0", "30.0"),
    ({"type": ["integer", "null"]}, "30.0", "30"),
    ({"type": "string"}, "30.0", "30.0"),
    ({}, "30.0", "30.0"),
    ({"properties": {"n": True}}, '{"n": 1.0}', '{"n": 1.0}'),
    (OPTIONAL, "30.0", "30"),
    ({"oneOf": [{"type": "boolean"}, {"allOf": [INTEGER]}]}, "30.0", "30"),
    ({"enum": [10, 30]}, "30.0", "30"),
    ({"enum": [10, 30.0, True]}, "30.0", "30.0"),
    ({"enum": [True]}, "1.0", "1.0"),
    ({"const": 30}, "30.0", "30"),
    ({"$ref": "#/$defs/N", "$defs": {"N": INTEGER}}, "30.0", "30"),
    ({"$ref": "#"}, "30.0", "30.0"),
    ({"$ref": "other#/$defs/N", "$defs": {"N": INTEGER}}, "30.0", "30.0"),
    ({"anyOf": [{}] * 100 + [OPTIONAL]}, "30.0", "30.0"),
    ({"properties": {"n": INTEGER}}, '{"n": 1.0, "m": 1.0}', '{"n": 1, "m": 1.0}'),
    ({"properties": {"m": {}}, "additionalProperties": INTEGER}, '{"n": 1.0, "m": 1.0}', '{"n": 1, "m": 1.0}'),
    ({"properties": [], "items": 1, "type": 5, "enum": 7, "anyOf": {}}, '{"n": [1.0]}', '{"n": [1.0]}'),
    ({"items": INTEGER}, "[1.0, 2.5, [3.0]]", "[1, 2.5, [3.0]]"),
    ({"prefixItems": [{"type": "number"}, INTEGER], "items": INTEGER}, "[1.0, 2.0, 3.0]", "[1.0, 2, 3]"),
    ({"items": [INTEGER]}, "[1.0, 2.0]", "[1, 2.0]"),
    (NESTED, '{"a": [{"n": 1.0}, {"n": null}, {"m": 1.0}]}', '{"a": [{"n": 1}, {"n": null}, {"m": 1.0}]}'),
    (TREE, '{"n": 1.0, "sub": [{"n": 2.0, "sub": [{"n": 3.0}]}]}', '{"n": 1, "sub": [{"n": 2, "sub": [{"n": 3}]}]}'),
]


def test_a_whole_float_becomes_an_integer_where_the_schema_has_one(subtests: pytest.Subtests) -> None:
    for schema, written, sent in ROWS:
        with subtests.test(schema=schema, written=written):
            value: Any = json.loads(written)

            assert json.dumps(with_integers(schema, value)) == sent
            assert json.dumps(value) == json.dumps(json.loads(written))


def test_what_has_no_whole_float_or_is_large_is_not_copied() -> None:
    around: list[object] = [1.0]
    around.append(around)
    values: list[object] = [{"n": [1, 2.5, None]}, [1.0] * MAX_VALUES, around]
    for value in values:
        assert with_integers({"items": INTEGER}, value) is value
