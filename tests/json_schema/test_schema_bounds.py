"""Malicious JSON Schemas neither block the process nor make it fetch anything."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from mcp_host.errors import InvalidSchema, TooManySteps, UncheckableSchema
from mcp_host.json_schema.schema import Schema

DEFAULT = "https://json-schema.org/draft/2020-12/schema"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DRAFT_2019 = "https://json-schema.org/draft/2019-09/schema"


def mismatch(schema: dict[str, Any], value: object) -> str | None:
    return Schema(schema).mismatch(value)


def problem_of(schema: Schema, value: object) -> str | None:
    """Why the value does not match, or why the schema cannot be checked."""
    try:
        return schema.mismatch(value)
    except UncheckableSchema as exc:
        return f"its schema cannot be checked: {exc}"


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


UNCHECKABLE: list[tuple[dict[str, Any], object, str]] = [
    ({"pattern": r"(a)\1"}, "", "the pattern '(a)\\1' cannot be matched: the escape '\\1' is not supported"),
    ({"patternProperties": {"(?<=a)b": {}}}, {}, "the pattern '(?<=a)b' cannot be matched: '(?<' is not supported"),
    ({"properties": {str(n): {"pattern": str(n)} for n in range(300)}}, {}, "its patterns are too large together"),
    (
            {"properties": {str(n): {"pattern": f"{n}a{{4000}}"} for n in range(20)}},
            {},
            "its patterns are too large together",
        ),
    ({"$ref": "#"}, 1, "it nests too deeply"),
    ({"allOf": [{"$ref": "#"}]}, 1, "it nests too deeply"),
    (
            {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
            1,
            "it nests too deeply",
        ),
    (nested(60), {}, "it nests too deeply"),
    ({"$ref": "#/" + "a" * 1000}, 0, "it has an address of more than 1000 characters"),
    ({"$ref": "http://169.254.169.254/latest"}, 1, "Unresolvable: http://169.254.169.254/latest"),
    ({"$ref": "file:///etc/passwd"}, 1, "Unresolvable: file:///etc/passwd"),
    ({"not": {"$ref": "#/$defs/nowhere"}}, 1, "PointerToNowhere: "),
    ({"$ref": "http://[::1"}, 1, "Unresolvable: http://[::1"),
    ({"components": {"a": {"type": 5}}, "$ref": "#/components/a"}, 1, "it is not a valid JSON Schema: $.type:"),
    ({"type": "objekt"}, 1, "it is not a valid JSON Schema: $.type:"),
    ({"required": True}, 1, "it is not a valid JSON Schema: $.required: True is not of type"),
    ({"properties": {"a": {"minLength": -1}}}, 1, "it is not a valid JSON Schema: $.properties.a.minLength: -1 is less"),
    ({"$schema": DRAFT_7, "if": 5}, 1, "it is not a valid JSON Schema: $.if: 5 is not of type"),
    ({"$schema": DRAFT_2019, "items": 5}, 1, "it is not a valid JSON Schema: $.items:"),
    ({"$schema": "https://a.example/dialect"}, 1, "the dialect 'https://a.example/dialect' is not supported"),
    ({"$schema": 7}, 1, "the dialect 7 is not supported"),
    ({"properties": {"a": {"$schema": DRAFT_7}}}, 1, "it mixes two dialects"),
    ({"$ref": DRAFT_7}, {}, "it mixes two dialects"),
    ({"$defs": {"a": {"$dynamicAnchor": "a"}}, "$dynamicRef": "#a"}, 1, "it has a dynamic reference"),
    ({"$schema": DRAFT_2019, "items": {"$recursiveRef": "#"}}, 1, "it has a dynamic reference"),
    ({"patternProperties": {"a": {}}, "unevaluatedProperties": False}, {}, "it has both unevaluatedProperties"),
    ({"not": {"$ref": "#/components/a"}, "components": {"a": {"pattern": "(?=a)"}}}, 1, "the pattern"),
    ({"multipleOf": 0.1}, float("nan"), "ValueError: "),
]  # fmt: skip


@pytest.mark.fault("T04", "T05", "T07")
def test_an_uncheckable_schema_raises_the_same_reason_each_time(subtests: pytest.Subtests) -> None:
    for schema, value, reason in UNCHECKABLE:
        with subtests.test(schema=schema):
            compiled = Schema(schema)

            for _ in range(2):
                with pytest.raises(UncheckableSchema) as caught:
                    compiled.mismatch(value)
                assert str(caught.value).startswith(reason)
                assert isinstance(caught.value, InvalidSchema) == reason.startswith("it is not a valid")
            assert (problem_of(compiled, value) or "").startswith(f"its schema cannot be checked: {reason}")


WIDE = {str(n): 1 for n in range(20_000)}
LETTERS = ["".join(random.Random(n).choices("ab", k=200)) for n in range(2_000)]


ENDLESS: dict[str, tuple[dict[str, Any], object]] = {
    "branches that all fail": (fan_out("anyOf", 26), 1),
    "branches that all fit": (fan_out("allOf", 26), "a"),
    "branches of which one should fit": (fan_out("oneOf", 26), []),
    "branches of a schema that names its dialect and refers to itself": ({"$schema": DEFAULT, **fan_out("anyOf", 26), "items": {"$ref": "#"}}, [1]),
    "patterns times names": ({"patternProperties": {f"k{n}": True for n in range(150)}}, {f"key{n}": 1 for n in range(10_000)}),
    "a pattern with a state for every text": ({"items": {"not": {"pattern": "(?:a|b)*a(?:a|b){40}c"}}}, LETTERS),
    "a large pattern times a long text": ({"pattern": "x.{0,500}y"}, "x" * 100_000),
    "a schema of too many parts": ({"properties": {str(n): {} for n in range(2_000)}}, {}),
    "free items": ({"allOf": [{"items": True}] * 200}, list(WIDE)),
    "empty items": ({"allOf": [{"items": {}}] * 200}, list(WIDE)),
    "empty members": ({"allOf": [{"additionalProperties": {}}] * 200}, WIDE),
    "names to look up": ({"$defs": {"a": {"dependentRequired": {"0": list(WIDE)[:2_000]}}}, "allOf": [{"$ref": "#/$defs/a"}] * 400}, WIDE),
    "choices to write down": ({"enum": [list(WIDE)] * 10}, 1),
    "items to write down": ({"uniqueItems": True}, [list(WIDE)] * 10),
    "constants to write down": ({"allOf": [{"const": {"a": "x" * 1_000_000}}] * 10}, {"a": "x" * 1_000_000}),
    "names to repeat in messages": ({"anyOf": [{"required": ["x" * 1_000_000]}] * 10}, {}),
    "numbers to divide": ({"$defs": {"a": {"multipleOf": 7 * 10**4_000}}, "allOf": [{"$ref": "#/$defs/a"}] * 200}, 49 * 10**4_000),
}  # fmt: skip


def test_a_check_ends_when_its_budget_is_exhausted(subtests: pytest.Subtests) -> None:
    """The same as with 500,000, in a fiftieth of the time."""
    for case, (schema, value) in ENDLESS.items():
        with subtests.test(case):
            problem = problem_of(Schema(schema, max_steps=10_000), value)

            assert problem == "its schema cannot be checked: it takes more than 10000 steps"


NUMBERS = {"items": {"type": "integer"}}  # two steps for each item


def test_a_value_as_large_as_one_that_exceeded_the_budget_is_not_checked_again() -> None:
    schema = Schema(NUMBERS, max_steps=1_000)
    large, as_large, larger, smaller = [0] * 600, ["x" * 600], {"x" * 601: 0}, ["x" * 598]
    assert [problem_of(Schema(NUMBERS, max_steps=1_000), value) for value in (larger, smaller)] == [
        None,
        f"$[0]: '{'x' * 60}… (598 characters)' is not of type 'integer'",
    ]
    reason = "its schema cannot be checked: it takes more than 1000 steps"

    assert problem_of(schema, large) == reason
    assert [problem_of(schema, value) for value in (large, as_large, larger)] == [reason] * 3
    assert problem_of(schema, smaller) == f"$[0]: '{'x' * 60}… (598 characters)' is not of type 'integer'"


def test_a_check_of_a_few_steps_is_made_even_after_the_whole_budget_was_exceeded() -> None:
    schema = Schema(NUMBERS, max_steps=1_000)
    with pytest.raises(TooManySteps):
        schema.mismatch([0] * 600)

    assert schema.mismatch({"x" * 601: 0}, steps=900) is None


def test_a_failed_check_of_a_few_steps_does_not_prevent_a_whole_one() -> None:
    schema = Schema(NUMBERS, max_steps=1_000)
    with pytest.raises(TooManySteps, match="it takes more than 500 steps"):
        schema.mismatch([0] * 300, steps=500)

    assert schema.mismatch([0] * 300) is None


@pytest.mark.parametrize("part", [{}, {"title": "anything"}], ids=["empty", "with annotations only"])
def test_a_subschema_without_keywords_costs_a_step_wherever_it_is_applied(part: dict[str, Any]) -> None:
    schema = Schema({"items": part})

    assert schema.mismatch([0] * 1_000, steps=1_200) is None
    with pytest.raises(TooManySteps, match="it takes more than 1000 steps"):
        schema.mismatch([0] * 1_000, steps=1_000)


def test_a_large_value_that_no_message_repeats_costs_nothing() -> None:
    problem = Schema({"anyOf": [{"type": "integer"}] * 20}, max_steps=5_000).mismatch("x" * 5_000_000)

    assert problem == f"'{'x' * 60}… (5000000 characters)' is not of type 'integer'"


@pytest.mark.parametrize(
    ("keyword", "entries"),
    [
        ("unevaluatedProperties", lambda count: dict.fromkeys(map(str, range(count)))),
        ("unevaluatedItems", lambda count: [None] * count),
    ],
    ids=["members", "items"],
)
def test_unevaluated_members_and_items_are_checked_up_to_a_number(
    keyword: str, entries: Callable[[int], object]
) -> None:
    schema = Schema({keyword: {"type": "null"}})

    assert problem_of(schema, entries(256)) is None
    assert problem_of(schema, entries(257)) == (
        f"its schema cannot be checked: its {keyword} would meet more than 256 entries"
    )


def test_unevaluated_keywords_are_applied_after_the_counted_ones() -> None:
    names = [str(n) for n in range(200)]
    closed = {"unevaluatedProperties": False, "dependentSchemas": {name: {"minProperties": 1} for name in names}}
    value = [dict.fromkeys([*names, "more"])] * 150

    problem = problem_of(Schema({"items": {"not": closed}}, max_steps=50_000), value)
    assert problem == "its schema cannot be checked: it takes more than 50000 steps"


@pytest.mark.fault("T04")
@pytest.mark.parametrize("levels", [100, 500, 5_000])
@pytest.mark.parametrize(
    "schema", [{"const": 1}, {"$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"}]
)
def test_a_too_deeply_nested_value_is_a_problem_not_a_recursion_error(schema: dict[str, Any], levels: int) -> None:
    value: object = []
    for _ in range(levels):
        value = [value]

    problem = problem_of(Schema(schema), value)
    assert problem in ("its schema cannot be checked: it nests too deeply", "an array of 1 items is not 1")
    assert levels < 5_000 or problem == "its schema cannot be checked: it nests too deeply"


def test_recursion_that_ends_is_allowed() -> None:
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
    compiled = Schema({"$defs": {"record": record}, "type": "array", "items": {"$ref": "#/$defs/record"}})
    good = {"id": "123e4567-e89b-12d3-a456-426614174000", "kind": "kind 999", "tags": ["a", "b"]}

    assert compiled.mismatch([good] * 10_000) is None
    assert compiled.mismatch([good] * 99 + [{**good, "id": "1"}]) == (
        "$[99].id: '1' does not match '^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$'"
    )


def test_numbers_whose_hashes_collide_do_not_make_uniqueness_quadratic() -> None:
    class Colliding(int):
        compared = 0

        def __hash__(self) -> int:
            return 0

        def __eq__(self, other: object) -> bool:
            Colliding.compared += 1
            return int.__eq__(self, other)

    assert mismatch({"uniqueItems": True}, [Colliding(n) for n in range(1000)]) is None
    assert Colliding.compared < 10_000


def test_a_problem_is_never_longer_than_a_few_lines() -> None:
    schema: dict[str, Any] = {"enum": ["x" * 1000] * 5}
    value: object = "y" * 1_000_000
    for _ in range(12):
        schema, value = {"anyOf": [{"properties": {"p" * 100: schema}}]}, {"p" * 100: value}

    assert len(mismatch(schema, value) or "") < 600
