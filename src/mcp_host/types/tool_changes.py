"""How two definitions of a tool differ, as a person can read it."""

from __future__ import annotations

import json
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import unified_diff
from functools import partial
from hashlib import sha256
from itertools import chain, groupby, islice
from textwrap import TextWrapper

from mcp_host.base_errors import escaped, excerpt
from mcp_host.types import Tool

MAX_LINES = 1_000  # lines of one definition that are compared: a second, if most are alike
MAX_TEXT = 200_000  # characters of one member of a definition, as above
AROUND = 200  # characters kept on each side of what differs, where text that has not changed is left out
MAX_LETTERS = 10  # characters beyond ASCII that are named
WIDTH = 100  # columns of a line
PADDING = re.compile(" {40,}")  # it can push text out of sight

_WRAPPER = TextWrapper(WIDTH, drop_whitespace=False)


@dataclass(frozen=True, slots=True)
class ToolChange:
    """A tool whose definition is not the one that was agreed to."""

    server: str
    """The name that you gave the server, or else its identity, as in `ToolPins.servers`."""
    name: str
    """The name that the server uses."""
    old: Tool | None
    """The definition that was agreed to; None if the tool is new."""
    new: Tool
    """The definition that the server lists now."""

    @property
    def fields(self) -> list[str]:
        """The members of the definition that differ, such as "description" and "inputSchema"."""
        old, new = _members(self.old), _members(self.new)
        text = partial(json.dumps, sort_keys=True)  # in Python, True equals 1
        both = {**old, **new}
        return [name for name in both if not (name in old and name in new and text(old[name]) == text(new[name]))]

    @property
    def summary(self) -> str:
        """One line to put after the name of the tool: that it is new, or which `fields` have changed. Safe to print."""
        if self.old is None:
            return "is new, and has not been accepted yet"
        return f"has changed since it was pinned ({excerpt(', '.join(self.fields))})"

    @property
    def diff(self) -> str:
        """The lines that differ, marked "-" and "+", with some around them. Safe to print.

        Control characters are escaped, and much space is shortened. Characters beyond ASCII that are new
        are named at the end, because some look like others. Of differences that are more than 1,000 lines
        apart, a line says that there are more.
        """
        before, after = _texts(self.old), _texts(self.new)
        if _are_long(before) or _are_long(after):
            before, after = _changed(before, after), _changed(after, before)
        old, new = _lines(before, self.old), _lines(after, self.new)
        lines = list(unified_diff(old, new, lineterm="", n=2))[2:]
        return "\n".join([*lines, *_unusual("\n".join(old), "\n".join(new))])


def _members(tool: Tool | None) -> dict[str, object]:
    """The definition as JSON, without what `Tool.fingerprint` ignores."""
    if tool is None:
        return {}
    extra = tool.model_extra or {}
    return {
        name: value
        for name, value in tool.to_wire().items()
        if name != "_meta" and (value is not None or name in extra)
    }


def _texts(tool: Tool | None) -> dict[str, str]:
    """The members of the definition as text, the name first."""
    members = sorted(_members(tool).items(), key=lambda member: (member[0] != "name", member[0]))
    written = partial(json.dumps, indent=2, sort_keys=True, ensure_ascii=False)
    return {name: value if isinstance(value, str) else written(value) for name, value in members}


def _are_long(texts: dict[str, str]) -> bool:
    return any(len(text) > MAX_TEXT for text in texts.values()) or any(islice(_all_lines(texts), MAX_LINES, None))


def _changed(texts: dict[str, str], others: dict[str, str]) -> dict[str, str]:
    """The members that differ from the *others*, without long text that both begin or end with."""
    return {name: _shortened(text, others.get(name, "")) for name, text in texts.items() if text != others.get(name)}


def _shortened(text: str, other: str) -> str:
    start = max(0, _common(text, other) - AROUND)
    end = max(0, _common(text[start:][::-1], other[start:][::-1]) - AROUND)
    parts = [_unchanged(start), text[start : len(text) - end], _unchanged(end)]
    return "\n".join(part for part in parts if part is not None)


def _unchanged(size: int) -> str | None:
    return f"[{size} characters that have not changed]" if size else None


def _common(text: str, other: str) -> int:
    """How many characters both begin with."""
    sizes = range(1, min(len(text), len(other)) + 1)
    return bisect_left(sizes, True, key=lambda size: text[:size] != other[:size])


def _lines(texts: dict[str, str], tool: Tool | None) -> list[str]:
    """The definition as lines. If there are too many, the last one differs if any of the others does."""
    lines = _all_lines(texts)
    first = list(islice(lines, MAX_LINES))
    if tool is not None and next(lines, None) is not None:
        first.append(f"[more lines of the definition with the fingerprint {tool.fingerprint}]")
    return first


def _all_lines(texts: dict[str, str]) -> Iterator[str]:
    return chain.from_iterable(_member(name, text) for name, text in texts.items())


def _member(name: str, text: str) -> Iterator[str]:
    rest = text[MAX_TEXT:]
    lines = text[:MAX_TEXT].split("\n")  # other line breaks are escaped
    if len(lines) == 1 and len(short := _shown(f"{name}: {lines[0]}")) <= WIDTH:
        yield short
        return
    yield _shown(f"{name}:")
    for blank, run in groupby(lines, key=lambda line: not line.strip()):
        some = list(run)
        if blank and len(some) > 2:
            yield f"    [{len(some)} blank lines]"
            continue
        for line in some:
            yield from (f"    {piece}" for piece in _WRAPPER.wrap(_shown(line)) or [""])
    if rest:
        yield f"    [{len(rest)} more characters, with the SHA-256 {sha256(rest.encode(errors='replace')).hexdigest()}]"


def _shown(line: str) -> str:
    return escaped(PADDING.sub(lambda run: f"[{len(run[0])} spaces]", line))


def _unusual(old: str, new: str) -> Iterator[str]:
    added = sorted({letter for letter in new if not letter.isascii()} - set(old))
    if added:
        names = [f"U+{ord(letter):04X} {unicodedata.name(letter, 'unnamed')}" for letter in added[:MAX_LETTERS]]
        more = f", and {len(added) - MAX_LETTERS} more" if len(added) > MAX_LETTERS else ""
        yield f"new characters beyond ASCII: {', '.join(names)}{more}"
