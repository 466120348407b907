"""JSON Schemas of tools, as each provider accepts them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcp_host.providers.schemas import function, gemini, strict
from tests.providers.servers import openai_rules

TEXT = {"type": "string"}
NUMBER = {"type": "number"}


def an_object(required: list[str] | None = None, /, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties) if required is None else required}


def said(**schema: object) -> str:
    return f"The arguments also have to conform to this JSON Schema: {json.dumps(schema)}"


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        ({"type": "object"}, {"type": "object", "properties": {}}),
        ({}, {"type": "object", "properties": {}}),
        (
            {"$schema": "http://json-schema.org/draft-07/schema#", **an_object(a=TEXT), "title": "T"},
            {"title": "T", **an_object(a=TEXT)},
        ),
        (
            an_object(a={"type": "array"}, b={"type": ["array", "null"], "prefixItems": [TEXT]}),
            an_object(
                a={"type": "array", "items": {}}, b={"type": ["array", "null"], "prefixItems": [TEXT], "items": {}}
            ),
        ),
        (
            an_object(a={"type": "array", "items": [TEXT], "additionalItems": False}),
            an_object(a={"type": "array", "prefixItems": [TEXT], "items": {"not": {}}}),
        ),
        (
            an_object(a={"type": "number", "minimum": 1, "exclusiveMinimum": True, "exclusiveMaximum": False}),
            an_object(a={"type": "number", "exclusiveMinimum": 1}),
        ),
        (an_object(a=True, b=False), an_object(a={}, b={"not": {}})),
        (an_object(a={"type": "string", "required": True}), an_object(a=TEXT)),
        (
            {"type": "object", "properties": {"a": TEXT}, "additionalProperties": False},
            {"type": "object", "properties": {"a": TEXT}, "additionalProperties": False},
        ),
        (
            {"allOf": [an_object(a=TEXT), {"properties": {"b": NUMBER}}]},
            an_object(["a"], a=TEXT, b=NUMBER),
        ),
        (
            {"allOf": [an_object(a=TEXT), an_object(a={"minLength": 1})]},
            an_object(a={"allOf": [TEXT, {"minLength": 1}]}),
        ),
        (
            {"description": "D", "anyOf": [an_object(a=TEXT, b=TEXT), an_object(a=NUMBER)]},
            {
                "description": "D\n" + said(anyOf=[an_object(a=TEXT, b=TEXT), an_object(a=NUMBER)]),
                **an_object(["a"], a={"anyOf": [TEXT, NUMBER]}, b=TEXT),
            },
        ),
        (
            {**an_object([], a=TEXT, b=TEXT), "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
            {
                "description": said(oneOf=[{"required": ["a"]}, {"required": ["b"]}]),
                "type": "object",
                "properties": {"a": TEXT, "b": TEXT},
            },
        ),
        (
            {"$ref": "#/$defs/T", "$defs": {"T": an_object(a=TEXT)}},
            an_object(a=TEXT),
        ),
        (
            {**an_object(a={"$ref": "#/$defs/T"}), "$defs": {"T": TEXT}},
            {**an_object(a={"$ref": "#/$defs/T"}), "$defs": {"T": TEXT}},
        ),
    ],
    ids=[
        *("no properties", "no type", "dialect", "no items", "tuple", "draft 4", "booleans", "draft 3", "closed"),
        *("all", "all of one name", "any", "one of", "reference", "definitions"),
    ],
)
def test_a_function_has_an_object_at_its_root(schema: dict[str, Any], written: dict[str, Any]) -> None:
    assert function(schema) == written
    openai_rules.check_parameters(function(schema), "t", strict=False)


def test_a_reference_to_nowhere_is_an_error() -> None:
    with pytest.raises(ValueError, match="which it does not have"):
        function({"$ref": "#/$defs/T"})


CLOSED = {"additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        (an_object(a=TEXT), {**an_object(a=TEXT), **CLOSED}),
        ({"type": "object"}, {**an_object(), **CLOSED}),
        (an_object(a={"enum": ["x", 1]}), {**an_object(a={"enum": ["x", 1], "type": ["string", "integer"]}), **CLOSED}),
        (
            {"$schema": "x", **an_object(a={"type": "string", "default": "d", "examples": ["e"], "title": "A"})},
            {**an_object(a={"type": "string", "title": "A"}), **CLOSED},
        ),
        (
            an_object(a={"type": ["object", "null"], **{k: v for k, v in an_object(b=TEXT).items() if k != "type"}}),
            {
                **an_object(
                    a={"type": ["object", "null"], "properties": {"b": TEXT}, "required": ["b"], **CLOSED},
                ),
                **CLOSED,
            },
        ),
        (
            an_object(a={"type": "array", "items": an_object(b={"anyOf": [TEXT, {"type": "null"}]})}),
            {
                **an_object(
                    a={"type": "array", "items": {**an_object(b={"anyOf": [TEXT, {"type": "null"}]}), **CLOSED}}
                ),
                **CLOSED,
            },
        ),
        (
            {**an_object(a={"$ref": "#/$defs/T", "description": "d"}), "$defs": {"T": TEXT}},
            {**an_object(a={**TEXT, "description": "d"}), **CLOSED},
        ),
        (
            {
                **an_object(a={"$ref": "#/$defs/T"}),
                "$defs": {"T": an_object(n={"anyOf": [{"$ref": "#/$defs/T"}, {"type": "null"}]})},
            },
            {
                **an_object(a={"$ref": "#/$defs/T"}),
                **CLOSED,
                "$defs": {"T": {**an_object(n={"anyOf": [{"$ref": "#/$defs/T"}, {"type": "null"}]}), **CLOSED}},
            },
        ),
    ],
    ids=["closed", "empty", "enum", "annotations", "nullable", "nested", "inlined", "recursive"],
)
def test_a_schema_for_the_strict_mode(schema: dict[str, Any], written: dict[str, Any]) -> None:
    assert strict(schema) == written
    openai_rules.check_strict(strict(schema), "t")


@pytest.mark.parametrize(
    "schema",
    [
        an_object([], a=TEXT),
        {**an_object(a=TEXT), "additionalProperties": True},
        {**an_object(a=TEXT), "additionalProperties": TEXT},
        {"type": "array", "items": TEXT},
        {"anyOf": [an_object(a=TEXT)]},
        {**an_object(a=TEXT), "anyOf": [an_object(a=TEXT)]},
        an_object(a={}),
        an_object(a=True),
        an_object(a={"type": "object"}),
        an_object(a={"type": "array"}),
        an_object(a={"type": "string", "minLength": 1}),
        an_object(a={"type": "string", "format": "uri"}),
        an_object(a={"type": "string", "pattern": "(?=a)b"}),
        an_object(a={"oneOf": [TEXT, NUMBER]}),
        an_object(a={"anyOf": [an_object(b=TEXT), an_object(b=NUMBER)]}),
        an_object(a=an_object(a=an_object(a=an_object(a=an_object(a=TEXT))))),
        an_object(**{f"p{number}": TEXT for number in range(101)}),
        an_object(a={"enum": [f"v{number}" for number in range(501)]}),
        an_object(a={"const": "x" * 15_001}),
    ],
)
def test_what_the_strict_mode_cannot_say_is_none(schema: dict[str, Any]) -> None:
    assert strict(schema) is None


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        ({"type": "object"}, {"type": "object", "properties": {}}),
        (an_object(a={"const": "x"}, b={"enum": ["y"]}), an_object(a={"enum": ["x"]}, b={"enum": ["y"]})),
        (
            an_object(a={"type": "integer", "minimum": 0, "exclusiveMaximum": 5, "default": 1, "description": "D"}),
            an_object(
                a={
                    "type": "integer",
                    "minimum": 0,
                    "description": 'D\nThis JSON Schema applies, too: {"exclusiveMaximum": 5, "default": 1}',
                }
            ),
        ),
        (
            {**an_object(a={"$ref": "#/$defs/T", "description": "d"}), "$defs": {"T": {"type": "string"}}},
            an_object(a={"type": "string", "description": "d"}),
        ),
        (
            an_object(a={"$ref": "#", "description": "d"}),
            {
                **an_object(a={"$ref": "#/$defs/root"}),
                "$defs": {"root": an_object(a={"$ref": "#/$defs/root"})},
            },
        ),
    ],
    ids=["no properties", "const", "other keywords", "reference", "a reference to itself"],
)
def test_gemini_gets_the_keywords_that_it_reads_and_the_others_in_words(
    schema: dict[str, Any], written: dict[str, Any]
) -> None:
    assert gemini(schema) == written
