"""The bodies of HTTP in a file: JSON, the events of a stream, lines of JSON, text, or base64."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Sequence

from mcp_host.testing.cassettes.file import deeper
from mcp_host.types.base import JSONObject, JSONValue

EVENTS = "text/event-stream"
FIELDS = frozenset({"event", "data", "id", "retry"})  # of an event
LINES = ("application/x-ndjson", "application/jsonl", "application/x-jsonlines")
MAX_DEPTH = 200  # of JSON in a body; what is deeper is kept as text


def write_body(body: bytes, content_type: str) -> JSONObject:
    """*body* as it reads best: ``json``, ``events``, ``lines``, ``text`` or ``base64``.

    Read again, it means the same. JSON may be spaced otherwise.
    """
    kind = content_type.partition(";")[0].strip().lower()
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(body).decode()}
    if kind == EVENTS:
        *blocks, rest = text.replace("\r\n", "\n").split("\n\n")
        events: list[JSONValue] = [_write_event(block) for block in blocks]
        return {"events": events} | ({"rest": rest} if rest else {})
    if kind in LINES:
        *lines, rest = text.split("\n")
        return {"lines": [_parsed(line) for line in lines]} | ({"rest": rest} if rest else {})
    value = _parsed(text)
    return {"text": text} if value is text else {"json": value}


def _write_event(block: str) -> JSONValue:
    """One event: an object if it has one line of ``data``, and no comment, else the text of it."""
    lines = [line.partition(":") for line in block.split("\n")]
    values = {name: value.removeprefix(" ") for name, _, value in lines}
    if "data" not in values or len(values) < len(lines) or not values.keys() <= FIELDS:
        return block
    return values | {"data": _parsed(values["data"])}


def _parsed(text: str) -> JSONValue:
    """The object or array that *text* is, or *text* itself."""
    try:
        value = json.loads(text)
        kept = isinstance(value, dict | list) and not deeper(value, MAX_DEPTH) and _compact(value).encode()
    except (ValueError, RecursionError):  # numbers that are none, or half a character, too
        return text
    return value if kept else text


def _compact(value: JSONValue) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def read_body(written: JSONObject) -> Sequence[bytes]:
    """The pieces of a body that `write_body` has written."""
    match written:
        case {"json": value}:
            pieces = [_compact(value)]
        case {"text": str(text)}:
            pieces = [text]
        case {"base64": str(encoded)}:
            return [b64decode(encoded, validate=True)]
        case {"events": list(events)}:
            pieces = [f"{_event(event)}\n\n" for event in events]
        case {"lines": list(lines)}:
            pieces = [f"{line if isinstance(line, str) else _compact(line)}\n" for line in lines]
        case _:
            pieces = []
    return [piece.encode() for piece in [*pieces, *([written["rest"]] if "rest" in written else [])]]


def _event(event: JSONValue) -> str:
    if not isinstance(event, dict):
        return str(event)
    return "\n".join(f"{name}: {value if isinstance(value, str) else _compact(value)}" for name, value in event.items())
