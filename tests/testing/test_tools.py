"""Typed functions as tools, as a client sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, get_args

import pytest
from pydantic import BaseModel, Field

from mcp_host.testing import Context, RequestError, Server, ToolError
from mcp_host.types import (
    AudioContent,
    CallToolResult,
    ContentBlock,
    ElicitRequestURLParams,
    ImageContent,
    TextContent,
    ToolAnnotations,
)
from mcp_host.types.content import CONTENT_BLOCKS
from tests.testing.raw import Wire, failed, legacy, modern, text

pytestmark = pytest.mark.fake_clock  # all in memory: no deadline passes while anything can run


class Point(BaseModel):
    x: int
    y: int = 0


@dataclass
class Size:
    width: float


def with_tool(function: Any, **options: Any) -> Server:
    server = Server("s")
    server.tool(**options)(function)
    return server


async def described(function: Any, *, version: str = "2025-11-25", **options: Any) -> Any:
    """How a function as a tool, with these options, is listed."""
    async with legacy(with_tool(function, **options), version=version) as raw:
        [tool] = (await raw.result("tools/list"))["tools"]
    return tool


async def called(function: Any, *, version: str = "2025-11-25", **arguments: object) -> Wire:
    """The result of a function as a tool."""
    async with legacy(with_tool(function), version=version) as raw:
        return await raw.call(function.__name__, **arguments)


async def refused(function: Any, *, version: str = "2025-11-25", **arguments: object) -> Wire:
    """The error of a function as a tool."""
    async with legacy(with_tool(function), version=version) as raw:
        return await raw.error("tools/call", {"name": function.__name__, "arguments": arguments})


async def test_a_signature_becomes_the_input_schema_and_a_docstring_the_description() -> None:
    async def move(to: Point, steps: Annotated[int, Field(description="how many", ge=1)] = 1) -> str:
        """Move a point."""
        return f"{to} {steps}"

    assert await described(move) == {
        "name": "move",
        "description": "Move a point.",
        "inputSchema": {
            "$defs": {
                "Point": {
                    "type": "object",
                    "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}},
                    "required": ["x"],
                }
            },
            "type": "object",
            "properties": {
                "to": {"$ref": "#/$defs/Point"},
                "steps": {"type": "integer", "minimum": 1, "default": 1, "description": "how many"},
            },
            "required": ["to"],
            "additionalProperties": False,
        },
    }


async def test_arguments_of_the_decorator_override_the_function() -> None:
    def original() -> str:
        """Said."""
        return ""

    tool = await described(
        original,
        name="other",
        title="Another",
        description="Told.",
        annotations=ToolAnnotations(read_only_hint=True),
        output_schema={"type": "object"},
    )

    assert tool == {
        "name": "other",
        "title": "Another",
        "description": "Told.",
        "inputSchema": {"type": "object", "properties": {}, "additionalProperties": False},
        "outputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True},
    }


async def test_parameters_may_have_the_names_of_model_methods() -> None:
    def serialize(copy: str, json: str = "j") -> str:
        return copy + json

    assert await called(serialize, copy="c") == text("cj")


async def test_the_context_is_not_part_of_the_input_schema() -> None:
    async def who(ctx: Context, prefix: str) -> str:
        return f"{prefix} {ctx.client_info.name} {ctx.protocol_version} {ctx.request_id}"

    assert list((await described(who))["inputSchema"]["properties"]) == ["prefix"]
    assert await called(who, prefix="I am") == text("I am raw 2025-11-25 2")


async def test_structured_content_can_be_null_since_2026_07_28() -> None:
    def null() -> CallToolResult:
        return CallToolResult(content=[], structured_content=None)

    assert await called(null, version="2025-06-18") == {"content": []}
    assert await called(null, version="2025-11-25") == {"content": []}
    async with modern(with_tool(null)) as raw:
        result = await raw.call("null")
    assert (result["content"], result["structuredContent"]) == ([], None)


def a_text() -> str:
    return "hello"


def nothing() -> None:
    pass


def a_block() -> TextContent:
    return TextContent(text="block")


def blocks() -> list[TextContent | ImageContent]:
    return [TextContent(text="an image"), ImageContent(data="AA==", mime_type="image/png")]


def a_result() -> CallToolResult:
    return CallToolResult(content=[], is_error=False)


def unannotated():  # type: ignore[no-untyped-def]  # which is the point
    return {"a": 1}


def blocks_by_alias() -> Annotated[list[ContentBlock], "what it is"]:
    return [TextContent(text="one")]


def a_model() -> Point:
    return Point(x=1)


def a_dataclass() -> Size:
    return Size(1.5)


def a_dict() -> dict[str, int]:
    return {"a": 1}


def a_number() -> float:
    return 2.5


def a_list() -> list[str]:
    return ["a"]


def maybe() -> Point | None:
    return None


RETURNED: list[tuple[Any, dict[str, object]]] = [
    (a_text, text("hello")),
    (nothing, {"content": []}),
    (a_block, text("block")),
    (
        blocks,
        {"content": [{"type": "text", "text": "an image"}, {"type": "image", "data": "AA==", "mimeType": "image/png"}]},
    ),
    (blocks_by_alias, text("one")),
    (a_result, {"content": [], "isError": False}),
    (unannotated, {**text('{"a":1}'), "structuredContent": {"a": 1}}),
    (a_model, {**text('{"x":1,"y":0}'), "structuredContent": {"x": 1, "y": 0}}),
    (a_dataclass, {**text('{"width":1.5}'), "structuredContent": {"width": 1.5}}),
    (a_dict, {**text('{"a":1}'), "structuredContent": {"a": 1}}),
    (a_number, {**text("2.5"), "structuredContent": {"result": 2.5}}),
    (a_list, {**text('["a"]'), "structuredContent": {"result": ["a"]}}),
    (maybe, {**text("null"), "structuredContent": {"result": None}}),
]


async def test_what_a_function_returns_becomes_content(subtests: pytest.Subtests) -> None:
    for function, result in RETURNED:
        with subtests.test(function.__name__):
            assert await called(function) == result


OUTPUT_SCHEMAS: list[tuple[Any, object]] = [
    (a_text, None),
    (nothing, None),
    (blocks, None),
    (blocks_by_alias, None),
    (a_result, None),
    (unannotated, None),
    (a_number, {"type": "object", "properties": {"result": {"type": "number"}}, "required": ["result"]}),
    (a_dict, {"type": "object", "additionalProperties": {"type": "integer"}}),
    (a_dataclass, {"type": "object", "properties": {"width": {"type": "number"}}, "required": ["width"]}),
]


async def test_a_structured_return_annotation_is_the_output_schema(subtests: pytest.Subtests) -> None:
    for function, schema in OUTPUT_SCHEMAS:
        with subtests.test(function.__name__):
            assert (await described(function)).get("outputSchema") == schema


async def test_a_tool_error_is_shown_and_any_other_exception_is_not(caplog: pytest.LogCaptureFixture) -> None:
    def expected() -> str:
        raise ToolError("no such city")

    def unexpected() -> str:
        raise LookupError("secret")

    assert await called(expected) == failed("no such city")
    assert await called(unexpected) == failed("the tool unexpected failed")
    assert "secret" in caplog.text


async def test_a_request_error_is_the_answer() -> None:
    visit = ElicitRequestURLParams(message="Log in", url="https://example.com", elicitation_id="e1")

    def login() -> str:
        raise RequestError.url_required("not logged in", visit)

    elicitation = {"mode": "url", "message": "Log in", "url": "https://example.com", "elicitationId": "e1"}
    assert await refused(login) == {"code": -32042, "message": "not logged in", "data": {"elicitations": [elicitation]}}


async def test_bad_arguments_are_a_result_that_the_model_can_read_and_before_2025_11_25_a_protocol_error() -> None:
    def takes_a_number(n: int) -> str:
        return str(n)

    assert await called(takes_a_number, n="1", m=2) == failed(
        "Invalid arguments: n: Input should be a valid integer; m: Extra inputs are not permitted"
    )
    assert await refused(takes_a_number, version="2025-06-18") == {
        "code": -32602,
        "message": "Invalid arguments: n: Field required",
    }


async def test_an_unknown_tool_is_a_protocol_error() -> None:
    async with legacy(with_tool(a_text)) as raw:
        assert await raw.error("tools/call", {"name": "b"}) == {"code": -32602, "message": "Unknown tool: b"}


async def test_an_older_client_does_not_get_newer_fields() -> None:
    tool = await described(a_number, version="2024-11-05", title="T", annotations=ToolAnnotations(title="A"))

    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    assert tool == {"name": "a_number", "inputSchema": schema}
    assert await called(a_number, version="2025-03-26") == text("2.5")


@pytest.mark.parametrize("kind", CONTENT_BLOCKS)
async def test_a_tool_that_returns_a_content_block_sends_it_as_it_is(kind: type[ContentBlock]) -> None:
    [name] = get_args(kind.model_fields["type"].annotation)
    wire = {
        "type": name,
        "text": "hi",
        "data": "AA==",
        "mimeType": "image/png",
        "name": "a",
        "uri": "file:///a",
        "resource": {"uri": "file:///a", "text": "hi"},
    }  # the fields of all classes: each keeps those that it does not know
    block = kind.from_wire(wire)

    def one():  # type: ignore[no-untyped-def]  # annotated, each would be another function
        return block

    def two():  # type: ignore[no-untyped-def]
        return [block, block]

    assert await called(one) == {"content": [wire]}
    assert await called(two) == {"content": [wire, wire]}


async def test_content_that_an_older_revision_lacks_is_an_error_result() -> None:
    def sound() -> AudioContent:
        return AudioContent(data="AA==", mime_type="audio/wav")

    assert await called(sound, version="2024-11-05") == failed(
        "AudioContent at content[0] came with revision 2025-03-26; this conversation is in 2024-11-05"
    )


async def test_a_value_that_is_not_json_is_an_internal_error() -> None:
    def infinite() -> dict[str, float]:
        return {"n": float("nan")}

    assert (await refused(infinite))["code"] == -32603


def takes_anything(*args: int) -> str:
    return ""


def positional(a: int, /) -> str:
    return ""


def untypable(a: object, b: Server) -> str:
    return ""


def returns_untypable() -> Server:
    return Server("s")


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (takes_anything, "args: int cannot be given by name"),
        (positional, "a: int cannot be given by name"),
        (untypable, "untypable: Unable to generate pydantic-core schema"),
        (returns_untypable, "returns_untypable: Unable to generate pydantic-core schema"),
        (lambda: "", "has no name: give one"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_function_that_cannot_be_a_tool_is_refused_when_it_is_registered(function: Any, why: str) -> None:
    with pytest.raises(TypeError, match=why):
        Server("s").tool(function)


async def test_a_value_that_breaks_its_annotation_fails_the_tool(caplog: pytest.LogCaptureFixture) -> None:
    def liar() -> int:
        value: Any = "one"
        return value  # type: ignore[no-any-return]  # the lie

    assert await called(liar) == failed("the tool liar failed")


def test_the_decorator_returns_the_function() -> None:
    assert Server("s").tool(a_number) is a_number
    assert Server("s").tool(name="n")(a_number) is a_number


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ExceptionGroup("", [ValueError("secret"), ExceptionGroup("", [ToolError("no")])]), "no"),
        (ExceptionGroup("", [ExceptionGroup("", [ToolError("one"), ToolError("two")]), ToolError("three")]), "one"),
        (ExceptionGroup("", [ValueError("secret"), ExceptionGroup("", [KeyError("secret")])]), "the tool fail failed"),
    ],
    ids=["ours", "the first of ours", "not ours"],
)
async def test_a_tool_error_in_a_task_group_has_the_same_text_as_outside(
    error: ExceptionGroup[Exception], said: str
) -> None:
    async def fail() -> None:
        raise error

    assert await called(fail) == failed(said)
