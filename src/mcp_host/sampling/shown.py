"""Content blocks and schemas as text for a person: everything that a model may read of them."""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Container, Iterator
from typing import assert_never

from mcp_host.errors import excerpt
from mcp_host.sampling.loop.results import texts_repeat
from mcp_host.terminal.text import NAME_SHOWN
from mcp_host.types import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    JSONObject,
    ResourceLink,
    TextContent,
    ToolResultContent,
    ToolUseContent,
)
from mcp_host.types.base import Model
from mcp_host.types.content import ContentBlock, link_fields
from mcp_host.types.sampling import SamplingMessageContentBlock

# Of these types a model gets pixels, sounds or pages; of an unknown type nothing. Of others, it gets the text.
FILES = re.compile(r"(image|audio|video)/.*|application/(pdf|octet-stream)|")
URL_SAFE = str.maketrans("-_", "+/")  # Google's APIs take both alphabets of base64
TEXT_DECODED = 1200  # characters of base64, in the short view: 900 bytes. A file may have 11 million
PLAIN_ID = re.compile(r"[\w.:|+/=-]{1,64}", re.ASCII)

# The words of JSON Schema: they say nothing of their own.
KEYWORDS = frozenset(
    {
        *("$comment", "$defs", "$id", "$ref", "$schema", "additionalItems", "additionalProperties", "allOf", "anyOf"),
        *("array", "boolean", "const", "contains", "default", "definitions", "dependentRequired", "dependentSchemas"),
        *("deprecated", "description", "else", "enum", "enumNames", "examples", "exclusiveMaximum", "exclusiveMinimum"),
        *("format", "if", "integer", "items", "maxContains", "maxItems", "maxLength", "maxProperties", "maximum"),
        *("minContains", "minItems", "minLength", "minProperties", "minimum", "multipleOf", "not", "null", "number"),
        *("object", "oneOf", "pattern", "patternProperties", "prefixItems", "properties", "propertyNames", "readOnly"),
        *("required", "string", "then", "title", "type", "unevaluatedItems", "unevaluatedProperties", "uniqueItems"),
        *("date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid", "writeOnly"),
        *("http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"),
    }
)


def texts_of(block: SamplingMessageContentBlock | ContentBlock, *, whole: bool) -> Iterator[str]:
    """All texts of a block that a model may read. With *whole*, also the rest of what the server sent, as JSON."""
    shown: tuple[str, ...]
    match block:
        case TextContent():
            yield block.text
            shown = ("type", "text")
        case ImageContent(data=data, mime_type=kind) | AudioContent(data=data, mime_type=kind):
            yield _file(kind, kind, data, whole)
            shown = ("type", "data", "mimeType")
        case EmbeddedResource(resource=BlobResourceContents(uri=uri, mime_type=kind, blob=data) as resource):
            yield _file(", ".join(filter(None, [f"contents of {uri or 'a resource'}", kind])), kind, data, whole)
            yield from _rest(resource, ("uri", "mimeType", "blob"), whole)
            shown = ("type", "resource")
        case EmbeddedResource(resource=resource):
            assert not isinstance(resource, BlobResourceContents), "matched above"
            yield f"[contents of {resource.uri or 'a resource'}]\n{resource.text}"
            yield from _rest(resource, ("uri", "text"), whole)
            shown = ("type", "resource")
        case ResourceLink():
            fields = link_fields(block)
            yield f"link: {as_json({name: value for name, value in fields.items() if name != 'type'})}"
            shown = tuple(fields)
        case ToolUseContent(name=name, input=arguments, id=id):
            yield f"calls {name if whole else excerpt(name, NAME_SHOWN)} {as_json(arguments)}"
            yield from _long_id(id, whole)
            shown = ("type", "name", "input")
        case ToolResultContent(content=blocks, structured_content=structured, is_error=is_error, tool_use_id=id):
            yield "error of a tool:" if is_error else "result of a tool:"
            for inner in blocks:
                yield from texts_of(inner, whole=whole)
            texts = [inner.text for inner in blocks if isinstance(inner, TextContent)]
            if structured is not None and (whole or not texts_repeat(texts, structured)):
                yield f"structured: {as_json(structured)}"
            yield from _long_id(id, whole)
            shown = ("type", "content", "structuredContent", "isError")
        case _:
            assert_never(block)
    yield from _rest(block, shown, whole)


def rest_of(model: Model, shown: Container[str]) -> JSONObject:
    """The fields that the server sent, but for those that are *shown* elsewhere."""
    return {name: value for name, value in model.to_wire().items() if name not in shown}


def as_json(value: object) -> str:
    """A part of the request on one line."""
    return json.dumps(value, ensure_ascii=False)


def unseen(schema: JSONObject, shown: str) -> int:
    """The characters of names and texts in *schema* that are not in what is *shown* of it."""
    seen = _plain(shown)
    texts: set[str] = set()
    todo: list[object] = [schema]
    while todo:
        match todo.pop():
            case dict() as members:
                texts.update(members)
                todo += members.values()
            case list() as items:
                todo += items
            case str() as text:
                texts.add(text)
    return sum(len(text) for text in texts - KEYWORDS if _plain(text) not in seen)


def _plain(text: str) -> str:
    """The name ``exact_match`` and the title "Exact Match" are the same, and so is a text that breaks in other places."""
    return " ".join(text.replace("_", " ").casefold().split())


def _rest(model: Model, shown: Container[str], whole: bool) -> Iterator[str]:
    if whole and (rest := rest_of(model, shown)):
        yield f"with {as_json(rest)}"


def _long_id(id: str, whole: bool) -> Iterator[str]:
    if not whole and PLAIN_ID.fullmatch(id) is None:
        yield f"with the id {as_json(id)}"


def _file(what: str, kind: str | None, data: str, whole: bool) -> str:
    about = f"[{what}, {len(data)} characters of base64]"
    is_text = FILES.fullmatch((kind or "").partition(";")[0].strip().lower()) is None
    hidden = len(data) - TEXT_DECODED if is_text and not whole else 0
    text = _decoded(_beginning(data) if hidden > 0 else data, is_text)
    if text is None:
        return about
    return f"{about}\n{text}" + (f"\n... and {hidden} more characters of base64" if hidden > 0 else "")


def _beginning(data: str) -> str:
    """The beginning of base64 data that can be decoded alone."""
    base64 = "".join(data[:TEXT_DECODED].split())
    return base64[: len(base64) // 4 * 4]


def _decoded(data: str, is_text: bool) -> str | None:
    """The text in base64 data, or None if it is the file that its type says.

    Data that are no base64, or that other decoders may read in another way, are shown as they are, too.
    """
    base64 = "".join(data.split()).translate(URL_SAFE)
    try:
        raw = b64decode(base64 + "==")
    except ValueError:
        return data
    if b64encode(raw).decode().rstrip("=") != base64.rstrip("="):
        return f"{raw.decode('utf-8', 'backslashreplace')}\n{data}"
    if is_text:
        return raw.decode("utf-8", "backslashreplace")
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None
    return text if text and all(char.isprintable() or char.isspace() for char in text) else None
