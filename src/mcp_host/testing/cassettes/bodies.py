"""HTTP bodies in the file: as JSON, the events of a stream, lines of JSON, text or base64."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from contextlib import suppress

from mcp_host.testing.cassettes.file import is_deeper
from mcp_host.types.base import JSONObject, JSONValue

EVENT_STREAM = "text/event-stream"
EVENT_FIELDS = frozenset({"event", "data", "id", "retry"})
JSON_LINES = ("application/x-ndjson", "application/jsonl", "application/x-jsonlines")
MAX_DEPTH = 200  # levels of JSON; a deeper body is kept as text


def write_body(body: bytes, content_type: str) -> JSONObject:
    """*body* in the most readable form: ``json``, ``events``, ``lines``, ``text`` or ``base64``.

    `read_body` returns a body that means the same, but the white space of JSON may differ.
    """
    kind = content_type.partition(";")[0].strip().lower()
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(body).decode()}
    if kind == EVENT_STREAM:
        *blocks, rest = text.replace("\r\n", "\n").split("\n\n")
        events: list[JSONValue] = [_write_event(block) for block in blocks]
        return {"events": events} | ({"rest": rest} if rest else {})
    if kind in JSON_LINES:
        *lines, rest = text.split("\n")
        return {"lines": [_parsed(line) for line in lines]} | ({"rest": rest} if rest else {})
    value = _parsed(text)
    return {"text": text} if value is text else {"json": value}


def _write_event(block: str) -> JSONValue:
    """One event: an object if each field stands once, with ``data`` and without comments, else its text."""
    lines = [line.partition(":") for line in block.split("\n")]
    values = {name: value.removeprefix(" ") for name, _, value in lines}
    if "data" not in values or len(values) < len(lines) or not values.keys() <= EVENT_FIELDS:
        return block
    return values | {"data": _parsed(values["data"])}


def _parsed(text: str) -> JSONValue:
    """*text* as JSON, if it is an object or array that can be written again; else *text* itself."""
    with suppress(ValueError, RecursionError):
        value = json.loads(text)
        if isinstance(value, dict | list) and not is_deeper(value, MAX_DEPTH):
            _compact(value).encode()  # fails for NaN and for half of a character
            return value
    return text


def _compact(value: JSONValue) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def read_body(written: JSONObject) -> Sequence[bytes]:
    """The body that `write_body` has written, in pieces: one for each event or line."""
    match written:
        case {"json": value}:
            pieces = [_compact(value)]
        case {"text": str(text)}:
            pieces = [text]
        case {"base64": str(encoded)}:
            return [b64decode(encoded, validate=True)]
        case {"events": list(events)}:
            pieces = [f"{_read_event(event)}\n\n" for event in events]
        case {"lines": list(lines)}:
            pieces = [f"{line if isinstance(line, str) else _compact(line)}\n" for line in lines]
        case _:
            pieces = []
    if "rest" in written:
        pieces.append(written["rest"])
    return [piece.encode() for piece in pieces]


def _read_event(event: JSONValue) -> str:
    if not isinstance(event, dict):
        return str(event)
    return "\n".join(f"{name}: {value if isinstance(value, str) else _compact(value)}" for name, value in event.items())
