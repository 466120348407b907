"""The file of a cassette: JSON that reads well and shows small differences in git."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from mcp_host.testing.errors import CassetteError
from mcp_host.types.base import JSONValue

VERSION = 1
WIDTH = 120  # columns; a value that fits stands in one line

Entry: TypeAlias = dict[str, Any]
"""One event of a recording.

``{"open": connection, ...}``: the client opens a connection; ``"failed"`` if it cannot.
``{"to": connection, "message": ...}``: the client sends this JSON-RPC message; ``"from"``: the server does. *during* names
the requests that it belongs to, and *apart* says that it came outside of the requests' own streams.
``{"from": connection, "failed": ...}``: a request fails in the transport; ``"malformed"``: what came is not a message;
``"closed"``: the connection ends.
``{"http": request, "response": ...}``: one exchange with a provider; ``"failed"`` and ``"cancelled"`` in place of a response.
"""


class Contents(NamedTuple):
    """What a file says: a *note* for its readers, and the *entries* in order."""

    note: str
    entries: list[Entry]


def read(path: Path) -> Contents:
    """Read a cassette.

    Raises:
        CassetteError: It is no cassette, or one of a later version.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, RecursionError) as exc:
        raise CassetteError(f"{path} cannot be read: {exc}") from exc
    except ValueError as exc:  # also raised for an integer of thousands of digits
        raise CassetteError(f"{path} is broken: {exc}; restore it, or {how_to_record_again(path)}") from exc
    match found:
        case {"cassette": int(version)} if version > VERSION:
            raise CassetteError(
                f"{path} has version {version} of the format, and this mcp-host reads {VERSION}: upgrade it"
            )
        case {"cassette": int(), "entries": list(entries), **rest} if isinstance(note := rest.get("note", ""), str):
            return Contents(note, entries)
    raise CassetteError(
        f"{path} is no cassette: it needs the members cassette and entries; {how_to_record_again(path)}"
    )


def write(path: Path, contents: Contents) -> None:
    """Replace the file. If this fails, the old one stays."""
    note = {"note": contents.note} if contents.note else {}
    text = layout({"cassette": VERSION, **note, "entries": contents.entries}) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8", newline="\n")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def how_to_record_again(path: Path) -> str:
    """How to record *path* again, as the end of a message."""
    return f'record it again: delete {path.name}, or use record_mode="all" (with pytest: --record-mode=all)'


def is_deeper(value: JSONValue, levels: int) -> bool:
    """Whether lists and objects in *value* are nested more than *levels* deep."""
    found = [value] if isinstance(value, dict | list) else []
    for _ in range(levels):
        members = [member for outer in found for member in (outer.values() if isinstance(outer, dict) else outer)]
        found = [member for member in members if isinstance(member, dict | list)]
    return bool(found)


def layout(value: JSONValue, indent: str = "", prefix: str = "", *, width: int = WIDTH) -> str:
    """*value* as JSON: in one line if it fits into *width* columns after *prefix*, else with a line for each member."""
    line = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(prefix) + len(line) < width or not value or not isinstance(value, dict | list):
        return line
    inner = indent + "  "
    if isinstance(value, dict):
        names: Sequence[str] = [f"{json.dumps(name, ensure_ascii=False)}: " for name in value]
        parts = [
            name + layout(member, inner, name, width=width) for name, member in zip(names, value.values(), strict=True)
        ]
        left, right = "{}"
    else:
        parts = [layout(member, inner, width=width) for member in value]
        left, right = "[]"
    return f"{left}\n{inner}" + f",\n{inner}".join(parts) + f"\n{indent}{right}"
