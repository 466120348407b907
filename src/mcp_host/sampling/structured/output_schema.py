"""The schema of an answer: what the model gets of it, and how its answer is read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeGuard, TypeVar

from pydantic import PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from mcp_host.errors import UncheckableSchema, quoted
from mcp_host.functions import PlainSchema, described, read_json
from mcp_host.sampling.stop_reasons import REFUSALS, TRUNCATED
from mcp_host.sampling.structured.inlining import inlined
from mcp_host.types import (
    AssistantMessage,
    CreateMessageRequestParams,
    CreateMessageResult,
    SamplingMessage,
    TextContent,
    Tool,
    ToolChoice,
    ToolResultContent,
    UserMessage,
)
from mcp_host.types.base import given

if TYPE_CHECKING:
    from mcp_host.json_schema.schema import Schema

T = TypeVar("T")

ANSWER = "answer"  # the name of the tool that carries a schema
RESULT = "result"  # the name under which a value that is no object is wrapped
FENCED = re.compile(r"```(?:json)?[ \t]*\r?\n(.*)\n[ \t]*```", re.DOTALL | re.IGNORECASE)


class Misfit(Exception):
    """What the model wrote does not fit. The text says why, for the model and for the author of the server."""


class OutputSchema(Generic[T]):
    """A schema of what a model writes: a type that pydantic knows, a `TypeAdapter`, or a JSON Schema.

    Raises:
        TypeError: The type has no JSON Schema.
        ValueError: The JSON Schema is not valid, or refers to the network.
    """

    def __init__(self, schema: object, *, what: str = "the answer") -> None:
        self._what = what
        if isinstance(schema, Mapping):
            source, self._validate = dict(schema), _json_schema(dict(schema))
        else:
            source, self._validate = _pydantic(schema)
        source = inlined(source)
        words = source.pop("description", None)
        self.description: str | None = words if isinstance(words, str) else None
        """What the schema says about itself: a model's docstring."""
        self._wrapped = source.get("type") != "object"
        self.schema: dict[str, Any] = _wrapped(source) if self._wrapped else source
        """What the model gets: always the schema of an object."""

    def request(self, params: CreateMessageRequestParams, *, by_tool: bool) -> CreateMessageRequestParams:
        """The request that asks for a value: *by_tool* with one tool that the model has to call, else in the prompt."""
        if not by_tool:
            words = "Answer with JSON only, without any other text. It has to conform to this JSON Schema:"
            schema = given(description=self.description) | self.schema
            return _told(params, f"{words}\n{to_json(schema).decode()}")
        words = f"Give your answer by calling this tool. {self.description or ''}".rstrip()
        tool = Tool(name=ANSWER, description=words, input_schema=self.schema)
        return params.model_copy(update={"tools": [tool], "tool_choice": ToolChoice(mode="required")})

    def read_answer(self, answer: CreateMessageResult) -> T:
        """The value of an answer.

        Raises:
            Misfit: It has none.
        """
        if answer.stop_reason in REFUSALS:
            raise Misfit("the model refused to answer")
        if answer.stop_reason in TRUNCATED:
            raise Misfit("the answer was cut off: it has too many tokens")
        match answer.tool_uses:
            case []:
                if others := [block.type for block in answer.content if not isinstance(block, TextContent)]:
                    raise Misfit(f"the answer has to be JSON, not {others[0]}")
                if not answer.text.strip():
                    raise Misfit("the answer is empty")
                return self.read_text(answer.text)
            case [use] if use.name == ANSWER:
                return self.read(use.input)
            case [use]:
                raise Misfit(f"there is no tool {quoted(use.name)}")
            case uses:
                raise Misfit(f"there has to be one answer, not {len(uses)}")

    def read_text(self, text: str) -> T:
        """The value of a text that is JSON, or one fenced block of it, and nothing else.

        Raises:
            Misfit: It is not, or the value does not conform to the schema.
        """
        text = text.strip()
        fenced = FENCED.fullmatch(text)
        try:
            value = from_json(fenced[1] if fenced else text, allow_inf_nan=False)
        except ValueError as exc:
            if fenced is None and _has_other_words(text, str(exc)):
                raise Misfit(f"{self._what} is not JSON alone: the text has other words around it") from None
            raise Misfit(f"{self._what} is not JSON: {exc}") from None
        if self._wrapped and not _is_wrapped(value):
            with suppress(Misfit):  # a model that writes a text in place of a call has no use for the wrapping
                return self.read({RESULT: value})
        return self.read(value)

    def read(self, value: object) -> T:
        """The value of decoded JSON.

        Raises:
            Misfit: It does not conform to the schema.
        """
        if self._wrapped:
            if not _is_wrapped(value):
                raise Misfit(f'{self._what} is not an object with one member, "{RESULT}"')
            value = value[RESULT]
        try:
            read: T = self._validate(value)
        except Misfit as exc:
            raise Misfit(f"{self._what} {exc}") from None
        return read


def _is_wrapped(value: object) -> TypeGuard[dict[str, object]]:
    return isinstance(value, dict) and value.keys() == {RESULT}


def _has_other_words(text: str, problem: str) -> bool:
    if text.startswith(("{", "[")):
        return problem.startswith("trailing characters")
    return "{" in text or "```" in text


def _wrapped(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of an object that holds the value: the arguments of a tool are always an object."""
    moved = ("$schema",) if "$id" in schema else ("$schema", "$defs", "definitions")  # where references look for them
    inner = {name: value for name, value in schema.items() if name not in moved}
    members = {"type": "object", "properties": {RESULT: inner}, "required": [RESULT], "additionalProperties": False}
    return members | {name: schema[name] for name in moved if name in schema}


def _pydantic(schema: Any) -> tuple[dict[str, Any], Callable[[object], Any]]:
    if isinstance(schema, str):
        raise TypeError("schema must be a type, a TypeAdapter or a JSON Schema, not a str")
    try:
        adapter: TypeAdapter[Any] = schema if isinstance(schema, TypeAdapter) else TypeAdapter(schema)
        source = adapter.json_schema(schema_generator=PlainSchema)
    except PydanticUserError as exc:
        raise TypeError(f"schema: {exc.message}") from None

    def validate(value: object) -> Any:
        try:
            return read_json(partial(adapter.validate_json, strict=True), value)
        except ValidationError as exc:
            raise Misfit(f"does not fit the schema: {described(exc)}") from None
        except ValueError as exc:  # half a surrogate pair
            raise Misfit(f"is not JSON: {exc}") from None

    return source, validate


def check_schema(source: dict[str, Any], where: str) -> Schema:
    """Prepare a JSON Schema, so that a mistake of its author is found before a model is asked.

    Raises:
        ValueError: It is not valid.
    """
    from mcp_host.json_schema.schema import Schema  # takes a tenth of a second

    schema = Schema(source)
    try:
        schema.mismatch(None)
    except UncheckableSchema as exc:
        raise ValueError(f"{where}: {exc}") from None
    return schema


def _json_schema(source: dict[str, Any]) -> Callable[[object], Any]:
    schema = check_schema(source, "schema")

    def validate(value: object) -> Any:
        try:
            problem = schema.mismatch(value)
        except UncheckableSchema as exc:
            raise Misfit(f"cannot be checked: {exc}") from None
        if problem is not None:
            raise Misfit(f"does not fit the schema: {problem}")
        return value

    return validate


# The conversation


def with_question(conversation: list[SamplingMessage]) -> list[SamplingMessage]:
    """The conversation, with a question at its end. After its own message a model would go on with that."""
    if conversation[-1].role == "user":
        return conversation
    return [*conversation, UserMessage("Now give your answer.")]


def continued(conversation: list[SamplingMessage], answer: CreateMessageResult) -> list[SamplingMessage]:
    """The conversation with the answer, unless that is empty: models take no empty messages."""
    if all(isinstance(block, TextContent) and not block.text for block in answer.content):
        return conversation
    return [*conversation, AssistantMessage(answer.content)]


def corrected(
    params: CreateMessageRequestParams, answer: CreateMessageResult, problem: str
) -> CreateMessageRequestParams:
    """The request that follows on an answer that does not fit: with error results for its calls, or a message of the user."""
    said = params.model_copy(update={"messages": continued(params.messages, answer)})
    if not (uses := answer.tool_uses):
        return _told(said, f"{problem[:1].upper()}{problem[1:].removesuffix('.')}. Answer again.")
    results = UserMessage([ToolResultContent.of(use, problem, is_error=True) for use in uses])
    return said.model_copy(update={"messages": [*said.messages, results]})


def _told(params: CreateMessageRequestParams, words: str) -> CreateMessageRequestParams:
    """The request with *words* of the user at its end: in the last message, if that is just a text of the user."""
    match params.messages[-1]:
        case UserMessage(content=[TextContent(text=text)]):
            messages = [*params.messages[:-1], UserMessage(f"{text}\n\n{words}")]
        case _:
            messages = [*params.messages, UserMessage(words)]
    return params.model_copy(update={"messages": messages})


def raw_text(answer: CreateMessageResult) -> str:
    """What the model wrote: the arguments of its calls, or its text."""
    return "\n".join([json.dumps(use.input) for use in answer.tool_uses]) or answer.text
