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
from collections.abc import Callable, Iterable, Iterator, Mapping
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

MAX_MORE = 2_000  # subschemas beyond twice those of the schema: what many references lead into is written for each
MAX_PATTERNS = 4_096  # characters of all patterns of a schema: compiling them takes some milliseconds

REFERENCES = ("$recursiveRef", "$dynamicRef", "$ref")
"""Keywords that become ``$ref``; of several, the last."""
NOT_WRITTEN = frozenset(
    {*ADDRESSES, *DEFINITIONS, "$schema", "$vocabulary", "additionalItems", "dependencies", "divisibleBy"}
)
"""Keywords that others replace."""
OPEN = frozenset({"additionalProperties", "unevaluatedItems", "unevaluatedProperties"})
"""Keywords in which all providers take true and false."""
EXCLUSIVE = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}
"""Keywords that say in draft 4 whether another one is exclusive."""

ANY_TYPE = frozenset({"", "*", "any", "mixed", "unknown"})
SPELLINGS = {
    "array": ("list",),
    "boolean": ("bool",),
    "integer": ("int", "long"),
    "null": ("nil", "none"),
    "number": ("double", "float"),
    "object": ("dict", "map"),
    "string": ("str",),
}
TYPES = {spelling: name for name, others in SPELLINGS.items() for spelling in (name, *others)}
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
    return _Repair(schema).root(schema)


def noted(part: Schema, words: str, told: object) -> str:
    """The description of *part*, and after it in *words* what keywords cannot say."""
    note = f"{words}: {json.dumps(told, ensure_ascii=False)}"
    return "\n".join(filter(None, [part.get("description"), note]))


class _Repair:
    """Writes one schema, within its bounds."""

    def __init__(self, schema: Schema) -> None:
        objects = list(_objects(schema))
        self._definitions = _Definitions(_addresses(schema, objects))
        self._room = MAX_MORE + 2 * (len(objects) + len(str(schema)) // WEIGHED)
        self._pattern_room = MAX_PATTERNS

    def root(self, schema: Schema) -> Schema:
        written = self._subschema(schema, 0)
        definitions = {name: self._subschema(target, 0) for name, target in self._definitions.pending()}
        return {**written, "$defs": definitions} if definitions else written

    def _subschema(self, part: object, level: int) -> Schema:
        """One subschema, in so many others.

        Raises:
            _Unusable: It is none.
        """
        if isinstance(part, bool) or part == {}:  # short, so that a schema may have very many
            self._room -= 1
            return {"not": {}} if part is False else {}
        if not isinstance(part, dict):
            return {"type": _type(part)}
        self._room -= weight(part)
        if level > MAX_LEVELS:
            raise ValueError("it is nested too deep")
        if self._room < 0:
            raise ValueError("its references lead to much more than it has itself")
        written: Schema = {}
        told: Schema = {}
        for name, value in _modern(part).items():
            try:
                written[name] = self._value(name, value, level + 1)
            except _Unusable:
                if _says_something(name, value):
                    told[name] = value
        if "patternProperties" in written:
            told |= self._without_patterns(written["patternProperties"])
        if told:
            written["description"] = noted(written, "The server's schema also says", told)
        return written

    def _value(self, name: str, value: object, level: int) -> object:
        """The value of a keyword, with its subschemas at this *level*.

        Raises:
            _Unusable: It cannot be read.
        """
        match name:
            case "$ref":
                return f"#/$defs/{self._definitions.name_of(_text(value))}"
            case "pattern":
                return self._pattern(_text(value))
            case "prefixItems":
                return [self._member(part, level) for part in _filled(value)]
            case "dependentSchemas" | "patternProperties" | "properties":
                return {key: self._member(part, level) for key, part in _object(value).items()}
            case "allOf" | "anyOf" | "oneOf":
                return self._alternatives(value, level)
        if name in OPEN and (flag := _flag_of(value)) is not None:
            return flag
        if name in SUBSCHEMAS:
            return self._subschema(value, level)
        read: Callable[[Any], object] = VALUES.get(name, _json)
        return read(value)

    def _member(self, part: object, level: int) -> Schema:
        """A subschema whose place stays, even if it is none."""
        try:
            return self._subschema(part, level)
        except _Unusable:
            return {"description": noted({}, "The server's schema", part)} if _says_something("", part) else {}

    def _alternatives(self, value: object, level: int) -> list[Schema]:
        listed = [value] if isinstance(value, dict) else _filled(value)
        return _filled([self._subschema(part, level) for part in listed if isinstance(part, dict | bool | str)])

    def _pattern(self, source: str) -> str:
        if not self._is_usable(source):
            raise _Unusable
        return source

    def _without_patterns(self, properties: Schema) -> Schema:
        """Take those of *properties* out whose patterns cannot be used. Returns the keyword with them, if there are some."""
        unusable = {source: properties.pop(source) for source in [*properties] if not self._is_usable(source)}
        return {"patternProperties": unusable} if unusable else {}

    def _is_usable(self, source: str) -> bool:
        self._pattern_room -= len(source)
        return self._pattern_room >= 0 and _compiles(source)


class _Definitions:
    """What references lead to, each once, under a name of its own.

    *addresses* are the schemas that references may begin at.
    """

    def __init__(self, addresses: Mapping[str, Schema]) -> None:
        self._addresses = addresses
        self._names: dict[int, str] = {}  # by the id of what references lead to
        self._numbers: dict[str, int] = {}  # the last one of equal names, so that a thousand of them take linear time
        self._pending: list[tuple[str, object]] = []

    def name_of(self, reference: str) -> str:
        """The name of what *reference* leads to.

        Raises:
            _Unusable: It leads nowhere, or to another document.
        """
        target = self._target(reference)
        if (name := self._names.get(id(target))) is None:
            last = re.split("[/#]", reference)[-1]
            name = self._names[id(target)] = self._free(re.sub("[^A-Za-z0-9_.-]", "_", last)[:64] or "root")
            self._pending.append((name, target))
        return name

    def pending(self) -> Iterator[tuple[str, object]]:
        """What has to be written still, until nothing is left: writing one may lead to others."""
        while self._pending:
            yield self._pending.pop()

    def _free(self, name: str) -> str:
        """*name*, or if it is taken, with the next number."""
        free, number = name, self._numbers.get(name, 1)
        while free in self._numbers:
            number += 1
            free = f"{name}_{number}"
        self._numbers |= {free: 1, name: number}
        return free

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


def _objects(schema: Schema) -> Iterator[Schema]:
    """All objects in *schema*, be they subschemas or not."""
    todo: list[object] = [schema]
    while todo:
        part = todo.pop()
        if isinstance(part, dict):
            yield part
            todo += part.values()
        elif isinstance(part, list):
            todo += part


def _addresses(schema: Schema, objects: Iterable[Schema]) -> dict[str, Schema]:
    """Those of the *objects* in *schema* that have an address, such as ``#anchor``: of several with the same, the first."""
    found = {"": schema}
    for part in objects:
        for keyword, mark in (("$id", ""), ("$anchor", "#"), ("$dynamicAnchor", "#")):
            if isinstance(name := part.get(keyword), str):
                found.setdefault(f"{mark}{name.removesuffix('#')}", part)
    return found


# Keywords of older dialects. Their values are not checked


def _modern(part: Schema) -> Schema:
    """The keywords of a subschema in the spelling of 2020-12."""
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
    _move_limits(written)
    _add_dependencies(written, _object_of(part.get("dependencies")))
    _add_required(written)
    return written


def _move_limits(written: Schema) -> None:
    """Limits that are exclusive by a flag, as in draft 4."""
    for exclusive, limit in EXCLUSIVE.items():
        if (flag := _flag_of(written.get(exclusive))) is not None:
            del written[exclusive]
            if flag and limit in written:
                written[exclusive] = written.pop(limit)


def _add_dependencies(written: Schema, dependencies: Schema) -> None:
    """The two keywords for *dependencies*, the names of properties and schemas."""
    names = {name: needed for name, needed in dependencies.items() if isinstance(needed, list | str)}
    schemas = {name: needed for name, needed in dependencies.items() if name not in names}
    for keyword, needed in (("dependentRequired", names), ("dependentSchemas", schemas)):
        if needed:
            written[keyword] = _object_of(written.get(keyword)) | needed


def _add_required(written: Schema) -> None:
    """The names of the properties that are ``required: true``, as in draft 3."""
    required = written.get("required")
    members = _object_of(written.get("properties"))
    needed = [name for name, child in members.items() if _object_of(child).get("required") is True]
    if needed:
        written["required"] = [*(required if isinstance(required, list) else ()), *needed]
    elif isinstance(required, bool):
        del written["required"]


def _object_of(value: object) -> Schema:
    return value if isinstance(value, dict) else {}


def _says_something(name: str, value: object) -> bool:
    """Whether a value that cannot be read is worth telling."""
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
    listed = [value] if isinstance(value, str) else value
    return [*dict.fromkeys(name for name in listed if isinstance(name, str))]


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
        if isinstance(part, dict):
            todo += part.values()
        elif isinstance(part, list):
            todo += part
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
