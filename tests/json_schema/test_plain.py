"""The quick check: where it says yes, the full check finds nothing."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_host.errors import UncheckableSchema
from mcp_host.json_schema.plain import BOUNDS, conforms
from mcp_host.json_schema.schema import Schema
from tests.extent import saturated

FORECAST: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "forecastArguments",
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "its name", "title": "City"},
        "days": {"type": "integer", "default": 1},
        "scale": {"type": "string", "enum": ["C", "F"]},
        "share": {"type": ["number", "null"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "height": {"type": "integer", "minimum": 0, "exclusiveMaximum": 9000},
        "note": {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "null"}], "default": None},
        "level": {"enum": [1, 2, None]},
        "dates": {"type": "array", "items": {"type": "string", "minLength": 2}, "minItems": 1, "maxItems": 2},
        "place": {"type": "object", "properties": {"lat": {"type": "number"}}, "required": ["lat"]},
    },
    "required": ["city"],
    "additionalProperties": False,
}


USUAL: list[tuple[object, bool, bool]] = [
    ({"city": "Oslo"}, True, True),
    ({"city": "Oslo", "days": 3, "scale": "F", "share": None, "tags": ["a", "b"]}, True, True),
    ({"city": "Oslo", "share": 1.5, "tags": [], "place": {"lat": 59, "lon": 10.7}}, True, True),
    ({"city": "Oslo", "height": 0, "note": "abc", "level": 2, "dates": ["ab", "c\U0001f600"]}, True, True),
    ({"city": "Oslo", "note": None, "level": None}, True, True),
    ({"city": "Oslo", "days": 3.0}, False, True),
    ({"city": "Oslo", "level": 1.0}, False, True),
    ({"city": "Oslo", "level": True}, False, False),
    ({"city": "Oslo", "height": 9000}, False, False),
    ({"city": "Oslo", "note": "abcd"}, False, False),
    ({"city": "Oslo", "note": 1}, False, False),
    ({"city": "Oslo", "dates": []}, False, False),
    ({"city": "Oslo", "dates": ["a"]}, False, False),
    ({}, False, False),
    ({"city": 1}, False, False),
    ({"city": "Oslo", "days": True}, False, False),
    ({"city": "Oslo", "scale": "K"}, False, False),
    ({"city": "Oslo", "tags": ["a", 1]}, False, False),
    ({"city": "Oslo", "place": {"lon": 10.7}}, False, False),
    ({"city": "Oslo", "country": "NO"}, False, False),
    ([], False, False),
]


def test_usual_arguments_of_a_usual_tool_need_no_other_check(subtests: pytest.Subtests) -> None:
    for arguments, plain, valid in USUAL:
        with subtests.test(arguments=arguments):
            assert (conforms(FORECAST, arguments), Schema(FORECAST).mismatch(arguments) is None) == (plain, valid)


NOT_PLAIN: list[tuple[object, object]] = [
    (True, 1),
    ({"multipleOf": 1}, 1),
    ({"minimum": True}, 1),
    ({"exclusiveMinimum": "0"}, 1),
    ({"anyOf": {"type": "string"}}, "a"),
    ({"anyOf": [{"minLength": 1}]}, "a"),
    ({"anyOf": [{"type": "null"}] * 8 + [{"type": "string"}]}, "a"),
    ({"$schema": "http://json-schema.org/draft-03/schema#"}, {}),
    ({"$ref": "#"}, {}),
    ({"type": 5}, {}),
    ({"type": "any"}, {}),
    ({"type": [["string"]]}, {}),
    ({"properties": []}, {}),
    ({"required": True}, {}),
    ({"required": [[]]}, {}),
    ({"additionalProperties": 1}, {"a": 1}),
    ({"items": [{}]}, [1]),
    ({"enum": "abc"}, "a"),
    ({"enum": [1.0]}, 1.0),
    ({"enum": [["a"]]}, ["a"]),
    # Many parts
    ({"items": {}}, [None] * 300),
    ({}, dict.fromkeys(map(str, range(300)))),
    ({"required": ["a"] * 300}, {"a": 1}),
    ({"enum": ["a"] * 300}, "a"),
    ({"items": {"items": {}}}, [[None] * 20] * 20),
]


def test_what_is_no_plain_schema_or_has_many_parts_is_left_to_the_full_check(subtests: pytest.Subtests) -> None:
    for schema, value in NOT_PLAIN:
        with subtests.test(schema=str(schema)[:60]):
            assert not conforms(schema, value)


BOUNDING = [keyword for bounds in BOUNDS.values() for keyword, _, _ in bounds]

names = st.sampled_from(["a", "b", "c"])
types = st.sampled_from(["string", "integer", "number", "boolean", "object", "array", "null", "thing"])
junk = st.none() | st.booleans() | st.integers(-1, 1) | st.floats(-1, 1) | names | types
values = st.recursive(junk, lambda part: st.lists(part, max_size=3) | st.dictionaries(names, part, max_size=3))


bounds = st.booleans() | st.integers(-1, 2) | st.floats(-1, 1)


def keywords(part: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {},
        optional={
            "type": types | st.lists(types, max_size=3),
            "enum": st.lists(junk, max_size=3),
            "properties": st.dictionaries(names, part, max_size=3),
            "required": st.lists(names, max_size=2),
            "additionalProperties": st.booleans() | part,
            "items": part,
            "title": names,
            "anyOf": st.lists(part, max_size=2),
            **dict.fromkeys(BOUNDING, bounds),
        },
    )


@saturated
@given(schema=st.recursive(keywords(st.booleans()), keywords, max_leaves=6), value=values)
def test_a_value_that_conforms_plainly_passes_the_full_check(schema: dict[str, Any], value: object) -> None:
    if not conforms(schema, value):
        return
    try:
        problem = Schema(schema).mismatch(value)
    except UncheckableSchema:  # a part that does not apply to the value is no schema
        problem = None

    assert problem is None


def test_the_quick_check_imports_no_library() -> None:
    code = "import sys, mcp_host.json_schema.plain; print('jsonschema' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
