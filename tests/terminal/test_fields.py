"""Schemas in words: references and alternatives."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_host.terminal.fields import read_fields, signature

COLOR = {"enum": ["red", "green"], "type": "string", "description": "A color."}


def shown(schema: object, **definitions: object) -> str:
    """The signature of a function with one parameter."""
    return signature("f", read_fields({"properties": {"x": schema}, "required": ["x"], "$defs": definitions}))


SHOWN: list[tuple[object, str]] = [
    ({"$ref": "#/$defs/Color"}, '"red" | "green"'),
    ({"allOf": [{"$ref": "#/$defs/Color"}]}, '"red" | "green"'),
    ({"anyOf": [{"$ref": "#/$defs/Color"}, {"type": "null"}]}, '"red" | "green"'),
    ({"type": "array", "items": {"$ref": "#/$defs/Color"}}, 'array of "red" | "green"'),
    ({"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}]}, "integer | string"),
    ({"$ref": "#/$defs/a~1b"}, "boolean"),
    ({"$ref": "#/$defs/Nothing"}, "any"),
    ({"$ref": "https://example.com/$defs/Color"}, "any"),
    ({"$ref": "#/properties/x"}, "any"),
    ({"$ref": "#"}, "any"),
    ({"$ref": 7}, "any"),
    ({"anyOf": {"a": 1}, "oneOf": [7, None]}, "any"),
]


def test_references_and_the_only_alternative_are_shown_as_what_they_stand_for(subtests: pytest.Subtests) -> None:
    for schema, type_ in SHOWN:
        with subtests.test(str(schema)):
            assert shown(schema, Color=COLOR, **{"a/b": {"type": "boolean"}}) == f"f(x: {type_})"


def test_the_parameter_itself_may_say_more_than_what_it_refers_to() -> None:
    definitions = {"Color": COLOR}
    (field,) = read_fields(
        {"properties": {"x": {"$ref": "#/$defs/Color", "description": "Its color."}}, "$defs": definitions}
    )

    assert field.description == "Its color."


def test_all_titled_constants_are_choices() -> None:
    constants = [{"const": number, "title": f"Number {number}"} for number in range(20)]

    (field,) = read_fields({"properties": {"x": {"oneOf": constants}}})

    assert [choice.title for choice in field.choices or []] == [f"Number {number}" for number in range(20)]


def test_references_in_a_circle_and_alternatives_without_an_end_are_bounded() -> None:
    deep: dict[str, Any] = {"type": "integer"}
    for _ in range(40):
        deep = {"anyOf": [deep] * 40}
    circle = {"anyOf": [{"$ref": "#/$defs/Circle"}] * 40}

    assert shown({"$ref": "#/$defs/Circle"}, Circle=circle) == "f(x: any)"
    assert shown(deep) == "f(x: any)"
