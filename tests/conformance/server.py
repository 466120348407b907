"""The server that the official conformance suite tests: with the tools, resources and prompts that its scenarios name.

python -m tests.conformance.server [--http] [VERSION...]
"""

from __future__ import annotations

import sys
from base64 import b64decode
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

from anyio import create_task_group
from pydantic import Field

from mcp_host.protocol.negotiation import VERSIONS
from mcp_host.testing import Context, Server, ToolError
from mcp_host.types import (
    AudioContent,
    EmbeddedResource,
    ImageContent,
    JSONObject,
    PromptMessage,
    TextContent,
    TextResourceContents,
)

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
IMAGE = ImageContent(data=PIXEL, mime_type="image/png")
AUDIO = AudioContent(data="UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=", mime_type="audio/wav")
JSON = TextResourceContents(uri="test://mixed-content-resource", mime_type="application/json", text='{"test":"data"}')

DEFAULTS: JSONObject = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}
OPTIONS = ["option1", "option2", "option3"]
TITLED = [{"const": f"value{number}", "title": f"Option {number}"} for number in (1, 2, 3)]
ENUMS: JSONObject = {
    "untitledSingle": {"type": "string", "enum": OPTIONS},
    "titledSingle": {"type": "string", "oneOf": TITLED},
    "legacyEnum": {"type": "string", "enum": OPTIONS, "enumNames": ["One", "Two", "Three"]},
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": OPTIONS}},
    "titledMulti": {"type": "array", "items": {"anyOf": TITLED}},
}


def form(**fields: str) -> JSONObject:
    """A form of required fields with these types."""
    return {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in fields.items()},
        "required": [*fields],
    }


def tool(server: Server, name: str | None = None) -> Callable[[FunctionT], FunctionT]:
    """Register a tool with a description, which the suite demands: its name."""
    return lambda function: server.tool(name=name, description=name or function.__name__)(function)


def prompt(server: Server) -> Callable[[FunctionT], FunctionT]:
    """Register a prompt with a description."""
    return lambda function: server.prompt(description=function.__name__)(function)


def everything(versions: Sequence[str]) -> Server:
    """The whole server, which speaks these *versions*."""
    server = Server("everything", versions=versions)
    add_content(server)
    add_reports(server)
    add_questions(server)
    add_input_required(server)
    add_changes(server)
    add_resources(server)
    add_prompts(server)
    return server


def add_content(server: Server) -> None:
    @tool(server)
    def test_simple_text() -> str:
        return "This is a simple text response for testing."

    @tool(server)
    def test_image_content() -> ImageContent:
        return IMAGE

    @tool(server)
    def test_audio_content() -> AudioContent:
        return AUDIO

    @tool(server)
    def test_embedded_resource() -> EmbeddedResource:
        return EmbeddedResource(resource=JSON)

    @tool(server)
    def test_multiple_content_types() -> list[TextContent | ImageContent | EmbeddedResource]:
        return [TextContent(text="Multiple content types test:"), IMAGE, EmbeddedResource(resource=JSON)]

    @tool(server)
    def test_error_handling() -> None:
        raise ToolError("This tool intentionally returns an error for testing")

    @tool(server)
    def test_custom_headers(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
        return region


def add_reports(server: Server) -> None:
    @tool(server)
    async def test_tool_with_logging(context: Context) -> str:
        for message in ("Tool execution started", "Tool processing data", "Tool execution completed"):
            await context.log("info", message)
        return "done"

    @tool(server)
    async def test_tool_with_progress(context: Context) -> str:
        for done in (0, 50, 100):
            await context.report_progress(done, 100)
        return "done"

    @tool(server)
    async def test_logging_tool(context: Context) -> str:
        await context.log("info", "not to be sent to a client that has named no level")
        return "done"


def add_questions(server: Server) -> None:
    async def elicit(context: Context, message: str, schema: JSONObject) -> str:
        result = await context.elicit(message, schema)
        return f"User response: action={result.action}, content={result.content}"

    @tool(server)
    async def test_sampling(context: Context, prompt: str) -> str:
        return f"LLM response: {(await context.sample(prompt, max_tokens=100)).text}"

    @tool(server)
    async def test_elicitation(context: Context, message: str) -> str:
        return await elicit(context, message, form(response="string"))

    @tool(server)
    async def test_elicitation_sep1034_defaults(context: Context) -> str:
        return await elicit(context, "Please review the defaults", {"type": "object", "properties": DEFAULTS})

    @tool(server)
    async def test_elicitation_sep1330_enums(context: Context) -> str:
        return await elicit(context, "Please select options", {"type": "object", "properties": ENUMS})

    @tool(server)
    async def test_streaming_elicitation(context: Context) -> str:
        return await elicit(context, "Go on?", form(ok="boolean"))

    @tool(server)
    async def test_missing_capability(context: Context) -> str:
        return (await context.sample("What is the capital of France?")).text


def add_input_required(server: Server) -> None:
    """What asks its client for something in a result, since 2026-07-28."""

    async def name_of(context: Context) -> str:
        return str(((await context.elicit("What is your name?", form(name="string"))).content or {}).get("name"))

    async def confirm(context: Context) -> str:
        return f"{(await context.elicit('Please confirm', form(ok='boolean'))).action}, state-ok"

    async def sample(context: Context) -> str:
        return (await context.sample("What is the capital of France?", max_tokens=100)).text

    async def list_roots(context: Context) -> str:
        return str([root.uri for root in await context.list_roots()])

    @tool(server)
    async def test_input_required_result_elicitation(context: Context) -> str:
        return f"Hello, {await name_of(context)}!"

    @tool(server)
    async def test_input_required_result_multi_round(context: Context) -> str:
        name = await name_of(context)
        return f"{name}, {await confirm(context)}"

    @tool(server)
    async def test_input_required_result_multiple_inputs(context: Context) -> str:
        async with create_task_group() as tasks:
            for ask in (name_of, sample, list_roots):
                tasks.start_soon(ask, context)
        return "all of them"

    @prompt(server)
    async def test_input_required_result_prompt(context: Context) -> str:
        return await name_of(context)

    tool(server, "test_input_required_result_sampling")(sample)
    tool(server, "test_input_required_result_capabilities")(sample)
    tool(server, "test_input_required_result_list_roots")(list_roots)
    tool(server, "test_input_required_result_request_state")(confirm)
    tool(server, "test_input_required_result_tampered_state")(confirm)


def add_changes(server: Server) -> None:
    @tool(server)
    async def test_trigger_tool_change() -> str:
        await server.notify_tools_changed()
        return "done"

    @tool(server)
    async def test_trigger_prompt_change() -> str:
        await server.notify_prompts_changed()
        return "done"


def add_resources(server: Server) -> None:
    @server.resource("test://static-text", mime_type="text/plain")
    def static_text() -> str:
        return "This is the content of the static text resource."

    @server.resource("test://static-binary", mime_type="image/png")
    def static_binary() -> bytes:
        return b64decode(PIXEL)

    @server.resource("test://watched-resource", mime_type="text/plain")
    def watched_resource() -> str:
        return "Watched resource content"

    @server.resource_template("test://template/{id}/data", mime_type="application/json")
    def template(id: str) -> JSONObject:
        return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


def add_prompts(server: Server) -> None:
    def user(content: TextContent | ImageContent | EmbeddedResource) -> PromptMessage:
        return PromptMessage(role="user", content=content)

    @prompt(server)
    def test_simple_prompt() -> str:
        return "This is a simple prompt for testing."

    @prompt(server)
    def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
        return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"

    @prompt(server)
    def test_prompt_with_embedded_resource(resourceUri: str) -> list[PromptMessage]:
        resource = TextResourceContents(uri=resourceUri, mime_type="text/plain", text="Embedded resource content")
        return [user(EmbeddedResource(resource=resource)), user(TextContent(text="Please process it."))]

    @prompt(server)
    def test_prompt_with_image() -> list[PromptMessage]:
        return [user(IMAGE), user(TextContent(text="Please analyze the image above."))]

    @server.completion("test_prompt_with_arguments", "arg1")
    def complete(typed: str, chosen: object) -> list[str]:
        return [word for word in ("paris", "park", "party") if word.startswith(typed)]


if __name__ == "__main__":
    everything(sys.argv[1:] or VERSIONS).run_http()
