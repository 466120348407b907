"""Typed functions that are called with JSON, and tools made of them."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from copy import copy
from functools import partial
from types import NoneType, UnionType
from typing import Annotated, Any, TypeAlias, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, PydanticUserError, TypeAdapter, ValidationError, create_model
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import CoreSchema, ErrorDetails, to_json, to_jsonable_python

from mcp_host.concurrency.tasks import first
from mcp_host.errors import EndsLoop, McpError, ProtocolError
from mcp_host.types import CallToolResult, ContentBlock, JSONObject, ReceivedContent, TextContent, Tool
from mcp_host.types.base import Model, given
from mcp_host.types.content import CONTENT_BLOCKS
from mcp_host.types.texts import readable, readable_json, readable_model

ANY = TypeAdapter[Any](Any)
"""Writes objects as dicts, and leaves their texts and names as they are."""

logger = logging.getLogger(__name__)

T = TypeVar("T")

AnyFunction: TypeAlias = Callable[..., object]  # plain or async, with any parameters

LISTED = 10  # problems in one text, which a model or a person reads

PLAIN = (str, None, NoneType, object, Any, inspect.Signature.empty, CallToolResult, *CONTENT_BLOCKS)


class Injected:
    """Base class of parameters that the caller of a `Function` fills in; they are not part of the JSON arguments."""


class BadArguments(McpError):
    """The arguments do not fit the function, which was not called. The text names each argument and its problem."""


class ToolError(McpError):
    """Raise this in a tool: the result has *is_error* set, and this text.

    The text of any exception that is not an `McpError` is logged, and not sent. In a tool loop the model gets
    the texts of other `McpError`s only if they are the words of a server or an approver.
    """


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
        self._injected: list[str] = []
        self._names: dict[str, str] = {}
        fields: dict[str, Any] = {}
        for index, (name, parameter) in enumerate(signature.parameters.items()):
            annotation = Any if parameter.annotation is parameter.empty else parameter.annotation
            if isinstance(annotation, type) and issubclass(annotation, Injected):
                self._injected.append(name)
                continue
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise TypeError(f"{self.name}: {parameter} cannot be given by name")
            key = f"p{index}"  # a field with the parameter's name could clash with pydantic's methods
            self._names[key] = name
            fields[key] = (annotation, ... if parameter.default is parameter.empty else parameter.default)
        config = ConfigDict(extra="forbid", alias_generator=self._names.__getitem__, arbitrary_types_allowed=False)
        try:
            self._model: type[BaseModel] = create_model(self.name or "Arguments", __config__=config, **fields)
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
            read = read_json(partial(self._model.model_validate_json, strict=self._strict), arguments)
        except ValidationError as exc:
            raise BadArguments(f"Invalid arguments: {described(exc)}") from None
        values = {name: getattr(read, key) for key, name in self._names.items()}
        try:
            result = self._function(**values, **dict.fromkeys(self._injected, injected))
            return await result if isinstance(result, Awaitable) else result
        except ExceptionGroup as group:
            if ours := group.subgroup(McpError):
                raise first(ours) from group
            raise


def read_json(read: Callable[[bytes], T], value: object) -> T:
    """What *read* makes of the JSON of *value*. A whole number is an integer, 1.0 as well as 1 (JSON Schema 2020-12, 4.2.3).

    Raises:
        ValidationError: It does not fit.
        ValueError: It is no JSON.
    """
    text = to_json(value)
    try:
        return read(text)
    except ValidationError:
        whole = to_json(_with_integers(value))
        if whole == text:
            raise
        return read(whole)


def _with_integers(value: object) -> object:
    match value:
        case float() if value.is_integer():
            return int(value)
        case list():
            return [_with_integers(item) for item in value]
        case dict():
            return {name: _with_integers(item) for name, item in value.items()}
    return value


def described(exc: ValidationError) -> str:
    """Each value that does not fit, by its path, and why; of many, the first."""
    errors = exc.errors(include_url=False, include_input=False)
    problems = [(".".join(map(str, error["loc"])), _problem(error)) for error in errors[:LISTED]]
    text = "; ".join([f"{path}: {message}" if path else message for path, message in problems])
    return text if len(errors) <= LISTED else f"{text}; and {len(errors) - LISTED} more"


def _problem(error: ErrorDetails) -> str:
    """Why a value does not fit. The words of a validator are its author's, without a "Value error" before them."""
    raised = error.get("ctx", {}).get("error")
    return str(raised) if isinstance(raised, ValueError | AssertionError) else error["msg"]


class FunctionTool:
    """A typed function as a tool. *fields* of the definition override what the function's docstring gives.

    A return annotation other than text or content blocks is the output schema. If that is
    not an object's, it is wrapped as ``{"result": …}``, because structured content is always
    an object before revision 2026-07-28.

    Raises:
        TypeError: The signature has no JSON Schema, or the function has no name.
    """

    def __init__(
        self,
        function: AnyFunction,
        *,
        name: str | None = None,
        output_schema: JSONObject | None = None,
        **fields: object,
    ) -> None:
        self._function = Function(function)
        self._output: TypeAdapter[Any] | None = None
        self._wrapped = False
        self.name = name or self._function.name
        if not self.name:
            raise TypeError(f"{function!r} has no name: give one with name=, as in FunctionTool(function, name=...)")
        returns, schema = self._function.returns, None
        if not _is_among(PLAIN, returns):
            try:
                self._output = TypeAdapter(returns)
                schema = self._output.json_schema(mode="serialization", schema_generator=PlainSchema)
                self._wrapped = schema.get("type") != "object"
                if self._wrapped:
                    wrapper = create_model("Wrapped", result=(returns, ...))
                    schema = wrapper.model_json_schema(mode="serialization", schema_generator=PlainSchema)
            except PydanticUserError as exc:
                raise TypeError(f"{self.name}: {exc.message}") from exc
        optional = given(description=self._function.description, output_schema=output_schema or schema)
        self.definition = Tool(name=self.name, input_schema=self._function.schema, **optional | given(**fields))

    def calling(self, wrap: Callable[[AnyFunction], AnyFunction]) -> FunctionTool:
        """A copy that calls what *wrap* makes of the function, such as one that runs it in a thread."""
        tool, tool._function = copy(self), copy(self._function)
        tool._function._function = wrap(self._function._function)
        return tool

    async def call(self, arguments: JSONObject, injected: Injected | None = None) -> CallToolResult:
        """Validate *arguments*, call the function, and write what it returns as a result. In its texts, half of a
        character becomes U+FFFD.

        Raises:
            BadArguments: The arguments do not fit; the function was not called.
            Exception: The function raised it: see `error_result`.
        """
        return self._write(await self._function.call(arguments, injected))

    def _write(self, value: object) -> CallToolResult:
        if self._output is not None:
            data, wrapped = self._output.dump_python(value, mode="json", by_alias=True, warnings="error"), self._wrapped
        else:
            match value := of_sdk(value):
                case CallToolResult():
                    return readable_model(value)
                case None:
                    return CallToolResult(content=[])
                case str():
                    return text_result(value)
                case _ if isinstance(value, CONTENT_BLOCKS):
                    return readable_model(CallToolResult(content=[value]))
                case list() | tuple() if value and all(isinstance(item, CONTENT_BLOCKS) for item in value):
                    return readable_model(CallToolResult(content=list(value)))
            data = _jsonable(value)
            wrapped = not isinstance(data, dict)
        # "A tool that returns structured content SHOULD also return the serialized JSON in a TextContent block".
        text, data = _written(data)
        return CallToolResult(
            content=[TextContent(text=text)], structured_content={"result": data} if wrapped else data
        )


def _jsonable(value: object) -> Any:
    try:
        return to_jsonable_python(value)
    except UnicodeEncodeError:  # a name has half of a character
        return to_jsonable_python(readable_json(ANY.dump_python(value)))


def _written(data: Any) -> tuple[str, Any]:
    """The text of *data*, and *data* itself, without halves of characters."""
    if isinstance(data, str):
        text = readable(data)
        return text, text
    try:
        return to_json(data).decode(), data
    except ValueError:
        data = readable_json(data)
        return to_json(data).decode(), data


def of_sdk(value: object) -> object:
    """A `CallToolResult` or content blocks of the official SDK, as ours; anything else as it is.

    They are known by their fields: a value with a ``type``, or with ``content``, may be anything.
    """
    if isinstance(value, list | tuple):
        return [of_sdk(item) for item in value] if value and isinstance(value[0], BaseModel) else value
    if isinstance(value, BaseModel) and (ours := _of_sdk(type(value))) is not None:
        with suppress(ProtocolError):  # a class of the same fields, whose values are others
            return ours.from_wire(value.model_dump(mode="json", by_alias=True, exclude_none=True))
    return value


def _of_sdk(cls: object) -> type[CallToolResult] | type[ContentBlock] | None:
    """Our class for a class of the official SDK."""
    if not isinstance(cls, type) or not issubclass(cls, BaseModel) or issubclass(cls, Model):
        return None
    names = {field.serialization_alias or name for name, field in cls.model_fields.items()}
    if {"content", "structuredContent", "isError"} <= names:
        return CallToolResult
    if {"type", "annotations"} <= names:
        kinds = get_args(cls.model_fields["type"].annotation)
        return next(
            (block for block in CONTENT_BLOCKS if kinds == get_args(block.model_fields["type"].annotation)), None
        )
    return None


def error_result(name: str, exc: BaseException) -> CallToolResult:
    """The result that tells the model that the tool *name* failed. The text of an `McpError`, such as `ToolError`, is in it.

    Raises:
        EndsLoop: It is *exc*.
    """
    if isinstance(exc, EndsLoop):
        raise exc
    if isinstance(exc, McpError):
        return text_result(str(exc), is_error=True)
    logger.error("the tool %s failed", name, exc_info=exc)
    return text_result(f"the tool {name} failed", is_error=True)


def text_result(text: str, *, is_error: bool = False) -> CallToolResult:
    """A result of *text*, in which half of a character becomes U+FFFD."""
    content: list[ReceivedContent] = [TextContent(text=readable(text))]
    return CallToolResult(content=content, **given(is_error=is_error or None))


def _is_among(types: Sequence[object], annotation: Any) -> bool:
    """Whether all values of the annotated type are of these *types*, or lists of content blocks."""
    origin, members = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _is_among(types, members[0])
    if origin in (Union, UnionType):
        return all(_is_among(types, member) for member in members)
    if origin in (list, tuple, Sequence) and types is PLAIN:
        return bool(members) and all(_is_among(CONTENT_BLOCKS, member) for member in members if member is not ...)
    return annotation in types or ((ours := _of_sdk(annotation)) is not None and ours in types)
