"""JSON Schemas of tools, rewritten to what each provider accepts.

==================  ========================================================================================
rule                for
==================  ========================================================================================
`function`          the parameters of a function at OpenAI: an object at the root, without alternatives there
`anthropic`         the input of a tool at Anthropic: the same, and names of properties that it takes
`strict`            OpenAI's strict mode, whose output always conforms: a small part of JSON Schema, or None
`gemini`            the parameters of a function at Google: an object at the root, and keywords that Gemini reads
`format_of_object`  an answer of Ollama that is an object
==================  ========================================================================================

All first repair what the server calls a schema, to a valid one of 2020-12 (`repair`).
A rewritten schema of a function may allow more than the tool does, because the server checks the arguments. What it
no longer says is in its description, for the model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, TypeAlias, TypeVar

from mcp_host.providers.exchange.names import NameRule, with_name
from mcp_host.providers.exchange.repair import Schema, noted, repaired
from mcp_host.sampling.structured.inlining import NAMED_SUBSCHEMAS, SUBSCHEMAS, inlined, target_of

NOT_AT_ROOT = ("allOf", "anyOf", "oneOf", "not", "enum", "const", "if", "then", "else")
"""OpenAI: "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level"."""

MERGED = frozenset({"$comment", "allOf", "description", "properties", "required", "title", "type"})
"""What a branch of ``allOf`` may have if nothing of it is left once the branches are merged."""

# "input_schema does not support oneOf, allOf, or anyOf at the top level"
# "Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'": those at the top level
NOT_AT_ANTHROPIC_ROOT = frozenset({"allOf", "anyOf", "oneOf", "$ref"})  # a reference hides the properties
ANTHROPIC_PROPERTIES = NameRule(re.compile("[a-zA-Z0-9_.-]{1,64}"), re.compile("[^a-zA-Z0-9_.-]"), 64)

# https://developers.openai.com/api/docs/guides/structured-outputs#supported-schemas
STRICT_KEYWORDS = frozenset(
    {
        *("$defs", "$ref", "additionalProperties", "anyOf", "const", "description", "enum", "exclusiveMaximum"),
        *("exclusiveMinimum", "format", "items", "maxItems", "maximum", "minItems", "minimum", "multipleOf", "pattern"),
        *("properties", "required", "title", "type"),
    }
)
STRICT_FORMATS = frozenset({"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid"})
NOT_FOR_MODELS = frozenset({"$comment", "$schema", "deprecated", "discriminator", "readOnly", "writeOnly"})
DROPPED_IN_STRICT = NOT_FOR_MODELS | {"default", "examples"}  # strict mode refuses them; they restrict nothing
# The limits of the first models with strict mode. Newer ones take more; a larger schema is sent as a function.
NULL = {"type": "null"}
STRICT_LEVELS = 5
STRICT_PROPERTIES = 100
STRICT_VALUES = 500
STRICT_CHARACTERS = 15_000  # of all names and values together

# https://ai.google.dev/api/generate-content#FIELDS.response_json_schema
GEMINI_KEYWORDS = frozenset(
    {
        *("$anchor", "$defs", "$id", "$ref", "additionalProperties", "anyOf", "description", "enum", "format", "items"),
        *("maxItems", "maximum", "minItems", "minimum", "oneOf", "prefixItems", "properties", "propertyOrdering"),
        *("required", "title", "type"),
    }
)

APPLIES_TOO = "This JSON Schema applies, too"  # before what a provider does not take

T = TypeVar("T")

TYPE_NAMES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


def function(schema: Schema) -> Schema:
    """The parameters of a function, for OpenAI and those that follow it.

    The alternatives of the root are merged: an argument of any of them is allowed, and required if all require it.

    Raises:
        ValueError: The schema is too deep, or too large.
    """
    return _each(_with_plain_root(repaired(schema)), _behind_an_api)


def _with_plain_root(schema: Schema) -> Schema:
    """A valid schema as that of an object, without alternatives at the root."""
    if not set(schema).isdisjoint({*NOT_AT_ROOT, "$ref"}):
        schema = inlined(schema)  # the alternatives to merge may be references
    root = _each(schema, _with_items)
    members, required = _members(root)
    properties = {name: _schema_of(member) for name, member in members.items()}
    said = {name: root[name] for name in NOT_AT_ROOT if name in root}
    if all(map(_is_merged, said.get("allOf", ()))):
        said.pop("allOf", None)
    kept = {name: value for name, value in root.items() if name not in (*NOT_AT_ROOT, "$ref", "required")}
    if said:
        kept["description"] = noted(kept, "The arguments also have to conform to this JSON Schema", said)
    kept |= {"type": "object", "properties": properties}
    return kept | {"required": list(required)} if required else kept


def anthropic(schema: Schema) -> Schema:
    """The input of a tool, for Anthropic. `anthropic_names` returns the properties that get another name.

    Raises:
        ValueError: The schema is too deep, or too large.
    """
    written = _with_object_root(schema)
    names = _property_names(written)
    if not names:
        return written
    properties = dict(written["properties"])
    for name in names:
        part = properties.pop(name)
        properties[names[name]] = part | {"description": with_name("argument", name, part.get("description"))}
    written = written | {"properties": properties}
    if "required" in written:
        written["required"] = [names.get(name, name) for name in written["required"]]
    return written


def anthropic_names(schema: Schema) -> dict[str, str]:
    """The other names of properties that Anthropic does not take as they are. The arguments of calls have them, too."""
    return _property_names(_with_object_root(schema))


def _with_object_root(schema: Schema) -> Schema:
    written = repaired(schema)
    if written.get("type") == "object" and NOT_AT_ANTHROPIC_ROOT.isdisjoint(written):
        return written
    return _with_plain_root(written)


def _property_names(schema: Schema) -> dict[str, str]:
    properties = schema.get("properties", {})
    if all(map(ANTHROPIC_PROPERTIES.pattern.fullmatch, properties)):
        return {}
    return {name: written for name, written in ANTHROPIC_PROPERTIES.write(properties).items() if name != written}


def gemini(schema: Schema) -> Schema:
    """The parameters of a function, for Gemini. Keywords that it does not read are moved to the descriptions.

    Raises:
        ValueError: The schema is too deep, or too large.
    """
    return _each(_with_plain_root(inlined(repaired(schema))), _read_by_gemini)


def format_of_object(schema: Schema) -> Schema:
    """The format of an answer at Ollama that is an object.

    Raises:
        ValueError: The schema is too deep, or too large.
    """
    return {"properties": {}, **inlined(repaired(schema)), "type": "object"}


def without_definitions(schema: Schema, *, prefix: str) -> tuple[Schema, Schema]:
    """A valid schema for a place inside of another one, and the definitions for the root of that, whose names get the *prefix*."""

    def renamed(part: Schema) -> Schema:
        return part | {"$ref": part["$ref"].replace("#/$defs/", f"#/$defs/{prefix}")} if "$ref" in part else part

    written = _each(schema, renamed)
    return written, {f"{prefix}{name}": part for name, part in written.pop("$defs", {}).items()}


def _read_by_gemini(part: Schema) -> Schema:
    if "$ref" in part:  # "no other properties, except for than those starting as a `$`, may be set"
        read = {name: value for name, value in part.items() if name not in NOT_FOR_MODELS}
        reference = {name: value for name, value in read.items() if name.startswith("$")}
        beside = {name: value for name, value in read.items() if name not in reference}
        if "anyOf" in beside:
            beside["allOf"] = [{"anyOf": beside["anyOf"]}, *beside.get("allOf", ())]
        return _read_by_gemini({**beside, "anyOf": [reference]}) if beside else reference
    written = {name: value for name, value in part.items() if name in GEMINI_KEYWORDS}
    told = {name: value for name, value in part.items() if name not in {*GEMINI_KEYWORDS, *NOT_FOR_MODELS, "const"}}
    for keyword, choices in _choices(part).items():
        readable = all(isinstance(choice, str | int | float) and not isinstance(choice, bool) for choice in choices)
        if not readable or "" in choices:
            told[keyword] = part[keyword]
            written.pop(keyword, None)
        if readable and (kept := _not_empty(choices)):
            written.setdefault("enum", kept)
    if undefined := _undefined(part):
        told["required"] = undefined
        written["required"] = [name for name in part["required"] if name in part.get("properties", ())]
    if told:
        written["description"] = noted(part, APPLIES_TOO, told)
    return written


def _choices(part: Schema) -> dict[str, Sequence[object]]:
    """The values of ``enum``, and the one of ``const``, by the keyword."""
    choices = {"enum": part["enum"]} if "enum" in part else {}
    return choices | ({"const": [part["const"]]} if "const" in part else {})


def _not_empty(choices: Sequence[object]) -> list[object]:
    """*choices* without the empty text. Gemini refuses the request for it: "enum[0]: cannot be empty"."""
    return [choice for choice in choices if choice != ""]


def _undefined(part: Schema) -> list[str]:
    """The names that are required and are no properties. Gemini refuses them: "property is not defined"."""
    properties = part.get("properties", ())
    return [name for name in part.get("required", ()) if name not in properties]


def _behind_an_api(part: Schema) -> Schema:
    """A subschema of a function, which may be for Gemini behind another API: without empty choices and the names that are
    `_undefined`. Where no properties are defined, as in an alternative, OpenAI takes such names.
    """
    told = {keyword: part[keyword] for keyword, choices in _choices(part).items() if "" in choices}
    written = {name: value for name, value in part.items() if name not in told}
    if kept := _not_empty(told.get("enum", ())):
        written["enum"] = kept
    if "properties" in part and (undefined := _undefined(part)):
        told["required"] = undefined
        written["required"] = [name for name in part["required"] if name in part["properties"]]
    return written | {"description": noted(part, APPLIES_TOO, told)} if told else part


def _with_items(part: Schema) -> Schema:
    """A subschema of OpenAI: "array schema missing items" refuses one without them at any level."""
    return {"items": {}, **part} if "array" in _types(part) else part


def _is_merged(branch: Schema) -> bool:
    """Whether `_members` has all that a branch of ``allOf`` says."""
    return MERGED.issuperset(branch) and all(map(_is_merged, branch.get("allOf", ())))


@dataclass(slots=True)
class _Several:
    """The different schemas of one property, which are a list under *keyword*. Equal ones have the same key."""

    keyword: str
    parts: dict[Hashable, _Member]


_Member: TypeAlias = Schema | _Several


def _members(part: Schema) -> tuple[dict[str, _Member], dict[str, None]]:
    """The properties of an object and of its alternatives, and the names of those that are always required."""
    properties: list[dict[str, _Member]] = [dict(part.get("properties", {}))]
    required = [dict.fromkeys(part.get("required", ()))]
    for branch in part.get("allOf", ()):
        found, needed = _members(branch)
        properties.append(found)
        required.append(needed)
    for keyword in ("anyOf", "oneOf"):
        if branches := [_members(branch) for branch in part.get(keyword, ())]:
            properties.append(_merged([found for found, _ in branches], partial(_both, keyword="anyOf")))
            first, *others = sorted([needed for _, needed in branches], key=len)
            required.append(
                {name: None for name in first if all(name in other for other in others)} if others else first
            )
    return _merged(properties, partial(_both, keyword="allOf")), _merged(required, lambda one, _: one)


def _merged(several: Sequence[dict[str, T]], both: Callable[[T, T], T]) -> dict[str, T]:
    """All names of *several*, and *both* of two values of the same.

    The others are added to the largest: each name is moved a few times only, however deep they are nested.
    """
    merged = max(several, key=len)
    for other in several:
        for name, value in other.items() if other is not merged else ():
            merged[name] = both(merged[name], value) if name in merged else value
    return merged


def _both(one: _Member, other: _Member, *, keyword: str) -> _Member:
    """What is `_Several` if the schemas differ. They are written only here, to compare them."""
    parts = _parts(one, keyword)
    parts |= _parts(other, keyword)
    return _Several(keyword, parts) if len(parts) > 1 else one


def _parts(member: _Member, keyword: str) -> dict[Hashable, _Member]:
    if isinstance(member, _Several):
        return member.parts if member.keyword == keyword else {(member.keyword, frozenset(member.parts)): member}
    listed = member[keyword] if list(member) == [keyword] else [member]
    return {json.dumps(one, sort_keys=True): one for one in listed}


def _schema_of(member: _Member) -> Schema:
    if isinstance(member, _Several):
        return {member.keyword: [_schema_of(part) for part in member.parts.values()]}
    return member


def strict(schema: Schema) -> Schema | None:
    """The schema for OpenAI's strict mode; None if strict mode cannot express it.

    Objects must name and require all properties, and the result forbids others. A property that may be missing may be
    null instead. So what conforms to the result conforms to *schema*, once it has been through `drop_absent`.

    Raises:
        ValueError: The schema is too deep, or too large.
    """
    valid = repaired(schema)
    if sum(len(part.get("properties", ())) for part in chain([valid], _descendants(valid))) > STRICT_PROPERTIES:
        return None  # without references, it has no fewer
    root = _each(inlined(valid), _strict_part)
    if _types(root) != ["object"] or "anyOf" in root or "$ref" in root:
        return None
    root.setdefault("properties", {})
    root.setdefault("required", [])
    parts = list(chain([root], _descendants(root)))
    names = [name for part in parts for key in ("properties", "$defs") for name in part.get(key, ())]
    values = [
        str(value) for part in parts for value in (*part.get("enum", ()), *([part["const"]] if "const" in part else ()))
    ]
    if len(names) > STRICT_PROPERTIES or len(values) > STRICT_VALUES or _levels(root) > STRICT_LEVELS:
        return None
    if sum(map(len, chain(names, values))) > STRICT_CHARACTERS:
        return None
    return root if all(_is_strict(part, part is root) for part in parts) else None


def _strict_part(part: Schema) -> Schema:
    written = {name: value for name, value in part.items() if name not in DROPPED_IN_STRICT}
    values = written.get("enum", [written["const"]] if "const" in written else [])
    if "type" not in written and values and all(type(value) in TYPE_NAMES for value in values):
        kinds = list(dict.fromkeys(TYPE_NAMES[type(value)] for value in values))
        written["type"] = kinds[0] if len(kinds) == 1 else kinds
    if "object" in _types(written):
        written.setdefault("additionalProperties", False)
        written |= _all_required(written.get("properties", {}), written.get("required", []))
    return written


def _all_required(properties: Schema, required: Sequence[str]) -> Schema:
    """OpenAI: "Although all fields must be required [...] it is possible to emulate an optional parameter by using a union
    type with `null`"."""
    optional = {name: part for name, part in properties.items() if name not in required}
    if not optional:
        return {}
    nullable = {name: part if _takes_null(part) else {"anyOf": [part, NULL]} for name, part in optional.items()}
    return {"properties": properties | nullable, "required": [*required, *optional]}


def _takes_null(part: Schema) -> bool:
    if types := _types(part):
        return "null" in types
    if "anyOf" in part:
        return any(map(_takes_null, part["anyOf"]))
    return None in part.get("enum", [part.get("const", "")])


def drop_absent(schema: Schema, value: Any) -> None:
    """Leave out of *value*, which conforms to `strict(schema)`, each null that stands for a property that is missing."""
    root = inlined(repaired(schema))
    todo: list[tuple[Any, Any]] = [(root, value)]
    seen: set[tuple[int, int]] = set()  # alternatives may lead to themselves
    while todo:  # a value may be nested deeper than Python can recurse
        part, value = todo.pop()
        if (place := (id(part), id(value))) in seen:
            continue
        seen.add(place)
        if "$ref" in part:
            part = target_of(root, part["$ref"])
        todo += [(branch, value) for branch in part.get("anyOf", ())]
        if isinstance(value, list) and "items" in part:
            todo += [(part["items"], item) for item in value]
        if isinstance(value, dict):
            for name, inner in part.get("properties", {}).items():
                if name in value and value[name] is None and name not in part.get("required", ()):
                    if not _takes_null(inner):
                        del value[name]
                elif name in value:
                    todo.append((inner, value[name]))


def _is_strict(part: Schema, is_root: bool) -> bool:
    types = _types(part)
    if not STRICT_KEYWORDS.issuperset(part) or not (types or "anyOf" in part or "$ref" in part):
        return False
    if "$ref" in part:
        return len(part) == 1
    if "object" in types:
        properties = part.get("properties")
        if properties is None or not (properties or is_root) or part["additionalProperties"] is not False:
            return False
        if set(part.get("required", ())) != set(properties):
            return False
    if "array" in types and not isinstance(part.get("items"), dict):
        return False
    if sum("object" in _types(branch) for branch in part.get("anyOf", ())) > 1:
        return False  # "Objects provided via 'anyOf' must not share identical first keys"
    return part.get("format", "date") in STRICT_FORMATS and "(?" not in str(part.get("pattern", ""))  # no lookaround


def _levels(part: Schema) -> int:
    """How deep objects and arrays are nested."""
    deepest, todo = 0, [(part, 1)]
    while todo:
        current, level = todo.pop()
        deepest = max(deepest, level)
        todo += [(child, level + ("anyOf" not in current)) for child in _children(current)]
    return deepest


def _types(part: Schema) -> Sequence[str]:
    named = part.get("type")
    return [named] if isinstance(named, str) else named if isinstance(named, list) else []


def _each(part: Schema, rewrite: Callable[[Schema], Schema]) -> Schema:
    """*part* and all its subschemas, rewritten."""
    written = {**rewrite(part)}
    for name, value in written.items():
        if name in NAMED_SUBSCHEMAS:
            written[name] = {key: _each(child, rewrite) for key, child in value.items()}
        elif name in SUBSCHEMAS and isinstance(value, list):
            written[name] = [_each(child, rewrite) for child in value]
        elif name in SUBSCHEMAS and isinstance(value, dict):
            written[name] = _each(value, rewrite)
    return written


def _children(part: Schema) -> Iterable[Schema]:
    for name, value in part.items():
        if name in NAMED_SUBSCHEMAS:
            yield from value.values()
        elif name in SUBSCHEMAS:
            yield from [child for child in (value if isinstance(value, list) else [value]) if isinstance(child, dict)]


def _descendants(part: Schema) -> Iterable[Schema]:
    todo = list(_children(part))
    while todo:
        child = todo.pop()
        yield child
        todo += _children(child)
