"""The schema of an answer: what the model gets of it, and how its answer is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from pydantic import PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from mcp_host.errors import UncheckableSchema
from mcp_host.functions import PlainSchema, described
from mcp_host.sampling.structured.inlining import inlined
from mcp_host.types import Tool

T = TypeVar("T")

RESULT = "result"  # the name under which a value that is no object is wrapped
FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*)\n[ \t]*```", re.DOTALL | re.IGNORECASE)


class Misfit(Exception):
    """The model's answer does not fit the schema. The text says why, to the model."""


class OutputSchema(Generic[T]):
    """A schema of what a model writes: a type that pydantic knows, a `TypeAdapter`, or a JSON Schema.

    Raises:
        TypeError: The type has no JSON Schema.
        ValueError: The JSON Schema is not valid, or refers to the network.
    """

    def __init__(self, schema: object) -> None:
        if isinstance(schema, Mapping):
            source, self._validate = dict(schema), _json_schema(dict(schema))
        else:
            source, self._validate = _pydantic(schema)
        words = source.pop("description", None)
        self.description: str | None = words if isinstance(words, str) else None
        """What the schema says about itself: a model's docstring."""
        source = inlined(source)
        self._wrapped = source.get("type") != "object"
        self.schema: dict[str, Any] = _wrapped(source) if self._wrapped else source
        """What the model gets: always the schema of an object."""

    @property
    def instruction(self) -> str:
        """What to tell a model that cannot be given the tool."""
        return (
            f"Answer with JSON only, without any other text. It has to conform to this JSON Schema:\n"
            f"{to_json(self.schema).decode()}"
        )

    def tool(self, name: str) -> Tool:
        """A tool that carries the schema, for a model that is made to call it."""
        words = f"Give your answer by calling this tool. {self.description or ''}".rstrip()
        return Tool(name=name, description=words, input_schema=self.schema)

    def read_text(self, text: str) -> T:
        """The value of a text that is JSON, or one fenced block of it, and nothing else.

        Raises:
            Misfit: It is not.
        """
        text = text.strip()
        fenced = FENCED.fullmatch(text)
        try:
            value = from_json(fenced[1] if fenced else text, allow_inf_nan=False)
        except ValueError as exc:
            raise Misfit(f"It is not JSON: {exc}") from None
        return self.read(value)

    def read(self, value: object) -> T:
        """The value of decoded JSON.

        Raises:
            Misfit: It does not conform to the schema.
        """
        if self._wrapped:
            if not isinstance(value, dict) or value.keys() != {RESULT}:
                raise Misfit(f'It has to be an object with one member, "{RESULT}".')
            value = value[RESULT]
        read: T = self._validate(value)
        return read


def _wrapped(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of an object that holds the value: the arguments of a tool are always an object."""
    inner = {name: value for name, value in schema.items() if name not in ("$schema", "$defs")}
    outer = {name: schema[name] for name in ("$schema", "$defs") if name in schema}
    members = {"type": "object", "properties": {RESULT: inner}, "required": [RESULT], "additionalProperties": False}
    return members | outer


def _pydantic(schema: Any) -> tuple[dict[str, Any], Callable[[object], Any]]:
    try:
        adapter: TypeAdapter[Any] = schema if isinstance(schema, TypeAdapter) else TypeAdapter(schema)
        source = adapter.json_schema(schema_generator=PlainSchema)
    except PydanticUserError as exc:
        raise TypeError(f"schema: {exc.message}") from None

    def validate(value: object) -> Any:
        try:
            return adapter.validate_json(to_json(value), strict=True)
        except ValidationError as exc:
            raise Misfit(f"It does not fit: {described(exc)}") from None
        except ValueError as exc:  # half a surrogate pair
            raise Misfit(f"It is not JSON: {exc}") from None

    return source, validate


def _json_schema(source: dict[str, Any]) -> Callable[[object], Any]:
    from mcp_host.json_schema.schema import Schema  # takes a tenth of a second

    schema = Schema(source)

    def validate(value: object) -> Any:
        try:
            problem = schema.mismatch(value)
        except UncheckableSchema as exc:
            raise Misfit(f"It cannot be checked: {exc}") from None
        if problem is not None:
            raise Misfit(f"It does not fit: {problem}")
        return value

    try:
        schema.mismatch(None)  # prepares the schema: a mistake of its author is found before a model is asked
    except UncheckableSchema as exc:
        raise ValueError(f"schema: {exc}") from None
    return validate
