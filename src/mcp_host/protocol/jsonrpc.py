"""JSON-RPC 2.0 messages, and the bytes they travel as."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NoReturn, TypeAlias

from pydantic_core import PydanticSerializationError, from_json, to_json

from mcp_host.errors import CallerError, MessageTooLarge, ProtocolError, excerpt, quoted
from mcp_host.protocol.framing import Raw

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
ASKED_TOO_MUCH = -32013  # one call has reached its limit of requests from the server

MAX_BATCH = 10_000  # messages: all of them are taken in one turn of the event loop
MAX_MARKS = 2**20  # opening brackets, colons and commas in one message, those in its texts not counted
MAX_DEPTH = 640  # arrays and objects in each other: each takes one of the 1,000 frames of a stack in Python 3.11

Id: TypeAlias = int | str
Params: TypeAlias = dict[str, Any]  # JSON, before anyone has looked at it


@dataclass(frozen=True, slots=True)
class Request:
    id: Id
    method: str
    params: Params
    size: float = field(default=math.inf, compare=False, repr=False)
    """Of how many bytes it was read, at most; for ours, that is not known."""


@dataclass(frozen=True, slots=True)
class Notification:
    method: str
    params: Params


@dataclass(frozen=True, slots=True)
class Success:
    id: Id
    result: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Failure:
    """An error response. Its id is None when the peer could not read ours."""

    id: Id | None
    code: int
    message: str
    data: object = None


@dataclass(frozen=True, slots=True)
class Malformed:
    """Something that is no message. With an *id*, whoever waits for it need not wait any longer.

    *method* is there when it was meant as a request, which then deserves an error in return.
    """

    reason: str
    id: Id | None = None
    method: str | None = None
    oversize: bool = False


Response: TypeAlias = Success | Failure
Message: TypeAlias = Request | Notification | Success | Failure
Incoming: TypeAlias = Message | Malformed


def decode(raw: Raw) -> Sequence[Incoming]:
    """Read what one line, body or event carries: one message, or the members of a batch.

    Never raises: what cannot be read is `Malformed`, and its neighbours are still delivered.
    Keys are exact, "Id" is not "id"; of a key that stands twice the last one counts. A byte
    order mark in front is passed over.
    """
    if raw.startswith(BOM):
        raw = raw[len(BOM) :]
    if len(raw) > MAX_MARKS and too_complex(raw, MAX_MARKS):
        reason = f"a message of {len(raw):,} bytes with more than {MAX_MARKS:,} brackets, colons and commas"
        return (unreadable(reason, raw, raw, oversize=True),)
    try:
        body = _parse(raw)
    except ValueError as exc:
        return (unreadable(f"not JSON ({exc}): {_shown(raw)}", raw, raw),)
    if isinstance(body, list):
        # Revision 2025-03-26: implementations "MUST support receiving JSON-RPC batches".
        if len(body) > MAX_BATCH:
            return (Malformed(f"a batch of {len(body):,} messages, more than {MAX_BATCH:,}", oversize=True),)
        return [_read(member, len(raw)) for member in body] or (Malformed("an empty batch"),)
    return (_read(body, len(raw)),)


def encode(message: Message) -> bytes:
    """Write one message as a single line of UTF-8, without the newline.

    Raises:
        CallerError: The message holds something that JSON cannot say.
    """
    match message:
        case Request(id, method, params):
            body: dict[str, Any] = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        case Notification(method, params):
            body = {"jsonrpc": "2.0", "method": method, "params": params}
        case Success(id, result):
            body = {"jsonrpc": "2.0", "id": id, "result": result}
        case Failure(id, code, text, data):
            error = {"code": code, "message": text} | ({} if data is None else {"data": data})
            body = {"jsonrpc": "2.0", "id": id, "error": error}
    try:
        raw = to_json(body)
        if b"NaN" in raw or b"Infinity" in raw:
            json.dumps(json.loads(raw), allow_nan=False)  # raises unless the words stand in a string
    except (PydanticSerializationError, ValueError) as exc:
        raise CallerError(f"not expressible in JSON: {excerpt(str(exc))}") from exc
    return raw


def oversize(head: bytes, tail: bytes, limit: int) -> Malformed:
    """What stands for a message that is too large to be read, of which only the two ends are known.

    How large it is, is not: it is given up before its end has come.
    """
    return unreadable(f"a message of more than {limit:,} bytes (Limits.max_message)", head, tail, oversize=True)


def unreadable(reason: str, head: Raw, tail: Raw, *, oversize: bool = False) -> Malformed:
    """What stands for a message that cannot be read, as far as its two ends tell whose it is."""
    call = re.match(_METHOD_FIRST, head[:ID_WINDOW])
    method = call[1].decode(errors="replace") if call else None
    return Malformed(reason, recover_id(head, tail), method, oversize)


# Patterns are compiled when they are first wanted: most hosts never see a message that cannot be read.
ID_WINDOW = 256  # a serializer writes the id among the first two members, or last
_ID = rb'"id"\s*:\s*(?:(-?\d{1,18})|"([^"\\]{1,128})")'
_ID_FIRST = rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + _ID + rb"\s*[,}]"
_METHOD_FIRST = rb'\s*\{\s*(?:"(?:jsonrpc|id)"\s*:\s*[^,{}\[\]]+,\s*){0,2}"method"\s*:\s*"([^"\\]{1,128})"'
_ID_LAST = rb"[}\]\"\w]\s*,\s*" + _ID + rb"\s*\}\s*\Z"


def recover_id(head: Raw, tail: Raw) -> Id | None:
    """The id of an unreadable message, where it stands in plain sight at one of its ends."""
    found = re.match(_ID_FIRST, head[:ID_WINDOW]) or re.search(_ID_LAST, tail[-ID_WINDOW:])
    if not found:
        return None
    number, text = found.groups()
    return int(number) if number else str(text, errors="replace")


_NO_MARKS = bytes(set(range(256)) - set(b"[{:,"))
_NO_MARKS_OR_QUOTES = _NO_MARKS.replace(b'"', b"")
FEW_STRINGS = 1000  # past it, looking at them one by one takes longer than looking at every byte
_BACKSLASH = ord("\\")


def too_complex(raw: Raw, most: int) -> bool:
    """Whether JSON has more than *most* opening brackets, colons and commas outside of its strings.

    Of these everything else stands still while they are parsed: 16 MiB of "[[],[],[]…" take
    seconds, and a gigabyte. Texts of any size cost next to nothing, whatever stands in them.
    """
    if (pieces := _outside_of_few_strings(raw)) is not None:
        return sum(len(piece.translate(None, _NO_MARKS)) for piece in pieces) > most
    if len(raw.translate(None, _NO_MARKS)) <= most:
        return False
    plain = raw.replace(rb"\\", b"").replace(rb"\"", b"").translate(None, _NO_MARKS_OR_QUOTES)
    if plain.count(b'"') > 2 * most + 2:  # more strings than there may be members and items
        return True
    return sum(map(len, plain.split(b'"')[::2])) > most  # every other piece is outside of strings


def _outside_of_few_strings(raw: Raw) -> list[Raw] | None:
    """What stands between the strings; None if these are many. A picture or a long text is one string."""
    pieces: list[Raw] = []
    at = 0
    for _ in range(FEW_STRINGS):
        start = raw.find(b'"', at)
        if start < 0:
            return [*pieces, raw[at:]]
        pieces.append(raw[at:start])
        end = raw.find(b'"', start + 1)
        if end > 0 and raw[end - 1] == _BACKSLASH:
            return None  # it has quotes of its own, perhaps
        at = end + 1 if end > 0 else len(raw)
    return None


_SURROGATE = rb"\\u[dD][89a-fA-F]"


def _parse(raw: Raw) -> Any:
    try:
        return from_json(raw, allow_inf_nan=False)
    except ValueError as exc:
        if "recursion limit" not in str(exc):
            raise
    # That reader stops at 200 levels, which one schema in a long list may reach. Python's own goes further: how far
    # depends on the interpreter and on the stack it is called from, so what it has read is measured.
    too_deep = f"it nests too deeply ({MAX_DEPTH} levels at most)"
    try:
        body = json.loads(raw, parse_constant=_refuse)
        if depth(raw) > MAX_DEPTH:
            raise ValueError(too_deep)
        if re.search(_SURROGATE, raw):
            json.dumps(body, ensure_ascii=False).encode()  # raises for one without its other half, as that reader does
    except RecursionError:
        raise ValueError(too_deep) from None
    return body


_BRACKETS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_BRACKETS_OR_QUOTES = bytes(set(range(256)) - {*_BRACKETS, ord('"')})


def depth(raw: Raw) -> int:
    """How many arrays and objects stand in each other, at most, in JSON."""
    plain = raw.replace(rb"\\", b"").replace(rb"\"", b"").translate(None, _NO_BRACKETS_OR_QUOTES)
    brackets = b"".join(plain.split(b'"')[::2])  # every other piece is outside of strings
    return max(accumulate(map(_BRACKETS.__getitem__, brackets)), default=0)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _read(body: Any, size: int) -> Incoming:
    if not isinstance(body, dict):
        return Malformed(f"not an object: {quoted(body)}")
    id, method = body.get("id"), body.get("method")
    if body.get("jsonrpc") != "2.0":
        return _malformed('jsonrpc is not "2.0"', id, method)
    if isinstance(method, str):
        return _read_call(body, id, method, size)
    if "error" in body:
        return _read_failure(body["error"], id)
    if not _is_id(id):
        return _malformed("a response without a usable id", id, method)
    if not isinstance(result := body.get("result"), dict):
        return _malformed("result is not an object" if "result" in body else "neither result nor error", id, method)
    return Success(_whole(id), result)


def _read_call(body: dict[str, Any], id: Any, method: str, size: int) -> Incoming:
    params = body.get("params")
    if params is None:
        params = {}
    elif not isinstance(params, dict):
        return _malformed("params is not an object", id, method)
    if "id" not in body:
        return Notification(method, params)
    if not _is_id(id):
        return _malformed("an unusable request id", id, method)
    return Request(_whole(id), method, params, size)


def _read_failure(error: Any, id: Any) -> Incoming:
    if id is not None and not _is_id(id):
        return Malformed("an error response without a usable id")
    id = None if id is None else _whole(id)
    match error:
        case {"code": int() as code, "message": str() as message} if not isinstance(code, bool):
            return Failure(id, code, message, error.get("data"))
    return _malformed("error is not an error object", id, None)


def _malformed(reason: str, id: Any, method: Any) -> Malformed:
    return Malformed(reason, _whole(id) if _is_id(id) else None, method if isinstance(method, str) else None)


def _is_id(id: Any) -> bool:
    """Strings and numbers; some servers turn our 3 into 3.0, which names the same request."""
    kind = type(id)
    return kind is int or kind is str or (kind is float and id == id // 1)


def _whole(id: Any) -> Id:
    return int(id) if type(id) is float else id


def _shown(raw: Raw) -> str:
    return excerpt(raw[:100].decode(errors="replace"), 80)


def malformed_error(reason: Malformed) -> ProtocolError:
    """The error for whoever waited for what turned out to be malformed."""
    if reason.oversize:
        return MessageTooLarge(reason.reason)
    return ProtocolError(f"the server's answer is no JSON-RPC response: {reason.reason}")
