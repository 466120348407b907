"""Content blocks and schemas as text for a person: everything that a model may read of them."""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from codecs import getincrementaldecoder
from collections.abc import Container, Generator, Iterator
from string import whitespace
from typing import TypeAlias, assert_never

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
from mcp_host.types.base import Model, wire_name
from mcp_host.types.content import ContentBlock, link_fields, name_of
from mcp_host.types.sampling import SamplingMessageContentBlock

# Of these types a model gets pixels, sounds or pages; of an unknown type nothing. Of others, it gets the text.
FILES = re.compile(r"(image|audio|video)/.*|application/(pdf|octet-stream)|")
URL_SAFE = str.maketrans("-_", "+/")  # Google's APIs take both alphabets of base64
NOT_BASE64 = re.compile("[^A-Za-z0-9+/]")
PADDING = f"={whitespace}"
DECODED_AT_ONCE = 65_536  # characters of base64, before other tasks run
TEXT_DECODED = 1200  # characters of base64, in the short view: 900 bytes. A file may have 11 million
ENCODER = json.JSONEncoder(ensure_ascii=False)
PIECES_AT_ONCE = 4096  # of JSON: a value has about two
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


Texts: TypeAlias = Iterator[str | None]
"""Texts while they are written. None is no text: there, other tasks can run."""


def texts_of(block: SamplingMessageContentBlock | ContentBlock, *, whole: bool) -> Texts:
    """All texts of a block that a model may read. With *whole*, also the rest of what the server sent, as JSON."""
    shown: tuple[str, ...]
    match block:
        case TextContent():
            yield block.text
            shown = ("type", "text")
        case ImageContent(data=data, mime_type=kind) | AudioContent(data=data, mime_type=kind):
            yield from _file(kind, kind, data, whole)
            shown = ("type", "data", "mimeType")
        case EmbeddedResource(resource=BlobResourceContents(mime_type=kind, blob=data) as resource):
            yield from _file(name_of(resource), kind, data, whole)
            yield from _rest(resource, ("uri", "mimeType", "blob"), whole)
            shown = ("type", "resource")
        case EmbeddedResource(resource=resource):
            assert not isinstance(resource, BlobResourceContents), "matched above"
            yield f"[contents of {resource.uri or 'a resource'}]\n{resource.text}"
            yield from _rest(resource, ("uri", "text"), whole)
            shown = ("type", "resource")
        case ResourceLink():
            fields = link_fields(block)
            link = yield from as_json({name: value for name, value in fields.items() if name != "type"})
            yield f"link: {link}"
            shown = tuple(fields)
        case ToolUseContent(name=name, input=arguments, id=id):
            written = yield from as_json(arguments)
            yield f"calls {name if whole else excerpt(name, NAME_SHOWN)} {written}"
            yield from _long_id(id, whole)
            shown = ("type", "name", "input")
        case ToolResultContent(content=blocks, structured_content=structured, is_error=is_error, tool_use_id=id):
            yield "error of a tool:" if is_error else "result of a tool:"
            for inner in blocks:
                yield from texts_of(inner, whole=whole)
            texts = [inner.text for inner in blocks if isinstance(inner, TextContent)]
            if structured is not None and (whole or not texts_repeat(texts, structured)):
                written = yield from as_json(structured)
                yield f"structured: {written}"
            yield from _long_id(id, whole)
            shown = ("type", "content", "structuredContent", "isError")
        case _:
            assert_never(block)
    yield from _rest(block, shown, whole)


def rest_of(model: Model, shown: Container[str]) -> JSONObject:
    """The fields that the server sent, but for those that are *shown* elsewhere."""
    hidden = {name for name in type(model).model_fields if wire_name(name) in shown}  # they may have megabytes
    rest = model.model_dump(by_alias=True, exclude_unset=True, exclude=hidden, warnings=False)
    return {name: value for name, value in rest.items() if name not in shown}


def as_json(value: object) -> Generator[None, None, str]:
    """A part of the request on one line. It is written in pieces, between which other tasks can run."""
    pieces = list[str]()
    for piece in ENCODER.iterencode(value):
        pieces.append(piece)
        if len(pieces) % PIECES_AT_ONCE == 0:
            yield
    return "".join(pieces)


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


def _rest(model: Model, shown: Container[str], whole: bool) -> Texts:
    if whole and (rest := rest_of(model, shown)):
        written = yield from as_json(rest)
        yield f"with {written}"


def _long_id(id: str, whole: bool) -> Iterator[str]:
    if not whole and PLAIN_ID.fullmatch(id) is None:
        yield f"with the id {ENCODER.encode(id)}"


def _file(what: str, kind: str | None, data: str, whole: bool) -> Texts:
    yield f"[{what}, {len(data)} characters of base64]"
    is_text = FILES.fullmatch((kind or "").partition(";")[0].strip().lower()) is None
    hidden = 0 if whole else len(data) - TEXT_DECODED
    is_shown = False
    for text in _decoded(_beginning(data) if hidden > 0 else data, is_text, is_whole=hidden <= 0):
        is_shown = is_shown or text is not None
        yield text
    if hidden > 0 and is_shown:
        yield f"... and {hidden} more characters of base64"


def _beginning(data: str) -> str:
    """The beginning of base64 data that can be decoded alone."""
    base64 = "".join(data[:TEXT_DECODED].split())
    return base64[: len(base64) // 4 * 4]


def _decoded(data: str, is_text: bool, is_whole: bool) -> Texts:
    """The text in base64 data, or none if it is the file that its type says.

    Data that are no base64, or that other decoders may read in another way, are shown as they are, too.
    """
    raw, rest, is_exact = list[bytes](), "", True
    end = len(data.rstrip(PADDING))
    for start in range(0, end, DECODED_AT_ONCE):
        yield None
        piece = "".join(data[start : min(start + DECODED_AT_ONCE, end)].split()).translate(URL_SAFE)
        base64 = rest + NOT_BASE64.sub("", piece)
        is_exact = is_exact and len(base64) == len(rest) + len(piece)
        quads = len(base64) // 4 * 4
        raw.append(b64decode(base64[:quads]))
        rest = base64[quads:]
    try:
        raw.append(b64decode(rest + "=="))
    except ValueError:
        yield data
        return
    is_exact = is_exact and b64encode(raw[-1]).decode().rstrip("=") == rest
    is_file = is_exact and not is_text
    decoder, pieces = getincrementaldecoder("utf-8")("strict" if is_file else "backslashreplace"), list[str]()
    for index, part in enumerate(raw, start=1):
        yield None
        try:
            text = decoder.decode(part, final=is_whole and index == len(raw))
        except UnicodeDecodeError:
            return
        if is_file and not all(char.isprintable() or char.isspace() for char in text):
            return
        pieces.append(text)
    if (text := "".join(pieces)) or is_text:
        yield text
    if not is_exact:
        yield data
