"""Python functions as something that is called with JSON: a schema from the signature, typed values from arguments."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict, PydanticUserError, ValidationError, create_model
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import CoreSchema, to_json

from mcp_host.errors import McpError
from mcp_host.types import JSONObject

AnyFunction: TypeAlias = Callable[..., object]  # plain or async; what it takes and returns is read from it


class Injected:
    """Base of what a function asks for by a parameter's annotation alone: the caller does not give it."""


class BadArguments(ValueError):
    """The arguments do not fit the function; the text says which and why, for the caller to read."""


class PlainSchema(GenerateJsonSchema):
    """JSON Schema without the titles that pydantic makes up from names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def generate(self, schema: CoreSchema, mode: Any = "validation") -> dict[str, Any]:
        plain = super().generate(schema, mode)
        for part in (plain, *plain.get("$defs", {}).values()):
            part.pop("title", None)
        return plain


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter, as far as JSON is concerned."""

    name: str
    description: str | None
    required: bool


class Function:
    """A function and what its signature says.

    Raises:
        TypeError: The signature cannot be called with a JSON object, or has a type that JSON cannot carry.
    """

    def __init__(self, function: AnyFunction, *, strict: bool = True) -> None:
        name = getattr(function, "__name__", "")
        self.name = name if name.isidentifier() else ""  # a lambda has no name to speak of
        self.description = inspect.getdoc(function) if inspect.isroutine(function) else None
        signature = inspect.signature(function, eval_str=True)
        self.returns = signature.return_annotation
        self._function = function
        self._strict = strict
        self._injected = [name for name, parameter in signature.parameters.items() if _is_injected(parameter)]
        self._names = {
            f"p{index}": name  # a field of its own name could clash with pydantic's methods
            for index, name in enumerate(signature.parameters)
            if name not in self._injected
        }
        self._model = self._make_model(signature)

    @property
    def schema(self) -> JSONObject:
        """The JSON Schema of the arguments."""
        return self._model.model_json_schema(schema_generator=PlainSchema)

    @property
    def parameters(self) -> list[Parameter]:
        return [
            Parameter(self._names[key], field.description, field.is_required())
            for key, field in self._model.model_fields.items()
        ]

    def read(self, arguments: JSONObject) -> dict[str, object]:
        """The values to call the function with.

        Raises:
            BadArguments: They do not fit.
        """
        try:
            read = self._model.model_validate_json(to_json(arguments), strict=self._strict)
        except ValidationError as exc:
            raise BadArguments("; ".join(_sentence(error) for error in exc.errors(include_url=False))) from None
        return {name: getattr(read, key) for key, name in self._names.items()}

    async def call(self, values: dict[str, object], injected: Injected | None = None) -> object:
        """Call the function and, if need be, await it.

        An error of ours that it raises in a task group is raised bare: it is meant for the client.
        """
        result = self._function(**values, **dict.fromkeys(self._injected, injected))
        try:
            return await result if isinstance(result, Awaitable) else result
        except ExceptionGroup as group:
            raise _meant(group) or group from group

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
            model.model_json_schema(schema_generator=PlainSchema)
        except PydanticUserError as exc:
            raise TypeError(f"{self.name}: {exc.message}") from exc
        return model


def _meant(group: ExceptionGroup[Exception]) -> McpError | None:
    for exc in group.exceptions:
        found = _meant(exc) if isinstance(exc, ExceptionGroup) else exc
        if isinstance(found, McpError):
            return found
    return None


def _is_injected(parameter: inspect.Parameter) -> bool:
    return isinstance(parameter.annotation, type) and issubclass(parameter.annotation, Injected)


def _sentence(error: Any) -> str:
    path = ".".join(str(step) for step in error["loc"])
    return f"{path}: {error['msg']}" if path else str(error["msg"])
