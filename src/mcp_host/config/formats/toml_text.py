"""TOML: its data, and changing one member in its text: all else stays as it is, character for character.

tomlkit is not used: it takes the comments above a table for the end of the table before it, and moves or removes them with that.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path

from mcp_host.config.formats.data import MAX_DEPTH, TOO_DEEP, TOO_LONG, Keys, with_member, without_member
from mcp_host.errors import ConfigError, escaped

_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_NAME = re.compile(r"""[\w-]+|"(?:\\.|[^"\\\n])*"?|'[^'\n]*'?""")
_DEEP = re.compile(rf"(?:n[ \t]*\.[ \t]*){{{MAX_DEPTH}}}")
"""A key of too many names, each of which is an *n*."""
_HIDDEN = re.compile(
    r"""(?P<comment>\#[^\r\n]*)
    |"{3}(?:\\.|[^\\])*?"{3,5}|"(?:\\.|[^"\\])*"
    |'{3}.*?'{3,5}|'[^']*'""",
    re.DOTALL | re.VERBOSE,
)
"""Texts and comments: what is in them says nothing of the structure."""
_STRUCTURE = re.compile(r"[\[\]{}]|\r?\n|\Z")
_PARTS = re.compile(r"[\[\]{},]")
_DEPTH = {"[": 1, "{": 1, "]": -1, "}": -1}
_COMMENTS_BELOW = re.compile(r"(?:\r?\n[ \t]*#[^\r\n]*)+(?=\s*\Z|\r?\n[ \t]*\r?\n)")
"""Comments that a blank line, or the end, sets off from what follows."""
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_WHITE = " \t\r\n"  # comments may end with other spaces


def parse(path: Path, text: str) -> object:
    """The data, or the error."""
    if _DEEP.search(_NAME.sub("n", text)):  # the time that tomllib takes for a key is the square of its names
        return ConfigError(TOO_DEEP, path=path)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        message = str(exc)
        place = _PLACE.search(message)
        message = escaped(_PLACE.sub("", message))
    except RecursionError:
        return ConfigError(TOO_DEEP, path=path)
    except ValueError:
        return ConfigError(TOO_LONG, path=path)
    if place is not None and place[1]:
        return ConfigError(message, path=path, line=int(place[1]), column=int(place[2]))
    return ConfigError(message, path=path, line=text.count("\n") + 1)


@dataclass(frozen=True, slots=True)
class _Statement:
    """A header, or a key with its value: its *path* from the top of the data, and that of the *table* that it is in, or begins.

    It is from *start* to *end*, and *line* is the end of its line, after a comment. *value* is where its value begins: a header has 0.
    """

    path: tuple[str, ...]
    table: tuple[str, ...]
    start: int
    value: int
    end: int
    line: int


def set_member(text: str, path: Keys, value: object) -> str:
    """*text* with *value* at *path*, in the place of what is there. A new object is a table of its own, except within a value.

    The next index of a list adds an item. *text* is valid. Comments within what is replaced are lost. If there are others
    within a list, or a table by dotted keys in one line, that is to be written anew, the text is returned as it is.
    """
    path, statements = tuple(path), list(_statements(text))
    if (whole := _value_with(path, statements)) is not None:
        return _with_member(text, whole, path, value)
    if isinstance(value, Mapping):
        return _with_table(text, path, value, statements)
    if isinstance(path[-1], int):
        return set_member(text, path[:-1], [value])
    table = path[:-1]
    beside = [each for each in statements if each.path[: len(table)] == table and len(each.table) <= len(table)]
    if not beside:
        return _with_section(text, table, {path[-1]: value}, statements)
    last = beside[-1]
    indent = text[text.rfind("\n", 0, last.start) + 1 : last.start]
    line = f"{_newline(text)}{indent}{_named(path[len(last.table) :], value)}"
    return text[: last.line] + line + text[last.line :]


def remove_member(text: str, path: Keys) -> str:
    """*text* without the member at *path*, which is there. Comments before and after it stay, and the header of a table that becomes empty."""
    path, statements = tuple(path), list(_statements(text))
    whole = _value_with(path, statements)
    if whole is not None and whole.path != path:
        return _without_member(text, whole, path)
    removed = _without(text, _runs(path, statements))
    rest, parent = list(_statements(removed)), path[:-1]
    if parent and not any(each.path[: len(parent)] == parent for each in rest):
        return _with_section(removed, parent, {}, rest)
    return removed


def _statements(text: str) -> Iterator[_Statement]:
    """The headers and keys of *text*, in its order. It is valid."""
    plain = _plain(text)
    table: tuple[str, ...] = ()
    begin = depth = 0
    for found in _STRUCTURE.finditer(plain):
        depth += _DEPTH.get(found[0], 0)
        if depth or found[0] in _DEPTH:
            continue
        line = found.start()
        start, end = _strip(plain, begin, line)
        begin = found.end()
        if start == end:
            continue
        if plain[start] == "[":
            table = _keys(text[start:end].lstrip("[").rstrip("]"))
            yield _Statement(table, table, start, 0, end, line)
        else:
            yield _assignment(text, plain, table, start, end, line)


def _members(text: str, table: _Statement) -> Iterator[_Statement]:
    """The keys of a table in one line; none if the value is no table."""
    if text[table.value] != "{":
        return
    begin, depth = table.value + 1, 0
    plain = " " * begin + _plain(text[begin : table.end])
    for found in _PARTS.finditer(plain, begin):
        if depth == 0 and found[0] in ",}":
            start, end = _strip(plain, begin, found.start())
            begin = found.end()
            if start < end:
                yield _assignment(text, plain, table.path, start, end, end)
        depth += _DEPTH.get(found[0], 0)


def _plain(text: str) -> str:
    """*text* without what is in its texts and comments."""
    return _HIDDEN.sub(lambda found: (" " if found["comment"] else "s") * len(found[0]), text)


def _assignment(text: str, plain: str, table: tuple[str, ...], start: int, end: int, line: int) -> _Statement:
    equals = plain.index("=", start)
    value = _strip(plain, equals + 1, end)[0]
    return _Statement((*table, *_keys(text[start:equals])), table, start, value, end, line)


def _strip(text: str, start: int, end: int) -> tuple[int, int]:
    """The place of this part of *text*, without the space around it."""
    start = end - len(text[start:end].lstrip())
    return start, start + len(text[start:end].rstrip())


def _keys(written: str) -> tuple[str, ...]:
    """The names in a key, which may be in quotes and have dots between them."""
    data: object = tomllib.loads(f"{written} = 0")
    keys: list[str] = []
    while isinstance(data, dict):
        [(key, data)] = data.items()
        keys.append(key)
    return tuple(keys)


def _value_with(path: Keys, statements: Sequence[_Statement]) -> _Statement | None:
    """The statement whose value is, or has, what is at *path*."""
    return next((each for each in statements if each.value and path[: len(each.path)] == each.path), None)


def _data(text: str, statement: _Statement) -> object:
    return tomllib.loads(f"value = {text[statement.value : statement.end]}")["value"]


def _with_member(text: str, statement: _Statement, path: Keys, value: object) -> str:
    """The text with *value* at *path*: in place of the value of a statement, or within it."""
    if path == statement.path:
        return _with_value(text, statement, path, value)
    members = list(_members(text, statement))
    if (inner := _value_with(path, members)) is not None:
        return _with_member(text, inner, path, value)
    depth = len(statement.path)
    new = path[: depth + 1]
    if text[statement.value] != "{" or any(each.path[: depth + 1] == new for each in members):
        return _with_value(text, statement, path, with_member(_data(text, statement), path[depth:], value))
    added = {path[depth]: with_member(None, path[depth + 1 :], value)}
    if not members:
        return _with_value(text, statement, statement.path, added)
    at = members[-1].end
    return f"{text[:at]}, {_named(new[-1:], added[path[depth]])}{text[at:]}"


def _without_member(text: str, statement: _Statement, path: Keys) -> str:
    """The text without what is at *path*, which is within the value of a statement."""
    members = list(_members(text, statement))
    if (inner := _value_with(path, members)) is not None and inner.path != path:
        return _without_member(text, inner, path)
    kept = [each for each in members if each.path[: len(path)] != path]
    beside = any(each.path[: len(path) - 1] == path[:-1] for each in kept)
    if not beside or len(kept) == len(members):  # then its table becomes empty, or it is an item of a list
        return _with_value(text, statement, path, without_member(_data(text, statement), path[len(statement.path) :]))
    first = kept[0]
    spans = [(last.end, each.end) for last, each in pairwise(members) if each not in kept and each.start > first.start]
    for start, end in reversed([(members[0].start, first.start), *spans]):
        text = text[:start] + text[end:]
    return text


def _with_value(text: str, statement: _Statement, path: Keys, data: object) -> str:
    """The text with another value of a statement, because of what is at *path*."""
    hidden = _HIDDEN.finditer(text, statement.value, statement.end)
    if path != statement.path and any(found["comment"] for found in hidden):
        return text
    return text[: statement.value] + _written(data) + text[statement.end :]


def _with_table(text: str, path: Keys, members: Mapping[str, object], statements: Sequence[_Statement]) -> str:
    """The text with a table at *path*, in the place of the one that is there, or after those beside it."""
    runs = _runs(path, statements)
    if not runs or runs[0][0].value:
        return _without(_with_section(text, path, members, statements), runs)
    first, last = runs[0]
    rest = _without(text, runs[1:])
    return rest[: first.start] + _table(path, members, _newline(text)) + rest[last.line :]


def _with_section(text: str, path: Keys, members: Mapping[str, object], statements: Sequence[_Statement]) -> str:
    """The text with a header for *path* and with *members*, after all that is in the same table, or at the end."""
    parent, last = path[:-1], None
    for each in statements:
        if each.path[: len(parent)] == parent or (last is not None and each.table == last.table):
            last = each
    last = last or next(reversed(statements), None)
    at = len(text.rstrip(_WHITE)) if last is None else last.line
    if below := _COMMENTS_BELOW.match(text, at):
        at = below.end()
    head, tail, newline = text[:at], text[at:], _newline(text)
    return f"{head}{newline * 2 if head else ''}{_table(path, members, newline)}{tail if head else newline}"


def _runs(path: Keys, statements: Sequence[_Statement]) -> list[tuple[_Statement, _Statement]]:
    """The first and the last of the statements one after the other that are about what is at *path*."""
    groups = groupby(statements, lambda each: each.path[: len(path)] == path)
    runs = [list(group) for is_inside, group in groups if is_inside]
    return [(run[0], run[-1]) for run in runs]


def _without(text: str, runs: Sequence[tuple[_Statement, _Statement]]) -> str:
    """The text without these statements. Blank lines before a header go with it; a comment behind a last value that has no header stays."""
    for first, last in reversed(runs):
        head, tail = text[: first.start], text[last.line :]
        comment = text[last.end : last.line].strip()
        if first.value and comment:
            text = head + comment + tail
            continue
        head = head.rstrip(_WHITE) if not first.value else head.rstrip(" \t").removesuffix("\n").removesuffix("\r")
        text = head + tail if head else tail.lstrip("\r\n")
    return text


def _table(path: Keys, members: Mapping[str, object], newline: str) -> str:
    name = _dotted([key for key in path if isinstance(key, str)])
    header = f"[[{name}]]" if isinstance(path[-1], int) else f"[{name}]"
    return newline.join([header, *(_named([key], value) for key, value in members.items())])


def _named(keys: Iterable[str | int], value: object) -> str:
    return f"{_dotted(keys)} = {_written(value)}"


def _dotted(keys: Iterable[str | int]) -> str:
    return ".".join(key if _BARE.fullmatch(key) else _text(key) for key in map(str, keys))


def _written(value: object) -> str:
    match value:
        case str():
            return _text(value)
        case bool():
            return str(value).lower()
        case Mapping():
            members = ", ".join(_named([key], each) for key, each in value.items())
            return f"{{ {members} }}" if members else "{}"
        case list():
            return f"[{', '.join(map(_written, value))}]"
    return str(value)  # a number or a time


def _text(text: str) -> str:
    """A text in quotes: as in JSON, but that TOML has one more control character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
