"""What Streamable HTTP repeats in headers from revision 2026-07-28 on: names, values, and annotated parameters.

Source: "Request Metadata" and what follows it, basic/transports/streamable-http (SEP-2243).
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from mcp_host.errors import quoted

PROTOCOL_VERSION: Final = "MCP-Protocol-Version"
MCP_METHOD: Final = "Mcp-Method"
MCP_NAME: Final = "Mcp-Name"
PARAMETER_PREFIX: Final = "Mcp-Param-"

ANNOTATION = "x-mcp-header"
TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, section 5.1: no space, no control character, ASCII only

PREFIX, SUFFIX = "=?base64?", "?="
VISIBLE = re.compile(r"[\t -~]*")  # RFC 9110, section 5.5, without the bytes past ASCII that the specification forbids

SAFE = range(-(2**53) + 1, 2**53)  # "Integer values MUST be within the safe range for JavaScript"
TYPES = ("string", "integer", "boolean")  # "Parameters with type `number` are not permitted"
DEEPEST = 64  # `properties` on the way to a parameter: more than any signature has, and it keeps the walk linear

DATA = frozenset(
    ("const", "enum", "default", "example", "examples", "dependentRequired")
)  # their values are no schemas
BY_NAME = frozenset(("properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"))

Path: TypeAlias = tuple[str, ...]


def encode_value(text: str) -> str:
    """*text* as a header can carry it: plain where that is safe, else ``=?base64?…?=``.

    "Safe" is printable ASCII with no space around it that does not look encoded already.
    A tab is encoded: HTTP allows it inside a value, and calls it a control character all the same.

    Raises:
        ValueError: There is half of a surrogate pair in it, which no encoding can carry.
    """
    if text.isascii() and text.isprintable() and text == text.strip() and not _looks_encoded(text):
        return text
    try:
        data = text.encode()
    except UnicodeEncodeError as exc:
        raise ValueError("there is half of a surrogate pair in it, which no header can carry") from exc
    return f"{PREFIX}{b64encode(data).decode()}{SUFFIX}"


def decode_value(header: str) -> str | None:
    """The text that `encode_value` was given; None where *header* is malformed.

    Malformed is what has other characters than visible ASCII, space and tab, and what has
    the markers without proper Base64 of UTF-8 between them.
    """
    if not VISIBLE.fullmatch(header):
        return None
    if not _looks_encoded(header):
        return header
    if len(header) < len(PREFIX) + len(SUFFIX):
        return None
    try:
        return b64decode(header[len(PREFIX) : -len(SUFFIX)], validate=True).decode()
    except ValueError:  # both of Base64 and of UTF-8
        return None


def _looks_encoded(text: str) -> bool:
    return text.startswith(PREFIX) and text.endswith(SUFFIX)


@dataclass(frozen=True, slots=True)
class ParameterHeader:
    """One parameter of a tool that is repeated in a header, as its `x-mcp-header` asks."""

    name: str
    """As annotated: "Region"."""

    path: Path
    """The names of the properties that lead to it in the call's arguments: never empty."""

    @property
    def header(self) -> str:
        """The header's whole name: "Mcp-Param-Region"."""
        return PARAMETER_PREFIX + self.name

    def value(self, arguments: Mapping[str, object]) -> str | None:
        """The header's value in a call with these *arguments*, encoded; None where the header is left out.

        It is left out where nothing, or null, is "at the exact property path", and for what no
        valid parameter can be (an array, 1.5): the server's validation says what is wrong with it.

        Raises:
            ValueError: A whole number that JSON does not carry safely, or text that no header can carry.
        """
        found: object = arguments
        for name in self.path:
            found = found.get(name) if isinstance(found, Mapping) else None
        match found:
            case str():
                return self._encoded(found)
            case bool():
                return "true" if found else "false"
            case int():
                return self._decimal(found)
            case float() if found.is_integer():  # JSON knows one kind of number: 42.0 is an integer there
                return self._decimal(int(found))
        return None

    def _encoded(self, text: str) -> str:
        try:
            return encode_value(text)
        except ValueError as exc:  # which must not repeat an argument: it may be a secret
            raise ValueError(f"the text for {self.header}: {exc}") from None

    def _decimal(self, number: int) -> str:
        if number not in SAFE:
            raise ValueError(f"the number for {self.header} is not within -(2**53 - 1) and 2**53 - 1")
        return str(number)


def parameter_headers(input_schema: Mapping[str, object]) -> tuple[ParameterHeader, ...]:
    """The parameters that a tool's *input_schema* wants repeated in headers, those nearest to its root first.

    Takes time in proportion to the schema, and no stack, however deep it is.

    Raises:
        ValueError: Some annotation is invalid, so the tool is. "The client MUST exclude the
            invalid tool from the result of `tools/list`", and says this reason in its warning.
    """
    found: dict[str, ParameterHeader] = {}
    for schema, path in _schemas(input_schema):
        if ANNOTATION not in schema:
            continue
        header = _annotated(schema, path)
        if found.setdefault(header.name.lower(), header) is not header:
            raise ValueError(f"two parameters have the {ANNOTATION} {quoted(header.name)}, in whatever case")
    return tuple(found.values())


def _annotated(schema: Mapping[str, object], path: Path | None) -> ParameterHeader:
    name, kind = schema[ANNOTATION], schema.get("type")
    if not isinstance(name, str):
        raise ValueError(f"an {ANNOTATION} is {quoted(name)} instead of text")
    if not TOKEN.fullmatch(name):
        raise ValueError(f"the {ANNOTATION} {quoted(name)} cannot be part of a header's name")
    if not path:
        raise ValueError(
            f"the {ANNOTATION} {quoted(name)} is not on a property that `properties` alone lead to,"
            f" {DEEPEST} of them at most"
        )
    if kind not in TYPES:
        given = f"type is {quoted(kind)}" if "type" in schema else "type is missing"
        raise ValueError(f"the {ANNOTATION} {quoted(name)} is on a parameter whose {given}, not {', '.join(TYPES)}")
    return ParameterHeader(name, path)


def _schemas(root: Mapping[str, object]) -> Iterator[tuple[Mapping[str, object], Path | None]]:
    """Every schema in *root* with the path of its parameter; None where more than `properties` led there.

    Whatever is neither data nor a map of names counts as a schema, under unknown keywords, too:
    "An `x-mcp-header` annotation anywhere else makes the annotation [...] invalid".
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
