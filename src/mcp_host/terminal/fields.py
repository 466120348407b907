"""The properties of a JSON Schema in words for a person: the parameters of a tool, the fields of a form.

Schemas come from servers. What is not understood is shown as "any", and texts are neither cut nor escaped here,
except in signatures.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mcp_host.errors import excerpt
from mcp_host.json_schema.references import target
from mcp_host.terminal.text import NAME_SHOWN

VALUE_SHOWN = 40  # characters of a default value or a choice
CHOICES_SHOWN = 6
PARAMETERS_SHOWN = 12

ALTERNATIVES = ("anyOf", "oneOf", "allOf")
MAX_DEPTH = 4  # references and alternatives inside of each other: a hostile schema may refer to itself
MAX_INLINED = 8  # alternatives of one schema
FIELDS_INLINED = 64  # of one schema: more than a tool has; a hostile one may have thousands


@dataclass(frozen=True, slots=True)
class Choice:
    """A value that a field may have, and the *name* that the schema gives it."""

    value: object
    name: object = None

    @property
    def title(self) -> str:
        """What to show for it."""
        return _text(self.name) or (self.value if isinstance(self.value, str) else compact(self.value))


@dataclass(frozen=True, slots=True)
class Field:
    """One property. *kinds* are the types that its value may have, without null; none if the schema does not say.

    *choices* are the only possible values, or those of the items if the value is a list; None if it is free.
    """

    name: str
    schema: Mapping[str, Any]
    required: bool
    kinds: tuple[str, ...]
    choices: Sequence[Choice] | None

    @property
    def title(self) -> str:
        return _text(self.schema.get("title")) or self.name

    @property
    def description(self) -> str | None:
        return _text(self.schema.get("description"))

    @property
    def default(self) -> object:
        """None if there is no default."""
        return self.schema.get("default")

    @property
    def type(self) -> str:
        """The type in a few words, escaped: `string`, `"a" | "b"`, `array of integer`."""
        kinds = [excerpt(kind, VALUE_SHOWN) for kind in self.kinds]
        if self.choices is not None:
            shown = " | ".join([compact(choice.value) for choice in self.choices[:CHOICES_SHOWN]])
            hidden = len(self.choices) - CHOICES_SHOWN
            several = f"{shown} | {hidden} more" if hidden > 0 else shown
            return f"array of {several}" if self.kinds == ("array",) else several
        if self.kinds == ("array",):
            items = _kinds(self.schema.get("items"))
            return f"array of {' | '.join([excerpt(kind, VALUE_SHOWN) for kind in items])}" if items else "array"
        return " | ".join(kinds) or "any"


def read_fields(schema: object) -> list[Field]:
    """The properties of the schema of an object, in order."""
    return list(each_field(schema))


def each_field(schema: object) -> Iterator[Field]:
    """As `read_fields`, one by one."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    required = schema.get("required") if isinstance(schema, dict) else None
    names = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
    for index, (name, part) in enumerate(properties.items() if isinstance(properties, dict) else ()):
        field = _inlined(part, schema, MAX_DEPTH if index < FIELDS_INLINED else 0)
        yield Field(name, field, name in names, _kinds(field), _choices(field))


def _inlined(schema: object, root: object, depth: int) -> Mapping[str, Any]:
    """*schema* with what its references stand for. Its only alternative besides null takes the place of the alternatives."""
    if not isinstance(schema, dict) or not depth:
        return schema if isinstance(schema, dict) else {}
    if isinstance(reference := schema.get("$ref"), str):
        return _inlined({**target(reference, root), **_without(schema, "$ref")}, root, depth - 1)
    for keyword in ALTERNATIVES:
        if isinstance(parts := schema.get(keyword), list):
            inlined = [_inlined(part, root, depth - 1) for part in parts[:MAX_INLINED]]
            meant = [part for part in inlined if part.get("type") != "null"]
            if len(meant) == 1 and len(parts) <= MAX_INLINED:
                return {**meant[0], **_without(schema, keyword)}
            schema = {**schema, keyword: [*inlined, *parts[MAX_INLINED:]]}
    return {**schema, "items": _inlined(schema["items"], root, depth - 1)} if "items" in schema else schema


def _without(schema: Mapping[str, Any], keyword: str) -> dict[str, Any]:
    return {key: part for key, part in schema.items() if key != keyword}


def signature(name: str, fields: Sequence[Field]) -> str:
    """A call in the style of a programming language, escaped: ``add(a: number, b: number = 1, exact?: boolean)``."""
    shown = ", ".join(map(_parameter, fields[:PARAMETERS_SHOWN]))
    hidden = len(fields) - PARAMETERS_SHOWN
    return f"{excerpt(name, NAME_SHOWN)}({shown}{f', {hidden} more' if hidden > 0 else ''})"


def _parameter(field: Field) -> str:
    name = excerpt(field.name, NAME_SHOWN)
    if field.default is not None:
        return f"{name}: {field.type} = {compact(field.default)}"
    return f"{name}{'' if field.required else '?'}: {field.type}"


def compact(value: object, limit: int = VALUE_SHOWN) -> str:
    """A value as JSON on one line, escaped and cut."""
    return excerpt(json.dumps(value, ensure_ascii=False), limit)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _kinds(schema: object) -> tuple[str, ...]:
    """The types that a schema names itself or in its alternatives, without null."""
    if not isinstance(schema, dict):
        return ()
    kinds = schema.get("type")
    if kinds is None:
        parts = [part for part in _alternatives(schema) if isinstance(part, dict)]
        found = [kind for part in parts for kind in _names(part.get("type"))]
    else:
        found = _names(kinds)
    return tuple(dict.fromkeys(kind for kind in found if kind != "null"))


def _names(kinds: object) -> list[str]:
    return [kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if isinstance(kind, str)]


def _choices(schema: Mapping[str, Any]) -> list[Choice] | None:
    """The values to choose from, of the field or of its items: ``enum`` with or without ``enumNames``, titled constants."""
    if "array" in _kinds(schema) and isinstance(schema.get("items"), dict):
        schema = schema["items"]
    values, titles = schema.get("enum"), schema.get("enumNames")
    if isinstance(values, list):
        named = titles if isinstance(titles, list) and len(titles) == len(values) else values
        return list(map(Choice, values, named))
    parts = list(_alternatives(schema))
    if parts and all(isinstance(part, dict) and "const" in part for part in parts):
        return [Choice(part["const"], part.get("title")) for part in parts]
    return [Choice(schema["const"])] if "const" in schema else None


def _alternatives(schema: Mapping[str, Any]) -> Iterator[Any]:
    for keyword in ("oneOf", "anyOf"):
        parts = schema.get(keyword)
        if isinstance(parts, list):
            yield from parts
