"""What servers call JSON Schemas, as valid schemas of 2020-12."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcp_host.providers.exchange.repair import MAX_PATTERNS, repaired
from tests.interop.providers.servers.schema_rules import problem_of
from tests.providers.prompts import deep_schema

TEXT = {"type": "string"}
NUMBER = {"type": "number"}


def said(**told: object) -> dict[str, str]:
    return {"description": f"The server's schema also says: {json.dumps(told, ensure_ascii=False)}"}


def with_definitions(part: object, **definitions: object) -> dict[str, Any]:
    return {"properties": {"a": part}, "$defs": definitions}


PARTS: dict[str, tuple[Any, Any]] = {
    "nothing": (None, {}),
    "everything": (True, {}),
    "no value": (False, {"not": {}}),
    "a type in its place": ("string", TEXT),
    "several types in its place": (["string", "null"], {"type": ["string", "null"]}),
    "words in its place": ("the city", {"description": 'The server\'s schema: "the city"'}),
    "a number in its place": (7, {"description": "The server's schema: 7"}),
    "any type": ({"type": "any"}, {}),
    "any of several types": ({"type": ["string", "any"]}, said(type=["string", "any"])),
    "no type": ({"type": None}, {}),
    "an empty type": ({"type": ""}, {}),
    "no types": ({"type": []}, {}),
    "a type of another language": ({"type": "INT"}, {"type": "integer"}),
    "a type twice": ({"type": ["STRING", "string"]}, TEXT),
    "an unknown type": ({"type": "date"}, said(type="date")),
    "a union of draft 3": ({"type": ["string", NUMBER]}, said(type=["string", NUMBER])),
    "a type that is a schema": ({"type": TEXT}, said(type=TEXT)),
    "a tuple": ({"items": [TEXT, None], "additionalItems": False}, {"prefixItems": [TEXT, {}], "items": {"not": {}}}),
    "an empty tuple": ({"items": [], "additionalItems": TEXT}, {"items": TEXT}),
    "additional items without a tuple": ({"items": TEXT, "additionalItems": NUMBER}, {"items": TEXT}),
    "no items": ({"items": None}, {}),
    "exclusive limits of draft 4": (
        {"minimum": 1, "exclusiveMinimum": True, "maximum": 5, "exclusiveMaximum": False},
        {"exclusiveMinimum": 1, "maximum": 5},
    ),
    "an exclusive limit without a limit": ({"exclusiveMinimum": "true"}, {}),
    "numbers as texts": ({"minimum": "0.5", "maxLength": "10"}, {"minimum": 0.5, "maxLength": 10}),
    "no numbers": (
        {"minimum": "a", "maximum": True, "maxLength": -1, "minItems": 1.5, "multipleOf": 0},
        said(minimum="a", maximum=True, maxLength=-1, minItems=1.5, multipleOf=0),
    ),
    "numbers that are too large": (
        {"minimum": -(10**400), "maximum": "1e999", "enum": [{"a": [10**400]}]},
        said(minimum=-(10**400), maximum="1e999", enum=[{"a": [10**400]}]),
    ),
    "a whole number": ({"maxLength": 10.0}, {"maxLength": 10}),
    "draft 3": ({"divisibleBy": 2, "required": True}, {"multipleOf": 2}),
    "flags": ({"uniqueItems": "true", "readOnly": 1}, {"uniqueItems": True} | said(readOnly=1)),
    "no choices": ({"enum": [], "anyOf": [], "allOf": None, "required": None}, {}),
    "equal choices": (
        {"enum": [1, True, 1, {"a": 1, "b": 2}, {"b": 2, "a": 1}]},
        {"enum": [1, True, {"b": 2, "a": 1}]},
    ),
    "one choice": (
        {"enum": "a", "required": "b", "examples": "c"},
        {"required": ["b"], "examples": ["c"]} | said(enum="a"),
    ),
    "equal names": ({"required": ["a", 1, "a"]}, {"required": ["a"]}),
    "names that are no list": ({"required": 1}, said(required=1)),
    "one alternative": ({"anyOf": TEXT}, {"anyOf": [TEXT]}),
    "alternatives that are none": ({"anyOf": [TEXT, None, "null"]}, {"anyOf": [TEXT, {"type": "null"}]}),
    "alternatives in words": ({"oneOf": ["red"]}, said(oneOf=["red"])),
    "an empty list of properties": ({"properties": [], "$defs": []}, {}),
    "properties as a list": ({"properties": [{"name": "a"}]}, said(properties=[{"name": "a"}])),
    "additional properties": ({"additionalProperties": "false"}, {"additionalProperties": False}),
    "no additional properties": ({"additionalProperties": None}, {}),
    "a pattern": ({"pattern": "^[[a-z]\\d(?=x)$"}, {"pattern": "^[[a-z]\\d(?=x)$"}),
    "a pattern that is cut": ({"pattern": "(a"}, said(pattern="(a")),
    "a pattern of another language": ({"pattern": "(?i)a"}, said(pattern="(?i)a")),
    "a pattern of ECMA-262 only": ({"pattern": "\\p{L}"}, said(pattern="\\p{L}")),
    "a pattern that repeats too often": ({"pattern": "a{99999999999}"}, said(pattern="a{99999999999}")),
    "a long pattern": ({"pattern": "a" * MAX_PATTERNS + "b"}, said(pattern="a" * MAX_PATTERNS + "b")),
    "pattern properties": (
        {"patternProperties": {"^a": TEXT, "(": NUMBER}},
        {"patternProperties": {"^a": TEXT}} | said(patternProperties={"(": NUMBER}),
    ),
    "no description": ({"description": None, "title": 5}, said(title=5)),
    "dependencies": (
        {"dependencies": {"a": ["b"], "c": TEXT, "d": "e"}, "dependentSchemas": 1},
        {"dependentRequired": {"a": ["b"], "d": ["e"]}, "dependentSchemas": {"c": TEXT}},
    ),
    "dependencies that are none": ({"dependencies": None}, {}),
    "names of the application": ({"x-order": [1], "nullable": True}, {"x-order": [1], "nullable": True}),
    "addresses": ({"$id": "x", "$anchor": "y", "$schema": "z", **TEXT}, TEXT),
    "a remote reference": ({"$ref": "https://a.example/b"}, said(**{"$ref": "https://a.example/b"})),
    "a reference to no schema": ({"$ref": "#/properties/a/$ref"}, said(**{"$ref": "#/properties/a/$ref"})),
    "a reference that is none": (
        {"$ref": 1, "description": "D"},
        {"description": f"D\n{said(**{'$ref': 1})['description']}"},
    ),
}


def test_a_subschema_is_repaired(subtests: pytest.Subtests) -> None:
    for case, (part, written) in PARTS.items():
        with subtests.test(case):
            whole = repaired({"properties": {"a": part}})
            required = {"required": ["a"]} if part == PARTS["draft 3"][0] else {}
            assert whole == {"properties": {"a": written}, **required}
            assert problem_of(whole) is None


def test_required_properties_of_draft_3_are_those_of_their_object() -> None:
    schema = {"properties": {"a": {"required": True}, "b": {"required": False}}, "required": ["c"]}

    assert repaired(schema) == {"properties": {"a": {}, "b": {}}, "required": ["c", "a"]}
    assert repaired({"properties": {"a": {"required": True}}, "required": True}) == {
        "properties": {"a": {}},
        "required": ["a"],
    }


def test_references_lead_to_definitions_of_the_root(subtests: pytest.Subtests) -> None:
    node = {"properties": {"next": {"$ref": "#/$defs/Node"}}}
    table: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "of draft 7": (
            {"properties": {"a": {"$ref": "#/definitions/Node"}}, "definitions": {"Node": {"properties": {"next": {"$ref": "#/definitions/Node"}}}}},
            with_definitions({"$ref": "#/$defs/Node"}, Node=node),
        ),
        "not needed": ({"properties": {"a": TEXT}, "$defs": {"b": TEXT}}, {"properties": {"a": TEXT}}),
        "to the root": (
            {"properties": {"a": {"$recursiveRef": "#"}}},
            with_definitions({"$ref": "#/$defs/root"}, root={"properties": {"a": {"$ref": "#/$defs/root"}}}),
        ),
        "to an anchor": (
            {"properties": {"a": {"$dynamicRef": "#n"}}, "$defs": {"x": {"$dynamicAnchor": "n", **TEXT}}},
            with_definitions({"$ref": "#/$defs/n"}, n=TEXT),
        ),
        "to an address": (
            {"$id": "https://a.example/s#", "properties": {"a": {"$ref": "https://a.example/s#/$defs/x"}}, "$defs": {"x": TEXT}},
            with_definitions({"$ref": "#/$defs/x"}, x=TEXT),
        ),
        "to a property": (
            {"properties": {"a": {"$ref": "#/properties/b%20c"}, "b c": TEXT}},
            {"properties": {"a": {"$ref": "#/$defs/b_20c"}, "b c": TEXT}, "$defs": {"b_20c": TEXT}},
        ),
        "to all": ({"properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": True}}, with_definitions({"$ref": "#/$defs/x"}, x={})),
        "of names that others have": (
            {
                "properties": {"a": {"anyOf": [{"$ref": "#/$defs/x_2"}, {"$ref": "#/$defs/x"}, {"$ref": "#/definitions/x"}]}},
                "$defs": {"x": TEXT, "x_2": {"type": "null"}},
                "definitions": {"x": NUMBER},
            },
            with_definitions(
                {"anyOf": [{"$ref": "#/$defs/x_2"}, {"$ref": "#/$defs/x"}, {"$ref": "#/$defs/x_3"}]},
                x=TEXT, x_2={"type": "null"}, x_3=NUMBER,
            ),
        ),
        "of equal names": (
            {
                "properties": {"a": {"anyOf": [{"$ref": "#/$defs/x"}, {"$ref": "#/definitions/x"}, {"$ref": "#/$defs/x_2"}]}},
                "$defs": {"x": TEXT, "x_2": {"type": "null"}},
                "definitions": {"x": NUMBER},
            },
            with_definitions(
                {"anyOf": [{"$ref": "#/$defs/x"}, {"$ref": "#/$defs/x_2"}, {"$ref": "#/$defs/x_2_2"}]},
                x=TEXT, x_2=NUMBER, x_2_2={"type": "null"},
            ),
        ),
    }  # fmt: skip
    for case, (schema, written) in table.items():
        with subtests.test(case):
            assert repaired(schema) == written
            assert problem_of(repaired(schema)) is None


def test_what_is_nested_too_deep_is_no_schema() -> None:
    assert repaired(deep_schema(101)) == deep_schema(101)
    with pytest.raises(ValueError, match=r"^it is nested too deep$"):
        repaired(deep_schema(102))
