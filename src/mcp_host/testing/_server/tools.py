"""Functions as tools: the definition, the result, and running the tools that a model asks for."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin

from anyio import create_task_group
from pydantic import PydanticUserError, TypeAdapter, create_model
from pydantic_core import to_json, to_jsonable_python

from mcp_host.errors import McpError
from mcp_host.testing._server.functions import AnyFunction, BadArguments, Function, Injected, PlainSchema
from mcp_host.testing._server.revision import given
from mcp_host.testing.errors import NotDeclared, RequestError
from mcp_host.types import (
    AudioContent,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    JSONObject,
    ReceivedContent,
    ResourceLink,
    SamplingMessage,
    TextContent,
    Tool,
    ToolResultContent,
    ToolUseContent,
)

logger = logging.getLogger(__name__)

BLOCKS = (TextContent, ImageContent, AudioContent, ResourceLink, EmbeddedResource)
PLAIN = (str, None, NoneType, object, Any, inspect.Signature.empty, CallToolResult, *BLOCKS)

Tools: TypeAlias = Mapping[str, AnyFunction] | Sequence[AnyFunction]
"""The functions that a model may call: under their own names, or under the names given here."""


class Output:
    """A function's return annotation: its output schema, and how its values become results.

    *schema* is None if the function returns text, content blocks, or has no annotation. A
    schema that is not an object's is wrapped as ``{"result": …}``, because structured
    content is always an object before revision 2026-07-28.
    """

    def __init__(self, annotation: Any) -> None:
        self.schema: JSONObject | None = None
        self._adapter: TypeAdapter[Any] | None = None
        self._wrapped = False
        if _is_unstructured(annotation, PLAIN):
            return
        self._adapter = TypeAdapter(annotation)
        self.schema = self._adapter.json_schema(mode="serialization", schema_generator=PlainSchema)
        self._wrapped = self.schema.get("type") != "object"
        if self._wrapped:
            wrapper = create_model("Wrapped", result=(annotation, ...))
            self.schema = wrapper.model_json_schema(mode="serialization", schema_generator=PlainSchema)

    def write(self, value: object) -> CallToolResult:
        """Write the result of a function that returned *value*."""
        if self._adapter is not None:
            data = self._adapter.dump_python(value, mode="json", by_alias=True, warnings="error")
            return _structured(data, wrapped=self._wrapped)
        match value:
            case CallToolResult():
                return value
            case None:
                return CallToolResult(content=[])
            case str():
                return text_result(value)
            case TextContent() | ImageContent() | AudioContent() | ResourceLink() | EmbeddedResource():
                return CallToolResult(content=[value])
            case list() | tuple() if value and all(isinstance(item, BLOCKS) for item in value):
                return CallToolResult(content=list(value))
        data = to_jsonable_python(value)
        return _structured(data, wrapped=not isinstance(data, dict))


@dataclass(frozen=True, slots=True)
class FunctionTool:
    """A tool: its definition and its function."""

    definition: Tool
    function: Function
    output: Output

    async def run(self, arguments: JSONObject, context: Injected) -> CallToolResult:
        """Run the tool. A failure is a result, too, with *is_error* set.

        Raises:
            BadArguments: The arguments do not fit; the function was not called.
            RequestError: The function raised it, to answer with this JSON-RPC error.
            NotDeclared: The function needs a capability that the client lacks.
        """
        try:
            return self.output.write(await self.function.call(arguments, context))
        except (BadArguments, RequestError, NotDeclared):
            raise
        except McpError as exc:  # a ToolError, or raised by the context: its text is for the model
            return text_result(str(exc), is_error=True)
        except Exception:
            logger.exception("the tool %s failed", self.definition.name)
            return text_result(f"the tool {self.definition.name} failed", is_error=True)


def function_tool(
    function: AnyFunction, *, name: str | None = None, output_schema: JSONObject | None = None, **fields: object
) -> FunctionTool:
    """Make a tool of a typed function. *fields* of the definition override what the function's docstring gives.

    Raises:
        TypeError: The signature has no JSON Schema, or the function has no name.
    """
    read = Function(function)
    try:
        output = Output(read.returns)
    except PydanticUserError as exc:
        raise TypeError(f"{read.name}: {exc.message}") from exc
    if not (name := name or read.name):
        raise TypeError(f"{function!r} has no name: give one")
    optional = given(description=read.description, output_schema=output_schema or output.schema) | given(**fields)
    return FunctionTool(Tool(name=name, input_schema=read.schema, **optional), read, output)


def tools_by_name(tools: Tools) -> dict[str, FunctionTool]:
    """Make the tools of a sampling request."""
    if isinstance(tools, Mapping):
        made = [function_tool(function, name=name) for name, function in tools.items()]
    else:
        made = [function_tool(function) for function in tools]
    return {tool.definition.name: tool for tool in made}


async def run_tools(
    uses: Sequence[ToolUseContent], tools: Mapping[str, FunctionTool], context: Injected
) -> SamplingMessage:
    """Run the tools that the model asked for, all at once; the results are in the order of the calls.

    "Every assistant message containing ToolUseContent blocks MUST be followed by a user
    message that consists entirely of ToolResultContent blocks" (client/sampling).
    """
    results: dict[int, ToolResultContent] = {}

    async def run(index: int, use: ToolUseContent) -> None:
        try:
            if use.name in tools:
                result = await tools[use.name].run(use.input, context)
            else:
                result = text_result(f"There is no tool {use.name}", is_error=True)
        except (BadArguments, NotDeclared) as exc:  # a result, which the model can react to
            result = text_result(str(exc), is_error=True)
        results[index] = ToolResultContent.of(use, result)

    try:
        async with create_task_group() as tasks:
            for index, use in enumerate(uses):
                tasks.start_soon(run, index, use)
    except ExceptionGroup as group:  # only `RequestError`s get here
        raise group.exceptions[0] from None
    return SamplingMessage(role="user", content=[results[index] for index in range(len(uses))])


def text_result(text: str, *, is_error: bool = False) -> CallToolResult:
    content: list[ReceivedContent] = [TextContent(text=text)]
    return CallToolResult(content=content, **given(is_error=is_error or None))


def _structured(data: object, *, wrapped: bool) -> CallToolResult:
    """ "A tool that returns structured content SHOULD also return the serialized JSON in a TextContent block"."""
    text = data if isinstance(data, str) else to_json(data).decode()
    return CallToolResult(content=[TextContent(text=text)], structured_content={"result": data} if wrapped else data)


def _is_unstructured(annotation: Any, plain: Sequence[object]) -> bool:
    """Whether values of this type are among the *plain* ones, or lists of content blocks."""
    origin, members = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _is_unstructured(members[0], plain)
    if origin in (Union, UnionType):
        return all(_is_unstructured(member, plain) for member in members)
    if origin in (list, tuple, Sequence) and plain is PLAIN:
        return bool(members) and all(_is_unstructured(member, BLOCKS) for member in members if member is not ...)
    return annotation in plain
