"""JSON Schemas of tools, as each provider accepts them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from mcp_host.providers.exchange.schemas import (
    anthropic,
    anthropic_names,
    drop_absent,
    format_of_object,
    function,
    gemini,
    strict,
    without_definitions,
)
from tests.interop.providers.servers import openai_rules
from tests.providers.schema_rules import CHECKS
from tests.providers.variants import variants

TEXT = {"type": "string"}
NUMBER = {"type": "number"}
NULL = {"type": "null"}
UNSET = {"enum": ["", "asc"], "description": "The order."}
SET = {"enum": ["asc"], "description": 'The order.\nThis JSON Schema applies, too: {"enum": ["", "asc"]}'}


def an_object(required: list[str] | None = None, /, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties) if required is None else required}


def said(**schema: object) -> str:
    return f"The arguments also have to conform to this JSON Schema: {json.dumps(schema)}"


def test_a_function_has_an_object_at_its_root(subtests: pytest.Subtests) -> None:
    table: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("no properties", {"type": "object"}, {"type": "object", "properties": {}}),
        ("no type", {}, {"type": "object", "properties": {}}),
        (
            "dialect",
            {"$schema": "http://json-schema.org/draft-07/schema#", **an_object(a=TEXT), "title": "T"},
            {"title": "T", **an_object(a=TEXT)},
        ),
        (
            "empty texts among the values, which Gemini behind another API refuses",
            an_object(a=UNSET, b={"const": "", "enum": [""]}),
            an_object(a=SET, b={"description": 'This JSON Schema applies, too: {"enum": [""], "const": ""}'}),
        ),
        (
            "no items",
            an_object(a={"type": "array"}, b={"type": ["array", "null"], "prefixItems": [TEXT]}),
            an_object(
                a={"type": "array", "items": {}}, b={"type": ["array", "null"], "prefixItems": [TEXT], "items": {}}
            ),
        ),
        (
            "tuple",
            an_object(a={"type": "array", "items": [TEXT], "additionalItems": False}),
            an_object(a={"type": "array", "prefixItems": [TEXT], "items": {"not": {}}}),
        ),
        (
            "draft 4",
            an_object(a={"type": "number", "minimum": 1, "exclusiveMinimum": True, "exclusiveMaximum": False}),
            an_object(a={"type": "number", "exclusiveMinimum": 1}),
        ),
        ("booleans", an_object(a=True, b=False), an_object(a={}, b={"not": {}})),
        ("draft 3", an_object(a={"type": "string", "required": True}), an_object(a=TEXT)),
        (
            "closed",
            {"type": "object", "properties": {"a": TEXT}, "additionalProperties": False},
            {"type": "object", "properties": {"a": TEXT}, "additionalProperties": False},
        ),
        (
            "required and not defined",
            an_object(["a", "b"], a={"anyOf": [{"required": ["c"]}, TEXT]}),
            {
                **an_object(["a"], a={"anyOf": [{"required": ["c"]}, TEXT]}),
                "description": 'This JSON Schema applies, too: {"required": ["b"]}',
            },
        ),
        ("all", {"allOf": [an_object(a=TEXT), {"properties": {"b": NUMBER}}]}, an_object(["a"], a=TEXT, b=NUMBER)),
        (
            "all of one name",
            {"allOf": [an_object(a=TEXT), an_object(a={"minLength": 1})]},
            an_object(a={"allOf": [TEXT, {"minLength": 1}]}),
        ),
        (
            "any in all",
            {
                "allOf": [
                    {"anyOf": [an_object([], a=part) for part in (TEXT, NUMBER, NULL, TEXT)]},
                    an_object([], a={"minLength": 1}),
                ]
            },
            {
                "description": said(
                    allOf=[
                        {"anyOf": [an_object([], a=part) for part in (TEXT, NUMBER, NULL, TEXT)]},
                        an_object([], a={"minLength": 1}),
                    ]
                ),
                "type": "object",
                "properties": {"a": {"allOf": [{"anyOf": [TEXT, NUMBER, NULL]}, {"minLength": 1}]}},
            },
        ),
        (
            "any",
            {"description": "D", "anyOf": [an_object(a=TEXT, b=TEXT), an_object(a=NUMBER)]},
            {
                "description": "D\n" + said(anyOf=[an_object(a=TEXT, b=TEXT), an_object(a=NUMBER)]),
                **an_object(["a"], a={"anyOf": [TEXT, NUMBER]}, b=TEXT),
            },
        ),
        (
            "one of",
            {**an_object([], a=TEXT, b=TEXT), "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
            {
                "description": said(oneOf=[{"required": ["a"]}, {"required": ["b"]}]),
                "type": "object",
                "properties": {"a": TEXT, "b": TEXT},
            },
        ),
        ("reference", {"$ref": "#/$defs/T", "$defs": {"T": an_object(a=TEXT)}}, an_object(a=TEXT)),
        (
            "definitions",
            {**an_object(a={"$ref": "#/$defs/T"}), "$defs": {"T": TEXT}},
            {**an_object(a={"$ref": "#/$defs/T"}), "$defs": {"T": TEXT}},
        ),
    ]
    for case, schema, written in table:
        with subtests.test(case):
            assert function(schema) == written
            openai_rules.check_parameters(function(schema), "t", strict=False)


CLOSED = {"additionalProperties": False}


def test_a_schema_for_the_strict_mode(subtests: pytest.Subtests) -> None:
    table: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("closed", an_object(a=TEXT), {**an_object(a=TEXT), **CLOSED}),
        ("empty", {"type": "object"}, {**an_object(), **CLOSED}),
        (
            "enum",
            an_object(a={"enum": ["x", 1]}),
            {**an_object(a={"enum": ["x", 1], "type": ["string", "integer"]}), **CLOSED},
        ),
        (
            "annotations",
            {"$schema": "x", **an_object(a={"type": "string", "default": "d", "examples": ["e"], "title": "A"})},
            {**an_object(a={"type": "string", "title": "A"}), **CLOSED},
        ),
        (
            "nullable",
            an_object(a={"type": ["object", "null"], **{k: v for k, v in an_object(b=TEXT).items() if k != "type"}}),
            {
                **an_object(a={"type": ["object", "null"], "properties": {"b": TEXT}, "required": ["b"], **CLOSED}),
                **CLOSED,
            },
        ),
        (
            "nested",
            an_object(a={"type": "array", "items": an_object(b={"anyOf": [TEXT, {"type": "null"}]})}),
            {
                **an_object(
                    a={"type": "array", "items": {**an_object(b={"anyOf": [TEXT, {"type": "null"}]}), **CLOSED}}
                ),
                **CLOSED,
            },
        ),
        (
            "inlined",
            {**an_object(a={"$ref": "#/$defs/T", "description": "d"}), "$defs": {"T": TEXT}},
            {**an_object(a={**TEXT, "description": "d"}), **CLOSED},
        ),
        (
            "recursive",
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
        (
            "optional",
            an_object(["b"], a=TEXT, b=NUMBER, c={"const": 1}, d={"anyOf": [TEXT, NUMBER]}),
            {
                **an_object(
                    ["b", "a", "c", "d"],
                    a={"anyOf": [TEXT, NULL]},
                    b=NUMBER,
                    c={"anyOf": [{"const": 1, "type": "integer"}, NULL]},
                    d={"anyOf": [{"anyOf": [TEXT, NUMBER]}, NULL]},
                ),
                **CLOSED,
            },
        ),
        (
            "optional and nullable",
            an_object(
                [], a={"type": ["string", "null"]}, b={"anyOf": [TEXT, NULL], "default": None}, c={"enum": [1, None]}
            ),
            {
                **an_object(
                    a={"type": ["string", "null"]},
                    b={"anyOf": [TEXT, NULL]},
                    c={"enum": [1, None], "type": ["integer", "null"]},
                ),
                **CLOSED,
            },
        ),
    ]
    for case, schema, written in table:
        with subtests.test(case):
            assert strict(schema) == written
            openai_rules.check_strict(strict(schema), "t")


def test_null_for_a_property_that_may_be_missing_is_read_as_missing(subtests: pytest.Subtests) -> None:
    node = an_object(["v"], v=TEXT, n={"$ref": "#/$defs/T"}, m={"anyOf": [{"$ref": "#/$defs/T"}, NULL]})
    in_list = an_object(a={"type": "array", "items": {"anyOf": [NUMBER, an_object([], b=TEXT)]}})
    endless = {"anyOf": [{"$ref": "#/$defs/T"}, {"$ref": "#/$defs/T"}]}
    nested: dict[str, Any] = {"v": "", "n": {"v": "", "n": None}, "m": {"v": "", "n": None, "m": None}}
    table: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = [
        ("missing", an_object([], a=TEXT, b=NUMBER), {"a": None, "b": 1}, {"b": 1}),
        ("nullable", an_object([], a={"type": ["string", "null"]}), {"a": None}, {"a": None}),
        ("required", an_object(a=TEXT), {"a": None}, {"a": None}),
        ("unknown", an_object(a=TEXT), {"b": None}, {"b": None}),
        ("in a list", in_list, {"a": [1, None, {"b": None}, {"b": "x"}]}, {"a": [1, None, {}, {"b": "x"}]}),
        (
            "recursive",
            {**an_object(a={"$ref": "#/$defs/T"}), "$defs": {"T": node}},
            {"a": nested},
            {"a": {"v": "", "n": {"v": ""}, "m": {"v": "", "m": None}}},
        ),
        ("endless", {**an_object([], a={"$ref": "#/$defs/T"}), "$defs": {"T": endless}}, {"a": {}}, {"a": {}}),
    ]
    for case, schema, written, value in table:
        with subtests.test(case):
            drop_absent(schema, written)
            assert written == value


def test_what_the_strict_mode_cannot_say_is_none(subtests: pytest.Subtests) -> None:
    table: list[dict[str, Any]] = [
        an_object([], a={"type": "string", "maxLength": 9}),
        {**an_object([], a=TEXT), "additionalProperties": True},
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
    ]
    for schema in table:
        with subtests.test(schema=schema):
            assert strict(schema) is None


def test_gemini_gets_the_keywords_that_it_reads_and_the_others_in_words(subtests: pytest.Subtests) -> None:
    described = {"type": "integer", "minimum": 0, "description": "D"}
    in_words = 'D\nThis JSON Schema applies, too: {"exclusiveMaximum": 5, "default": 1}'
    needed = 'This JSON Schema applies, too: {"required": ["%s"]}'
    referring = {**an_object(a={"$ref": "#/$defs/T", "description": "d"}), "$defs": {"T": TEXT}}
    to_root = {"$ref": "#/$defs/root"}
    to_itself = an_object(a={"anyOf": [to_root], "description": "d"}, b=to_root)
    beside = 'This JSON Schema applies, too: {"minProperties": 2, "allOf": [{"anyOf": [{"minProperties": 3}]}], "required": ["c"]}'
    narrowed = an_object(a={"anyOf": [to_root], "title": "T", "required": [], "description": beside})
    table: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("no properties", {"type": "object"}, {"type": "object", "properties": {}}),
        ("const", an_object(a={"const": "x"}, b={"enum": ["y"]}), an_object(a={"enum": ["x"]}, b={"enum": ["y"]})),
        (
            "values that are neither texts nor numbers",
            an_object(a={"const": True}, b={"enum": ["y", None]}),
            an_object(
                a={"description": 'This JSON Schema applies, too: {"const": true}'},
                b={"description": 'This JSON Schema applies, too: {"enum": ["y", null]}'},
            ),
        ),
        (
            "empty texts among the values",
            an_object(a=UNSET, b={"enum": [""]}, c={"const": ""}, d={"enum": ["", True]}),
            an_object(
                a=SET,
                b={"description": 'This JSON Schema applies, too: {"enum": [""]}'},
                c={"description": 'This JSON Schema applies, too: {"const": ""}'},
                d={"description": 'This JSON Schema applies, too: {"enum": ["", true]}'},
            ),
        ),
        (
            "draft 7",
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                **an_object(a={"$ref": "#/definitions/T"}),
                "definitions": {"T": an_object([], next={"$ref": "#/definitions/T"})},
            },
            {**an_object(a={"$ref": "#/$defs/T"}), "$defs": {"T": an_object([], next={"$ref": "#/$defs/T"})}},
        ),
        (
            "other keywords",
            an_object(a={**described, "exclusiveMaximum": 5, "default": 1}),
            an_object(a={**described, "description": in_words}),
        ),
        (
            "required and not defined",
            an_object(["a", "b"], a={"anyOf": [{"required": ["c"]}, TEXT]}),
            {
                **an_object(["a"], a={"anyOf": [{"required": [], "description": needed % "c"}, TEXT]}),
                "description": needed % "b",
            },
        ),
        ("reference", referring, an_object(a={**TEXT, "description": "d"})),
        (
            "a reference to itself",
            an_object(a={"$ref": "#", "description": "d"}, b={"$ref": "#", "$comment": "c", "readOnly": True}),
            {**to_itself, "$defs": {"root": to_itself}},
        ),
        (
            "more beside a reference to itself",
            an_object(
                a={"$ref": "#", "title": "T", "minProperties": 2, "required": ["c"], "anyOf": [{"minProperties": 3}]}
            ),
            {**narrowed, "$defs": {"root": narrowed}},
        ),
    ]
    for case, schema, written in table:
        with subtests.test(case):
            assert gemini(schema) == written


def test_properties_have_names_that_anthropic_takes() -> None:
    described = {**TEXT, "description": "Of rows."}
    schema = an_object(**{"filter[id]": described, "filter_id_": TEXT, "": TEXT, "a" * 65: TEXT, "a.b": TEXT})

    def named(name: str, *more: str) -> dict[str, Any]:
        return {**TEXT, "description": "\n".join([f"The argument's name: {name}", *more])}

    names = {"filter[id]": "filter_id__2", "": "tool_", "a" * 65: "a" * 64}
    assert anthropic_names(schema) == names
    assert anthropic(schema) == an_object(
        **{
            "filter_id__2": named("filter[id]", "Of rows."),
            "filter_id_": TEXT,
            "tool_": named(""),
            "a" * 64: named("a" * 65),
            "a.b": TEXT,
        }
    )
    assert "required" not in anthropic({"type": "object", "properties": {"a[b]": TEXT}})


def test_anthropic_gets_a_schema_that_it_takes_as_it_is() -> None:
    schema = {**an_object(a={"anyOf": [{"$ref": "#/$defs/T"}, NUMBER]}), "$defs": {"T": TEXT}}

    assert anthropic(schema) == schema
    assert anthropic_names(schema) == {}


def test_what_is_dropped_at_the_root_leaves_a_note(subtests: pytest.Subtests) -> None:
    condition = {"if": {"properties": {"a": {"const": "x"}}}, "then": {"required": ["b"]}}
    members = an_object([], a=TEXT, b=TEXT)
    table: list[dict[str, Any]] = [
        condition,
        {"allOf": [condition]},
        {"allOf": [{"allOf": [{"required": ["a"], **condition}]}]},
        {"allOf": [{"additionalProperties": False}]},
    ]
    for more in table:
        with subtests.test(str(more)):
            assert function({**members, **more})["description"] == said(**more)


def test_definitions_are_moved_to_the_root_of_another_schema() -> None:
    schema = {**an_object(a={"$ref": "#/$defs/T"}), "$defs": {"T": an_object([], t={"$ref": "#/$defs/T"})}}

    assert without_definitions(schema, prefix="1_") == (
        an_object(a={"$ref": "#/$defs/1_T"}),
        {"1_T": an_object([], t={"$ref": "#/$defs/1_T"})},
    )


# Schemas of hostile servers


def chain(length: int) -> dict[str, Any]:
    """Definitions, each of which refers to the next."""
    definitions = {f"d{n}": an_object(n={"$ref": f"#/$defs/d{n + 1}"}) for n in range(length)}
    return {**an_object(a={"$ref": "#/$defs/d0"}), "$defs": {**definitions, f"d{length}": TEXT}}


def many_spellings(length: int) -> dict[str, Any]:
    """References to the same large part, each written in another way."""
    name = "abcdefghijkl"
    spelled = [
        "".join(f"%{ord(letter):02x}" if n >> place & 1 else letter for place, letter in enumerate(name))
        for n in range(length)
    ]
    large = an_object(**{f"p{n}": TEXT for n in range(length)})
    return an_object(**{name: large}, x={"anyOf": [{"$ref": f"#/properties/{one}"} for one in spelled]})


def branches(length: int) -> dict[str, Any]:
    """Alternatives with one property, each with another schema for it."""
    return {"anyOf": [an_object(["a", f"b{n}"], a={"const": n}) for n in range(length)]}


def names(length: int) -> dict[str, Any]:
    return an_object(**{"x" * 70 + str(n): TEXT for n in range(length)})


def nested(length: int, keyword: str, *more: dict[str, Any]) -> dict[str, Any]:
    """An object with many properties below so many levels of *keyword* that there is one for each twenty of them."""
    schema = an_object([], **{f"p{n}": TEXT for n in range(length)})
    for level in range(length // 20):
        schema = {"properties": {f"q{level}": TEXT, "a": {"const": level}}, keyword: [schema, *more]}
    return schema


def lines_run(do: Callable[[], object]) -> int:
    """How many lines of Python *do* runs. It may refuse what it is given."""
    count = 0

    def trace(frame: object, event: str, argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with suppress(ValueError, RecursionError):
            do()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("rewrite", [function, strict, gemini, anthropic])
@pytest.mark.parametrize(
    "make",
    [
        *(chain, many_spellings, branches, names, partial(nested, keyword="allOf")),
        lambda length: nested(length, "anyOf", an_object(b=TEXT)),
    ],
)
def test_rewriting_takes_linear_time(
    make: Callable[[int], dict[str, Any]], rewrite: Callable[[dict[str, Any]], object]
) -> None:
    small, large = make(400), make(1600)

    assert lines_run(partial(rewrite, large)) < 6 * lines_run(partial(rewrite, small)) + 1000


def deep_references(length: int) -> dict[str, Any]:
    """References into each level of nested objects."""
    schema: dict[str, Any] = {"type": "object", "properties": {"large": {"description": "x" * 100 * length}}}
    for _ in range(99):
        schema = {"type": "object", "properties": {"a": schema}}
    pointers = ["#" + "/properties/a" * level for level in range(1, 100)]
    return {
        "type": "object",
        "properties": {"a": schema["properties"]["a"], "x": {"anyOf": [{"$ref": p} for p in pointers]}},
    }


def many_copies(length: int) -> dict[str, Any]:
    """References to a long text."""
    many = {f"p{number}": {"$ref": "#/$defs/long"} for number in range(length)}
    return {**an_object([], **many), "$defs": {"long": {"description": "x" * 100 * length}}}


@pytest.mark.parametrize("rewrite", [function, strict, gemini, anthropic, format_of_object])
@pytest.mark.parametrize("make", [deep_references, many_copies])
def test_what_references_lead_to_is_not_repeated_without_bound(
    make: Callable[[int], dict[str, Any]], rewrite: Callable[[dict[str, Any]], object]
) -> None:
    schema = make(400)
    with suppress(ValueError):
        assert len(json.dumps(rewrite(schema))) < 30 * len(json.dumps(schema))


@pytest.mark.parametrize("rewrite", CHECKS)
def test_anything_in_the_place_of_a_schema_is_rewritten_or_refused(rewrite: Callable[[Any], object]) -> None:
    schema = {
        **an_object(a={"type": ["string", "null"], "format": "date", "enum": ["x"], "description": "d"}),
        "anyOf": [an_object(b={"$ref": "#/$defs/T"}), {"allOf": [{"required": ["a"]}]}],
        "$defs": {"T": {"type": "array", "items": [TEXT], "minimum": 1, "exclusiveMinimum": True}},
    }
    seen = {""}
    for changed in variants(schema):
        written = None
        with suppress(ValueError, RecursionError):
            written = rewrite(changed)
        if written is not None and (text := json.dumps(written)) not in seen:  # a check takes milliseconds
            seen.add(text)
            CHECKS[rewrite](written)
