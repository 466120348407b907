"""The parameters of a tool or prompt, from its JSON Schema: how they are listed, and how ``key=value`` is read for them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote

from pydantic_core import from_json

from mcp_host.cli.output import UsageError, as_json, near
from mcp_host.errors import UncheckableSchema, excerpt, quoted
from mcp_host.json_schema.integers import with_integers
from mcp_host.terminal.fields import CHOICES_SHOWN, Field, compact, read_fields
from mcp_host.terminal.text import NAME_SHOWN
from mcp_host.types import Prompt

JsonSchema: TypeAlias = Mapping[str, Any]  # as the server wrote it: of any shape

MAX_PARAMETERS = 64  # listed
MAX_CHOICES = 64  # listed of one parameter
MAX_NAMES = 16  # listed in one sentence
STEPS = 20_000  # to check arguments: a tenth of a second

BOUNDS: Mapping[str, str] = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "format": "format {}",
}

EXPRESSION = re.compile(r"\{[^{}]*\}")  # RFC 6570: URI Template
SIMPLE_EXPRESSION = re.compile(r"\{(\+?)([\w.]+)\}")
RESERVED = ":/?#[]@!$&'()*+,;="  # RFC 3986: what {+name} leaves as it is

TEXT: JsonSchema = {"type": "string"}
OTHER = Field("", {}, required=False, kinds=(), choices=None)
"""A parameter that is not in the schema."""


class Item(NamedTuple):
    """One argument on the command line: ``key=text``, or ``key:=json`` with the decoded *value*."""

    key: str
    value: object
    is_json: bool


def parameters(schema: JsonSchema) -> list[Field]:
    """The parameters of *schema*, the required ones first."""
    return sorted(read_fields(schema), key=lambda field: not field.required)


def listing(fields: Sequence[Field]) -> Iterator[str]:
    """One line for each parameter."""
    for field in fields[:MAX_PARAMETERS]:
        yield f"{excerpt(field.name, NAME_SHOWN)}: {', '.join(details(field))}"
    if len(fields) > MAX_PARAMETERS:
        yield f"and {len(fields) - MAX_PARAMETERS} more"


def details(field: Field, *, in_signature: bool = False) -> list[str]:
    """What to know of a parameter besides its description; less if a signature has told some of it."""
    schema = field.schema
    found = [] if in_signature else [field.type, *(["required"] if field.required else [])]
    if field.choices is not None and len(field.choices) > CHOICES_SHOWN:
        found.append(f"one of {' | '.join([compact(choice.value) for choice in field.choices[:MAX_CHOICES]])}")
    found += [text.format(compact(schema[keyword])) for keyword, text in BOUNDS.items() if keyword in schema]
    if "default" in schema and not in_signature:
        found.append(f"default {compact(schema['default'])}")
    return found


def read_arguments(name: str, schema: JsonSchema, items: Sequence[Item]) -> dict[str, object]:
    """The arguments for the tool or prompt *name*, read and checked by its *schema*.

    Raises:
        UsageError: They do not match it. Further lines list the parameters.
    """
    fields = parameters(schema)
    known = {field.name: field for field in fields}
    given: dict[str, list[Item]] = {}
    for item in items:
        given.setdefault(item.key, []).append(item)
    arguments: dict[str, object] = {}
    try:
        for key, values in given.items():
            if key not in known and _is_closed(schema):
                raise UsageError(f"{quoted(name)} takes no argument {quoted(key)}{near(key, known)}")
            arguments[key] = _value(key, values, known.get(key, OTHER))
        if missing := [field.name for field in fields if field.required and field.name not in given]:
            raise UsageError(f"{quoted(name)} needs {', '.join(map(quoted, missing[:MAX_NAMES]))}")
        if (problem := _mismatch(schema, arguments)) is not None:
            raise UsageError(problem.removeprefix("$."))
    except UsageError as exc:
        raise UsageError("\n".join([str(exc), *(listing(fields) if fields else ["it takes no arguments"])])) from None
    return with_integers(schema, arguments)


def filled_in(template: str, items: Sequence[Item]) -> str:
    """The URI that a resource *template* and its variables make. A URI without variables stays as it is.

    Raises:
        UsageError: Variables are missing or unknown, or the template has other expressions than {name} and {+name}.
    """
    names = [name for _, name in SIMPLE_EXPRESSION.findall(template)]
    if strange := EXPRESSION.findall(SIMPLE_EXPRESSION.sub("", template)):
        raise UsageError(f"the expression {quoted(strange[0])} of a template is not supported: give the whole URI")
    schema = {"properties": dict.fromkeys(names, TEXT), "required": names}
    values = read_arguments(template, schema, items)

    def expand(found: re.Match[str]) -> str:
        return quote(str(values[found[2]]), safe=RESERVED if found[1] else "")

    return SIMPLE_EXPRESSION.sub(expand, template)


def prompt_schema(prompt: Prompt) -> JsonSchema:
    """The schema of a prompt's arguments, which are text."""
    arguments = prompt.arguments or []
    properties = {argument.name: {**TEXT, "description": argument.description or ""} for argument in arguments}
    return {"properties": properties, "required": [argument.name for argument in arguments if argument.required]}


def _mismatch(schema: JsonSchema, arguments: Mapping[str, object]) -> str | None:
    from mcp_host.json_schema.schema import Schema  # takes a tenth of a second

    try:
        return Schema(schema).mismatch(arguments, steps=STEPS)
    except UncheckableSchema:
        return None  # the server checks them


def _is_closed(schema: JsonSchema) -> bool:
    """Whether other arguments than those of *schema* are probably mistakes, though JSON Schema allows them by default."""
    return "properties" in schema and not schema.get("additionalProperties") and not schema.get("patternProperties")


def _value(key: str, items: Sequence[Item], field: Field) -> object:
    """The value of all *items* with this *key*. What does not fit stays as it is: the check names it."""
    if len(items) == 1:
        return items[0].value if items[0].is_json else _read(str(items[0].value), field)
    if field.kinds and "array" not in field.kinds:
        raise UsageError(f"{quoted(key)} is given {len(items)} times, and is no array")
    return [item.value if item.is_json else _read(str(item.value), _item_of(field)) for item in items]


def _read(text: str, field: Field) -> object:
    """*text* as it is if *field* takes text, or else read as JSON. What is no JSON stays text, and a single item is an array of it."""
    try:
        value: object = from_json(text if text[:1] in "[{" else text.lower(), allow_inf_nan=False)
    except ValueError:
        value = text
    is_array, is_text = "array" in field.kinds, "string" in field.kinds
    if field.choices is not None and not is_array:
        values = [as_json(choice.value) for choice in field.choices]
        for candidate in (text, value):
            if as_json(candidate) in values:
                return candidate
    if is_text or not field.kinds:
        return text
    return [_read(text, _item_of(field))] if is_array and not isinstance(value, list) else value


def _item_of(field: Field) -> Field:
    """An item of an array."""
    (item,) = read_fields({"properties": {field.name: field.schema.get("items")}})
    return item
