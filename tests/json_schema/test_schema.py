"""Checking values against JSON Schemas."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import jsonschema
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mcp_host.json_schema.schema import Schema
from tests.extent import saturated
from tests.json_schema.test_schema_bounds import problem_of

DRAFT_4 = "http://json-schema.org/draft-04/schema#"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"


def mismatch(schema: dict[str, Any], value: object) -> str | None:
    return Schema(schema).mismatch(value)


PLACES: list[tuple[dict[str, Any], object, str | None]] = [
    ({}, object(), None),
    ({"type": "null"}, None, None),
    ({"type": ["integer", "boolean"]}, True, None),
    ({"type": "integer"}, 3.0, None),
    ({"type": "integer"}, True, "$"),
    ({"type": "number"}, 3.5, None),
    ({"type": "integer"}, 3.5, "$"),
    ({"type": ["string", "array"]}, {}, "$"),
    ({"type": "object"}, [1], "$"),
    ({"type": "string"}, None, "$"),
    ({"type": "string"}, False, "$"),
    ({"enum": ["a", [1, {"b": None}]]}, [1.0, {"b": None}], None),
    ({"enum": [1]}, True, "$"),
    ({"enum": ["a", "b", "c", "d", "e", "f", "g"]}, 2.5, "$"),
    ({"const": False}, 0, "$"),
    ({"const": {"a": 1, "b": 2}}, {"b": 2, "a": 1.0}, None),
    ({"multipleOf": 0.0001}, 0.0075, None),
    ({"multipleOf": 2}, 3, "$"),
    ({"multipleOf": 2}, "3", None),
    ({"minimum": 1}, 0, "$"),
    ({"maximum": 1}, 1 << 2000, "$"),
    ({"exclusiveMinimum": 1}, 1, "$"),
    ({"exclusiveMaximum": 1}, 1, "$"),
    ({"minLength": 2}, "ä", "$"),
    ({"maxLength": 2}, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "$"),
    ({"pattern": "^a"}, "ba", "$"),
    ({"pattern": "^a"}, 5, None),
    ({"format": "date"}, "yesterday", None),
    ({"minItems": 1}, [], "$"),
    ({"maxItems": 1}, [1, 2], "$"),
    ({"uniqueItems": True}, [1, "1", True, [1], {"a": 1}], None),
    ({"uniqueItems": True}, [{"a": 1, "b": 2}, 5, {"b": 2.0, "a": 1}], "$"),
    ({"uniqueItems": False}, [1, 1], None),
    ({"uniqueItems": True}, 5, None),
    ({"items": {"type": "string"}}, ["a", 5], "$[1]"),
    ({"items": {"type": "string"}}, "a", None),
    ({"prefixItems": [{"type": "string"}], "items": False}, ["a"], None),
    ({"prefixItems": [{"type": "string"}], "items": False}, ["a", 1], "$"),
    ({"prefixItems": [{"type": "string"}]}, [1], "$[0]"),
    ({"prefixItems": [{"type": "string"}]}, "", None),
    ({"contains": {"type": "string"}}, [1, "a"], None),
    ({"contains": {"type": "string"}}, {}, None),
    ({"contains": {"type": "string"}, "minContains": 2, "maxContains": 3}, ["a", 1], "$"),
    ({"minProperties": 1}, {}, "$"),
    ({"maxProperties": 1}, {"a": 1, "b": 2}, "$"),
    ({"required": ["a", "b"]}, {"a": 1}, "$"),
    ({"required": ["a"]}, [], None),
    ({"properties": {"a": {"properties": {"b": False}}}}, {"a": {"b": 1}}, "$.a.b"),
    ({"properties": {"a": True}}, [], None),
    ({"patternProperties": {"^x-": {"type": "string"}}}, {"y": 1, "x-a": 1}, "$['x-a']"),
    ({"patternProperties": {"^x-": {"type": "string"}}}, {"y": 1, "x-a": ""}, None),
    ({"patternProperties": {"^x-": False}}, [], None),
    ({"properties": {"a": {}}, "patternProperties": {"^x-": {}}, "additionalProperties": False}, {"a": 1, "x-b": 1, "c": 1}, "$"),
    ({"additionalProperties": {"type": "string"}}, {"a": "", "c": 1}, "$.c"),
    ({"additionalProperties": {"type": "string"}}, {"a": ""}, None),
    ({"additionalProperties": False}, [], None),
    ({"propertyNames": {"maxLength": 1}}, {"ab": 1}, "$"),
    ({"propertyNames": {"maxLength": 1}}, {"a": 1}, None),
    ({"propertyNames": False}, [], None),
    ({"dependentRequired": {"a": ["b"]}}, {"a": 1}, "$"),
    ({"dependentRequired": {"a": ["b"]}}, {"c": 1}, None),
    ({"dependentRequired": {"a": ["b"]}}, {"a": 1, "b": 1}, None),
    ({"dependentSchemas": {"a": {"required": ["b"]}}}, {"a": 1}, "$"),
    ({"dependentSchemas": {"a": {"required": ["b"]}}}, {"a": 1, "b": 1}, None),
    ({"dependentSchemas": {"a": False}}, [], None),
    ({"allOf": [{"type": "integer"}, {"minimum": 3}]}, 2, "$"),
    ({"allOf": [{"type": "integer"}, {"minimum": 3}]}, 3, None),
    ({"anyOf": [{"type": "integer"}, {"minimum": 3}]}, 2, None),
    ({"anyOf": [{"type": "array"}, {"properties": {"kind": {"const": "b"}}}, {"type": "null"}]}, {"kind": "a"}, "$.kind"),
    ({"oneOf": [{"type": "integer"}, {"minimum": 3}]}, 2.5, "$"),
    ({"oneOf": [{"type": "integer"}, {"minimum": 3}]}, 3, "$"),
    ({"oneOf": [{"type": "integer"}, {"minimum": 3}]}, 2, None),
    ({"not": {"type": "string"}}, "a", "$"),
    ({"not": {"type": "string"}}, 1, None),
    ({"if": {"type": "string"}, "then": {"minLength": 1}, "else": False}, "", "$"),
    ({"if": {"type": "string"}, "then": {"minLength": 1}, "else": False}, 1, "$"),
    ({"if": {"type": "string"}}, 1, None),
    ({"$defs": {"a": {"type": "string"}}, "items": {"$ref": "#/$defs/a"}}, [1], "$[0]"),
    ({"$anchor": "top", "items": {"$ref": "#top"}}, [[[]]], None),
    ({"definitions": {"a": False}, "properties": {"a": {"$ref": "#/definitions/a"}}}, {}, None),
    ({"components": {"a": {"type": "string"}}, "$ref": "#/components/a"}, "", None),
    ({"$ref": "https://json-schema.org/draft/2020-12/schema"}, {"type": "string"}, None),
    ({"$id": "https://a.example/x/", "$defs": {"b": {"$id": "b", "type": "null"}}, "items": {"$ref": "b"}}, [5], "$[0]"),
    ({"properties": {"a": {}}, "unevaluatedProperties": False}, {"a": 1, "b": 1}, "$"),
    ({"properties": {"a": {}}, "unevaluatedProperties": {"type": "null"}}, {"a": 1, "b": None}, None),
    ({"anyOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}], "unevaluatedProperties": False}, {"a": 1, "b": 1}, None),
    ({"unevaluatedProperties": False}, [], None),
    ({"prefixItems": [{}], "contains": {"type": "null"}, "unevaluatedItems": False}, [1, None], None),
    ({"prefixItems": [{}], "unevaluatedItems": False}, [1, None], "$"),
    ({"unevaluatedItems": False}, {}, None),
    ({"$schema": DRAFT_7, "items": [{"type": "null"}], "additionalItems": False}, [None, 1], "$"),
    ({"$schema": DRAFT_7, "items": [{"type": "null"}], "additionalItems": False}, [None], None),
    ({"$schema": DRAFT_7, "additionalItems": False}, [None], None),
    ({"$schema": DRAFT_7, "items": {"type": "null"}}, [1], "$[0]"),
    ({"$schema": DRAFT_7, "items": {"type": "null"}}, 1, None),
    ({"$schema": DRAFT_7, "dependencies": {"a": ["b"], "c": {"required": ["d"]}}}, {"c": 1}, "$"),
    ({"$schema": DRAFT_7, "dependencies": {"a": ["b"], "c": {"required": ["d"]}}}, {"a": 1}, "$"),
    ({"$schema": DRAFT_7, "dependencies": {"a": ["b"]}}, {}, None),
    ({"$schema": DRAFT_7, "definitions": {"a": {}}, "$ref": "#/definitions/a", "type": "null"}, 1, None),
    ({"$schema": "https://json-schema.org/draft-07/schema", "type": "null"}, 1, "$"),
    ({"$schema": DRAFT_4, "minimum": 1, "exclusiveMinimum": True}, 1, "$"),
    ({"$schema": DRAFT_4, "maximum": 1, "exclusiveMaximum": False}, 1, None),
    ({"$schema": DRAFT_4, "id": "urn:a", "const": 5}, 1, None),
    ({"properties": {"a\x1b[2J": False}}, {"a\x1b[2J": 1}, "$['a\\x1b[2J']"),
]  # fmt: skip


def test_a_value_conforms_or_the_error_has_the_path_of_the_first_problem(subtests: pytest.Subtests) -> None:
    for schema, value, place in PLACES:
        with subtests.test(schema=ascii(schema), value=ascii(value)[:60]):
            problem = mismatch(schema, value)

            assert place == (problem if problem is None else (re.match(r"(\$\S+): ", problem) or ["", "$"])[1])


PETS = [{"properties": {"kind": {"const": kind}}} for kind in ("cat", "dog")]
NO_PET = "$[0]: fits no alternative: $[0].kind: %s; $[0].kind: %s"
DESCRIBED: list[tuple[dict[str, Any], object, str]] = [
    ({"type": "integer"}, {"a": 1}, "an object of 1 members is not of type 'integer'"),
    ({"type": "object"}, [1], "an array of 1 items is not of type 'object'"),
    ({"items": {"type": "null"}}, ["x" * 100], f"$[0]: '{'x' * 60}… (100 characters)' is not of type 'null'"),
    ({"enum": [1]}, True, "True is not one of 1"),
    ({"enum": list("abcdefg")}, 2.5, "2.5 is not one of 'a', 'b', 'c', 'd', 'e' or 2 more"),
    ({"const": False}, 0, "0 is not False"),
    ({"multipleOf": 2}, 3, "3 is not a multiple of 2"),
    ({"pattern": "^a"}, "ba", "'ba' does not match '^a'"),
    ({"uniqueItems": True}, [{"a": 1, "b": 2}, 5, {"b": 2.0, "a": 1}], "an array of 3 items has one of them twice"),
    ({"additionalProperties": False}, {"a\x1b[2J": 1}, "there may be no 'a\\x1b[2J'"),
    ({"properties": {"\x1b[2J": {"type": "null"}}}, {"\x1b[2J": 1}, "$['\\x1b[2J']: 1 is not of type 'null'"),
    (
            {"anyOf": [{"type": "array"}, {"properties": {"kind": {"const": "b"}}}, {"type": "null"}]},
            {"kind": "a"},
            "$.kind: 'a' is not 'b'",
        ),
    ({"anyOf": [{"type": "integer"}, {"type": ["null", "array"]}]}, "3", "'3' is not of type 'integer', 'null', 'array'"),
    ({"anyOf": [False, {"type": "null"}, False]}, 1, "fits no alternative: not of type 'null'; False schema does not allow 1"),
    ({"items": {"oneOf": PETS}}, [{"kind": "cow"}], NO_PET % ("'cow' is not 'cat'", "'cow' is not 'dog'")),
    ({"anyOf": [{"type": "null"}, {"minLength": 2}, {"type": "null"}]}, "a", "fits no alternative: not of type 'null'; 'a' is too short"),
]  # fmt: skip


def test_a_problem_is_described_briefly(subtests: pytest.Subtests) -> None:
    for schema, value, problem in DESCRIBED:
        with subtests.test(schema=schema):
            assert mismatch(schema, value) == problem


def test_alternatives_are_described_without_values(subtests: pytest.Subtests) -> None:
    table: list[tuple[dict[str, Any], object, str]] = [
        ({"properties": {"n": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}}, {"n": "3"}, "$.n: not of type 'integer', 'null'"),
        ({"anyOf": [False, {"type": "null"}, False]}, 1, "fits no alternative: not of type 'null'; no value is allowed"),
        ({"items": {"oneOf": PETS}}, [{"kind": "cow"}], NO_PET % ("not 'cat'", "not 'dog'")),
        ({"anyOf": [{"enum": ["a", "b"]}, {"type": "null"}]}, 3, "fits no alternative: not of type 'null'; not one of: 'a', 'b'"),
        ({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {}, "fits no alternative: 'a' is a required property; 'b' is a required property"),
    ]  # fmt: skip  # one case on each line
    for schema, value, problem in table:
        with subtests.test(schema=schema):
            assert Schema(schema).mismatch(value, show_values=False) == problem


def test_the_schema_is_read_once_and_later_changes_have_no_effect() -> None:
    schema: dict[str, Any] = {"type": "string"}
    compiled = Schema(schema)

    assert compiled.mismatch(5) == "5 is not of type 'string'"
    schema["type"] = "integer"
    assert compiled.mismatch(5) == "5 is not of type 'string'"


def test_jsonschema_is_not_imported_before_the_first_check() -> None:
    code = (
        "import sys, mcp_host, mcp_host.client.tools;"
        "print(sorted({'jsonschema', 'jsonschema_specifications', 'referencing'} & set(sys.modules)))"
    )

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False) | st.text("ab", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
WORDS = ["type", "properties", "items", "anyOf", "$ref", "$id", "$defs", "enum", "pattern", "$dynamicRef", "required"]
NONSENSE = st.recursive(
    JSON | st.sampled_from(["#", "#/$defs/a", "http://x", "string", "(", "%", "http://["]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*WORDS, "a"]), inner, max_size=4),
    max_leaves=10,
)


@saturated
@given(st.dictionaries(st.sampled_from(WORDS), NONSENSE), JSON)
def test_any_json_as_a_schema_gives_a_result(schema: dict[str, Any], value: object) -> None:
    problem = problem_of(Schema(schema), value)

    assert problem is None or (0 < len(problem) < 600)


def meaningful_schemas() -> st.SearchStrategy[Any]:
    """Valid schemas that have something to say about `JSON`."""
    names, small = st.sampled_from("abc"), st.integers(0, 3)
    leaf = st.booleans() | st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"]),
            "enum": st.lists(JSON, min_size=1, max_size=3),
            "const": JSON,
            "minimum": small,
            "exclusiveMaximum": small,
            "minLength": small,
            "maxItems": small,
            "uniqueItems": st.booleans(),
            "maxProperties": small,
            "required": st.lists(names, max_size=2, unique=True),
            "pattern": st.sampled_from(["a", "^b", "a$"]),
        },
    )
    return st.recursive(
        leaf,
        lambda inner: st.fixed_dictionaries(
            {},
            optional={
                "properties": st.dictionaries(names, inner, max_size=2),
                "patternProperties": st.dictionaries(st.sampled_from(["a", "[bc]"]), inner, max_size=2),
                "additionalProperties": inner,
                "propertyNames": inner,
                "dependentSchemas": st.dictionaries(names, inner, max_size=2),
                "prefixItems": st.lists(inner, min_size=1, max_size=2),
                "items": inner,
                "contains": inner,
                "minContains": small,
                "allOf": st.lists(inner, min_size=1, max_size=2),
                "anyOf": st.lists(inner, min_size=1, max_size=3),
                "oneOf": st.lists(inner, min_size=1, max_size=3),
                "not": inner,
                "if": inner,
                "then": inner,
                "else": inner,
                "unevaluatedProperties": inner,
                "unevaluatedItems": inner,
            },
        ),
        max_leaves=8,
    )


@saturated
@given(meaningful_schemas().filter(lambda schema: isinstance(schema, dict)), JSON)
def test_results_are_those_of_the_jsonschema_library(schema: dict[str, Any], value: object) -> None:
    written = repr(schema)
    assume(not ("'unevaluatedProperties'" in written and "'patternProperties'" in written))

    expected = jsonschema.Draft202012Validator(schema).is_valid(value)
    assert (mismatch(schema, value) is None) is expected


@pytest.mark.parametrize(("value", "unit"), [(0.0075, 0.0001), (19.99, 0.01), (3, 1.5), (10**400, 0.5), (0, 5)])
def test_multiple_of_is_exact_for_decimal_numbers(value: float, unit: float) -> None:
    assert mismatch({"multipleOf": unit}, value) is None


@pytest.mark.parametrize(
    ("source", "value", "where"),
    [
        ({"properties": {"a": False}}, {"a": 1}, "$.a"),
        ({"properties": {"a": {"properties": {"b": False}}}}, {"a": {"b": 1}}, "$.a.b"),
        ({"patternProperties": {"^x": False}}, {"x1": 1}, "$.x1"),
        ({"prefixItems": [True, False]}, [0, 1], "$[1]"),
    ],
)
def test_the_path_leads_to_a_value_whose_schema_is_false(source: dict[str, object], value: object, where: str) -> None:
    assert Schema(source).mismatch(value) == f"{where}: False schema does not allow 1"
    assert Schema(source).mismatch(value, show_values=False) == f"{where}: no value is allowed"
