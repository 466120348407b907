"""JSON with comments: its data, and changing one member or item in its text: all else stays as it is, character for character."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mcp_host.config.formats.data import TOO_DEEP, TOO_LONG, Keys, members_of
from mcp_host.errors import ConfigError

INDENT = "  "  # where the text has no lines with an indent

_STRING = r'"(?:\\.|[^"\\\n])*"?'  # also without its end, which would be looked for from each `\"` in it
_COMMENTS = re.compile(rf"({_STRING})|//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_TRAILING_COMMAS = re.compile(rf"({_STRING})|,(?=\s*[}}\]])")
_ENDS = {"{": "}", "[": "]"}
_WHITE = " \t\r\n"  # comments may end with other spaces
_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")
_BLANKS = re.compile(r"[ \t]*")
_INDENTED = re.compile(r"^([ \t]+)[^ \t\r\n]", re.MULTILINE)


def parse(path: Path, text: str) -> object:
    """The data, or the error. Comments and trailing commas become spaces, so that all else keeps its place."""
    last = next((found for found in _COMMENTS.finditer(text) if found.end() == len(text) and not found[1]), None)
    if last is not None and last[0].startswith("/*") and not last[0].endswith("*/"):
        line, column = text.count("\n", 0, last.start()) + 1, last.start() - text.rfind("\n", 0, last.start())
        return ConfigError("the comment is not closed", path=path, line=line, column=column)
    try:
        return json.loads(without_trailing_commas(without_comments(text)), object_pairs_hook=members_of)
    except json.JSONDecodeError as exc:
        reason = exc.msg.removesuffix(" at").removesuffix(" starting")
        return ConfigError(reason, path=path, line=exc.lineno, column=exc.colno)
    except RecursionError:
        return ConfigError(TOO_DEEP, path=path)
    except ValueError:  # Python reads no integer of more than 4,300 digits
        return ConfigError(TOO_LONG, path=path)


def without_comments(text: str) -> str:
    """JSON with spaces in the place of its comments."""
    return _blanked(_COMMENTS, text)


def without_trailing_commas(text: str) -> str:
    """JSON that has no comments, with spaces in the place of its trailing commas."""
    return _blanked(_TRAILING_COMMAS, text)


def _blanked(pattern: re.Pattern[str], text: str) -> str:
    return pattern.sub(lambda found: found[1] or re.sub(r"[^\n]", " ", found[0]), text)


@dataclass(frozen=True, slots=True)
class _Member:
    """Where a member is: its name starts at *start*, its value at *value*. *comma* is that after it, also a trailing one.

    The name of an item of a list is its index, which is not written.
    """

    start: int
    value: int
    end: int
    comma: int | None


def set_member(text: str, path: Keys, value: object) -> str:
    """*text* with *value* at *path*, in the place of what is there. Objects on the way are made if they are missing.

    The next index of a list adds an item. *text* is valid, and no name on the way is there more than once. Comments within a value that is replaced are lost.
    """
    whole = _Text(text)
    start = whole.after_space(0)
    if start == len(text):
        return f"{text}{_rendered(_nested(path, value), '', INDENT, whole.newline)}{whole.newline}"
    for depth, name in enumerate(path):
        if whole.plain[start] not in _ENDS:
            end = _DECODER.raw_decode(whole.plain, start)[1]
            return text[:start] + whole.lines(_nested(path[depth:], value), start) + text[end:]
        members, close = whole.members(start)
        if name not in members:
            return whole.inserted(start, list(members.values()), close, name, _nested(path[depth + 1 :], value))
        start = members[name].value
    return text[:start] + whole.lines(value, start) + text[members[name].end :]


def remove_member(text: str, path: Keys) -> str:
    """*text* without the member at *path*, which is there. Comments before and after it stay."""
    whole = _Text(text)
    start = whole.after_space(0)
    for name in path[:-1]:
        start = whole.members(start)[0][name].value
    return whole.removed(start, path[-1])


def _nested(path: Keys, value: object) -> object:
    for name in reversed(path):
        value = {name: value} if isinstance(name, str) else [value]
    return value


def _rendered(value: object, indent: str, unit: str, newline: str) -> str:
    """*value* with each member of an object on a line of its own."""
    if not isinstance(value, Mapping) or not value:
        return _dumped(value)
    inner = indent + unit
    members = [f"{inner}{_named(name, _rendered(each, inner, unit, newline))}" for name, each in value.items()]
    return f"{{{newline}{f',{newline}'.join(members)}{newline}{indent}}}"


def _named(name: str | int, value: str) -> str:
    return value if isinstance(name, int) else f"{_dumped(name)}: {value}"


def _dumped(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


class _Text:
    """A text, where its parts are, and how it is laid out."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.without_comments = without_comments(text)
        self.plain = without_trailing_commas(self.without_comments)
        self.newline = "\r\n" if "\r\n" in text else "\n"
        indented = _INDENTED.search(self.plain)
        self.unit = indented[1] if indented else INDENT

    def after_space(self, at: int) -> int:
        return _end(_SPACE, self.plain, at)

    def members(self, start: int) -> tuple[dict[str | int, _Member], int]:
        """The members of the object or list at *start*, and where its closing brace or bracket is."""
        members: dict[str | int, _Member] = {}
        close = _ENDS[self.plain[start]]
        at = value = self.after_space(start + 1)
        while self.plain[at] != close:
            name: str | int = len(members)
            if close == "}":
                name, end = _DECODER.raw_decode(self.plain, at)
                value = self.after_space(self.after_space(end) + 1)
            end = _DECODER.raw_decode(self.plain, value)[1]
            after = _end(_SPACE, self.without_comments, end)
            comma = after if self.without_comments[after] == "," else None
            members[name] = _Member(at, value, end, comma)
            at = value = self.after_space(end if comma is None else comma + 1)
        return members, at

    def lines(self, value: object, at: int) -> str:
        """*value*, as it is written at a place: over several lines if it begins on one with an indent, or on the first."""
        return _rendered(value, self._indent(at), self.unit, self.newline)

    def inserted(self, start: int, members: Sequence[_Member], close: int, name: str | int, value: object) -> str:
        """The text with a further member, the last one, in the object or list from *start* to *close*."""
        text = self.text
        last = members[-1] if members else None
        tail = len(text[:close].rstrip(_WHITE))  # after the last member, its comma and the comments after it
        around = text[start:close] if last is None else text[start : members[0].start] + text[last.end : close]
        is_blank = last is None and not text[start + 1 : close].strip()
        if "\n" not in around and not is_blank:
            space = " " if last is not None or tail > start + 1 else ""
            new = space + _named(name, _dumped(value))
        else:
            outer = self._indent(start)
            indent = outer + self.unit if last is None or not self._is_first(last.start) else self._indent(last.start)
            new = f"{self.newline}{indent}{_named(name, _rendered(value, indent, self.unit, self.newline))}"
            if "\n" not in around:
                return f"{text[: start + 1]}{new}{self.newline}{outer}{text[close:]}"
        if last is not None and last.comma is None:
            return f"{text[: last.end]},{text[last.end : tail]}{new}{text[tail:]}"
        return f"{text[:tail]}{new}{',' if last else ''}{text[tail:]}"

    def removed(self, start: int, name: str | int) -> str:
        """The text without the member *name* of the object or list at *start*."""
        members, close = self.members(start)
        names = list(members)
        index = names.index(name)
        member = members[name]
        is_last = index == len(names) - 1
        begin, end, kept = self._cut(member, is_last=is_last)
        head = self.text[:begin]
        if is_last and member.comma is None and index > 0:
            comma = members[names[index - 1]].comma or 0
            head = head[:comma] + head[comma + 1 :]
        inner = head[start + 1 :] + kept + self.text[end:close]
        if len(names) == 1 and not inner.strip():
            return head[: start + 1] + self.text[close:]
        return head + kept + self.text[end:]

    def _cut(self, member: _Member, *, is_last: bool) -> tuple[int, int, str]:
        """What goes with a member, from where to where, and what is kept in its place: comments before its comma."""
        text = self.text
        end = member.end if member.comma is None else member.comma + 1
        between = text[member.end : end].removesuffix(",")
        kept = between if between.strip() else ""
        after = _end(_BLANKS, text, end)
        line_ends = text[after] in "\r\n"
        before = len(text[: member.start].rstrip(_WHITE))
        if kept:
            return member.start, end, kept
        # A comment up to the end of its line must keep that.
        is_free = line_ends or (text[after] in "}]" and not self._is_in_line_comment(before))
        if is_last and is_free:
            return before, end, ""
        if line_ends and self._is_first(member.start):
            return len(text[: member.start].rstrip(" \t").removesuffix("\n").removesuffix("\r")), end, ""
        return member.start, after, ""

    def _is_in_line_comment(self, at: int) -> bool:
        comments = [found for found in _COMMENTS.finditer(self.text) if found[0].startswith("//")]
        return any(found.start() < at <= found.end() for found in comments)

    def _is_first(self, at: int) -> bool:
        """Whether there are only blanks before this on its line."""
        return not self.text[self.text.rfind("\n", 0, at) + 1 : at].strip()

    def _indent(self, at: int) -> str:
        """The blanks at the beginning of the line of this place."""
        return self.text[(line := self.text.rfind("\n", 0, at) + 1) : _end(_BLANKS, self.text, line)]


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return at if found is None else found.end()
