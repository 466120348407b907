"""Resources, templates, prompts and completion, as a client sees them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import pytest
from pydantic import Field

from mcp_host.testing import Context, Server
from mcp_host.types import (
    BlobResourceContents,
    GetPromptResult,
    PromptMessage,
    ReadResourceResult,
    TextContent,
    TextResourceContents,
)
from tests.testing.raw import legacy

pytestmark = pytest.mark.fake_clock  # all in memory: no deadline passes while anything can run

server = Server("s")


@server.resource("r://text", title="T", mime_type="text/plain")
def text() -> str:
    """Some text."""
    return "hello"


@server.resource("r://bytes", name="raw", description="Told.")
async def some_bytes() -> bytes:
    """Said."""
    return b"\x00\x01"


@server.resource("r://json")
async def some_json(ctx: Context) -> object:
    return {"for": ctx.client_info.name}


@server.resource("r://one")
def one() -> object:
    return TextResourceContents(uri="r://other", text="1")


@server.resource("r://many")
def many() -> object:
    return [TextResourceContents(uri="r://1", text="1"), BlobResourceContents(uri="r://2", blob="AA==")]


@server.resource("r://whole")
def whole() -> object:
    return ReadResourceResult(contents=[])


@server.resource("r://broken")
def broken() -> str:
    raise LookupError("secret")


@server.resource("r://modelled")
async def modelled(ctx: Context) -> str:
    return (await ctx.sample("Why?")).text


@server.resource_template("notes://{year}/{title}", mime_type="text/plain")
def note(year: int, title: str) -> str:
    """A note."""
    return f"{title} of {year + 1}"


@server.resource_template("files://{+path}", name="file")
def a_file(path: str, ctx: Context) -> str:
    return path


@server.prompt
def greet(name: Annotated[str, Field(description="the name")], times: int = 1) -> str:
    """Greet a person."""
    return f"Hello {name}! " * times


@server.prompt(name="dialogue", title="D", description="Told.")
async def two() -> list[PromptMessage]:
    return [PromptMessage(role=role, content=TextContent(text=role)) for role in ("user", "assistant")]


@server.prompt
def single() -> PromptMessage:
    return PromptMessage(role="assistant", content=TextContent(text="x"))


@server.prompt
def entire() -> GetPromptResult:
    return GetPromptResult(messages=[])


@server.prompt
def wrong() -> Any:
    return 1


@server.completion("greet", "name")
def names(value: str, settled: Mapping[str, str]) -> list[str]:
    return [name for name in ("Ada", "Alan") if name.startswith(value)]


@server.completion("notes://{year}/{title}", "title")
async def titles(value: str, settled: Mapping[str, str]) -> list[str]:
    return [f"{value}{settled.get('year')}{n}" for n in range(101)]


async def ask(method: str, params: dict[str, Any], version: str = "2025-11-25") -> dict[str, Any]:
    async with legacy(server, version=version) as raw:
        return await raw.result(method, params)


async def refused(method: str, params: dict[str, Any]) -> dict[str, Any]:
    async with legacy(server) as raw:
        return await raw.error(method, params)


async def test_resources_are_listed_as_they_were_registered() -> None:
    listed = await ask("resources/list", {})

    assert listed["resources"][:3] == [
        {"uri": "r://text", "name": "text", "title": "T", "description": "Some text.", "mimeType": "text/plain"},
        {"uri": "r://bytes", "name": "raw", "description": "Told."},
        {"uri": "r://json", "name": "some_json"},
    ]
    assert await ask("resources/templates/list", {}) == {
        "resourceTemplates": [
            {
                "uriTemplate": "notes://{year}/{title}",
                "name": "note",
                "description": "A note.",
                "mimeType": "text/plain",
            },
            {"uriTemplate": "files://{+path}", "name": "file"},
        ]
    }


CONTENTS: list[tuple[str, list[object]]] = [
    ("r://text", [{"uri": "r://text", "text": "hello", "mimeType": "text/plain"}]),
    ("r://bytes", [{"uri": "r://bytes", "blob": "AAE="}]),
    ("r://json", [{"uri": "r://json", "text": '{"for":"raw"}', "mimeType": "application/json"}]),
    ("r://one", [{"uri": "r://other", "text": "1"}]),
    ("r://many", [{"uri": "r://1", "text": "1"}, {"uri": "r://2", "blob": "AA=="}]),
    ("r://whole", []),
    ("notes://1999/a%20b", [{"uri": "notes://1999/a%20b", "text": "a b of 2000", "mimeType": "text/plain"}]),
    ("files://a/b", [{"uri": "files://a/b", "text": "a/b"}]),
]


async def test_reading_a_resource_returns_the_value_of_its_function(subtests: pytest.Subtests) -> None:
    for uri, contents in CONTENTS:
        with subtests.test(uri):
            assert await ask("resources/read", {"uri": uri}) == {"contents": contents}


@pytest.mark.parametrize("uri", ["r://none", "notes://1999", "notes://1999/a/b", "xnotes://1999/a"])
async def test_a_missing_resource_raises_resource_not_found(uri: str) -> None:
    assert await refused("resources/read", {"uri": uri}) == {
        "code": -32002,
        "message": "Resource not found",
        "data": {"uri": uri},
    }


async def test_a_uri_with_arguments_of_the_wrong_type_is_refused() -> None:
    assert (await refused("resources/read", {"uri": "notes://now/a"}))["message"] == (
        "Invalid arguments: year: Input should be a valid integer, unable to parse string as an integer"
    )


async def test_the_text_of_an_exception_is_not_sent(caplog: pytest.LogCaptureFixture) -> None:
    assert await refused("resources/read", {"uri": "r://broken"}) == {"code": -32603, "message": "Internal error"}
    assert "secret" in caplog.text


async def test_a_resource_that_needs_an_undeclared_capability_is_an_error() -> None:
    async with legacy(server, capabilities={}) as raw:
        error = await raw.error("resources/read", {"uri": "r://modelled"})

    assert error == {"code": -32603, "message": "the client did not declare sampling"}


@pytest.mark.parametrize("template", ["x://{?query}", "x://{a}/{a}", "x://{a b}"])
def test_an_unsupported_template_is_refused_when_it_is_registered(template: str) -> None:
    with pytest.raises(ValueError, match=r"query|redefinition|a b"):
        server.resource_template(template)(a_file)


async def test_prompts_are_listed_with_their_arguments() -> None:
    listed = await ask("prompts/list", {})

    assert listed["prompts"][:2] == [
        {
            "name": "greet",
            "description": "Greet a person.",
            "arguments": [
                {"name": "name", "description": "the name", "required": True},
                {"name": "times", "required": False},
            ],
        },
        {"name": "dialogue", "title": "D", "description": "Told.", "arguments": []},
    ]


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("greet", {"name": "Ada", "times": "2"}, [("user", "Hello Ada! Hello Ada! ")]),
        ("dialogue", {}, [("user", "user"), ("assistant", "assistant")]),
        ("single", {}, [("assistant", "x")]),
        ("entire", {}, []),
    ],
)
async def test_a_prompt_is_filled_in(name: str, arguments: dict[str, str], said: list[tuple[str, str]]) -> None:
    result = await ask("prompts/get", {"name": name, "arguments": arguments})

    assert result["messages"] == [{"role": role, "content": {"type": "text", "text": text}} for role, text in said]


@pytest.mark.parametrize(
    ("params", "code", "message"),
    [
        ({"name": "none"}, -32602, "Unknown prompt: none"),
        ({"name": "greet"}, -32602, "Invalid arguments: name: Field required"),
        ({"name": "wrong"}, -32603, "Internal error"),
    ],
    ids=str,
)
async def test_a_prompt_with_wrong_params_or_results_is_refused(
    params: dict[str, Any], code: int, message: str
) -> None:
    assert await refused("prompts/get", params) == {"code": code, "message": message}


@pytest.mark.parametrize(
    ("ref", "argument", "completion"),
    [
        ({"type": "ref/prompt", "name": "greet"}, "name", {"values": ["Ada", "Alan"], "total": 2, "hasMore": False}),
        ({"type": "ref/prompt", "name": "greet"}, "times", {"values": [], "total": 0, "hasMore": False}),
        (
            {"type": "ref/resource", "uri": "notes://{year}/{title}"},
            "title",
            {"values": [f"A1999{n}" for n in range(100)], "total": 101, "hasMore": True},
        ),
    ],
    ids=["prompt", "nothing", "template"],
)
async def test_an_argument_is_completed(ref: dict[str, str], argument: str, completion: dict[str, object]) -> None:
    params = {"ref": ref, "argument": {"name": argument, "value": "A"}, "context": {"arguments": {"year": "1999"}}}

    assert await ask("completion/complete", params) == {"completion": completion}
