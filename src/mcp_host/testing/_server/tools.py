"""Functions as tools: what they return becomes content, structured content, or an error the model can read."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import PydanticUserError, TypeAdapter, create_model
from pydantic_core import to_json, to_jsonable_python

from mcp_host.errors import McpError
from mcp_host.protocol.jsonrpc import INVALID_PARAMS
from mcp_host.testing._server.functions import AnyFunction, Function, Injected, PlainSchema
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
    TextContent,
    Tool,
    ToolAnnotations,
)

logger = logging.getLogger(__name__)

BLOCKS = (TextContent, ImageContent, AudioContent, ResourceLink, EmbeddedResource)
PLAIN = (str, None, NoneType, object, Any, inspect.Signature.empty, CallToolResult, *BLOCKS)


class Output:
    """What a function's return annotation promises, and how a value of it is written.

    *schema* is None where nothing structured is promised: text, content blocks, no annotation.
    An annotation whose JSON is no object is wrapped as ``{"result": …}``, because before
    revision 2026-07-28 structured content is always an object.
    """

    def __init__(self, annotation: Any) -> None:
        self.schema: JSONObject | None = None
        self._adapter: TypeAdapter[Any] | None = None
        self._wrapped = False
        if _is_plain(annotation):
            return
        self._adapter = TypeAdapter(annotation)
        self.schema = self._adapter.json_schema(mode="serialization", schema_generator=PlainSchema)
        self._wrapped = self.schema.get("type") != "object"
        if self._wrapped:
            wrapper = create_model("Wrapped", result=(annotation, ...))
            self.schema = wrapper.model_json_schema(mode="serialization", schema_generator=PlainSchema)

    def write(self, value: object) -> CallToolResult:
        """The result that says *value*."""
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
    """A tool: its definition, and the function behind it."""

    definition: Tool
    function: Function
    output: Output

    async def run(self, arguments: JSONObject, context: Injected) -> CallToolResult:
        """Run the tool. What goes wrong in it is a result, too, with *is_error* set.

        Raises:
            BadArguments: The arguments do not fit; the function was not called.
            RequestError: The function wants this JSON-RPC error as the answer.
            NotDeclared: It takes a client that can do more.
        """
        values = self.function.read(arguments)
        try:
            return self.output.write(await self.function.call(values, context))
        except (RequestError, NotDeclared):
            raise
        except McpError as exc:  # a ToolError, or what the context raised: its text is meant to be read
            return text_result(str(exc), is_error=True)
        except Exception:
            logger.exception("the tool %s failed", self.definition.name)
            return text_result(f"the tool {self.definition.name} failed", is_error=True)


def function_tool(
    function: AnyFunction,
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    annotations: ToolAnnotations | None = None,
    output_schema: JSONObject | None = None,
) -> FunctionTool:
    """Make a tool of a typed function.

    Raises:
        TypeError: Its signature has no JSON Schema, or it has no name.
    """
    described = Function(function)
    try:
        output = Output(described.returns)
    except PydanticUserError as exc:
        raise TypeError(f"{described.name}: {exc.message}") from exc
    if not (name := name or described.name):
        raise TypeError(f"{function!r} has no name: give one")
    optional = given(
        title=title,
        description=description or described.description,
        annotations=annotations,
        output_schema=output_schema or output.schema,
    )
    return FunctionTool(Tool(name=name, input_schema=described.schema, **optional), described, output)


def text_result(text: str, *, is_error: bool = False) -> CallToolResult:
    content: list[ReceivedContent] = [TextContent(text=text)]
    return CallToolResult(content=content, **given(is_error=is_error or None))


def unknown_tool(name: str) -> RequestError:
    """ "Protocol Errors: standard JSON-RPC errors for issues like unknown tools" (server/tools)."""
    return RequestError(INVALID_PARAMS, f"Unknown tool: {name}")


def _structured(data: object, *, wrapped: bool) -> CallToolResult:
    """ "A tool that returns structured content SHOULD also return the serialized JSON in a TextContent block"."""
    text = data if isinstance(data, str) else to_json(data).decode()
    return CallToolResult(content=[TextContent(text=text)], structured_content={"result": data} if wrapped else data)


def _is_plain(annotation: Any) -> bool:
    origin, members = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _is_plain(members[0])
    if origin in (Union, UnionType):
        return all(_is_plain(member) for member in members)
    if origin in (list, tuple, Sequence):
        return bool(members) and all(_is_block(member) for member in members if member is not ...)
    return annotation in PLAIN


def _is_block(annotation: Any) -> bool:
    origin, members = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _is_block(members[0])
    if origin in (Union, UnionType):
        return all(_is_block(member) for member in members)
    return annotation in BLOCKS
