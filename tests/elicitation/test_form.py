"""The fields of a form: what a person is told to enter, and what a typed line means."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_host.elicitation.form import are_numbered, display, expected, read_answer
from mcp_host.terminal.fields import Field, read_fields

COLORS = {"enum": ["red", "green", "blue, dark"]}
TITLED = {"oneOf": [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]}
LEGACY = {"type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"]}
SEVERAL = {"type": "array", "items": {"anyOf": TITLED["oneOf"]}, "minItems": 1, "maxItems": 2}
SIZES = {"type": "string", "enum": ["3", "1", "2"]}
DATE_TIME = {"type": "string", "format": "date-time"}


def field(schema: object) -> Field:
    (only,) = read_fields({"properties": {"f": schema}})
    return only


EXPECTED: list[tuple[object, str]] = [
    ({"type": "string"}, "text"),
    ({}, "text"),
    (True, "text"),
    ({"type": ["string", "null"]}, "text"),
    ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "a whole number"),
    ({"type": "string", "minLength": 1}, "text, at least 1 character"),
    ({"type": "string", "minLength": 2, "maxLength": 9}, "text, 2 to 9 characters"),
    ({"type": "string", "minLength": 4, "maxLength": 4}, "text, exactly 4 characters"),
    ({"type": "string", "maxLength": True, "minLength": "x"}, "text"),
    ({"type": "string", "format": "email"}, "an e-mail address"),
    ({"type": "string", "format": "uri"}, "a URI, such as https://example.com/page"),
    ({"type": "string", "format": "date"}, "a date, such as 2026-11-22"),
    (DATE_TIME, "a date and time, such as 2026-11-22T09:30:00Z"),
    ({"type": "string", "format": "hostname"}, "text"),
    ({"type": "string", "format": ["email"]}, "text"),
    ({"type": "number"}, "a number"),
    ({"type": "integer", "minimum": 1, "maximum": 14}, "a whole number, 1 to 14"),
    ({"type": "number", "maximum": 0.5}, "a number, at most 0.5"),
    ({"type": "number", "minimum": float("inf")}, "a number"),
    ({"type": "boolean"}, "yes or no"),
    (COLORS, "one of these"),
    (TITLED, "one of these"),
    (SEVERAL, "several of these, 1 to 2, with commas between them"),
    ({"type": "array", "items": {"type": "string"}}, "several texts, with commas between them"),
]


def test_a_person_is_told_what_to_enter(subtests: pytest.Subtests) -> None:
    for schema, words in EXPECTED:
        with subtests.test(str(schema)):
            assert expected(field(schema)) == words


SAME_TITLES = {"oneOf": [{"const": id, "title": "Ada Smith"} for id in ("4711", "4712")]}


READ: list[tuple[object, str, object]] = [
    ({"type": "string"}, "Ann", "Ann"),
    ({}, "5", "5"),
    ({"type": "string", "format": "email"}, "ann@example.org", "ann@example.org"),
    ({"type": "string", "format": "uri"}, "https://example.org/a", "https://example.org/a"),
    ({"type": "string", "format": "uri"}, "mailto:ann@example.org", "mailto:ann@example.org"),
    ({"type": "string", "format": "date"}, "2026-02-28", "2026-02-28"),
    (DATE_TIME, "2026-11-22T09:30:00Z", "2026-11-22T09:30:00Z"),
    (DATE_TIME, "2026-11-22t09:30:00.5+01:00", "2026-11-22t09:30:00.5+01:00"),
    ({"type": "number"}, "3", 3),
    ({"type": "number"}, "-2.5e3", -2500.0),
    ({"type": "integer"}, "42", 42),
    ({"type": "integer"}, "42.0", 42),
    ({"type": "boolean"}, "Y", True),
    ({"type": "boolean"}, "false", False),
    (COLORS, "green", "green"),
    (COLORS, "GREEN", "green"),
    (COLORS, "2", "green"),
    (COLORS, "blue, dark", "blue, dark"),
    (TITLED, "Red", "r"),
    (TITLED, "g", "g"),
    (TITLED, "1", "r"),
    (LEGACY, "green", "g"),
    (SIZES, "1", "1"),
    (SAME_TITLES, "2", "4712"),
    (SAME_TITLES, "4711", "4711"),
    ({"oneOf": [{"const": "No", "title": "Share all"}, {"const": "x", "title": "No"}]}, "No", "x"),
    ({"enum": ["\u2461", "a"]}, "2", "\u2461"),
    ({"enum": ["all", "1 "]}, "1", "1 "),
    ({"enum": [1, 2, True]}, "2", 2),
    ({"const": "yes"}, "yes", "yes"),
    (SEVERAL, "red", ["r"]),
    (SEVERAL, "2, red,", ["g", "r"]),
    (SEVERAL, "1,1, Red", ["r"]),
    ({"type": "array", "items": COLORS}, "blue, dark", ["blue, dark"]),
    ({"type": "array", "items": {"enum": [{"a": 1}, "b"]}}, "b,1", ["b", {"a": 1}]),
    ({"type": "array", "items": {"type": "string"}}, "a, b c,,", ["a", "b c"]),
]


def test_a_line_is_read_as_the_field_has_it(subtests: pytest.Subtests) -> None:
    for schema, line, value in READ:
        with subtests.test(f"{schema} {line}"):
            read = read_answer(field(schema), line)

            assert (read, type(read)) == (value, type(value))


MISTAKES: list[tuple[object, str, str]] = [
    ({"type": "string", "format": "email"}, "ann", "Enter an e-mail address."),
    ({"type": "string", "format": "email"}, "ann b@example.org", "Enter an e-mail address."),
    ({"type": "string", "format": "uri"}, "example.org", "Enter a URI, such as https://example.com/page."),
    ({"type": "string", "format": "uri"}, "https://[::1", "Enter a URI, such as https://example.com/page."),
    ({"type": "string", "format": "uri"}, "https://a b", "Enter a URI, such as https://example.com/page."),
    ({"type": "string", "format": "date"}, "2026-02-30", "Enter a date, such as 2026-11-22."),
    ({"type": "string", "format": "date"}, "20260228", "Enter a date, such as 2026-11-22."),
    ({"type": "string", "format": "date"}, "2026-W09-1", "Enter a date, such as 2026-11-22."),
    (DATE_TIME, "2026-11-22 09:30", "Enter a date and time, such as 2026-11-22T09:30:00Z."),
    (DATE_TIME, "2026-11-22T25:30:00Z", "Enter a date and time, such as 2026-11-22T09:30:00Z."),
    ({"type": "number"}, "many", "Enter a number."),
    ({"type": "number"}, "nan", "Enter a number."),
    ({"type": "number"}, "1e999", "Enter a number."),
    ({"type": "integer"}, "9" * 400, "Enter a number."),
    ({"type": "integer"}, "9" * 5000, "Enter a number."),
    ({"type": "integer"}, "2.5", "Enter a whole number."),
    ({"type": "boolean"}, "maybe", "Enter y for yes or n for no."),
    (COLORS, "4", "Enter a number or a text from the list."),
    (COLORS, "0", "Enter a number or a text from the list."),
    (COLORS, "0" * 9 + "1", "Enter a number or a text from the list."),
    (COLORS, "1" * 20, "Enter a number or a text from the list."),
    (SIZES, "4", "Enter one from the list."),
    (
        {"oneOf": [{"const": c, "title": f"{c} 1 ".strip("ab")} for c in "ab"]},
        "1",
        "Several are called that. Enter the value of one.",
    ),
    (SAME_TITLES, "ada smith", "Several are called that. Enter a number."),
    ({"oneOf": [{"const": c, "title": "7"} for c in "ab"]}, "7", "Several are called that. Enter the value of one."),
    (SEVERAL, "red, black", "Enter a number or a text from the list."),
]


def test_a_line_that_does_not_fit_is_explained(subtests: pytest.Subtests) -> None:
    for schema, line, told in MISTAKES:
        with subtests.test(f"{schema} {line}"):
            with pytest.raises(ValueError, match="Enter") as mistake:
                read_answer(field(schema), line)

            assert str(mistake.value) == told


@pytest.mark.parametrize(
    ("schema", "value", "shown"),
    [
        ({"type": "boolean"}, True, "yes"),
        ({"type": "boolean"}, False, "no"),
        ({"type": "number"}, 0.5, "0.5"),
        ({"type": "string"}, "a\x1bb", "a\x1bb"),
        (TITLED, "g", "Green"),
        (TITLED, "x", "x"),
        (SEVERAL, ["r", "g"], "Red, Green"),
        (SEVERAL, [], "none"),
    ],
    ids=str,
)
def test_a_value_is_shown_as_the_person_knows_it(schema: object, value: Any, shown: str) -> None:
    assert display(field(schema), value) == shown


@pytest.mark.parametrize(
    ("schema", "numbered"),
    [
        (COLORS, True),
        (SIZES, False),
        ({"enum": ["a", 5]}, False),
        *[({"enum": ["all", title]}, False) for title in (" 1", "1\u00a0", "\u0661", "\u2460", "1.", "(1)", "1\u200b")],
        ({"enum": ["size 1", "1b", ""]}, True),
    ],
    ids=ascii,
)
def test_choices_have_numbers_unless_they_look_like_numbers(schema: object, numbered: bool) -> None:
    assert are_numbered(field(schema).choices or ()) is numbered
