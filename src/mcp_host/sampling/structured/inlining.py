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

MAX_PARTS = 2_000  # subschemas of the result, see `weight`: references that double at each level would make it huge
MAX_LEVELS = 100  # of subschemas in one another in the result: each takes three frames of Python's stack
WEIGHED = 256  # characters of texts and values that count as a subschema
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
    """The result would have too many subschemas, or be too deep."""


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
            targets[reference] = target_of(schema, reference)
            found = list(islice(_subschemas(targets[reference]), room))
            if (room := room - len(found)) <= 0:
                raise ValueError("its references lead to much more than it has itself")
            leads_to[reference] = _references(found)
            todo |= leads_to[reference]
    if len(targets) <= MAX_REFERENCES:
        cyclic = _leading_back(leads_to)
        with suppress(_TooLarge):
            return _Writer(targets, cyclic, MAX_PARTS, MAX_LEVELS).root(schema)
    return _Writer(targets, targets.keys(), math.inf, math.inf).root(schema)


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


def weight(part: Schema) -> int:
    """How much a copy of a subschema takes without those inside of it: 1, and more if its texts and values are long."""
    values = [value for name, value in part.items() if name not in SUBSCHEMAS and name not in NAMED_SUBSCHEMAS]
    return 1 + len(str(values)) // WEIGHED


def _references(parts: Iterable[Schema]) -> set[str]:
    return {part["$ref"] for part in parts if isinstance(part.get("$ref"), str)}


def _leading_back(leads_to: Mapping[str, Set[str]]) -> set[str]:
    """The references that lead to themselves, if they and what they lead to are followed: Warshall's algorithm, with bits."""
    bits = {reference: 1 << number for number, reference in enumerate(leads_to)}
    reached = {reference: sum(bits[found] for found in led) for reference, led in leads_to.items()}
    for through, bit in bits.items():
        for reference, mask in reached.items():
            if mask & bit:
                reached[reference] = mask | reached[through]
    return {reference for reference, bit in bits.items() if reached[reference] & bit}


def target_of(schema: Schema, reference: str) -> object:
    """What a JSON pointer such as ``#/$defs/Pet`` points at.

    Raises:
        ValueError: There is no schema.
    """
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

    def __init__(self, targets: Mapping[str, Any], kept: Set[str], most: float, deepest: float) -> None:
        self._targets = targets
        self._kept = kept
        self._room = most
        self._deepest = deepest
        self._names: dict[str, str] = {}
        self._definitions: dict[str, Any] = {}
        self._pending: list[str] = []  # not written at once: definitions that lead to others would nest

    def root(self, schema: Schema) -> Schema:
        written = self._write(schema, 0)
        while self._pending:
            reference = self._pending.pop()
            self._definitions[self._names[reference]] = self._write(self._targets[reference], 0)
        if isinstance(written, bool):
            return {} if written else {"not": {}}
        if (reference := written.pop("$ref", None)) is not None:  # "inputSchema" has to have a type itself
            written = _both(self._definitions[reference.removeprefix("#/$defs/")], written)
        return {**written, "$defs": self._definitions} if self._definitions else written

    def _write(self, part: Any, level: int) -> Any:
        if not isinstance(part, dict):
            return part
        self._room -= weight(part)
        if self._room < 0 or level > self._deepest:
            raise _TooLarge
        dropped = ("$ref", "discriminator", *DEFINITIONS)  # OpenAPI's discriminator has references, too
        written = {name: self._value(name, value, level) for name, value in part.items() if name not in dropped}
        reference = part.get("$ref")
        if reference is None:
            return written
        if reference in self._kept:
            return {"$ref": f"#/$defs/{self._define(reference)}", **written}
        return _both(self._write(self._targets[reference], level + 1), written)

    def _value(self, name: str, value: Any, level: int) -> Any:
        if name in NAMED_SUBSCHEMAS and isinstance(value, dict):
            return {key: self._write(part, level + 1) for key, part in value.items()}
        if name in SUBSCHEMAS:
            if isinstance(value, list):
                return [self._write(part, level + 1) for part in value]
            return self._write(value, level + 1)
        return value

    def _define(self, reference: str) -> str:
        """The name of the definition that a kept reference leads to."""
        if reference not in self._names:
            name = re.sub(r"\W", "_", reference.rpartition("/")[2].removeprefix("#")) or "root"
            while name in self._definitions:
                name += "_"
            self._names[reference] = name
            self._definitions[name] = {}  # taken
            self._pending.append(reference)
        return self._names[reference]


def _both(target: Any, siblings: Schema) -> Any:
    """A schema that requires what *target* and the keywords beside the reference to it require."""
    if not siblings:
        return target
    if isinstance(target, dict) and siblings.keys() <= ANNOTATIONS:
        return {**target, **siblings}
    return {**siblings, "allOf": [target, *siblings.get("allOf", ())]}
