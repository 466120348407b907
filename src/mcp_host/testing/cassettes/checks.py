"""Checking the entries of a file when it is read: others may have recorded or edited it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mcp_host.testing.cassettes.bodies import read_body
from mcp_host.testing.cassettes.file import Entry, how_to_record_again, is_deeper
from mcp_host.testing.cassettes.mcp import read_error
from mcp_host.testing.errors import CassetteError
from mcp_host.types.base import JSONObject

MAX_DEPTH = 210  # levels of JSON: messages have at most 201, and bodies 200

NOTHING: Any = None  # the default of a member that may be missing, but may not be null

Headers: TypeAlias = dict[str, Annotated[str, Field(pattern=r"^[\x20-\x7e]*$")]]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class _Event(_Part):
    event: str = ""
    id: str = ""
    retry: str = ""
    data: str | JSONObject | list[object]


class _Body(_Part):
    json_: object = Field(None, alias="json")
    text: str = ""
    base64: str = ""
    events: list[str | _Event] = []
    lines: list[object] = []
    rest: str = ""


class _Request(_Body):
    method: str
    url: str
    headers: Headers


class _Failure(_Part):
    error: str
    message: str


class _Response(_Body):
    status: int = Field(ge=100, le=599)
    headers: Headers
    failed: _Failure = NOTHING
    cancelled: Literal[True] = True
    closed: Literal[True] = True


class _Exchange(_Part):
    http: _Request
    response: _Response = NOTHING
    failed: _Failure = NOTHING
    cancelled: Literal[True] = True


class _McpFailure(_Failure):
    may_have_run: bool = False
    status: int = 0
    retry_after: float = 0
    body: str = ""
    code: int = 0
    data: object = None
    rpc_message: str = ""


class _Opened(_Part):
    open: str
    failed: _McpFailure = NOTHING
    stream_per_request: bool = False
    keeps_cache: bool = False


class _Message(_Part):
    id: str | int | None = None
    method: str = ""
    params: JSONObject = {}
    result: object = None
    error: object = None


class _Malformed(_Part):
    reason: str
    id: str | int | None = None
    method: str | None = None
    oversize: bool = False


class _Sent(_Part):
    to: str
    message: _Message


class _Received(_Part):
    from_: str = Field(alias="from")
    message: _Message = NOTHING
    malformed: _Malformed = NOTHING
    failed: _McpFailure = NOTHING
    closed: _McpFailure = NOTHING
    during: list[str] = []
    apart: Literal[True] = True


KINDS: Mapping[str, type[_Part]] = {"open": _Opened, "to": _Sent, "from": _Received, "http": _Exchange}
"""The kinds of entries, by the member that no other kind has."""


class _Wrong(Exception):
    """The place in an entry, and what is wrong there."""


def check_entries(path: Path, entries: Sequence[object]) -> None:
    """Check that the *entries* of *path* can be replayed.

    Raises:
        CassetteError: One cannot. The text says which, and where.
    """
    opened: set[str] = set()
    for number, entry in enumerate(entries):
        try:
            _check_entry(entry, opened)
        except _Wrong as exc:
            raise CassetteError(
                f"{path} is broken: entries[{number}]{exc}; restore it, or {how_to_record_again(path)}"
            ) from exc


def _check_entry(entry: object, opened: set[str]) -> None:
    kind, entry = _check_types(entry)
    if kind == "http":
        _one_of(entry, "response", "failed", "cancelled")
        _check_body(entry["http"], ".http")
        _check_body(entry.get("response", {}), ".response")
        return
    if (entry[kind] in opened) is (kind == "open"):
        raise _Wrong(f".{kind}: this connection is " + ("open already" if kind == "open" else "not open yet"))
    opened.add(entry[kind])
    if kind == "from":
        _one_of(entry, "message", "malformed", "failed", "closed")
    if "message" in entry and not entry["message"].keys() & {"id", "method"}:
        raise _Wrong(".message needs an id or a method")
    for name in ("failed", "closed"):
        if name in entry:
            _check_failure(entry[name], f".{name}")


def _check_types(entry: object) -> tuple[str, Entry]:
    """The kind of *entry*, and *entry* itself, which has the members of this kind."""
    if not isinstance(entry, dict):
        raise _Wrong(" is no object")
    if is_deeper(entry, MAX_DEPTH):
        raise _Wrong(f" has more than {MAX_DEPTH} levels")
    kind = _one_of(entry, *KINDS)
    try:
        json.dumps(entry, ensure_ascii=False).encode()
        KINDS[kind].model_validate(entry)
    except UnicodeEncodeError as exc:
        raise _Wrong(" has half a character") from exc
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
        raise _Wrong(f"{place}: {first['msg']}") from exc
    return kind, entry


def _one_of(entry: Entry, *names: str) -> str:
    found = [name for name in names if name in entry]
    if len(found) != 1:
        raise _Wrong(f" needs one of {', '.join(names)}")
    return found[0]


def _check_body(part: JSONObject, place: str) -> None:
    try:
        read_body(part)
    except ValueError as exc:  # invalid base64, or NaN
        raise _Wrong(f"{place} has no body that can be sent: {exc}") from exc


def _check_failure(written: JSONObject, place: str) -> None:
    try:
        read_error(written)
    except (KeyError, TypeError) as exc:
        raise _Wrong(f"{place} is no error of a transport: {exc}") from exc
