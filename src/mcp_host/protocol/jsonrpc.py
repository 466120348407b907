"""JSON-RPC 2.0 messages, and their encoding as bytes."""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from typing import Any, NoReturn, TypeAlias, assert_never

from pydantic_core import PydanticSerializationError, from_json, to_json

from mcp_host.errors import (
    CallerError,
    McpError,
    MessageTooLarge,
    NotAdvertised,
    ProtocolError,
    ServerError,
    excerpt,
    quoted,
)

logger = logging.getLogger(__name__)

Raw: TypeAlias = bytes | bytearray  # the latter if it arrived in several chunks, to save a copy

BOM = b"\xef\xbb\xbf"  # "implementations that parse JSON texts MAY ignore the presence of a byte order mark" (RFC 8259)

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

USER_REJECTED = -1  # client/sampling: Error Handling, "User rejected sampling request"
RESOURCE_NOT_FOUND = -32002  # 2025-11-25, server/resources: Error Handling
URL_ELICITATION_REQUIRED = -32042  # 2025-11-25, schema: URLElicitationRequiredError
HEADER_MISMATCH = -32020  # 2026-07-28, basic: Error Codes, as the two that follow
MISSING_REQUIRED_CLIENT_CAPABILITY = -32021
UNSUPPORTED_PROTOCOL_VERSION = -32022

# Ours. MCP keeps -32020 to -32099 of the range that JSON-RPC leaves to implementations; other SDKs use -32000 to -32009.
TOO_MANY_WAITING = -32010  # the queue of sampling requests is full
TOOK_TOO_LONG = -32011  # the model or the user did not answer in time
CALL_ENDED = -32012  # the call that the server's request belonged to has ended
ASKED_TOO_MUCH = (
    -32013
)  # `Limits.max_inputs`, `max_model_calls` or `max_nesting`: too many requests, for one call or without any

EMPTY: Sequence[object] = (None, [])  # in the place of {}: of a handler that returns nothing, and of PHP
NOT_JSONRPC = 'jsonrpc is not "2.0"'
SHOWN = 300  # characters of an answer in another form: a gateway's own errors say in it what is wrong

MAX_BATCH = 5_000  # messages: all of them are handled in one step of the event loop
MAX_MARKS = 2**20  # opening brackets, colons and commas in one message, outside of strings
INTEGER = "-?[0-9]{1,15}"  # as text
NUMBER = rf"{INTEGER}(?:\.[0-9]{{1,15}})?"
MAX_DIGITS = 309  # of a number in a message of more than 1 MiB; a float has no more before its point
MAX_READ_TWICE = 2**22  # bytes of a message with more than 200 levels or a lone surrogate
MAX_DEPTH = 640  # nested arrays and objects: each takes one of the 1,000 frames of a stack in Python 3.11

Id: TypeAlias = int | str
Params: TypeAlias = dict[str, Any]  # decoded JSON, not validated


# The messages are immutable by convention: a frozen dataclass takes twice as long to create.


@dataclass(slots=True)
class Request:
    id: Id
    method: str
    params: Params
    size: float = field(default=math.inf, compare=False, repr=False)
    """Upper bound of its bytes on the wire; infinite for requests that we send."""


@dataclass(slots=True)
class Notification:
    """A notification, as received or to be sent. *params* are JSON; {} if there are none."""

    method: str
    params: Params
    size: float = field(default=0, compare=False, repr=False)
    """Upper bound of its bytes on the wire, if it was received."""


@dataclass(slots=True)
class Success:
    id: Id
    result: dict[str, Any]
    size: float = field(default=math.inf, compare=False, repr=False)
    """As that of `Request`."""


@dataclass(slots=True)
class Failure:
    """An error response. Its id is None if the peer could not read the request."""

    id: Id | None
    code: int
    message: str
    data: object = None


@dataclass(slots=True)
class Malformed:
    """Input that is not a valid message. With an *id*, the request of that id ends.

    *method* is set if it was a request. The peer is then sent an error.
    """

    reason: str
    id: Id | None = None
    method: str | None = None
    oversize: bool = False


Response: TypeAlias = Success | Failure
Message: TypeAlias = Request | Notification | Success | Failure
Incoming: TypeAlias = Message | Malformed


def decode(raw: Raw) -> Sequence[Incoming]:
    """Decode one line, body or event: one message, or the members of a batch.

    Never raises: invalid input becomes `Malformed`, and the other members of a batch are
    still decoded. Keys are case-sensitive; the last of several equal keys counts. A byte
    order mark at the beginning is ignored.
    """
    if raw.startswith(BOM):
        raw = raw[len(BOM) :]
    if len(raw) > MAX_MARKS and (too_much := _why_too_complex(raw)):
        return (unreadable(f"a message of {len(raw):,} bytes with {too_much}", raw, raw, oversize=True),)
    try:
        try:
            body = from_json(raw, allow_inf_nan=False)
        except ValueError as exc:
            body = _parse_again(raw, exc)
    except ValueError as exc:
        return (unreadable(f"not JSON ({exc}): {excerpt(raw[:100].decode(errors='replace'), 80)}", raw, raw),)
    if isinstance(body, list):
        # Revision 2025-03-26: implementations "MUST support receiving JSON-RPC batches".
        if len(body) > MAX_BATCH:
            return (Malformed(f"a batch of {len(body):,} messages, more than {MAX_BATCH:,}", oversize=True),)
        return [_read(member, len(raw)) for member in body] or (Malformed("an empty batch"),)
    return (_read(body, len(raw)),)


def encode(message: Message) -> bytes:
    """Encode one message as a single line of UTF-8, without the newline.

    Raises:
        CallerError: The message contains something that JSON cannot express.
    """
    match message:  # a pattern that takes the members out would cost more than the rest
        case Request():
            body: dict[str, Any] = {
                "jsonrpc": "2.0",
                "id": message.id,
                "method": message.method,
                "params": message.params,
            }
        case Success():
            body = {"jsonrpc": "2.0", "id": message.id, "result": message.result}
        case Notification():
            body = {"jsonrpc": "2.0", "method": message.method, "params": message.params}
        case Failure():
            error: dict[str, Any] = {"code": message.code, "message": message.message}
            body = {"jsonrpc": "2.0", "id": message.id, "error": error}
            if message.data is not None:
                error["data"] = message.data
        case _:
            assert_never(message)
    try:
        raw = to_json(body)
        if b"NaN" in raw or b"Infinity" in raw:
            check_numbers(raw)
    except (PydanticSerializationError, ValueError) as exc:
        raise CallerError(f"not expressible in JSON: {excerpt(str(exc))}") from exc
    return raw


def check_numbers(written: bytes) -> None:
    """Check what `to_json` has written, and has NaN or Infinity in it: they may be words of a text.

    Raises:
        ValueError: They are numbers.
    """
    if any(b"NaN" in piece or b"Infinity" in piece for piece in _outside_of_strings(written)):
        raise ValueError("Out of range float values are not JSON compliant")


def as_sent(params: Mapping[str, Any]) -> Params:
    """A copy of *params* as the server will read them: of equal keys the last, a text for a date.

    Raises:
        CallerError: They contain something that JSON cannot express.
    """
    raw = encode(Notification("", dict(params)))
    try:
        read: Params = json.loads(raw)["params"]
    except ValueError as exc:  # a number of thousands of digits
        raise CallerError(f"not expressible in JSON: {exc}") from exc
    return read


def snapshot(params: Mapping[str, Any]) -> Params:
    """A copy of *params* that does not change when the application changes its own objects and arrays.

    What else is in them is shared: it cannot change, or is no JSON yet.
    """
    try:
        return {key: _copied(value) for key, value in params.items()}
    except RecursionError:  # which cannot be sent either
        return dict(params)


def _copied(value: object) -> object:
    if isinstance(value, dict):
        return {key: _copied(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_copied(item) for item in value]
    return value


def too_large(head: bytes, tail: bytes, limit: int) -> Malformed:
    """A message that is larger than *limit*, of which only the beginning and the end are known."""
    return unreadable(f"a message of more than {limit:,} bytes (Limits.max_message)", head, tail, oversize=True)


def unreadable(reason: str, head: Raw, tail: Raw, *, oversize: bool = False) -> Malformed:
    """A message that cannot be decoded, with the id and the method if its two ends show them."""
    call = re.match(_METHOD_FIRST, head[:ID_WINDOW])
    return Malformed(reason, recover_id(head, tail), call and str(call[1], errors="replace"), oversize)


# Patterns are compiled on first use: most hosts never receive a message that cannot be decoded.
ID_WINDOW = 256  # bytes at each end of a message: a serializer writes the id among the first two members, or last
_ID = rb'"id"\s*:\s*(?:(-?\d{1,18})|"([^"\\]{1,128})")'
_ID_FIRST = rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + _ID + rb"\s*[,}]"
_METHOD_FIRST = rb'\s*\{\s*(?:"(?:jsonrpc|id)"\s*:\s*[^,{}\[\]]+,\s*){0,2}"method"\s*:\s*"([^"\\]{1,128})"'
_ID_LAST = rb"[}\]\"\w]\s*,\s*" + _ID + rb"\s*\}\s*\Z"
_OPENED = rb"\s*\{"


def recover_id(head: Raw, tail: Raw) -> Id | None:
    """The id of a message that cannot be decoded, if it is near one of its ends. A line of a log only ends like one."""
    start = head[:ID_WINDOW]
    found = re.match(_ID_FIRST, start) or (re.match(_OPENED, start) and re.search(_ID_LAST, tail[-ID_WINDOW:]))
    if not found:
        return None
    number, text = found.groups()
    return int(number) if number else str(text, errors="replace")


_MARKS = b"[{:,"
_NO_MARKS = bytes(set(range(256)) - set(_MARKS))
FEW_STRINGS = 1000  # with more, going through them one by one is slower than looking at every byte
_BACKSLASH = ord("\\")


def _why_too_complex(raw: Raw) -> str | None:
    if too_complex(raw, MAX_MARKS):
        return f"more than {MAX_MARKS:,} brackets, colons and commas"
    if has_long_number(raw):
        return f"a number of more than {MAX_DIGITS} digits"
    return None


def too_complex(raw: Raw, most: int) -> bool:
    """Whether JSON has more than *most* opening brackets, colons and commas outside of its strings.

    Parsing blocks the event loop: 16 MiB of "[[],[],[]…" take seconds and a gigabyte of memory.
    Long strings are cheap.
    """
    if (pieces := _outside_of_few_strings(raw)) is not None:
        return sum(len(piece.translate(None, _NO_MARKS)) for piece in pieces) > most
    if len(raw.translate(None, _NO_MARKS)) <= most:
        return False
    plain = _keep_only(raw, _MARKS)
    if plain.count(b'"') > 2 * most + 2:  # more strings than members and items are allowed
        return True
    return sum(map(len, plain.split(b'"')[::2])) > most  # every other piece is outside of strings


def _keep_only(raw: Raw, kept: bytes) -> Raw:
    """JSON reduced to the bytes in *kept* and the quotes around its strings."""
    return _without_escaped_quotes(raw).translate(None, bytes(set(range(256)) - {*kept, ord('"')}))


def _without_escaped_quotes(raw: Raw) -> Raw:
    """JSON in which each quote is one of the two around a string.

    What takes the place of the others is as long, which saves a pass over large messages.
    """
    if b"\\" not in raw:
        return raw
    if raw.rfind(rb"\\") >= 0:  # three times as fast as from the left
        raw = raw.replace(rb"\\", b"  ")
    return raw.replace(rb"\"", b"  ")


def _outside_of_strings(raw: Raw) -> Sequence[Raw]:
    return _without_escaped_quotes(raw).split(b'"')[::2]


def _outside_of_few_strings(raw: Raw) -> list[Raw] | None:
    """The parts between the strings; None if there are many strings, or one may contain quotes."""
    pieces: list[Raw] = []
    at = 0
    for _ in range(FEW_STRINGS):
        start = raw.find(b'"', at)
        if start < 0:
            return [*pieces, raw[at:]]
        pieces.append(raw[at:start])
        end = raw.find(b'"', start + 1)
        if end > 0 and raw[end - 1] == _BACKSLASH:
            return None  # perhaps an escaped quote
        at = end + 1 if end > 0 else len(raw)
    return None


_DIGITS = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER = b"0" * (MAX_DIGITS + 1)


def has_long_number(raw: Raw) -> bool:
    """Whether JSON has a number of more than `MAX_DIGITS` digits: the time to read one grows with their square."""
    stride = MAX_DIGITS // 6
    if not re.search(rb"[0-9]{6}", raw[::stride]):  # nearly always
        return False
    plain = raw.translate(_DIGITS)
    if _LONG_NUMBER not in plain:
        return False
    return any(_LONG_NUMBER in piece for piece in _outside_of_strings(plain))


_HALF = rb"""(?x) \\u[dD] (?:
    [89abAB][0-9a-fA-F]{2} (?! \\u[dD][c-fC-F][0-9a-fA-F]{2})
  | [c-fC-F][0-9a-fA-F]{2} (?<! \\u[dD][89abAB][0-9a-fA-F]{2} \\u[dD][c-fC-F][0-9a-fA-F]{2})
)"""
"""The escape of a surrogate without the other of its pair. JavaScript writes it for a text that was cut inside of an emoji."""


def _without_halves(raw: Raw) -> Raw:
    """JSON with the escape of U+FFFD in the place of each lone surrogate; *raw* itself if there is none."""
    stand_in = b"\0\0"  # for an escaped backslash: no JSON has it
    whole, halves = re.subn(_HALF, rb"\\ufffd", raw.replace(rb"\\", stand_in))
    if not halves or b"\0" in raw:
        return raw
    _warn_of_halves()
    return whole.replace(stand_in, rb"\\")


@cache
def _warn_of_halves() -> None:
    """Once in a process: a server may send any number."""
    logger.warning(
        "half of a character (a lone surrogate) in a server's message is read as U+FFFD; this is logged once"
    )


def _parse_again(raw: Raw, error: ValueError) -> Any:
    """Parse what pydantic's parser stops at: what a launcher tells the terminal before the message, a lone surrogate, or
    more than 200 levels, as one schema in a long list may have.

    For the levels Python's parser is needed. How far that goes depends on the interpreter and the stack, so the depth is measured.

    Raises:
        ValueError: The *error* of pydantic's parser has another reason, or the message is too large, or nests too deeply.
    """
    if terminal := re.match(_TERMINAL, raw):
        raw = raw[terminal.end() :]
        try:
            return from_json(raw, allow_inf_nan=False)
        except ValueError as exc:
            error = exc
    if "hex escape" in str(error) and len(raw) <= MAX_READ_TWICE:
        try:
            return from_json(_without_halves(raw), allow_inf_nan=False)
        except ValueError as exc:
            error = exc
    if "recursion limit" not in str(error):
        raise error
    if len(raw) > MAX_READ_TWICE:
        raise ValueError(f"it nests too deeply for its {len(raw):,} bytes") from None
    too_deep = f"it nests too deeply ({MAX_DEPTH} levels at most)"
    try:
        body = json.loads(_without_halves(raw).decode(), parse_constant=_refuse)
        if depth(raw) > MAX_DEPTH:
            raise ValueError(too_deep)
    except RecursionError:
        raise ValueError(too_deep) from None
    return body


_TERMINAL = rb"(?:\r|\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\))+"
"""Control sequences, such as those of npm for the cursor and the title of the window. (ECMA-48, 5.4; xterm's OSC)"""

_BRACKETS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


def depth(raw: Raw) -> int:
    """How deep arrays and objects are nested in JSON."""
    brackets = b"".join(_keep_only(raw, bytes(_BRACKETS)).split(b'"')[::2])
    return max(accumulate(map(_BRACKETS.__getitem__, brackets)), default=0)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _read(body: Any, size: int) -> Incoming:
    if not isinstance(body, dict):
        return Malformed(f"not an object: {quoted(body)}")
    id, method = body.get("id"), body.get("method")
    if type(id) is not int:  # nearly always it is
        id = read_id(id)
    if not isinstance(method, str):
        return _read_response(body, id, size)
    params = body.get("params")
    if body.get("jsonrpc") != "2.0":
        return Malformed(NOT_JSONRPC, id, method)
    if not isinstance(params, dict):
        if params not in EMPTY:
            return Malformed("params is not an object", id, method)
        params = {}
    if "id" not in body or (body["id"] is None and method.startswith("notifications/")):  # JSON-RPC 1.0 writes the null
        return Notification(method, params, size)
    return Malformed("an unusable request id", None, method) if id is None else Request(id, method, params, size)


def read_id(value: object) -> Id | None:
    """The id of a request; None if *value* is none."""
    if type(value) is int or type(value) is str:
        return value
    return int(value) if type(value) is float and value == value // 1 else None  # some peers turn our 3 into 3.0


def _read_response(body: dict[str, Any], id: Id | None, size: int) -> Incoming:
    if body.get("jsonrpc") != "2.0":
        if "result" in body:
            return Malformed(NOT_JSONRPC, id)
        reason = f"{NOT_JSONRPC}: {quoted(body, SHOWN)}"
        return Malformed(reason, id if "error" in body else None)  # else it is a line of a log
    if (error := body.get("error")) is not None:  # a serializer may write all members, those that are missing as null
        if id is None and body.get("id") is not None:
            return Malformed("an error response without a usable id")
        match error:
            case {"code": int(code), "message": str(message), **rest} if not isinstance(code, bool):
                return Failure(id, code, message, rest.get("data"))
            case dict() | str():
                return Failure(id, *_read_error({"message": error} if isinstance(error, str) else error))
        return Malformed(f"error is not an error object: {quoted(error)}", id)
    if id is None:
        return Malformed("a response without a usable id")
    if isinstance(result := body.get("result"), dict):
        return Success(id, result, size)
    if "result" not in body:
        return Malformed("neither result nor error", id)
    return Success(id, {}, size) if result in EMPTY else Malformed("result is not an object", id)


def _read_error(error: dict[str, Any]) -> tuple[int, str, object]:
    """Code, message and data of an error that is not quite one: the words of the server are worth more than its form."""
    code, message = error.get("code"), error.get("message")
    if not isinstance(message, str):
        message = "an error without a message" if message is None else quoted(message, SHOWN)
    if type(code) is float and code == code // 1:
        code = int(code)  # as an id
    elif isinstance(code, str) and re.fullmatch(INTEGER, code):
        code = int(code)
    elif type(code) is not int:
        message = message if code is None else f"{message} (its code is {quoted(code)})"
        code = INTERNAL_ERROR
    return code, message, error.get("data")


def is_number(value: object) -> bool:
    """Whether it is a number, or the text of one, as some servers write progress."""
    return isinstance(value, int | float) or (isinstance(value, str) and re.fullmatch(NUMBER, value) is not None)


def malformed_error(message: Malformed) -> ProtocolError:
    """The error to raise from the request that *message* should have answered."""
    if message.oversize:
        return MessageTooLarge(message.reason)
    return ProtocolError(f"the server's answer is no JSON-RPC response: {message.reason}")


def says_there_is_none(error: McpError) -> bool:
    """Whether *error*, of a request for a list, says that the server has no such list."""
    return isinstance(error, NotAdvertised) or (isinstance(error, ServerError) and error.code == METHOD_NOT_FOUND)
