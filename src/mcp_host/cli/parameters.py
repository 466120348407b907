"""The parameters of a tool or prompt, from its JSON Schema: how they are listed, and how ``key=value`` is read for them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote

from pydantic_core import from_json

from mcp_host.cli.output import UsageError, compact, near
from mcp_host.errors import UncheckableSchema, excerpt, quoted

JsonSchema: TypeAlias = Mapping[str, Any]  # as the server wrote it: of any shape

# A schema may be hostile, and its list has to fit a screen.
MAX_PARAMETERS = 64  # listed
MAX_VALUES = 16  # listed of an enum
MAX_VALUE = 60  # characters of a value or a name
MAX_ALTERNATIVES = 16  # of one parameter
MAX_DEPTH = 8  # of references and alternatives inside of each other
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
}

EXPRESSION = re.compile(r"\{[^{}]*\}")  # RFC 6570: URI Template
SIMPLE_EXPRESSION = re.compile(r"\{(\+?)([\w.]+)\}")
RESERVED = ":/?#[]@!$&'()*+,;="  # RFC 3986: what {+name} leaves as it is

TYPES: Mapping[type, str] = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}


class Item(NamedTuple):
    """One argument on the command line: ``key=text``, or ``key:=json`` with the decoded *value*."""

    key: str
    value: object
    is_json: bool


class Parameter(NamedTuple):
    """One parameter. A value has to match one of the *alternatives*."""

    name: str
    required: bool
    schema: JsonSchema
    alternatives: Sequence[JsonSchema]

    @property
    def types(self) -> list[str]:
        """The JSON types that it takes; empty if it takes any."""
        found = [types_of(schema) for schema in self.alternatives]
        return list(dict.fromkeys(name for names in found for name in names)) if all(found) else []

    @property
    def kind(self) -> str:
        """Its types as one word or a few."""
        return excerpt(" or ".join(self.types) or "any", MAX_VALUE)

    @property
    def details(self) -> str:
        """What to know besides the type, as one line: the values to choose from, bounds, the default."""
        facts: dict[str, None] = {}
        for schema in self.alternatives:
            if choices := choices_of(schema):
                more = len(choices) - MAX_VALUES
                shown = ", ".join(map(_shown, choices[:MAX_VALUES])) + (f" and {more} more" if more > 0 else "")
                facts[shown if len(choices) == 1 else f"one of {shown}"] = None
            for keyword, text in BOUNDS.items():
                if keyword in schema:
                    facts[text.format(_shown(schema[keyword]))] = None
            if isinstance(format := schema.get("format"), str):
                facts[f"format {excerpt(format, MAX_VALUE)}"] = None
        if "default" in self.schema:
            facts[f"default {_shown(self.schema['default'])}"] = None
        return ", ".join(facts)

    @property
    def description(self) -> str:
        text = self.schema.get("description")
        return text if isinstance(text, str) else ""

    def read(self, items: Sequence[Item]) -> object:
        """The value of all *items* with this key. What does not fit stays as it is, for the check to name it.

        Raises:
            UsageError: There are several, and this takes no array.
        """
        arrays = [schema for schema in self.alternatives if "array" in (types_of(schema) or ["array"])]
        if len(items) == 1:
            return items[0].value if items[0].is_json else _read(str(items[0].value), self.alternatives)
        if not arrays:
            raise UsageError(f"{quoted(self.name)} is given {len(items)} times, and is no array")
        return [item.value if item.is_json else _read(str(item.value), _items_of(arrays)) for item in items]


def parameters(schema: JsonSchema) -> list[Parameter]:
    """The parameters in the properties of *schema*, the required ones first."""
    properties, required = schema.get("properties"), schema.get("required")
    needed = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
    found = [
        Parameter(name, name in needed, own if isinstance(own, dict) else {}, _alternatives(own, schema))
        for name, own in (properties.items() if isinstance(properties, dict) else ())
    ]
    return sorted(found, key=lambda parameter: not parameter.required)


def listing(found: Sequence[Parameter]) -> Iterator[str]:
    """One line for each parameter."""
    for parameter in found[:MAX_PARAMETERS]:
        needed = ", required" if parameter.required else ""
        details = f", {parameter.details}" if parameter.details else ""
        yield f"{excerpt(parameter.name, MAX_VALUE)}: {parameter.kind}{needed}{details}"
    if len(found) > MAX_PARAMETERS:
        yield f"and {len(found) - MAX_PARAMETERS} more"


def read_arguments(name: str, schema: JsonSchema, items: Sequence[Item]) -> dict[str, object]:
    """The arguments for the tool or prompt *name*, read and checked by its *schema*.

    Raises:
        UsageError: They do not match it. Further lines list the parameters.
    """
    found = parameters(schema)
    known = {parameter.name: parameter for parameter in found}
    given: dict[str, list[Item]] = {}
    for item in items:
        given.setdefault(item.key, []).append(item)
    arguments: dict[str, object] = {}
    try:
        for key, values in given.items():
            if key not in known and _is_closed(schema):
                raise UsageError(f"{quoted(name)} takes no argument {quoted(key)}{near(key, known)}")
            arguments[key] = known.get(key, Parameter(key, False, {}, [{}])).read(values)
        if missing := [parameter.name for parameter in found if parameter.required and parameter.name not in given]:
            raise UsageError(f"{quoted(name)} needs {', '.join(map(quoted, missing[:MAX_VALUES]))}")
        if (problem := _mismatch(schema, arguments)) is not None:
            raise UsageError(problem.removeprefix("$."))
    except UsageError as exc:
        raise UsageError("\n".join([str(exc), *(listing(found) if found else ("it takes no arguments",))])) from None
    return arguments


def filled_in(template: str, items: Sequence[Item]) -> str:
    """The URI that a resource *template* and its variables make. A URI without variables stays as it is.

    Raises:
        UsageError: Variables are missing or unknown, or the template has other expressions than {name} and {+name}.
    """
    names = [name for _, name in SIMPLE_EXPRESSION.findall(template)]
    if strange := EXPRESSION.findall(SIMPLE_EXPRESSION.sub("", template)):
        raise UsageError(f"the expression {quoted(strange[0])} of a template is not supported: give the whole URI")
    values = read_arguments(template, text_schema(names, required=names), items)

    def expand(found: re.Match[str]) -> str:
        return quote(str(values[found[2]]), safe=RESERVED if found[1] else "")

    return SIMPLE_EXPRESSION.sub(expand, template)


def text_schema(names: Iterable[str], *, required: Iterable[str]) -> JsonSchema:
    """The schema of arguments that are text: those of prompts and templates."""
    return {"properties": {name: {"type": "string"} for name in names}, "required": list(required)}


def _mismatch(schema: JsonSchema, arguments: Mapping[str, object]) -> str | None:
    from mcp_host.json_schema.schema import Schema  # takes a tenth of a second

    try:
        return Schema(schema).mismatch(arguments, steps=STEPS)
    except UncheckableSchema:
        return None  # the server checks them


def _is_closed(schema: JsonSchema) -> bool:
    """Whether other arguments than those of *schema* are probably mistakes, though JSON Schema allows them by default."""
    return "properties" in schema and not schema.get("additionalProperties") and not schema.get("patternProperties")


# Reading one value


def _read(text: str, alternatives: Sequence[JsonSchema]) -> object:
    """*text* as a value of one of the *alternatives*: as it is if one of them takes text, or else read as JSON.

    What is no JSON stays text. A single item stands for an array of it.
    """
    try:
        value: object = from_json(text if text[:1] in "[{" else text.lower(), allow_inf_nan=False)
    except ValueError:
        value = text
    for candidate in (text, value):
        if any(_is_choice(candidate, choices_of(schema)) for schema in alternatives):
            return candidate
    types = [name for schema in alternatives for name in types_of(schema) or ["string"]]
    if "string" in types:
        return text
    return [_read(text, _items_of(alternatives))] if "array" in types and type_of(value) not in types else value


def _is_choice(value: object, choices: Sequence[object]) -> bool:
    return any(value == choice and isinstance(value, bool) == isinstance(choice, bool) for choice in choices)


def types_of(schema: JsonSchema) -> list[str]:
    """The JSON types that *schema* takes, without alternatives; empty if it takes any."""
    types = schema.get("type")
    if isinstance(types, str):
        return [types]
    if isinstance(types, list):
        return [name for name in types if isinstance(name, str)]
    return list(dict.fromkeys(map(type_of, choices_of(schema))))


def choices_of(schema: JsonSchema) -> list[object]:
    """The values that *schema* lists; empty if it takes others, too."""
    choices = [schema["const"]] if "const" in schema else schema.get("enum")
    return choices if isinstance(choices, list) else []


def type_of(value: object) -> str:
    """The JSON type of a decoded *value*."""
    return "null" if value is None else TYPES.get(type(value), "object")


def _items_of(alternatives: Sequence[JsonSchema]) -> list[JsonSchema]:
    return [item for schema in alternatives if isinstance(item := schema.get("items"), dict)] or [{}]


def _shown(value: object) -> str:
    return excerpt(compact(value), MAX_VALUE)


# Alternatives and references


def _alternatives(schema: object, root: JsonSchema) -> list[JsonSchema]:
    return list(islice(_flattened(schema, root, MAX_DEPTH), MAX_ALTERNATIVES)) or [{}]


def _flattened(schema: object, root: JsonSchema, depth: int) -> Iterator[JsonSchema]:
    """The schemas without ``$ref`` and ``anyOf`` that together stand for *schema*."""
    if not isinstance(schema, dict) or not depth:
        yield {}
        return
    if isinstance(reference := schema.get("$ref"), str):
        schema = {**_resolved(reference, root), **{key: part for key, part in schema.items() if key != "$ref"}}
        yield from _flattened(schema, root, depth - 1)
        return
    for keyword in ("anyOf", "oneOf", "allOf"):
        if isinstance(parts := schema.get(keyword), list) and parts and (keyword != "allOf" or len(parts) == 1):
            own = {key: part for key, part in schema.items() if key != keyword}
            for part in parts:
                yield from _flattened({**own, **(part if isinstance(part, dict) else {})}, root, depth - 1)
            return
    yield schema


def _resolved(reference: str, root: JsonSchema) -> JsonSchema:
    """What a reference such as ``#/$defs/Color`` stands for; empty if it leads nowhere here."""
    found: object = root
    for part in reference.removeprefix("#").split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) and reference.startswith("#") else {}
