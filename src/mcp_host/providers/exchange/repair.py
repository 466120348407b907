"""What servers call JSON Schemas, as valid schemas of 2020-12 whose references lead to their own ``$defs``.

Servers write other dialects, and mistakes. `VALUES` says for each keyword how its value is read. What cannot be read, and
says something, goes into the description. These spellings become those of 2020-12:

=====================================  ===========================================================
``items: [...]``, ``additionalItems``  ``prefixItems`` and ``items``
``exclusiveMinimum: true``             the minimum, under this name; the same for the maximum
``required: true`` of a property       its name in ``required`` of the object
``dependencies``                       ``dependentRequired`` and ``dependentSchemas``
``divisibleBy``                        ``multipleOf``
``definitions``                        ``$defs``
``$dynamicRef``, ``$recursiveRef``     ``$ref``
``type: "STRING"``, ``"int"``          the name of the type; ``"any"`` allows all of them
``"string"`` in place of a schema      ``{"type": "string"}``
``true`` in place of a schema          ``{}``; ``false`` becomes ``{"not": {}}``
=====================================  ===========================================================
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from mcp_host.limits import LARGEST
from mcp_host.sampling.structured.inlining import (
    ADDRESSES,
    DEFINITIONS,
    MAX_LEVELS,
    SUBSCHEMAS,
    WEIGHED,
    target_of,
    weight,
)

Schema: TypeAlias = dict[str, Any]

MAX_MORE = (
    2_000  # subschemas beyond twice those of the schema: a part that many references lead into is written for each
)
MAX_PATTERNS = 4_096  # characters of all patterns of a schema: compiling them takes some milliseconds

REFERENCES = ("$recursiveRef", "$dynamicRef", "$ref")
NOT_WRITTEN = frozenset(
    {*ADDRESSES, *DEFINITIONS, "$schema", "$vocabulary", "additionalItems", "dependencies", "divisibleBy"}
)
"""Keywords that others replace."""
BY_NAME = frozenset({"dependentSchemas", "patternProperties", "properties"})
ALTERNATIVES = frozenset({"allOf", "anyOf", "oneOf"})
OPEN = ("additionalProperties", "unevaluatedItems", "unevaluatedProperties")
"""Keywords in which all providers take true and false."""

EXCLUSIVE = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}

ANY_TYPE = frozenset({"", "*", "any", "mixed", "unknown"})
NAMES = ("array", "boolean", "integer", "null", "number", "object", "string")
TYPES = {
    **dict(zip(NAMES, NAMES, strict=True)),
    **dict.fromkeys(("bool",), "boolean"),
    **dict.fromkeys(("dict", "map"), "object"),
    **dict.fromkeys(("double", "float"), "number"),
    **dict.fromkeys(("int", "long"), "integer"),
    **dict.fromkeys(("list",), "array"),
    **dict.fromkeys(("nil", "none"), "null"),
    **dict.fromkeys(("str",), "string"),
}
"""The types by the names that servers write, in lower case."""

# Patterns are those of ECMA-262, and Anthropic compiles them with Python's `re`: these are of Python only.
OF_PYTHON = re.compile(r"\(\?(?![:=!]|<[=!])|\\[AZ]")


class _Unusable(Exception):
    """A value that its keyword cannot have."""


def repaired(schema: Schema) -> Schema:
    """*schema* as a valid schema of 2020-12, without ``$schema``, ``$id`` and anchors. Nothing is fetched.

    Raises:
        ValueError: It is nested too deep, or its references lead to much more than it has itself.
    """
    return _Repair(schema).root()


def noted(part: Schema, words: str, told: object) -> str:
    """The description of *part*, and after it in *words* what keywords cannot say."""
    note = f"{words}: {json.dumps(told, ensure_ascii=False)}"
    return "\n".join(filter(None, [part.get("description"), note]))


class _Repair:
    """Writes one schema."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._addresses, size = _addresses(schema)
        self._room = MAX_MORE + 2 * size
        self._pattern_room = MAX_PATTERNS
        self._names: dict[int, str] = {}  # of definitions, by the id of what references lead to
        self._numbers: dict[str, int] = {}  # the last one of equal names, so that a thousand of them take linear time
        self._pending: list[tuple[str, object]] = []

    def root(self) -> Schema:
        written = self._write(self._schema, 0)
        definitions: Schema = {}
        while self._pending:
            name, target = self._pending.pop()
            definitions[name] = self._write(target, 0)
        return {**written, "$defs": definitions} if definitions else written

    def _write(self, part: object, level: int) -> Schema:
        """One subschema.

        Raises:
            _Unusable: It is none.
        """
        if not isinstance(part, dict):
            return {"type": _type(part)} if not isinstance(part, bool) else {} if part else {"not": {}}
        self._room -= weight(part)
        if level > MAX_LEVELS:
            raise ValueError("it is nested too deep")
        if self._room < 0:
            raise ValueError("its references lead to much more than it has itself")
        written: Schema = {}
        told: Schema = {}
        for name, value in _modern(part).items():
            try:
                written[name] = self._value(name, value, level)
            except _Unusable:
                if _says_something(name, value):
                    told[name] = value
        if isinstance(patterns := written.get("patternProperties"), dict):
            written["patternProperties"], other = self._compiled(patterns)
            told |= other
        if told:
            written["description"] = noted(written, "The server's schema also says", told)
        return written

    def _value(self, name: str, value: object, level: int) -> object:
        """The value of a keyword.

        Raises:
            _Unusable: It cannot be read.
        """
        if name == "$ref":
            return f"#/$defs/{self._definition(value)}"
        if name == "pattern":
            return self._pattern(value)
        if name in BY_NAME:
            return {key: self._member(child, level) for key, child in _object(value).items()}
        if name == "prefixItems":
            return [self._member(child, level) for child in _filled(value)]
        if name in ALTERNATIVES:
            listed = [value] if isinstance(value, dict) else _filled(value)
            return _filled([self._write(child, level + 1) for child in listed if isinstance(child, dict | bool | str)])
        if name in OPEN and (flag := _flag_of(value)) is not None:
            return flag
        if name in SUBSCHEMAS:
            return self._write(value, level + 1)
        read: Callable[[Any], object] = VALUES.get(name, _json)
        return read(value)

    def _member(self, part: object, level: int) -> Schema:
        """A subschema whose place stays, even if it is none."""
        try:
            return self._write(part, level + 1)
        except _Unusable:
            return {"description": noted({}, "The server's schema", part)} if _says_something("", part) else {}

    def _pattern(self, value: object) -> str:
        source = _text(value)
        self._pattern_room -= len(source)
        if self._pattern_room < 0 or not _compiles(source):
            raise _Unusable
        return source

    def _compiled(self, patterns: Schema) -> tuple[Schema, Schema]:
        """The properties whose patterns compile, and the keyword with the others."""
        good: Schema = {}
        other: Schema = {}
        for source, part in patterns.items():
            try:
                good[self._pattern(source)] = part
            except _Unusable:
                other[source] = part
        return good, {"patternProperties": other} if other else {}

    def _definition(self, reference: object) -> str:
        """The name of the definition that *reference* leads to."""
        target = self._target(_text(reference))
        if (name := self._names.get(id(target))) is None:
            last = re.split("[/#]", str(reference))[-1]
            name = re.sub("[^A-Za-z0-9_.-]", "_", last)[:64] or "root"
            number = self._numbers[name] = self._numbers.get(name, 0) + 1
            while number > 1 and f"{name}_{number}" in self._numbers:
                number = self._numbers[name] = number + 1
            name = name if number == 1 else f"{name}_{number}"
            self._numbers.setdefault(name, 1)
            self._names[id(target)] = name
            self._pending.append((name, target))
        return name

    def _target(self, reference: str) -> object:
        if (found := self._addresses.get(reference)) is not None:
            return found
        document, _, fragment = reference.partition("#")
        if (resource := self._addresses.get(document)) is None:
            raise _Unusable
        try:
            return target_of(resource, f"#{fragment}")
        except ValueError:
            raise _Unusable from None


def _addresses(schema: Schema) -> tuple[dict[str, Schema], int]:
    """The schemas that have an address, such as ``#anchor``, and the `weight` of all objects in *schema* together."""
    found = {"": schema}
    todo: list[object] = [schema]
    size = len(str(schema)) // WEIGHED
    while todo:
        part = todo.pop()
        if isinstance(part, dict):
            size += 1
            for keyword, mark in (("$id", ""), ("$anchor", "#"), ("$dynamicAnchor", "#")):
                if isinstance(name := part.get(keyword), str):
                    found.setdefault(f"{mark}{name.removesuffix('#')}", part)
            todo += part.values()
        elif isinstance(part, list):
            todo += part
    return found, size


def _modern(part: Schema) -> Schema:
    """The keywords of a subschema in the spelling of 2020-12. Their values are not checked."""
    written = {name: value for name, value in part.items() if name not in NOT_WRITTEN}
    for keyword in REFERENCES:
        if keyword in part:
            written["$ref"] = part[keyword]
    if isinstance(part.get("items"), list):
        written["prefixItems"] = written.pop("items")
        if "additionalItems" in part:
            written["items"] = part["additionalItems"]
    if "divisibleBy" in part:
        written.setdefault("multipleOf", part["divisibleBy"])
    for exclusive, limit in EXCLUSIVE.items():
        if exclusive in part and (is_exclusive := _flag_of(part[exclusive])) is not None:
            del written[exclusive]
            if is_exclusive and limit in written:
                written[exclusive] = written.pop(limit)
    for name, needed in _object_of(part.get("dependencies")).items():
        keyword = "dependentRequired" if isinstance(needed, list | str) else "dependentSchemas"
        written[keyword] = {**_object_of(written.get(keyword)), name: needed}
    return _with_required(written)


def _with_required(part: Schema) -> Schema:
    """*part* with the names of the properties that are ``required: true``, as in draft 3."""
    required = part.get("required")
    members = _object_of(part.get("properties"))
    needed = [name for name, child in members.items() if _object_of(child).get("required") is True]
    if needed:
        return part | {"required": [*(required if isinstance(required, list) else ()), *needed]}
    if isinstance(required, bool):
        return {name: value for name, value in part.items() if name != "required"}
    return part


def _object_of(value: object) -> Schema:
    return value if isinstance(value, dict) else {}


def _says_something(name: str, value: object) -> bool:
    if name == "type" and isinstance(value, str) and value.strip().lower() in ANY_TYPE:
        return False
    return value not in (None, "", [], {})


def _flag_of(value: object) -> bool | None:
    """Whether the value of a keyword is true or false; None if it is neither."""
    return FLAGS.get(value) if isinstance(value, bool | str) else None


def _compiles(source: str) -> bool:
    if OF_PYTHON.search(source):
        return False
    try:
        with warnings.catch_warnings(action="ignore"):  # "possible nested set", for `[[`
            re.compile(source)
    except (re.error, OverflowError, RecursionError):
        return False
    return True


# How the values of keywords are read: each returns what is written, or raises `_Unusable`


def _object(value: object) -> Schema:
    if not isinstance(value, dict):
        raise _Unusable
    return value


def _filled(value: object) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise _Unusable
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise _Unusable
    return value


def _flag(value: object) -> bool:
    if (flag := _flag_of(value)) is None:
        raise _Unusable
    return flag


def _number(value: object) -> int | float:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise _Unusable from None
        value = int(value) if value.is_integer() else value
    if isinstance(value, bool) or not isinstance(value, int | float) or not -LARGEST <= value <= LARGEST:
        raise _Unusable
    return value


def _positive(value: object) -> int | float:
    if (number := _number(value)) <= 0:
        raise _Unusable
    return number


def _count(value: object) -> int:
    if (number := _number(value)) < 0 or number % 1:
        raise _Unusable
    return int(number)


def _type(value: object) -> str | list[str]:
    if not isinstance(value, str | list):
        raise _Unusable
    listed = [value] if isinstance(value, str) else value
    names = [TYPES.get(name.strip().lower()) if isinstance(name, str) else None for name in listed]
    known = [*dict.fromkeys(name for name in names if name is not None)]
    if not known or None in names:
        raise _Unusable
    return known if len(known) > 1 else known[0]


def _texts(value: object) -> list[str]:
    """Names, each once."""
    if not isinstance(value, str | list):
        raise _Unusable
    return [*dict.fromkeys(name for name in ([value] if isinstance(value, str) else value) if isinstance(name, str))]


def _texts_by_name(value: object) -> dict[str, list[str]]:
    return {name: _texts(texts) for name, texts in _object(value).items()}


def _choices(value: object) -> list[Any]:
    """Values, each once: Python takes 1 for True."""
    return [*{json.dumps(_json(choice), sort_keys=True): choice for choice in _filled(value)}.values()]


def _examples(value: object) -> list[Any]:
    return _json(value) if isinstance(value, list) else [_json(value)]


def _json(value: Any) -> Any:
    """A value of which some part may be anything but an integer that is too large for JSON's usual readers."""
    todo = [value]
    while todo:
        part = todo.pop()
        if isinstance(part, int) and not -LARGEST <= part <= LARGEST:
            raise _Unusable
        todo += part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    return value


FLAGS: Mapping[Any, bool] = {True: True, False: False, "true": True, "false": False}

VALUES: Mapping[str, Callable[[Any], object]] = {
    "type": _type,
    "enum": _choices,
    "required": _texts,
    "dependentRequired": _texts_by_name,
    "examples": _examples,
    "propertyOrdering": _texts,  # of Gemini
    "multipleOf": _positive,
    **dict.fromkeys(("exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum"), _number),
    **dict.fromkeys(("maxContains", "maxItems", "maxLength", "maxProperties"), _count),
    **dict.fromkeys(("minContains", "minItems", "minLength", "minProperties"), _count),
    **dict.fromkeys(("deprecated", "readOnly", "uniqueItems", "writeOnly"), _flag),
    **dict.fromkeys(("$comment", "contentEncoding", "contentMediaType", "description", "format", "title"), _text),
}
"""How the value of each keyword without subschemas is read. Other keywords may have any value."""
