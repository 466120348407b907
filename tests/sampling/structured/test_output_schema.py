"""How a schema travels to the model, and which answers fit it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple, Optional, TypeAlias
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, Field, RootModel, TypeAdapter, create_model

from mcp_host.errors import UncheckableSchema
from mcp_host.functions import FunctionTool
from mcp_host.json_schema.schema import Schema
from mcp_host.sampling.structured.inlining import inlined
from mcp_host.sampling.structured.output_schema import Misfit, OutputSchema
from mcp_host.types import CreateMessageResult, ImageContent, TextContent, ToolUseContent
from tests.extent import THOROUGH, saturated

Wire = dict[str, Any]


class Point(BaseModel):
    x: int


class Tree(BaseModel):
    """A tree."""

    name: str
    children: list[Tree] = []


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    friend: Tree | None = None


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]
POINT = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}


def ref(name: str) -> Wire:
    return {"$ref": f"#/$defs/{name}"}


def nested(levels: int) -> Wire:
    """Each level refers to the next one twice."""
    levels_by_name = {f"l{n}": {"properties": dict.fromkeys("ab", ref(f"l{n + 1}"))} for n in range(levels)}
    return {"type": "object", **ref("l0"), "$defs": {**levels_by_name, f"l{levels}": {"type": "integer"}}}


# References


DEFS = {"$defs": {"P": POINT}}
ADDRESSED = {"$id": "https://a.test/s", **ref("P"), **DEFS}
OLDER = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "$ref": "#/definitions/P",
    "definitions": {"P": POINT},
}
LINKED = {"type": "object", "properties": {"n": ref("N")}}
REFERRING: dict[str, tuple[Wire, Wire]] = {
    "none": ({"type": "integer"}, {"type": "integer"}),
    "a root": ({**ref("P"), **DEFS}, POINT),
    "definitions": ({"items": {"$ref": "#/definitions/P"}, "definitions": {"P": POINT}}, {"items": POINT}),
    "into a list": ({"prefixItems": [{"$ref": "#/prefixItems/1"}, POINT]}, {"prefixItems": [POINT, POINT]}),
    "escaped": ({"properties": {"p": ref("a~1b~0c")}, "$defs": {"a/b~c": POINT}}, {"properties": {"p": POINT}}),
    "true": ({"not": ref("no"), "$defs": {"no": True}}, {"not": True}),
    "true as root": ({**ref("any"), "$defs": {"any": True}}, {}),
    "false as root": ({**ref("none"), "$defs": {"none": False}}, {"not": {}}),
    "beside annotations": (
        {"properties": {"p": {**ref("P"), "description": "Here."}}, **DEFS},
        {"properties": {"p": {**POINT, "description": "Here."}}},
    ),
    "beside a keyword": (
        {"properties": {"p": {**ref("P"), "required": ["y"]}}, **DEFS},
        {"properties": {"p": {"required": ["y"], "allOf": [POINT]}}},
    ),
    "a chain beside allOf": (
        {**ref("A"), "allOf": [{"minProperties": 1}], "$defs": {"A": ref("P"), "P": POINT}},
        {"allOf": [POINT, {"minProperties": 1}]},
    ),
    "names of members": (
        {"properties": {"$ref": ref("P"), "enum": ref("P")}, **DEFS},
        {"properties": {"$ref": POINT, "enum": POINT}},
    ),
    "data": (
        {"properties": {"p": ref("P")}, "const": ref("P"), **DEFS},
        {"properties": {"p": POINT}, "const": ref("P")},
    ),
    "the root, recursive": (
        {"properties": {"next": {"$ref": "#"}}},
        {"properties": {"next": ref("root")}, "$defs": {"root": {"properties": {"next": ref("root")}}}},
    ),
    "a recursive definition as root": ({**ref("N"), "$defs": {"N": LINKED}}, {**LINKED, "$defs": {"N": LINKED}}),
    "two names alike": (
        {"anyOf": [ref("a b"), ref("a-b")], "$defs": {"a b": {"not": ref("a b")}, "a-b": {"not": ref("a-b")}}},
        {"anyOf": [ref("a_b"), ref("a_b_")], "$defs": {"a_b": {"not": ref("a_b")}, "a_b_": {"not": ref("a_b_")}}},
    ),
    "with an address": (ADDRESSED, ADDRESSED),
    "an older draft": (OLDER, OLDER),
}


def test_references_are_replaced_by_what_they_refer_to(subtests: pytest.Subtests) -> None:
    for case, (schema, written) in REFERRING.items():
        with subtests.test(case):
            before = json.dumps(schema)

            assert inlined(schema) == written
            assert json.dumps(schema) == before


@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        ("https://a.test/s", "the schema refers to 'https://a.test/s', and nothing is fetched"),
        ("other.json#/$defs/P", "the schema refers to 'other.json#/$defs/P', and nothing is fetched"),
        ("#/$defs/Q", "the schema refers to '#/$defs/Q', which it does not have"),
        ("#P", "the schema refers to '#P', which it does not have"),
        ("#/$defs/P/type", "the schema refers to '#/$defs/P/type', which it does not have"),
        ("#/$defs/P/required/7", "the schema refers to '#/$defs/P/required/7', which it does not have"),
    ],
)
def test_a_reference_that_leads_nowhere_is_an_error(reference: str, problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{problem.replace('$', chr(92) + '$')}$"):
        inlined({"items": {"$ref": reference}, "$defs": {"P": POINT}})


def test_references_that_would_be_copied_too_often_are_kept() -> None:
    assert "$defs" not in inlined(nested(8))

    written = inlined(nested(40))

    assert len(json.dumps(written)) < 10_000
    value: Any = 1
    for _ in range(40):
        value = {"a": value}
    assert Schema(written).mismatch(value) is None


@pytest.mark.parametrize("count", [200, 201])
def test_many_references_are_kept(count: int) -> None:
    names = [f"d{index}" for index in range(count)]
    schema = {"properties": {name: ref(name) for name in names}, "$defs": dict.fromkeys(names, POINT)}

    assert ("$defs" in inlined(schema)) is (count > 200)


def test_references_into_each_level_of_a_deep_schema_are_refused() -> None:
    """All that they lead to is as large as the square of the schema."""
    schema: Wire = {}
    for _ in range(100):
        schema = {"properties": {"a": schema}}
    schema["anyOf"] = [{"$ref": "#" + "/properties/a" * level} for level in range(1, 100)]

    with pytest.raises(ValueError, match=r"^its references lead to much more than it has itself$"):
        inlined(schema)


def test_a_schema_of_pydantic_has_no_reference_left_but_recursive_ones() -> None:
    written = OutputSchema[Any](Pet).schema

    assert written["properties"]["result"] == {
        "oneOf": [
            {
                "type": "object",
                "properties": {"kind": {"const": "cat", "type": "string"}, "lives": {"type": "integer"}},
                "required": ["kind", "lives"],
            },
            {
                "type": "object",
                "properties": {
                    "kind": {"const": "dog", "type": "string"},
                    "friend": {"anyOf": [{"$ref": "#/$defs/Tree"}, {"type": "null"}], "default": None},
                },
                "required": ["kind"],
            },
        ]
    }
    assert written["$defs"]["Tree"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}
    assert Schema(written).mismatch({"result": {"kind": "dog", "friend": {"name": "a"}}}) is None


# Answers


def says(*texts: str, stop: str = "endTurn") -> CreateMessageResult:
    return CreateMessageResult(content=[TextContent(text=words) for words in texts], model="m", stop_reason=stop)


def calls(*inputs: Wire, name: str = "answer", stop: str = "toolUse") -> CreateMessageResult:
    uses = [ToolUseContent(id=str(n), name=name, input=input) for n, input in enumerate(inputs)]
    return CreateMessageResult(content=uses, model="m", stop_reason=stop)


ANSWERS: dict[str, CreateMessageResult] = {
    "a call": calls({"x": 1}),
    "a text": says('{"x": 1}'),
    "white space": says(' \n{"x": 1}\n'),
    "a fence": says('```json\n{"x": 1}\n```'),
    "a fence in capitals": says('```JSON\n{"x": 1}\n```\n'),
    "a bare fence": says('```\n{\n "x": 1}\n  ```'),
    "a fence with line ends of Windows": says('```json\r\n{"x": 1}\r\n```'),
    "blocks of a fence": says("```json\n", '{"x": 1}\n```'),
    "blocks of a value": says('{"x":', "1}"),
    "words and a call": CreateMessageResult(
        content=[TextContent(text="Here it is."), ToolUseContent(id="1", name="answer", input={"x": 1})], model="m"
    ),
    "a call with another stop reason": calls({"x": 1}, stop="endTurn"),
}


def test_an_answer_is_one_call_or_json_and_nothing_else(subtests: pytest.Subtests) -> None:
    for case, answer in ANSWERS.items():
        with subtests.test(case):
            assert OutputSchema[Point](Point).read_answer(answer) == Point(x=1)


OTHER_ANSWERS: list[tuple[CreateMessageResult, str]] = [
    (says("It is 1."), "the answer is not JSON: expected value at line 1 column 1"),
    (says('{"x": 1} I hope this helps.'), "the answer is not JSON alone: the text has other words around it"),
    (says('Here: {"x": 1}'), "the answer is not JSON alone: the text has other words around it"),
    (says('```python\n{"x": 1}\n```'), "the answer is not JSON alone: the text has other words around it"),
    (says('```\n{"x": 1}\n```\nand\n```\n{}\n```'), "the answer is not JSON: trailing characters at line 2 column 1"),
    (says('Here:\n```json\n{"x": 1}\n```'), "the answer is not JSON alone: the text has other words around it"),
    (says('{"x": NaN}'), "the answer is not JSON: expected value at line 1 column 7"),
    (says("1" * 5000), "the answer is not JSON: number out of range at line 1 column 4302"),
    (says("[" * 5000), "the answer is not JSON: recursion limit exceeded at line 1 column 202"),
    (says('{"x": "1"}'), "the answer does not fit the schema: x: Input should be a valid integer"),
    (says("{}"), "the answer does not fit the schema: x: Field required"),
    (says("[1]"), "the answer does not fit the schema: Input should be an object"),
    (says(" "), "the answer is empty"),
    (CreateMessageResult(content=[], model="m"), "the answer is empty"),
    (says('{"x": 1}', stop="maxTokens"), "the answer was cut off: it has too many tokens"),
    (calls({"x": 1}, stop="maxTokens"), "the answer was cut off: it has too many tokens"),
    (says("I cannot.", stop="refusal"), "the model refused to answer"),
    (says("", stop="content_filter"), "the model refused to answer"),
    (calls({"x": 1}, {"x": 2}), "there has to be one answer, not 2"),
    (calls({"x": 1}, name="reply"), "there is no tool 'reply'"),
    (calls({"y": 1}), "the answer does not fit the schema: x: Field required"),
    (
            CreateMessageResult(content=ImageContent(data="", mime_type="image/png"), model="m"),
            "the answer has to be JSON, not image",
        ),
]  # fmt: skip


def test_nothing_is_guessed_about_other_answers(subtests: pytest.Subtests) -> None:
    for answer, problem in OTHER_ANSWERS:
        with subtests.test(answer=answer):
            with pytest.raises(Misfit) as caught:
                OutputSchema[Point](Point).read_answer(answer)

            assert str(caught.value) == problem


def test_a_wrapped_value_has_its_wrapper_and_nothing_else(subtests: pytest.Subtests) -> None:
    schema = OutputSchema[list[int]](list[int])

    assert schema.schema == {
        "type": "object",
        "properties": {"result": {"type": "array", "items": {"type": "integer"}}},
        "required": ["result"],
        "additionalProperties": False,
    }
    values: list[object] = [[1], {"result": [1], "why": ""}, {"results": [1]}, {}]
    for value in values:
        with (
            subtests.test(value=value),
            pytest.raises(Misfit, match='the answer is not an object with one member, "result"'),
        ):
            schema.read(value)


MISFITS: list[tuple[Any, object, str]] = [
    (str, "\ud800", r"^the answer is not JSON: .*surrogates not allowed"),  # as a host passes on half of a pair
    *[(int, written, "valid integer") for written in (1.5, "1", True, None)],
    (
        list[int],
        ["a"] * 1000,
        "^the answer does not fit the schema: 0: Input should be a valid integer; 1: .*"
        "; 9: Input should be a valid integer; and 990 more$",
    ),
]


def test_a_value_that_does_not_fit_is_neither_converted_nor_explained_at_length(subtests: pytest.Subtests) -> None:
    for schema, written, problem in MISFITS:
        with subtests.test(f"{schema} {written!r:.9}"), pytest.raises(Misfit, match=problem):
            OutputSchema[Any](schema).read({"result": written})


# Schemas


@pytest.mark.parametrize(
    ("schema", "value", "problem"),
    [
        (POINT, {"x": 1.5}, "the answer does not fit the schema: $.x: 1.5 is not of type 'integer'"),
        ({"type": "string", "pattern": "^a"}, {"result": "b"}, "the answer does not fit the schema: 'b' does not match '^a'"),
        ({"type": "object", "uniqueItems": True}, {}, None),
        ({**ref("P"), **DEFS}, {"x": 1}, None),
        ({"anyOf": [POINT, {"type": "null"}]}, {"result": None}, None),
        (
            {"$schema": "http://json-schema.org/draft-07/schema#", "items": {"$ref": "#/definitions/P"}, "definitions": {"P": POINT}},
            {"result": [{"x": 1}]},
            None,
        ),
    ],
    ids=["an object", "a text", "of draft 4", "a reference", "no object", "draft 7"],
)  # fmt: skip
def test_a_json_schema_checks_values(schema: Wire, value: Wire, problem: str | None) -> None:
    output = OutputSchema[Any](schema)

    if problem is None:
        assert output.read(value) == value.get("result", value)
        assert Schema(output.schema).mismatch(value) is None  # a host may check the arguments, too
    else:
        with pytest.raises(Misfit) as caught:
            output.read(value)
        assert str(caught.value) == problem


def test_a_value_that_takes_too_long_to_check_does_not_fit() -> None:
    with pytest.raises(Misfit, match="the answer cannot be checked: it takes more than 500000 steps"):
        OutputSchema[Any]({"items": {"const": ["x" * 1_000_000]}}).read({"result": [["x" * 1_000_000]] * 60})


@pytest.mark.parametrize(
    ("schema", "error", "problem"),
    [
        ({"$ref": "https://a.test/s"}, ValueError, "https://a.test/s"),
        ({"type": "strin"}, ValueError, "schema: it is not a valid JSON Schema: "),
        ({"pattern": "(?=a)"}, ValueError, "schema: the pattern '\\(\\?=a\\)' cannot be matched"),
        ({"$ref": "#/$defs/P"}, ValueError, "schema: "),
        ("int", TypeError, "schema must be a type, a TypeAdapter or a JSON Schema, not a str"),
        (3, TypeError, "schema: "),
        (Callable[[], int], TypeError, "schema: "),
    ],
    ids=str,
)
def test_a_bad_schema_is_an_error_of_its_author(schema: object, error: type[Exception], problem: str) -> None:
    with pytest.raises(error, match=problem):
        OutputSchema[Any](schema)


class Colour(Enum):
    RED = "red"
    BLUE = 2


class Pair(NamedTuple):
    left: int
    right: str


class Names(RootModel[list[str]]):
    """Names."""


def even(n: int) -> int:
    assert n % 2 == 0
    return n


Kind: TypeAlias = tuple[Any, st.SearchStrategy[Any]]
"""A type, and its values."""


def trees(children: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    return st.builds(Tree, name=st.just("t"), children=st.lists(children, max_size=2))


LEAVES: list[Kind] = [
    (int, st.integers(-(2**53), 2**53)),
    (float, st.floats(allow_nan=False, allow_infinity=False)),
    (str, st.text(st.characters(codec="utf-8"))),
    (bool, st.booleans()),
    (type(None), st.none()),
    (Literal["a", 1, None], st.sampled_from(["a", 1, None])),
    (Colour, st.sampled_from(Colour)),
    (date, st.dates()),
    (datetime, st.datetimes()),
    (timedelta, st.timedeltas(timedelta(-99), timedelta(99))),
    (UUID, st.uuids()),
    (Decimal, st.decimals(-1000, 1000, places=2)),
    (Pair, st.builds(Pair, st.integers(), st.text(st.characters(codec="utf-8")))),
    (Names, st.builds(Names, st.lists(st.text(st.characters(codec="utf-8"))))),
    (Tree, st.recursive(st.builds(Tree, name=st.just("t")), trees)),
    (Pet, st.builds(Cat, kind=st.just("cat"), lives=st.integers(0, 9)) | st.builds(Dog, kind=st.just("dog"))),
    (Annotated[int, Field(ge=0, lt=8), AfterValidator(even)], st.sampled_from([0, 2, 4, 6])),
]


def lists(of: Kind) -> Kind:
    kind, values = of
    return list.__class_getitem__(kind), st.lists(values, max_size=3)


def mappings(of: Kind) -> Kind:
    kind, values = of
    return dict.__class_getitem__((str, kind)), st.dictionaries(st.text("ab$/~", max_size=3), values, max_size=3)


def pairs(two: list[Kind]) -> Kind:
    kinds, values = zip(*two, strict=True)
    return tuple.__class_getitem__(kinds), st.tuples(*values)


def optional(of: Kind) -> Kind:
    kind, values = of
    return Optional[kind], st.none() | values  # noqa: UP045  # None has no such operator


def models(members: list[Kind]) -> Kind:
    fields: Any = {f"f{n}": (of, ...) for n, (of, _) in enumerate(members)}
    model = create_model("Made", **fields)
    return model, st.builds(model, **{f"f{n}": values for n, (_, values) in enumerate(members)})


KINDS = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: (
        inner.map(lists)
        | inner.map(mappings)
        | inner.map(optional)
        | st.lists(inner, min_size=2, max_size=2).map(pairs)
        | st.lists(inner, max_size=3).map(models)
    ),
    max_leaves=4,
)


@saturated
@given(st.data())
def test_any_value_of_any_type_comes_back_as_it_was(data: st.DataObject) -> None:
    """As the arguments of a call, and as a text. The schema that the model got allows it."""
    kind, values = data.draw(KINDS)
    value = data.draw(values)
    schema = OutputSchema[Any](kind)
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    written = json.loads(adapter.dump_json(value))
    if schema.schema.get("required") == ["result"]:  # no type above has such a member
        written = {"result": written}

    assert schema.read_answer(calls(written)) == value
    assert schema.read_answer(says(json.dumps(written))) == value
    assert Schema(schema.schema).mismatch(written) is None
    assert schema.schema["type"] == "object"


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
REFERENCES = st.sampled_from(["#", "#/$defs/a", "#/$defs/b", "#/$defs/c"]).map(lambda to: {"$ref": to})
PLAIN = st.sampled_from(
    [
        *(True, {"type": "integer"}, {"type": "string", "minLength": 1}, {"enum": ["a", 1, None]}, {"maxItems": 2}),
        *({"required": ["a"]}, {"maxProperties": 2}, {"const": {"$ref": "#/$defs/a"}}),
    ]
)


def keywords(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(inner, min_size=1, max_size=2)
    members = st.dictionaries(st.sampled_from(["a", "b", "$ref", "enum"]), inner, max_size=2)
    return st.fixed_dictionaries(
        {},
        optional={
            **dict.fromkeys(("items", "additionalProperties", "contains", "propertyNames"), inner),
            **dict.fromkeys(("anyOf", "allOf", "prefixItems"), some),
            "properties": members,
            "description": st.just("words"),
            "$ref": REFERENCES.map(lambda part: part["$ref"]),
        },
    )


SUBSCHEMAS = st.recursive(PLAIN | REFERENCES, keywords, max_leaves=5)


@settings(max_examples=300 if THOROUGH else 60)
@given(keywords(SUBSCHEMAS), st.fixed_dictionaries(dict.fromkeys("abc", SUBSCHEMAS)), st.lists(JSON_VALUES, max_size=5))
def test_an_inlined_schema_accepts_what_the_original_accepts(root: Wire, defs: Wire, values: list[object]) -> None:
    original = {**root, "$defs": defs}
    before, after = Schema(original), Schema(inlined(original))

    for value in values:
        verdicts = {accepts(before, value), accepts(after, value)}
        assert len(verdicts - {None}) <= 1


def accepts(schema: Schema, value: object) -> bool | None:
    """None if the schema applies itself to the same value endlessly. Which keyword comes first decides if that is seen."""
    try:
        return schema.mismatch(value) is None
    except UncheckableSchema as exc:
        assert str(exc) == "it nests too deeply"  # noqa: PT017  # other errors of the schema would be ours
        return None


@pytest.mark.parametrize(
    ("schema", "written", "value"),
    [(int, 1.0, 1), (int, 1e20, 10**20), (int, 2**70 + 1, 2**70 + 1), (list[int], [1.0, 2], [1, 2]), (float, 1, 1.0)],
)
def test_a_whole_number_is_an_integer(schema: type[object], written: object, value: object) -> None:
    read = OutputSchema[object](schema).read({"result": written})

    assert (read, repr(read)) == (value, repr(value))


async def test_arguments_of_functions_take_whole_numbers_as_integers() -> None:
    def f(n: int, x: float) -> str:
        return f"{n!r} {x!r}"

    assert (await FunctionTool(f).call({"n": 2.0, "x": 1.0})).text == "2 1.0"
