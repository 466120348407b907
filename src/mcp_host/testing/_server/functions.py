"""Python functions that are called with JSON: the schema comes from the signature, typed values from the arguments."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin

from anyio import create_task_group
from pydantic import BaseModel, ConfigDict, PydanticUserError, TypeAdapter, ValidationError, create_model
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import CoreSchema, to_json, to_jsonable_python

from mcp_host.errors import McpError
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

AnyFunction: TypeAlias = Callable[..., object]  # plain or async, with any parameters


class Injected:
    """Base class of parameters that the server fills in; they are not part of the JSON arguments."""


class BadArguments(ValueError):
    """The arguments do not fit the function. The text names each argument and its problem, for the client."""


class PlainSchema(GenerateJsonSchema):
    """JSON Schema without the titles that pydantic derives from names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def generate(self, schema: CoreSchema, mode: Any = "validation") -> dict[str, Any]:
        plain = super().generate(schema, mode)
        for part in (plain, *plain.get("$defs", {}).values()):
            part.pop("title", None)
        return plain


class Function:
    """A function and its signature. With *strict*, arguments are not converted ("1" is no number).

    Raises:
        TypeError: It has positional-only or variable parameters, or a type without a JSON Schema.
    """

    def __init__(self, function: AnyFunction, *, strict: bool = True) -> None:
        name = getattr(function, "__name__", "")
        self.name = name if name.isidentifier() else ""  # "<lambda>" is no name
        self.description = inspect.getdoc(function) if inspect.isroutine(function) else None
        signature = inspect.signature(function, eval_str=True)
        self.returns = signature.return_annotation
        self._function = function
        self._strict = strict
        self._injected = [
            name
            for name, parameter in signature.parameters.items()
            if isinstance(parameter.annotation, type) and issubclass(parameter.annotation, Injected)
        ]
        self._names = {
            f"p{index}": name  # a field with the parameter's name could clash with pydantic's methods
            for index, name in enumerate(signature.parameters)
            if name not in self._injected
        }
        self._model = self._make_model(signature)
        try:
            self.schema: JSONObject = self._model.model_json_schema(schema_generator=PlainSchema)
        except PydanticUserError as exc:
            raise TypeError(f"{self.name}: {exc.message}") from exc

    @property
    def parameters(self) -> list[tuple[str, str | None, bool]]:
        """Each parameter's name, its description, and whether it is required."""
        fields = self._model.model_fields
        return [(name, fields[key].description, fields[key].is_required()) for key, name in self._names.items()]

    async def call(self, arguments: JSONObject, injected: Injected | None = None) -> object:
        """Validate *arguments*, call the function, and await the result if it is awaitable.

        An `McpError` raised inside a task group is raised bare: its text is for the client.

        Raises:
            BadArguments: The arguments do not fit; the function was not called.
        """
        try:
            read = self._model.model_validate_json(to_json(arguments), strict=self._strict)
        except ValidationError as exc:
            problems = "; ".join(_problem(error) for error in exc.errors(include_url=False))
            raise BadArguments(f"Invalid arguments: {problems}") from None
        values = {name: getattr(read, key) for key, name in self._names.items()}
        try:
            result = self._function(**values, **dict.fromkeys(self._injected, injected))
            return await result if isinstance(result, Awaitable) else result
        except ExceptionGroup as group:
            raise _first_mcp_error(group) or group from group

    def _make_model(self, signature: inspect.Signature) -> type[BaseModel]:
        fields: dict[str, Any] = {}
        for key, name in self._names.items():
            parameter = signature.parameters[name]
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise TypeError(f"{self.name}: {parameter} cannot be given by name")
            annotation = Any if parameter.annotation is parameter.empty else parameter.annotation
            fields[key] = (annotation, ... if parameter.default is parameter.empty else parameter.default)
        config = ConfigDict(extra="forbid", alias_generator=self._names.__getitem__, arbitrary_types_allowed=False)
        try:
            model: type[BaseModel] = create_model(self.name or "Arguments", __config__=config, **fields)
        except PydanticUserError as exc:
            raise TypeError(f"{self.name}: {exc.message}") from exc
        return model


def _first_mcp_error(group: ExceptionGroup[Exception]) -> McpError | None:
    for exc in group.exceptions:
        found = _first_mcp_error(exc) if isinstance(exc, ExceptionGroup) else exc
        if isinstance(found, McpError):
            return found
    return None


def _problem(error: Any) -> str:
    path = ".".join(str(step) for step in error["loc"])
    return f"{path}: {error['msg']}" if path else str(error["msg"])


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
