"""Python functions that are called with JSON: the schema comes from the signature, typed values from the arguments."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict, PydanticUserError, ValidationError, create_model
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import CoreSchema, to_json

from mcp_host.errors import McpError
from mcp_host.types import JSONObject

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
