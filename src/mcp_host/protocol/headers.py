"""The request metadata in HTTP headers since revision 2026-07-28: names, values and annotated parameters.

Source: "Request Metadata" and what follows it, basic/transports/streamable-http (SEP-2243).
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from mcp_host.errors import quoted

PROTOCOL_VERSION: Final = "MCP-Protocol-Version"
MCP_METHOD: Final = "Mcp-Method"
MCP_NAME: Final = "Mcp-Name"
PARAMETER_PREFIX: Final = "Mcp-Param-"
SESSION_ID: Final = "Mcp-Session-Id"
LAST_EVENT_ID: Final = "Last-Event-ID"

_BY_HTTP = ("Accept", "Accept-Encoding", "Content-Type", "Content-Length", "Transfer-Encoding", LAST_EVENT_ID)
RESERVED = frozenset(map(str.lower, (*_BY_HTTP, SESSION_ID, PROTOCOL_VERSION, MCP_METHOD, MCP_NAME)))
"""Headers that the client writes itself."""
USUAL = RESERVED | {"connection", "host", "user-agent"}
"""Headers that every client sends, for any user."""

ANNOTATION = "x-mcp-header"
TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, section 5.1

PREFIX, SUFFIX = "=?base64?", "?="
VISIBLE = re.compile(r"[\t -~]*")  # RFC 9110, section 5.5, but ASCII only, as the specification demands

# RFC 9110, section 5: a line end in a value would inject another header.
_GIVEN = re.compile(r"([!-~]([ \t!-~]*[!-~])?)?")

SAFE = range(-(2**53) + 1, 2**53)  # "Integer values MUST be within the safe range for JavaScript"
TYPES = ("string", "integer", "boolean")  # "Parameters with type `number` are not permitted"
DEEPEST = 64  # levels of `properties`: more than any signature has, and it keeps the search linear

# Keywords whose values are data, and keywords whose values map names to schemas.
DATA = frozenset(("const", "enum", "default", "example", "examples", "dependentRequired"))
BY_NAME = frozenset(("properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"))

Path: TypeAlias = tuple[str, ...]


def check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """A copy of the application's *headers*. The error quotes no value, which may be a secret.

    Raises:
        TypeError: *headers* is no mapping, or a name or value is no text.
        ValueError: A name or value cannot be sent, or the client writes this header itself.
    """
    if not isinstance(headers, Mapping):
        raise TypeError(f"headers is a mapping of names to values, not {type(headers).__name__}")
    for name, value in headers.items():
        if not isinstance(name, str):
            raise TypeError(f"the name of a header is text, not {type(name).__name__}")
        if not TOKEN.fullmatch(name):
            wrong = TOKEN.sub("", name)[:1]  # not the name: it may have the value in it
            raise ValueError(
                "the name of a header is empty" if not name else f"the name of a header has {wrong!r} in it"
            )
        if not isinstance(value, str):
            raise TypeError(f"the value of the header {name!r} is text, not {type(value).__name__}")
        if name.lower() in RESERVED or name.lower().startswith(PARAMETER_PREFIX.lower()):
            raise ValueError(f"the transport writes the header {name} itself")
        if not _GIVEN.fullmatch(value):
            raise ValueError(f"the value of the header {name} is not printable ASCII without space around it")
    return dict(headers)


def may_hold_credential(names: Iterable[str]) -> bool:
    """Whether one of the headers *names* may tell the server who asks: `Authorization`, `X-Api-Key`, or any unusual one."""
    return any(name.lower() not in USUAL and not name.lower().startswith(PARAMETER_PREFIX.lower()) for name in names)


def encode_value(text: str) -> str:
    """Encode *text* as a header value: plain where that is safe, else ``=?base64?…?=``.

    Plain text is printable ASCII without surrounding spaces that does not look encoded. A tab
    is encoded, although HTTP allows it inside a value.

    Raises:
        ValueError: It has a lone surrogate, which no encoding can represent.
    """
    looks_encoded = text.startswith(PREFIX) and text.endswith(SUFFIX)
    if text.isascii() and text.isprintable() and text == text.strip() and not looks_encoded:
        return text
    try:
        data = text.encode()
    except UnicodeEncodeError as exc:
        raise ValueError("a lone surrogate cannot be sent in a header") from exc
    return f"{PREFIX}{b64encode(data).decode()}{SUFFIX}"


def decode_value(header: str) -> str | None:
    """The text that `encode_value` encoded; None if *header* is malformed.

    It is malformed with characters other than visible ASCII, space and tab, or with the
    markers but without valid Base64 of UTF-8 between them.
    """
    if not VISIBLE.fullmatch(header):
        return None
    if not (header.startswith(PREFIX) and header.endswith(SUFFIX)):
        return header
    if len(header) < len(PREFIX) + len(SUFFIX):
        return None
    try:
        return b64decode(header[len(PREFIX) : -len(SUFFIX)], validate=True).decode()
    except ValueError:  # both of Base64 and of UTF-8
        return None


@dataclass(frozen=True, slots=True)
class ParameterHeader:
    """A parameter of a tool that is sent in a header, too, because it has an `x-mcp-header`."""

    name: str
    """The value of the annotation: "Region"."""

    path: Path
    """The property names that lead to it in the arguments; never empty."""

    @property
    def header(self) -> str:
        """The name of the header: "Mcp-Param-Region"."""
        return PARAMETER_PREFIX + self.name

    def value(self, arguments: Mapping[str, object]) -> str | None:
        """The encoded header value for these *arguments*; None if the header is omitted.

        It is omitted if nothing, or null, is "at the exact property path", and for values that no
        parameter can have (an array, 1.5): the server's validation reports those.

        Raises:
            ValueError: An integer beyond JavaScript's safe range, or a text with a lone surrogate.
        """
        match self.find(arguments):
            case str() as text:
                try:
                    return encode_value(text)
                except ValueError as exc:  # the message must not repeat an argument, which may be a secret
                    raise ValueError(f"the text for {self.header}: {exc}") from None
            case bool() as flag:
                return "true" if flag else "false"
            case int() | float() as number if number % 1 == 0:  # JSON has one kind of number: 42.0 is an integer
                if int(number) not in SAFE:
                    raise ValueError(f"the number for {self.header} is not within -(2**53 - 1) and 2**53 - 1")
                return str(int(number))
        return None

    def find(self, arguments: Mapping[str, object]) -> object:
        """The value of the parameter in *arguments*; None if it is missing."""
        found: object = arguments
        for name in self.path:
            found = found.get(name) if isinstance(found, Mapping) else None
        return found


def parameter_headers(input_schema: Mapping[str, object]) -> tuple[ParameterHeader, ...]:
    """The annotated parameters of a tool's *input_schema*, those nearest to its root first.

    The time is linear in the size of the schema; nested schemas use no stack.

    Raises:
        ValueError: An annotation is invalid. "The client MUST exclude the invalid tool from the
            result of `tools/list`"; the message is the reason for its warning.
    """
    found: dict[str, ParameterHeader] = {}
    for schema, path in _schemas(input_schema):
        if ANNOTATION not in schema:
            continue
        header = _annotated(schema, path)
        if found.setdefault(header.name.lower(), header) is not header:
            raise ValueError(f"two parameters have the {ANNOTATION} {quoted(header.name)} (case does not count)")
    return tuple(found.values())


def _annotated(schema: Mapping[str, object], path: Path | None) -> ParameterHeader:
    name, kind = schema[ANNOTATION], schema.get("type")
    if not isinstance(name, str):
        raise ValueError(f"an {ANNOTATION} is {quoted(name)}, not a string")
    if not TOKEN.fullmatch(name):
        raise ValueError(f"the {ANNOTATION} {quoted(name)} cannot be part of a header's name")
    if not path:
        raise ValueError(
            f"the {ANNOTATION} {quoted(name)} is not on a property that is reached through `properties` only,"
            f" {DEEPEST} levels at most"
        )
    if kind not in TYPES:
        given = f"type is {quoted(kind)}" if "type" in schema else "type is missing"
        raise ValueError(f"the {ANNOTATION} {quoted(name)} is on a parameter whose {given}, not {', '.join(TYPES)}")
    return ParameterHeader(name, path)


def _schemas(root: Mapping[str, object]) -> Iterator[tuple[Mapping[str, object], Path | None]]:
    """Every schema in *root*, with the path of its parameter or None if other keywords than `properties` lead there.

    Every value that is neither data nor a map of names counts as a schema, also under unknown
    keywords: "An `x-mcp-header` annotation anywhere else makes the annotation [...] invalid".
    """
    waiting: deque[tuple[object, Path | None]] = deque([(root, ())])
    while waiting:
        node, path = waiting.popleft()
        if isinstance(node, Mapping):
            yield node, path
            waiting.extend(_beneath(node, path))
        elif isinstance(node, list):
            waiting.extend((item, None) for item in node)


def _beneath(schema: Mapping[str, object], path: Path | None) -> Iterator[tuple[object, Path | None]]:
    reachable = path if path is not None and len(path) < DEEPEST else None
    for keyword, value in schema.items():
        if keyword in DATA:
            continue
        if keyword not in BY_NAME or not isinstance(value, Mapping):
            yield value, None
        elif keyword == "properties" and reachable is not None:
            yield from ((child, (*reachable, name)) for name, child in value.items())
        else:
            yield from ((child, None) for child in value.values())
