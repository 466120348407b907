"""Rules that the schemas of tools have at all providers: JSON Schema 2020-12, and references that lead somewhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

BY_NAME = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")
OTHERS = (
    "additionalProperties", "allOf", "anyOf", "contains", "contentSchema", "else", "if", "items", "not", "oneOf",
    "prefixItems", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip


def problem_of(schema: dict[str, Any]) -> str | None:
    """Why *schema* is no valid one, on its own."""
    try:
        Draft202012Validator.check_schema(schema)  # patterns, too: with Python's `re`
    except SchemaError as exc:
        return f"JSON schema is invalid. It must match JSON Schema draft 2020-12. {exc.message}"
    for part in subschemas(schema):
        reference = part.get("$ref")
        if reference is not None and not _leads_somewhere(schema, reference):
            return f"the reference {reference!r} leads nowhere"
    return None


def subschemas(schema: object) -> Iterator[dict[str, Any]]:
    """*schema* and all schemas in it."""
    todo = [schema]
    while todo:
        part = todo.pop()
        if not isinstance(part, dict):
            continue
        yield part
        for name, value in part.items():
            if name in BY_NAME:
                todo += value.values()
            elif name in OTHERS:
                todo += value if isinstance(value, list) else [value]


def _leads_somewhere(schema: Any, reference: str) -> bool:
    if not reference.startswith("#"):
        return False
    for token in filter(None, unquote(reference[1:]).split("/")):
        try:
            schema = schema[int(token) if isinstance(schema, list) else token]
        except (LookupError, TypeError, ValueError):
            return False
    return isinstance(schema, dict | bool)
