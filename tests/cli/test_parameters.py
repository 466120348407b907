"""Reading ``key=value`` by a schema, and listing what a schema takes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_host.cli.arguments import parse
from mcp_host.cli.output import UsageError
from mcp_host.cli.parameters import Item, listing, parameters, read_arguments

COLOR = {"enum": ["red", "green"], "type": "string"}


def read(schema: dict[str, Any], *operands: str) -> dict[str, object]:
    """The arguments of a tool t for *operands*, as on the command line."""
    return read_arguments("t", schema, parse(["call", "http://x", "t", *operands]).items)


def of(**properties: object) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def error(schema: dict[str, Any], *operands: str) -> list[str]:
    """The lines of the error for *operands*."""
    with pytest.raises(UsageError) as caught:
        read(schema, *operands)
    return str(caught.value).splitlines()


READ: list[tuple[dict[str, Any], str, object]] = [
    ({"type": "string"}, "3", "3"),
    ({"type": "string"}, "true", "true"),
    ({"type": "string"}, "", ""),
    ({"type": "string"}, "a=b:=c", "a=b:=c"),
    ({}, "3", "3"),
    ({"type": "integer"}, "3", 3),
    ({"type": "integer"}, "-3", -3),
    ({"type": "integer"}, "3.0", 3),
    ({"type": "integer"}, "123456789012345678901234567890", 123456789012345678901234567890),
    ({"type": "number"}, "3", 3),
    ({"type": "number"}, "1E3", 1000.0),
    ({"type": "boolean"}, "true", True),
    ({"type": "boolean"}, "False", False),
    ({"type": ["integer", "null"]}, "null", None),
    ({"type": ["integer", "string"]}, "3", "3"),
    ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "3", 3),
    ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "null", "null"),
    ({"oneOf": [{"type": "integer"}, {"type": "boolean"}]}, "true", True),
    ({"allOf": [{"$ref": "#/$defs/Size"}], "default": 1}, "2", 2),
    ({"$ref": "#/$defs/Size"}, "2", 2),
    ({"enum": [1, "auto"]}, "1", 1),
    ({"enum": [1, "auto"]}, "auto", "auto"),
    ({"enum": ["1", 2]}, "1", "1"),
    ({"enum": [True, 1]}, "1", 1),
    ({"const": 7}, "7", 7),
    ({"type": "array", "items": {"type": "integer"}}, "3", [3]),
    ({"type": "array", "items": {"type": "integer"}}, "[3, 4]", [3, 4]),
    ({"type": "array", "items": {"type": "string"}}, "3", ["3"]),
    ({"type": "array"}, "[draft]", ["[draft]"]),
    ({"type": ["string", "array"]}, "[3]", "[3]"),
    ({"type": "object"}, '{"A": 1}', {"A": 1}),
]


def test_text_is_read_as_what_the_schema_takes(subtests: pytest.Subtests) -> None:
    for schema, text, value in READ:
        with subtests.test(f"{schema} {text}"):
            arguments = read({**of(x=schema), "$defs": {"Size": {"type": "integer"}}}, f"x={text}")

            assert json.dumps(arguments) == json.dumps({"x": value})  # which tells True from 1


TAKEN: list[tuple[str, dict[str, Any], list[str], dict[str, object]]] = [
    ("JSON", of(x={}, y={"type": "array"}, z={"type": ["string", "null"]}), ['x:={"a": [1, null]}', "y:=[3,4]", "z:=null"], {"x": {"a": [1, None]}, "y": [3, 4], "z": None}),
    ("a repeated key", of(x={"type": "array", "items": {"type": "integer"}}, y={"type": ["string", "array"]}), ["x=1", "y=a", "x:=2", "y=b"], {"x": [1, 2], "y": ["a", "b"]}),
    ("an object and keys", of(a={}, b={}, c={"type": "integer"}), ['{"a": 1, "b": "2"}', "c=3"], {"a": 1, "b": "2", "c": 3}),
    ("no schema", {}, ["a=1", "b:=2"], {"a": "1", "b": 2}),
    ("no properties", {"type": "object"}, ["a=1", "b:=2"], {"a": "1", "b": 2}),
    ("other properties", {**of(a={"type": "integer"}), "additionalProperties": True}, ["a=1", "x=2"], {"a": 1, "x": "2"}),
    ("names that match", {**of(a={"type": "integer"}), "patternProperties": {"^x": {}}}, ["a=1", "x=2"], {"a": 1, "x": "2"}),
    ("what cannot be checked", {**of(a={}), "$ref": "https://example.com/schema"}, ["a=1"], {"a": "1"}),
]  # fmt: skip  # one case on each line


def test_operands_are_read_together(subtests: pytest.Subtests) -> None:
    for case, schema, operands, arguments in TAKEN:
        with subtests.test(case):
            assert read(schema, *operands) == arguments


def test_a_file_holds_a_text_or_json(tmp_path: Any) -> None:
    (tmp_path / "a.txt").write_text("Grüße\n", encoding="utf-8")
    (tmp_path / "b.json").write_text('{"b": [1]}', encoding="utf-8")

    arguments = read(of(a={"type": "string"}, b={}), f"a=@{tmp_path}/a.txt", f"b:=@{tmp_path}/b.json")

    assert arguments == {"a": "Grüße\n", "b": {"b": [1]}}


ERRORS: list[tuple[list[str], str]] = [
    (["colour=red", "size=1"], "'t' takes no argument 'colour'; did you mean 'color'?"),
    (["zebra=1", "size=1"], "'t' takes no argument 'zebra'"),
    (["color=red"], "'t' needs 'size'"),
    (["size=large"], "size: 'large' is not of type 'integer'"),
    (["size=11"], "size: 11 is greater than the maximum of 10"),
    (["size=1", "color=blue"], "color: 'blue' is not one of 'red', 'green'"),
    (["size=1", "size=2"], "'size' is given 2 times, and is no array"),
]


def test_an_error_says_what_is_wrong_and_what_the_tool_takes(subtests: pytest.Subtests) -> None:
    for operands, sentence in ERRORS:
        with subtests.test(sentence):
            schema = {**of(color=COLOR, size={"type": "integer", "minimum": 1, "maximum": 10}), "required": ["size"]}

            assert error(schema, *operands) == [
                sentence,
                "size: integer, required, at least 1, at most 10",
                'color: "red" | "green"',
            ]


def test_a_tool_without_parameters_says_so() -> None:
    assert error(of(), "a=1") == ["'t' takes no argument 'a'", "it takes no arguments"]


LISTED: list[tuple[object, str]] = [
        ({}, "x: any"),
        ({"type": ["string", "null"], "default": None}, "x: string, default null"),
        ({"anyOf": [COLOR, {"type": "null"}], "default": "red"}, 'x: "red" | "green", default "red"'),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "x: string | integer"),
        ({"enum": list(range(20))}, f"x: 0 | 1 | 2 | 3 | 4 | 5 | 14 more, one of {' | '.join(map(str, range(20)))}"),
        ({"const": "a"}, 'x: "a"'),
        ({"type": "string", "format": "email", "minLength": 3, "maxLength": 9}, "x: string, at least 3 characters, at most 9 characters, format \"email\""),
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1, "multipleOf": 0.1}, "x: number, more than 0, less than 1, a multiple of 0.1"),
        ({"type": "array", "minItems": 1, "maxItems": 2}, "x: array, at least 1 items, at most 2 items"),
        ({"type": "\x1b[2J", "default": "\x1b[2J", "format": "\u202e"}, 'x: \\x1b[2J, format "\\u202e", default "\\u001b[2J"'),
        ({"type": "a" * 99}, f"x: {'a' * 40}… (99 characters)"),
        ({"default": "a" * 99}, f"x: any, default \"{'a' * 39}… (101 characters)"),
        (True, "x: any"),
        (7, "x: any"),
    ]  # fmt: skip  # one case on each line


def test_a_parameter_is_listed_on_one_line(subtests: pytest.Subtests) -> None:
    for schema, line in LISTED:
        with subtests.test(str(schema)):
            assert list(listing(parameters(of(x=schema)))) == [line]


def test_required_parameters_come_first_and_at_most_64_are_listed() -> None:
    schema = {**of(**{f"p{number}": {} for number in range(99)}), "required": ["p7", 8, "p98"]}

    lines = list(listing(parameters(schema)))

    assert lines[:3] == ["p7: any, required", "p98: any, required", "p0: any"]
    assert lines[64:] == ["and 35 more"]


# Anything at all

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=5), values, max_size=3),
    max_leaves=8,
)
KEYWORDS = st.sampled_from([
    *("type", "enum", "const", "items", "anyOf", "oneOf", "allOf", "$ref", "default", "minimum", "maxLength"),
    *("format", "description", "properties", "required", "additionalProperties", "$defs", "x"),
])  # fmt: skip
NAMES = st.sampled_from(["string", "integer", "array", "object", "#", "#/$defs/x", "#/properties/x", "x"])
SCHEMAS = st.recursive(
    st.dictionaries(KEYWORDS, JSON | NAMES, max_size=4),
    lambda schemas: st.dictionaries(KEYWORDS, schemas | st.lists(schemas | NAMES, max_size=3) | NAMES, max_size=4),
    max_leaves=8,
)


@given(SCHEMAS, st.lists(st.tuples(st.sampled_from("xyz"), JSON, st.booleans()), max_size=4))
def test_no_schema_and_no_value_is_an_error_of_another_kind(schema: dict[str, Any], given: list[Any]) -> None:
    items = [Item(key, value if is_json else str(value), is_json) for key, value, is_json in given]

    for line in listing(parameters(schema)):
        assert line.isprintable()
    try:
        arguments = read_arguments("t", schema, items)
    except UsageError:
        return
    assert arguments.keys() == {item.key for item in items}
