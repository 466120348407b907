"""JSON Schemas of strangers: what they demand, and that none of them can hold the process."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_host.protocol import schemas
from mcp_host.protocol.schemas import UncheckableSchema, compile_schema

DRAFT_4 = "http://json-schema.org/draft-04/schema#"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DRAFT_2019 = "https://json-schema.org/draft/2019-09/schema"


def mismatch(schema: dict[str, Any], value: object) -> str | None:
    return compile_schema(schema).mismatch(value)


@pytest.mark.parametrize(
    ("schema", "value", "problem"),
    [
        ({}, object(), None),
        ({"type": "null"}, None, None),
        ({"type": ["integer", "boolean"]}, True, None),
        ({"type": "integer"}, 3.0, None),
        ({"type": "integer"}, True, "true is not of type integer"),
        ({"type": "number"}, 3.5, None),
        ({"type": "integer"}, 3.5, "3.5 is not of type integer"),
        ({"type": ["string", "array"]}, {}, "an object of 0 members is not of type string or array"),
        ({"type": "object"}, [1], "an array of 1 items is not of type object"),
        ({"type": "string"}, None, "null is not of type string"),
        ({"type": "string"}, False, "false is not of type string"),
        ({"type": "string"}, object(), "a Python object is not of type string"),
        ({"enum": ["a", [1, {"b": None}]]}, [1.0, {"b": None}], None),
        ({"enum": [1]}, True, "true is not one of 1"),
        ({"enum": list("abcdefg")}, 2.5, '2.5 is not one of "a", "b", "c", "d", "e" or 2 more'),
        ({"const": False}, 0, "0 is not false"),
        ({"const": {"a": 1, "b": 2}}, {"b": 2, "a": 1.0}, None),
        ({"const": 1}, object(), "a Python object is not 1"),
        ({"multipleOf": 0.0001}, 0.0075, None),
        ({"multipleOf": 2}, 3, "3 is not a multiple of 2"),
        ({"multipleOf": 2}, float("nan"), "nan is not a multiple of 2"),
        ({"multipleOf": 2}, "3", None),
        ({"minimum": 1}, 0, "0 is less than the minimum, 1"),
        ({"maximum": 1}, 1 << 2000, "a number of 2001 bits is more than the maximum, 1"),
        ({"exclusiveMinimum": 1}, 1, "1 is not more than 1"),
        ({"exclusiveMaximum": 1}, 1, "1 is not less than 1"),
        ({"minLength": 2}, "ä", '"ä" is shorter than 2'),
        ({"maxLength": 2}, "x" * 100, f'"{"x" * 60}… (100 characters)" is longer than 2'),
        ({"pattern": "^a"}, "ba", '"ba" does not match the pattern "^a"'),
        ({"pattern": "^a"}, 5, None),
        ({"format": "date"}, "yesterday", None),  # "format" is an annotation by default
        ({"minItems": 1}, [], "an array of 0 items has fewer items than 1"),
        ({"maxItems": 1}, [1, 2], "an array of 2 items has more items than 1"),
        ({"uniqueItems": True}, [1, "1", True, [1], {"a": 1}], None),
        ({"uniqueItems": True}, [{"a": 1, "b": 2}, 5, {"b": 2.0, "a": 1}], "items 0 and 2 are the same"),
        ({"uniqueItems": False}, [1, 1], None),
        ({"uniqueItems": True}, 5, None),
        ({"items": {"type": "string"}}, ["a", 5], "$[1]: 5 is not of type string"),
        ({"items": {"type": "string"}}, "a", None),
        ({"prefixItems": [{"type": "string"}], "items": False}, ["a"], None),
        ({"prefixItems": [{"type": "string"}], "items": False}, ["a", 1], "there may be no item 1"),
        ({"prefixItems": [{"type": "string"}]}, [1], "$[0]: 1 is not of type string"),
        ({"prefixItems": [{"type": "string"}]}, "", None),
        ({"contains": {"type": "string"}}, [1, "a"], None),
        ({"contains": {"type": "string"}}, {}, None),
        (
            {"contains": {"type": "string"}, "minContains": 2, "maxContains": 3},
            ["a", 1],
            "1 of an array of 2 items are as contains demands, instead of 2 to 3",
        ),
        ({"minProperties": 1}, {}, "an object of 0 members has fewer members than 1"),
        ({"maxProperties": 1}, {"a": 1, "b": 2}, "an object of 2 members has more members than 1"),
        ({"required": ["a", "b"]}, {"a": 1}, '"b" is missing'),
        ({"required": ["a"]}, [], None),
        ({"properties": {"a": {"properties": {"b": False}}}}, {"a": {"b": 1}}, "$.a.b: 1 is not allowed here"),
        ({"properties": {"a": True}}, [], None),
        ({"patternProperties": {"^x-": {"type": "string"}}}, {"y": 1, "x-a": 1}, "$.x-a: 1 is not of type string"),
        ({"patternProperties": {"^x-": {"type": "string"}}}, {"y": 1, "x-a": ""}, None),
        ({"patternProperties": {"^x-": False}}, [], None),
        (
            {"properties": {"a": {}}, "patternProperties": {"^x-": {}}, "additionalProperties": False},
            {"a": 1, "x-b": 1, "c": 1},
            'there may be no "c"',
        ),
        ({"additionalProperties": {"type": "string"}}, {"a": "", "c": 1}, "$.c: 1 is not of type string"),
        ({"additionalProperties": {"type": "string"}}, {"a": ""}, None),
        ({"additionalProperties": False}, [], None),
        ({"propertyNames": {"maxLength": 1}}, {"ab": 1}, 'the name "ab" is not allowed: "ab" is longer than 1'),
        ({"propertyNames": {"maxLength": 1}}, {"a": 1}, None),
        ({"propertyNames": False}, [], None),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1}, '"b" is missing, and "a" needs it'),
        ({"dependentRequired": {"a": ["b"]}}, {"c": 1}, None),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1, "b": 1}, None),
        ({"dependentSchemas": {"a": {"required": ["b"]}}}, {"a": 1}, '"b" is missing'),
        ({"dependentSchemas": {"a": {"required": ["b"]}}}, {"a": 1, "b": 1}, None),
        ({"dependentSchemas": {"a": False}}, [], None),
        ({"allOf": [{"type": "integer"}, {"minimum": 3}]}, 2, "2 is less than the minimum, 3"),
        ({"allOf": [{"type": "integer"}, {"minimum": 3}]}, 3, None),
        ({"anyOf": [{"type": "integer"}, {"minimum": 3}]}, 2, None),
        (
            {"anyOf": [{"type": "array"}, {"properties": {"kind": {"const": "b"}}}, {"type": "null"}]},
            {"kind": "a"},
            'it fits none of the 3 alternatives of anyOf; nearest: $.kind: "a" is not "b"',
        ),
        ({"oneOf": [{"type": "integer"}, {"minimum": 3}]}, 2.5, "it fits none of the 2 alternatives of oneOf; nearest: 2.5 is not of type integer"),
        ({"oneOf": [{"type": "integer"}, {"minimum": 3}]}, 3, "3 fits alternatives 0 and 1 of oneOf, not only one"),
        ({"oneOf": [{"type": "integer"}, {"minimum": 3}]}, 2, None),
        ({"not": {"type": "string"}}, "a", '"a" is what "not" excludes'),
        ({"not": {"type": "string"}}, 1, None),
        ({"if": {"type": "string"}, "then": {"minLength": 1}, "else": False}, "", '"" is shorter than 1'),
        ({"if": {"type": "string"}, "then": {"minLength": 1}, "else": False}, 1, "1 is not allowed here"),
        ({"if": {"type": "string"}}, 1, None),
        ({"$defs": {"a": {"type": "string"}}, "items": {"$ref": "#/$defs/a"}}, [1], "$[0]: 1 is not of type string"),
        ({"$anchor": "top", "items": {"$ref": "#top"}}, [[[]]], None),
        ({"definitions": {"a": False}, "properties": {"a": {"$ref": "#/definitions/a"}}}, {}, None),
        ({"components": {"a": {"type": "string"}}, "$ref": "#/components/a"}, "", None),
        ({"$ref": "https://json-schema.org/draft/2020-12/schema"}, {"type": "string"}, None),
        (
            {"$id": "https://a.example/x/", "$defs": {"b": {"$id": "b", "type": "null"}}, "items": {"$ref": "b"}},
            [5],
            "$[0]: 5 is not of type null",
        ),
        (
            {"$id": "tree", "$dynamicAnchor": "node", "properties": {"child": {"$dynamicRef": "#node"}}, "type": "object"},
            {"child": {"child": 5}},
            "$.child.child: 5 is not of type object",
        ),
        ({"properties": {"a": {}}, "unevaluatedProperties": False}, {"a": 1, "b": 1}, 'there may be no "b"'),
        ({"properties": {"a": {}}, "unevaluatedProperties": {"type": "null"}}, {"a": 1, "b": None}, None),
        ({"anyOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}], "unevaluatedProperties": False}, {"a": 1, "b": 1}, None),
        ({"unevaluatedProperties": False}, [], None),
        ({"prefixItems": [{}], "contains": {"type": "null"}, "unevaluatedItems": False}, [1, None], None),
        ({"prefixItems": [{}], "unevaluatedItems": False}, [1, None], "there may be no item 1"),
        ({"unevaluatedItems": False}, {}, None),
        ({"$schema": DRAFT_2019, "contains": {"type": "null"}, "unevaluatedItems": False}, [None], "there may be no item 0"),
        ({"$schema": DRAFT_2019, "$recursiveAnchor": True, "items": {"$recursiveRef": "#"}, "type": "array"}, [[5]], "$[0][0]: 5 is not of type array"),
        ({"$schema": DRAFT_7, "items": [{"type": "null"}], "additionalItems": False}, [None, 1], "there may be no item 1"),
        ({"$schema": DRAFT_7, "items": [{"type": "null"}], "additionalItems": False}, [None], None),
        ({"$schema": DRAFT_7, "additionalItems": False}, [None], None),
        ({"$schema": DRAFT_7, "items": {"type": "null"}}, [1], "$[0]: 1 is not of type null"),
        ({"$schema": DRAFT_7, "items": {"type": "null"}}, 1, None),
        ({"$schema": DRAFT_7, "dependencies": {"a": ["b"], "c": {"required": ["d"]}}}, {"c": 1}, '"d" is missing'),
        ({"$schema": DRAFT_7, "dependencies": {"a": ["b"], "c": {"required": ["d"]}}}, {"a": 1}, '"b" is missing, and "a" needs it'),
        ({"$schema": DRAFT_7, "dependencies": {"a": ["b"]}}, {}, None),
        ({"$schema": DRAFT_7, "definitions": {"a": {}}, "$ref": "#/definitions/a", "type": "null"}, 1, None),
        ({"$schema": "https://json-schema.org/draft-07/schema", "type": "null"}, 1, "1 is not of type null"),
        ({"$schema": DRAFT_4, "minimum": 1, "exclusiveMinimum": True}, 1, "1 is not more than 1"),
        ({"$schema": DRAFT_4, "maximum": 1, "exclusiveMaximum": False}, 1, None),
        ({"$schema": DRAFT_4, "id": "urn:a", "const": 5}, 1, None),  # draft 4 has no "const"
        ({"properties": {"a\x1b[2J": False}}, {"a\x1b[2J": 1}, "$.a\\x1b[2J: 1 is not allowed here"),
    ],
)  # fmt: skip
def test_a_value_conforms_or_the_first_problem_is_named(
    schema: dict[str, Any], value: object, problem: str | None
) -> None:
    assert mismatch(schema, value) == problem


def test_a_problem_is_never_longer_than_a_few_lines() -> None:
    schema: dict[str, Any] = {"enum": ["x" * 1000] * 5}
    value: object = "y" * 1_000_000
    for _ in range(12):
        schema, value = {"anyOf": [{"properties": {"p" * 100: schema}}]}, {"p" * 100: value}

    assert len(mismatch(schema, value) or "") < 600


def fan_out(keyword: str, levels: int) -> dict[str, Any]:
    defs: dict[str, Any] = {"l0": {"type": "string"}}
    for level in range(levels):
        defs[f"l{level + 1}"] = {keyword: [{"$ref": f"#/$defs/l{level}"}] * 2}
    return {"$defs": defs, "$ref": f"#/$defs/l{levels}"}


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"properties": {"a": schema}}
    return schema


@pytest.mark.parametrize(
    ("schema", "value", "reason"),
    [
        ({"pattern": r"(a)\1"}, "", 'the pattern "(a)\\1" cannot be matched: an escape that is not supported'),
        ({"patternProperties": {"(?<=a)b": {}}}, {}, 'the pattern "(?<=a)b" cannot be matched: a group of a kind'),
        ({"properties": {str(n): {"pattern": str(n)} for n in range(300)}}, {}, "it has more than 256 patterns"),
        (
            {"properties": {str(n): {"pattern": f"{n}a{{4000}}"} for n in range(20)}},
            {},
            "its patterns are too large together",
        ),
        ({"$ref": "#"}, 1, "its references go round in a circle"),
        (
            {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
            1,
            "its references go round in a circle",
        ),
        (nested(60), {}, "it nests more than 80 deep"),
        ({"enum": [0] * 100_000}, 0, "it has more than 100000 parts"),
        ({"properties": {str(n): {} for n in range(3000)}}, {}, "it consists of more than 2500 schemas"),
        ({"$ref": "http://169.254.169.254/latest"}, 1, "its references cannot be resolved: http://169.254.169.254/latest"),
        ({"$ref": "file:///etc/passwd"}, 1, "its references cannot be resolved: file:///etc/passwd"),
        ({"not": {"$ref": "#/$defs/nowhere"}}, 1, "its references cannot be resolved:"),
        ({"$ref": "http://[::1"}, 1, "its references cannot be resolved: http://[::1"),
        ({"components": {"a": {"type": 5}}, "$ref": "#/components/a"}, 1, "it is not a valid JSON Schema: $.type:"),
        ({"type": "objekt"}, 1, "it is not a valid JSON Schema: $.type: it fits none of the 2 alternatives"),
        ({"required": True}, 1, "it is not a valid JSON Schema: $.required: true is not of type array"),
        ({"properties": {"a": {"minLength": -1}}}, 1, "it is not a valid JSON Schema: $.properties.a.minLength: -1 is less"),
        ({"$schema": DRAFT_7, "if": 5}, 1, "it is not a valid JSON Schema: $.if: 5 is not of type object or boolean"),
        ({"$schema": DRAFT_2019, "items": 5}, 1, "it is not a valid JSON Schema: $.items: it fits none"),
        ({"$schema": "https://a.example/dialect"}, 1, "the dialect https://a.example/dialect is not supported"),
        ({"$schema": 7}, 1, "the dialect 7 is not supported"),
        ({"properties": {"a": {"$schema": DRAFT_7}}}, 1, "it mixes two dialects"),
    ],
)  # fmt: skip
def test_a_schema_that_cannot_be_checked_says_why_and_says_it_again(
    schema: dict[str, Any], value: object, reason: str
) -> None:
    compiled = compile_schema(schema)

    for _ in range(2):
        with pytest.raises(UncheckableSchema) as caught:
            compiled.mismatch(value)
        assert str(caught.value).startswith(reason)
    assert (compiled.problem(value) or "").startswith(f"its schema cannot be checked: {reason}")


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (fan_out("anyOf", 26), 1),
        (fan_out("allOf", 26), "a"),
        ({"pattern": "(?=.*x)y"}, "a" * 100_000),
        ({"patternProperties": {f"k{n}": True for n in range(200)}}, {f"key{n}": 1 for n in range(10_000)}),
    ],
    ids=["branches that all fail", "branches that all fit", "a look ahead from everywhere", "patterns times names"],
)
def test_a_check_ends_when_its_steps_are_used_up(
    schema: dict[str, Any], value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schemas, "MAX_STEPS", 50_000)  # the same as with 500,000, in a tenth of the time

    assert compile_schema(schema).problem(value) == "its schema cannot be checked: it takes more than 50000 steps"


def test_a_value_that_nests_without_end_is_a_problem_and_no_recursion_error() -> None:
    compiled = compile_schema({"$defs": {"list": {"items": {"$ref": "#/$defs/list"}}}, "$ref": "#/$defs/list"})
    value: object = []
    for _ in range(500):
        value = [value]

    assert compiled.problem(value) == "its schema cannot be checked: it nests more than 200 schemas"


def test_a_value_too_deep_to_be_compared_is_a_problem_and_no_recursion_error() -> None:
    value: object = []
    for _ in range(5000):
        value = [value]

    assert compile_schema({"const": 1}).problem(value) == "its schema cannot be checked: it nests too deeply"


def test_recursion_that_ends_is_fine() -> None:
    schema = {
        "$defs": {"node": {"properties": {"next": {"$ref": "#/$defs/node"}}, "type": "object"}},
        "$ref": "#/$defs/node",
    }
    value: dict[str, object] = {}
    for _ in range(40):
        value = {"next": value}

    assert mismatch(schema, value) is None


def test_ten_thousand_records_are_checked_within_the_budget() -> None:
    record = {
        "type": "object",
        "properties": {
            "id": {"type": "string", "pattern": "^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$"},
            "kind": {"enum": [f"kind {n}" for n in range(1000)]},
            "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        },
        "required": ["id", "kind"],
        "additionalProperties": False,
    }
    compiled = compile_schema({"$defs": {"record": record}, "type": "array", "items": {"$ref": "#/$defs/record"}})
    good = {"id": "123e4567-e89b-12d3-a456-426614174000", "kind": "kind 999", "tags": ["a", "b"]}

    assert compiled.mismatch([good] * 10_000) is None
    assert compiled.mismatch([good] * 99 + [{**good, "id": "1"}]) == (
        f'$[99].id: "1" does not match the pattern "{"^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$"}"'
    )


def test_numbers_whose_hashes_collide_do_not_make_uniqueness_quadratic() -> None:
    colliding = [n * (2**61 - 1) for n in range(20_000)]  # to Python's sets they are all alike

    assert mismatch({"uniqueItems": True}, colliding) is None


def test_the_schema_is_read_once_and_later_changes_do_not_count() -> None:
    schema: dict[str, Any] = {"type": "string"}
    compiled = compile_schema(schema)

    assert compiled.mismatch(5) == "5 is not of type string"
    schema["type"] = "integer"
    assert compiled.mismatch(5) == "5 is not of type string"


def test_the_libraries_for_schemas_are_not_imported_before_there_is_a_value() -> None:
    code = (
        "import sys; from mcp_host.protocol.schemas import compile_schema; compile_schema({});"
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


@given(st.dictionaries(st.sampled_from(WORDS), NONSENSE), JSON)
def test_whatever_the_schema_there_is_a_verdict(schema: dict[str, Any], value: object) -> None:
    problem = compile_schema(schema).problem(value)

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


@given(meaningful_schemas().filter(lambda schema: isinstance(schema, dict)), JSON)
def test_verdicts_are_those_of_the_jsonschema_library(schema: dict[str, Any], value: object) -> None:
    expected = jsonschema.Draft202012Validator(schema).is_valid(value)

    assert (mismatch(schema, value) is None) is expected
