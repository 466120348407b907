"""Rules that both APIs of OpenAI have. Beside each stands the page it comes from.

``spec`` is OpenAI's published description, https://github.com/openai/openai-openapi (openapi.json).
``guide`` is https://platform.openai.com/docs/guides/.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import SchemaValidator

from tests.interop.providers.scripted import Said
from tests.interop.providers.servers.base import JSON, ModelServer, Refusal
from tests.interop.providers.servers.schema_rules import problem_of

NAME = re.compile(r"[a-zA-Z0-9_-]+")  # spec: FunctionToolParam.name, FunctionObject.name, ResponseFormatJsonSchema

# spec: "Not supported with latest reasoning models" (StopConfiguration), "not compatible with o-series" (max_tokens)
REASONING = re.compile(r"(o\d|gpt-5)(?!.*-chat)")

# guide structured-outputs, "Supported schemas"
MAX_PROPERTIES, DEEPEST, MAX_ENUM_VALUES, MAX_TEXT = 5000, 10, 1000, 120_000
NEVER_IN_STRICT = ("allOf", "not", "dependentRequired", "dependentSchemas", "if", "then", "else", "oneOf")
STRING_FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")


def error_json(status: int, message: str) -> JSON:
    """The JSON of an error (spec: ErrorResponse; guide error-codes)."""
    kinds = {
        401: ("invalid_request_error", "invalid_api_key"),
        429: ("requests", "rate_limit_exceeded"),
        500: ("server_error", None),
        503: ("server_error", None),
    }
    kind, code = kinds.get(status, ("invalid_request_error", None))
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


class Described:
    """Holds a request against the types of the SDK, which OpenAI generates from its description.

    Unknown fields, wrong types, unknown values of enumerations and missing fields are refused, at any depth.
    """

    def __init__(self, request: Any) -> None:
        adapter = TypeAdapter(list[request], config=ConfigDict(extra="forbid", strict=True))
        self._validator = SchemaValidator(_with_lists(adapter.core_schema))

    def check(self, body: JSON) -> None:
        try:
            self._validator.validate_python([body])
        except ValidationError as exc:
            errors = [(".".join(map(str, error["loc"][1:])), error["msg"]) for error in exc.errors(include_url=False)]
            said = "; ".join(f"'{where}': {message}" for where, message in errors[:20])
            raise Refusal(f"Invalid request: {said}") from None


def _with_lists(schema: Any) -> Any:
    """*schema* with lists where it has iterables: pydantic checks the items of an iterable only when they are read."""
    if isinstance(schema, list | tuple):
        return type(schema)(map(_with_lists, schema))
    if not isinstance(schema, dict):
        return schema
    whole = {key: _with_lists(value) for key, value in schema.items()}
    return whole | {"type": "list"} if whole.get("type") == "generator" else whole


def check_name(name: str, where: str, longest: int) -> None:
    if not NAME.fullmatch(name):
        raise Refusal(
            f"Invalid '{where}': string does not match pattern. Expected a string that matches the pattern "
            "'^[a-zA-Z0-9_-]+$'."
        )
    if len(name) > longest:
        raise Refusal(f"Invalid '{where}': string too long. Expected a string with maximum length {longest}.")


def check_unique(names: Sequence[str]) -> None:
    """guide function-calling: the name of a function tells it apart."""
    for name in names:
        if names.count(name) > 1:
            raise Refusal(f"Duplicate function name: '{name}'.")


def check_parameters(schema: object, name: str, *, strict: bool) -> None:
    """guide function-calling: *parameters* is a JSON Schema of an object; with *strict*, guide structured-outputs."""
    kind = f"function '{name}'"
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise Refusal(f"Invalid schema for {kind}: schema must be a JSON Schema of 'type: \"object\"'.")
    if strict:
        check_strict(schema, kind)
        return
    for keyword in ("oneOf", "anyOf", "allOf", "enum", "not"):
        # https://github.com/langchain-ai/langchainjs/issues/9804
        if keyword in schema:
            raise Refusal(
                f"Invalid schema for {kind}: schema must have type 'object' and not have "
                "'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level."
            )
    if (problem := problem_of(schema)) is not None:
        raise Refusal(f"Invalid schema for {kind}: {problem}.")
    for context, node in _nodes(schema):
        if (
            "array" in (node.get("type"), *(node["type"] if isinstance(node.get("type"), list) else ()))
            and "items" not in node
        ):
            # https://github.com/meilisearch/meilisearch-mcp/issues/27
            raise Refusal(f"Invalid schema for {kind}: In context={context}, array schema missing items.")


def check_strict(schema: object, kind: str) -> None:
    """guide structured-outputs, "Supported schemas": root object, all fields required, no other fields, limits."""
    if not isinstance(schema, dict) or schema.get("type") != "object" or "anyOf" in schema:
        raise Refusal(f"Invalid schema for {kind}: schema must be a JSON Schema of 'type: \"object\"'.")
    if (problem := problem_of(schema)) is not None:
        raise Refusal(f"Invalid schema for {kind}: {problem}.")
    names: list[str] = []
    values: list[object] = []
    for context, node in _nodes(schema):
        problem = _strict_problem(context, node)
        if problem is not None:
            raise Refusal(f"Invalid schema for {kind}: In context={context}, {problem}.")
        names += node.get("properties", {})
        values += node.get("enum", [])
    text = sum(len(value) for value in (*names, *values) if isinstance(value, str))
    if len(names) > MAX_PROPERTIES or len(values) > MAX_ENUM_VALUES or text > MAX_TEXT:
        raise Refusal(f"Invalid schema for {kind}: the schema is too large.")


def _strict_problem(context: tuple[str, ...], node: JSON) -> str | None:
    """What a strict schema may not have in one of its nodes."""
    for keyword in NEVER_IN_STRICT:
        if keyword in node:
            return f"'{keyword}' is not permitted"
    if context.count("properties") > DEEPEST:
        return f"{DEEPEST} levels of nesting exceeded"
    if "$ref" in node:
        others = sorted(set(node) - {"$ref"})
        return f"$ref cannot have keywords {others}" if others else None
    if not {"type", "anyOf", "enum", "const"} & set(node):
        return "schema must have a 'type' key"
    kinds = node["type"] if isinstance(node.get("type"), list) else [node.get("type")]
    if "object" in kinds and node.get("additionalProperties") is not False:
        return "'additionalProperties' is required to be supplied and to be false"
    if "object" in kinds and set(node.get("properties", {})) != set(node.get("required", [])):
        return "'required' is required to be supplied and to be an array including every key in properties"
    if "array" in kinds and "items" not in node:
        return "array schema missing items"
    if "format" in node and node["format"] not in STRING_FORMATS:
        return f"'{node['format']}' is not a valid format"
    return None


def _nodes(schema: JSON, context: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], JSON]]:
    """A schema and those in it, each with its place."""
    yield context, schema
    for keyword in ("properties", "$defs", "definitions"):
        for name, inner in (schema.get(keyword) or {}).items():
            if isinstance(inner, dict):
                yield from _nodes(inner, (*context, keyword, name))
    for keyword in ("items", "additionalProperties"):
        if isinstance(schema.get(keyword), dict):
            yield from _nodes(schema[keyword], (*context, keyword))
    for keyword in ("anyOf", "oneOf", "allOf"):
        for index, inner in enumerate(schema.get(keyword) or ()):
            if isinstance(inner, dict):
                yield from _nodes(inner, (*context, keyword, str(index)))


def check_metadata(metadata: object) -> None:
    """spec: Metadata: 16 pairs, keys up to 64 characters, values strings up to 512."""
    if metadata is None:
        return
    assert isinstance(metadata, dict)
    if len(metadata) > 16:
        raise Refusal("Invalid 'metadata': too many properties. Expected an object with at most 16 properties.")
    for key, value in metadata.items():
        if len(key) > 64:
            raise Refusal("Invalid 'metadata': property name too long. Expected a string with maximum length 64.")
        if len(value) > 512:
            raise Refusal(f"Invalid 'metadata.{key}': string too long. Expected a string with maximum length 512.")


def check_image(url: str, where: str) -> None:
    """guide images-vision: a URL, or a data URL of a PNG, JPEG, WEBP or GIF."""
    if url.startswith(("https://", "http://")):
        return
    matched = re.fullmatch(r"data:image/(png|jpeg|jpg|webp|gif);base64,(.+)", url, re.DOTALL)
    if matched is None:
        raise Refusal(
            f"Invalid '{where}'. Expected a valid URL or a base64 data URL of a png, jpeg, gif or webp image."
        )
    check_base64(matched[2], where)


def check_base64(text: str, where: str) -> None:
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error:
        raise Refusal(f"Invalid '{where}'. Expected base64-encoded data.") from None


def check_json_is_asked_for(body: JSON, where: str) -> None:
    """guide structured-outputs, "JSON mode": some message must have the word JSON."""
    if "json" not in json.dumps(body[where]).lower():
        raise Refusal(f"'{where}' must contain the word 'json' in some form, to use the format 'json_object'.")


def grow(server: ModelServer, said: Said, texts: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The pieces of *texts*, each with its index: one text after the other, or side by side."""
    columns = [[(index, piece) for piece in server.pieces(text)] for index, text in enumerate(texts)]
    rows = zip_longest(*columns) if said.interleaved else columns
    return (piece for row in rows for piece in row if piece is not None)


def check_bearer(headers: dict[str, str], key: str) -> None:
    """https://platform.openai.com/docs/api-reference/authentication."""
    if headers.get("authorization") != f"Bearer {key}":
        raise Refusal("Incorrect API key provided.", status=401)
