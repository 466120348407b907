"""JSON Schemas without references, for models and hosts that do not follow them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import suppress
from itertools import islice
from typing import Any, TypeAlias
from urllib.parse import unquote

from mcp_host.errors import quoted

Schema: TypeAlias = dict[str, Any]

MAX_PARTS = 2_000  # subschemas of the result: references that double at each level would make it huge
MAX_REFERENCES = 200  # different ones that are followed: which of them are part of a cycle takes quadratic time

SUBSCHEMAS = frozenset(
    {
        *("additionalItems", "additionalProperties", "allOf", "anyOf", "contains", "contentSchema", "else", "if"),
        *("items", "not", "oneOf", "prefixItems", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties"),
    }
)
"""Keywords with a subschema, or with a list of them."""

DEFINITIONS = ("$defs", "definitions")
NAMED_SUBSCHEMAS = frozenset({"dependentSchemas", "patternProperties", "properties", *DEFINITIONS})
"""Keywords with subschemas by name."""

ANNOTATIONS = frozenset(
    {"$comment", "default", "deprecated", "description", "examples", "readOnly", "title", "writeOnly"}
)
ADDRESSES = frozenset({"$anchor", "$dynamicAnchor", "$dynamicRef", "$id", "$recursiveAnchor", "$recursiveRef"})
SIBLINGS_COUNT = ("https://json-schema.org/draft/2020-12/schema", "https://json-schema.org/draft/2019-09/schema")
"""The dialects in which keywords beside ``$ref`` apply, too."""


class _TooLarge(Exception):
    """The result would have too many subschemas."""


def inlined(schema: Schema) -> Schema:
    """The same schema, with each reference replaced by what it refers to.

    References that are part of a cycle remain, to ``$defs``; so do all, if they are many, or there would be too many copies.
    A schema with anchors, with ``$id``, or of an older dialect is returned as it is.

    Raises:
        ValueError: A reference leads out of the schema, or nowhere. Nothing is fetched. Or what they lead to is, all together,
            much larger than the schema.
    """
    parts = list(_subschemas(schema, definitions=True))
    references = _references(parts)
    addresses = any(not ADDRESSES.isdisjoint(part) for part in parts)
    if remote := [reference for reference in references if not reference.startswith("#") and not addresses]:
        raise ValueError(f"the schema refers to {quoted(remote[0])}, and nothing is fetched")
    if not references or addresses or schema.get("$schema", SIBLINGS_COUNT[0]) not in SIBLINGS_COUNT:
        return schema
    targets: dict[str, Any] = {}
    leads_to: dict[str, set[str]] = {}
    todo = references
    room = MAX_PARTS + 2 * len(parts)
    while todo:
        reference = todo.pop()
        if reference not in targets:
            targets[reference] = _target(schema, reference)
            found = list(islice(_subschemas(targets[reference]), room))
            if (room := room - len(found)) <= 0:
                raise ValueError("its references lead to much more than it has itself")
            leads_to[reference] = _references(found)
            todo |= leads_to[reference]
    if len(targets) <= MAX_REFERENCES:
        cyclic = {ref for ref in targets if ref in _reachable(ref, leads_to)}
        with suppress(_TooLarge):
            return _Writer(targets, cyclic, MAX_PARTS).root(schema)
    return _Writer(targets, targets.keys(), math.inf).root(schema)


def _subschemas(schema: object, *, definitions: bool = False) -> Iterator[Schema]:
    """The schema and those inside of it, but for those under ``$defs`` without *definitions*."""
    todo = [schema]
    while todo:
        part = todo.pop()
        if not isinstance(part, dict):
            continue
        yield part
        for name, value in part.items():
            if name in NAMED_SUBSCHEMAS and isinstance(value, dict) and (definitions or name not in DEFINITIONS):
                todo += value.values()
            elif name in SUBSCHEMAS:
                todo += value if isinstance(value, list) else [value]


def _references(parts: Iterable[Schema]) -> set[str]:
    return {part["$ref"] for part in parts if isinstance(part.get("$ref"), str)}


def _reachable(reference: str, leads_to: Mapping[str, Set[str]]) -> set[str]:
    reached: set[str] = set()
    todo = set(leads_to[reference])
    while todo:
        reached.add(found := todo.pop())
        todo |= leads_to[found] - reached
    return reached


def _target(schema: Schema, reference: str) -> object:
    """What a JSON pointer such as ``#/$defs/Pet`` points at."""
    found: Any = schema
    first, *tokens = unquote(reference[1:]).split("/")
    try:
        if first:
            raise KeyError(first)
        for token in tokens:
            found = found[int(token) if isinstance(found, list) else token.replace("~1", "/").replace("~0", "~")]
        if not isinstance(found, dict | bool):
            raise TypeError(found)
    except (LookupError, TypeError, ValueError):
        raise ValueError(f"the schema refers to {quoted(reference)}, which it does not have") from None
    return found


class _Writer:
    """Writes a schema without references, but for those *kept*."""

    def __init__(self, targets: Mapping[str, Any], kept: Set[str], most: float) -> None:
        self._targets = targets
        self._kept = kept
        self._room = most
        self._names: dict[str, str] = {}
        self._definitions: dict[str, Any] = {}

    def root(self, schema: Schema) -> Schema:
        written = self._write(schema)
        if isinstance(written, bool):
            return {} if written else {"not": {}}
        if (reference := written.pop("$ref", None)) is not None:  # "inputSchema" has to have a type itself
            written = _both(self._definitions[reference.removeprefix("#/$defs/")], written)
        return {**written, "$defs": self._definitions} if self._definitions else written

    def _write(self, part: Any) -> Any:
        if not isinstance(part, dict):
            return part
        self._room -= 1
        if self._room < 0:
            raise _TooLarge
        dropped = ("$ref", "discriminator", *DEFINITIONS)  # OpenAPI's discriminator has references, too
        written = {name: self._value(name, value) for name, value in part.items() if name not in dropped}
        reference = part.get("$ref")
        if reference is None:
            return written
        if reference in self._kept:
            return {"$ref": f"#/$defs/{self._define(reference)}", **written}
        return _both(self._write(self._targets[reference]), written)

    def _value(self, name: str, value: Any) -> Any:
        if name in NAMED_SUBSCHEMAS and isinstance(value, dict):
            return {key: self._write(part) for key, part in value.items()}
        if name in SUBSCHEMAS:
            return [self._write(part) for part in value] if isinstance(value, list) else self._write(value)
        return value

    def _define(self, reference: str) -> str:
        """The name of the definition that a kept reference leads to."""
        if reference not in self._names:
            name = re.sub(r"\W", "_", reference.rpartition("/")[2].removeprefix("#")) or "root"
            while name in self._definitions:
                name += "_"
            self._names[reference] = name
            self._definitions[name] = {}  # taken
            self._definitions[name] = self._write(self._targets[reference])
        return self._names[reference]


def _both(target: Any, siblings: Schema) -> Any:
    """A schema that requires what *target* and the keywords beside the reference to it require."""
    if not siblings:
        return target
    if isinstance(target, dict) and siblings.keys() <= ANNOTATIONS:
        return {**target, **siblings}
    return {**siblings, "allOf": [target, *siblings.get("allOf", ())]}
