"""The request metadata in HTTP headers: values and annotations, valid or not."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_host.protocol.headers import (
    MCP_METHOD,
    MCP_NAME,
    ParameterHeader,
    decode_value,
    encode_value,
    parameter_headers,
)

Schema = dict[str, object]


def test_the_standard_headers_are_spelled_as_in_the_specification() -> None:
    assert (MCP_METHOD, MCP_NAME) == ("Mcp-Method", "Mcp-Name")


VALUES: list[tuple[str, str]] = [
    ("us-west1", "us-west1"),
    ("", ""),
    ("us west 1", "us west 1"),
    ("file:///a%20b?c=d", "file:///a%20b?c=d"),
    ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
    (" padded ", "=?base64?IHBhZGRlZCA=?="),
    (" us-west1", "=?base64?IHVzLXdlc3Qx?="),
    ("us-west1 ", "=?base64?dXMtd2VzdDEg?="),
    ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
    ("line1\r\nline2", "=?base64?bGluZTENCmxpbmUy?="),
    ("\tindented", "=?base64?CWluZGVudGVk?="),
    ("in\tside", "=?base64?aW4Jc2lkZQ==?="),
    ("\x7f", "=?base64?fw==?="),
    ("é", "=?base64?w6k=?="),
    ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
    ("=?base64??=", "=?base64?PT9iYXNlNjQ/Pz0=?="),
    ("=?base64?=", "=?base64?PT9iYXNlNjQ/PQ==?="),
    # "These markers are case-sensitive and MUST appear exactly as shown"
    *((text, text) for text in ("=?BASE64?YQ==?=", "=?base64?YQ==", "base64?YQ==?=", "=?base65?YQ==?=")),
]


def test_a_value_is_plain_where_that_is_safe_and_base64_otherwise(subtests: pytest.Subtests) -> None:
    for text, header in VALUES:
        with subtests.test(text=text):
            assert encode_value(text) == header
            assert decode_value(header) == text


@given(st.text())
def test_every_text_round_trips_as_visible_ascii(text: str) -> None:
    header = encode_value(text)

    assert decode_value(header) == text
    assert re.fullmatch(r"([!-~]([ -~]*[!-~])?)?", header)


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
def test_a_lone_surrogate_cannot_be_sent(text: str) -> None:
    with pytest.raises(ValueError, match="a lone surrogate"):
        encode_value(text)


def test_a_malformed_header_has_no_value(subtests: pytest.Subtests) -> None:
    for header in (
        "é",
        "a\nb",
        "\x7f",
        "\x00",
        "=?base64?=",
        "=?base64?YQ?=",
        "=?base64?Y!==?=",
        "=?base64?YQ==YQ==?=",
        "=?base64?/w==?=",
    ):
        with subtests.test(header=header):
            assert decode_value(header) is None


ENCODED: list[tuple[object, str | None]] = [
    ("us-west1", "us-west1"),
    (" padded ", "=?base64?IHBhZGRlZCA=?="),
    ("", ""),
    (42, "42"),
    (-7, "-7"),
    (0, "0"),
    (42.0, "42"),
    (-0.0, "0"),
    (2**53 - 1, "9007199254740991"),
    (-(2**53) + 1, "-9007199254740991"),
    (True, "true"),
    (False, "false"),
    (None, None),
    (1.5, None),
    (float("nan"), None),
    (float("inf"), None),
    (["us"], None),
    ({"us": 1}, None),
]


def test_an_argument_is_encoded_by_its_type(subtests: pytest.Subtests) -> None:
    for argument, header in ENCODED:
        with subtests.test(argument=argument):
            assert ParameterHeader("Region", ("region",)).value({"region": argument, "other": "x"}) == header


@pytest.mark.parametrize("argument", [2**53, -(2**53), 1e300, 10**5000], ids=["above", "below", "float", "endless"])
def test_an_unsafe_integer_is_a_caller_error(argument: float) -> None:
    with pytest.raises(ValueError, match=r"the number for Mcp-Param-Id is not within -\(2\*\*53 - 1\) and 2\*\*53 - 1"):
        ParameterHeader("Id", ("id",)).value({"id": argument})


def test_a_text_that_cannot_be_a_header_is_a_caller_error() -> None:
    with pytest.raises(ValueError, match="a lone surrogate"):
        ParameterHeader("Region", ("region",)).value({"region": "\ud800"})


@pytest.mark.parametrize(
    ("arguments", "header"),
    [
        ({"where": {"region": "eu"}}, "eu"),
        ({"where": {"zone": "eu"}}, None),
        ({"where": {"region": None}}, None),
        ({"where": "region"}, None),
        ({"where": [{"region": "eu"}]}, None),
        ({"region": "eu"}, None),
        ({}, None),
    ],
    ids=repr,
)
def test_a_value_is_read_at_the_exact_property_path(arguments: dict[str, object], header: str | None) -> None:
    assert ParameterHeader("Region", ("where", "region")).value(arguments) == header


def test_a_header_is_named_by_its_annotation() -> None:
    assert ParameterHeader("Method", ("method",)).header == "Mcp-Param-Method"


REGION: Schema = {"type": "string", "x-mcp-header": "Region"}


COUNT: Schema = {"type": "integer", "x-mcp-header": "Count"}
DRY: Schema = {"type": "boolean", "x-mcp-header": "Dry"}
EVERY_CHARACTER = "!#$%&'*+-.^_`|~09azAZ"
ANNOTATED: dict[str, tuple[Schema, dict[str, tuple[str, ...]]]] = {
    "nothing": ({}, {}),
    "unannotated": ({"type": "object", "properties": {"query": {"type": "string"}}}, {}),
    "one": ({"properties": {"region": REGION}}, {"Region": ("region",)}),
    "nested": (
        {"properties": {"where": {"type": "object", "properties": {"region": REGION}}, "count": COUNT, "dry": DRY}},
        {"Count": ("count",), "Dry": ("dry",), "Region": ("where", "region")},
    ),
    "every character": (
        {"properties": {"x": {"type": "string", "x-mcp-header": EVERY_CHARACTER}}},
        {EVERY_CHARACTER: ("x",)},
    ),
    "called like the annotation": (
        {"properties": {"x-mcp-header": REGION, "properties": COUNT}},
        {"Region": ("x-mcp-header",), "Count": ("properties",)},
    ),
}


def test_annotated_parameters_are_found(subtests: pytest.Subtests) -> None:
    for case, (schema, paths) in ANNOTATED.items():
        with subtests.test(case):
            assert parameter_headers(schema) == tuple(ParameterHeader(name, path) for name, path in paths.items())


LOOKING_ALIKE: dict[str, Schema] = {
    "property": {"properties": {"x-mcp-header": {"type": "string"}}},
    "definition": {"$defs": {"x-mcp-header": {"type": "string"}}},
    "nested-property": {"properties": {"where": {"properties": {"x-mcp-header": {"type": "array"}}}}},
    "const": {"properties": {"a": {"const": {"x-mcp-header": "No"}}}},
    "enum": {"properties": {"a": {"enum": [{"x-mcp-header": "No"}]}}},
    "default": {"properties": {"a": {"default": {"x-mcp-header": "No"}}}},
    "examples": {"properties": {"a": {"examples": [{"x-mcp-header": "No"}]}}},
    "required": {"required": ["x-mcp-header"], "dependentRequired": {"x-mcp-header": ["a"]}},
    "true": {"properties": {"a": True}, "additionalProperties": False, "items": True},
    "odd": {"properties": True, "$defs": ["x-mcp-header"]},
}


def test_names_and_values_that_look_like_annotations_are_ignored(subtests: pytest.Subtests) -> None:
    for case, schema in LOOKING_ALIKE.items():
        with subtests.test(case):
            assert parameter_headers(schema) == ()


@pytest.mark.fault("T15")
def test_an_annotation_that_is_not_a_header_name_makes_the_tool_invalid(subtests: pytest.Subtests) -> None:
    for name, reason in (
        ("", "the x-mcp-header '' cannot be part of a header's name"),
        ("My Region", "the x-mcp-header 'My Region' cannot be part of a header's name"),
        ("Region:Primary", "the x-mcp-header 'Region:Primary' cannot be part of a header's name"),
        ("Région", "the x-mcp-header 'Région' cannot be part of a header's name"),
        ("Region\t1", "the x-mcp-header 'Region\\t1' cannot be part of a header's name"),
        ("Region\n", "the x-mcp-header 'Region\\n' cannot be part of a header's name"),
        ("A\r\nHost: b", "the x-mcp-header 'A\\r\\nHost: b' cannot be part of a header's name"),
        (None, "an x-mcp-header is None, not a string"),
        (True, "an x-mcp-header is True, not a string"),
        (["Region"], "an x-mcp-header is ['Region'], not a string"),
    ):
        with subtests.test(name=name):
            assert refusal({"properties": {"region": {"type": "string", "x-mcp-header": name}}}) == reason


def test_only_strings_integers_and_booleans_can_be_annotated(subtests: pytest.Subtests) -> None:
    for kind, problem in (
        ({"type": "number"}, "type is 'number'"),
        ({"type": "object"}, "type is 'object'"),
        ({"type": "array"}, "type is 'array'"),
        ({"type": "null"}, "type is 'null'"),
        ({"type": ["string", "null"]}, "type is ['string', 'null']"),
        ({"type": {}}, "type is {}"),
        ({}, "type is missing"),
        ({"$ref": "#/$defs/text"}, "type is missing"),
    ):
        with subtests.test(kind=kind):
            assert refusal({"properties": {"region": {**kind, "x-mcp-header": "Region"}}}) == (
                f"the x-mcp-header 'Region' is on a parameter whose {problem}, not string, integer, boolean"
            )


@pytest.mark.fault("T15")
@pytest.mark.parametrize("second", ["Region", "region", "REGION"])
def test_two_annotations_of_one_name_make_the_tool_invalid(second: str) -> None:
    twice: Schema = {"a": REGION, "b": {"properties": {"c": {"type": "string", "x-mcp-header": second}}}}

    assert refusal({"properties": twice}) == f"two parameters have the x-mcp-header '{second}' (case does not count)"


REACHED: list[Schema] = [
    REGION,
    {"items": REGION},
    {"items": {"properties": {"region": REGION}}},
    {"prefixItems": [REGION]},
    {"contains": REGION},
    {"oneOf": [{"properties": {"region": REGION}}]},
    {"anyOf": [{"properties": {"region": REGION}}]},
    {"allOf": [{"properties": {"region": REGION}}]},
    {"properties": {"a": {"anyOf": [REGION, {"type": "null"}]}}},
    {"not": REGION},
    {"if": {"properties": {"region": REGION}}},
    {"then": {"properties": {"region": REGION}}},
    {"else": {"properties": {"region": REGION}}},
    {"$defs": {"region": REGION}},
    {"definitions": {"region": REGION}},
    {"dependentSchemas": {"a": {"properties": {"region": REGION}}}},
    {"dependencies": {"a": {"properties": {"region": REGION}}}},
    {"patternProperties": {"^r": REGION}},
    {"additionalProperties": REGION},
    {"unevaluatedProperties": REGION},
    {"propertyNames": REGION},
    {"contentSchema": REGION},
    {"x-unknown": [[{"deeper": REGION}]]},
    {"properties": [REGION]},
    {"properties": {"const": {"items": REGION}}},
]


def test_an_annotation_reached_through_other_keywords_makes_the_tool_invalid(subtests: pytest.Subtests) -> None:
    for schema in REACHED:
        with subtests.test(schema=schema):
            assert refusal(schema) == (
                "the x-mcp-header 'Region' is not on a property that is reached through `properties` only, 64 levels at most"
            )


def nested(levels: int, schema: Schema) -> Schema:
    for _ in range(levels):
        schema = {"properties": {"a": schema}}
    return schema


def test_a_parameter_may_be_nested_up_to_the_limit() -> None:
    assert parameter_headers(nested(64, REGION)) == (ParameterHeader("Region", ("a",) * 64),)
    assert "64 levels at most" in refusal(nested(65, REGION))


def test_a_schema_of_any_depth_is_read() -> None:
    deep = nested(100_000, {})

    assert parameter_headers({"properties": {"region": REGION, "deep": deep}, "allOf": [deep]}) == (
        ParameterHeader("Region", ("region",)),
    )


def refusal(schema: Schema) -> str:
    """The reason why a tool with this schema is left out."""
    with pytest.raises(ValueError, match=r".") as raised:
        parameter_headers(schema)
    return str(raised.value)
