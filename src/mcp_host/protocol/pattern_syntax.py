"""Reading regular expressions: ECMA-262 with its u flag, as JSON Schema asks for, as far as automata go."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NoReturn, TypeAlias

MAX_LENGTH = 4096  # characters of a pattern
MAX_NESTING = 50  # groups within groups

Matcher: TypeAlias = Callable[[str], bool]


class UnsupportedPattern(ValueError):
    """A pattern that is malformed, too large, or needs backtracking to match."""


@dataclass(frozen=True, slots=True)
class Char:
    """One character that *accepts* says yes to."""

    accepts: Matcher


@dataclass(frozen=True, slots=True)
class Edge:
    """A place between two characters: `^`, `$`, `\\b` or `\\B`."""

    kind: str


@dataclass(frozen=True, slots=True)
class Series:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """*part*, *least* times or more; *most* is None where there is no end."""

    part: Node
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Ahead:
    """What follows here begins with *part* (or, *negated*, does not)."""

    part: Node
    negated: bool


Node: TypeAlias = Char | Edge | Series | Choice | Repeat | Ahead


def read(source: str) -> Node:
    """The tree of a pattern.

    Raises:
        UnsupportedPattern: It is malformed, or needs more than an automaton, with the reason.
    """
    if len(source) > MAX_LENGTH:
        raise UnsupportedPattern(f"it has {len(source)} characters, more than {MAX_LENGTH}")
    reader = _Reader(source)
    tree = reader.choice(0)
    if reader.at < len(source):
        reader.refuse("an unopened group")
    return tree


WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
DIGITS = frozenset("0123456789")
LINE_ENDS = frozenset("\n\r\u2028\u2029")
BLANKS = frozenset("\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff") | {
    chr(code) for code in range(0x2000, 0x200B)
}
CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "0": "\0"}
SETS: dict[str, Matcher] = {"d": DIGITS.__contains__, "w": WORD.__contains__, "s": BLANKS.__contains__}
CATEGORIES = {
    "Letter": "L", "Uppercase_Letter": "Lu", "Lowercase_Letter": "Ll", "Mark": "M", "Number": "N",
    "Decimal_Number": "Nd", "Punctuation": "P", "Symbol": "S", "Separator": "Z", "Other": "C",
}  # fmt: skip
EDGES = {"^": "start", "$": "end"}
QUANTIFIERS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
GROUPS = re.compile(r"\(\?(?:(?P<ahead>[=!])|:|P?<(?![=!])(?P<name>\w+)>)")
COUNTED = re.compile(r"\{(\d{1,6})(?:(,)(\d{1,6})?)?\}", re.ASCII)
HEX = re.compile(r"x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|u\{([0-9A-Fa-f]{1,6})\}")
CATEGORY = re.compile(r"([pP])\{(?:General_Category=|gc=)?(\w+)\}", re.ASCII)


def _matcher(member: str | Matcher) -> Matcher:
    return member.__eq__ if isinstance(member, str) else member


def _one_of(parts: tuple[Matcher, ...], negated: bool, char: str) -> bool:
    return any(part(char) for part in parts) is not negated


def _between(low: str, high: str, char: str) -> bool:
    return low <= char <= high


def _in_category(prefix: str, char: str) -> bool:
    return unicodedata.category(char).startswith(prefix)


ANY = partial(_one_of, (LINE_ENDS.__contains__,), True)


class _Reader:
    """Recursive descent over the pattern's text."""

    def __init__(self, source: str) -> None:
        self._source = source
        self.at = 0

    def refuse(self, reason: str) -> NoReturn:
        raise UnsupportedPattern(f"{reason} (at character {self.at})")

    def _next(self) -> str:
        return self._source[self.at : self.at + 1]

    def _taken(self, text: str) -> bool:
        found = self._source.startswith(text, self.at)
        self.at += len(text) * found
        return found

    def _matched(self, shape: re.Pattern[str]) -> re.Match[str] | None:
        found = shape.match(self._source, self.at)
        self.at = found.end() if found else self.at
        return found

    def choice(self, depth: int) -> Node:
        if depth > MAX_NESTING:
            self.refuse(f"groups nest more than {MAX_NESTING} deep")
        options = [self._series(depth)]
        while self._taken("|"):
            options.append(self._series(depth))
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _series(self, depth: int) -> Node:
        return Series(tuple(self._parts(depth)))

    def _parts(self, depth: int) -> Iterator[Node]:
        while self._next() not in ("", "|", ")"):
            yield self._repeated(self._atom(depth))

    def _repeated(self, part: Node) -> Node:
        if counted := self._matched(COUNTED):
            least, comma, most = counted.groups()
            bounds = int(least), int(most) if most else None if comma else int(least)
        elif self._next() in QUANTIFIERS:
            bounds = QUANTIFIERS[self._next()]
            self.at += 1
        else:
            return part
        if isinstance(part, Edge | Ahead) or (bounds[1] is not None and bounds[1] < bounds[0]):
            self.refuse("a repetition that repeats nothing")
        self._taken("?")  # lazy or greedy: whether there is a match is the same
        if self._next() in QUANTIFIERS:
            self.refuse("a repetition of a repetition")
        return Repeat(part, *bounds)

    def _atom(self, depth: int) -> Node:
        char = self._next()
        if char == "(":
            return self._group(depth)
        self.at += 1
        if char in EDGES:
            return Edge(EDGES[char])
        if char == "\\":
            return Edge(self._source[self.at - 1]) if self._taken("b") or self._taken("B") else Char(self._escape())
        if char == "[":
            return Char(self._set())
        if char in QUANTIFIERS:
            self.refuse("a repetition of nothing")
        return Char(ANY if char == "." else char.__eq__)

    def _group(self, depth: int) -> Node:
        ahead = ""
        if special := self._matched(GROUPS):
            ahead = special["ahead"] or ""
        elif self._source.startswith("(?", self.at):
            self.refuse("a group of a kind that is not supported")
        else:
            self.at += 1
        inner = self.choice(depth + 1)
        if not self._taken(")"):
            self.refuse("a group without an end")
        return Ahead(inner, ahead == "!") if ahead else inner

    def _escape(self) -> Matcher:
        """What the letters after a backslash stand for: a set, or one character."""
        letter = self._next()
        if letter.lower() in SETS:
            self.at += 1
            return partial(_one_of, (SETS[letter.lower()],), letter.isupper())
        if found := self._matched(CATEGORY):
            return self._category(*found.groups())
        return self._escaped().__eq__

    def _category(self, letter: str, name: str) -> Matcher:
        prefix = CATEGORIES.get(name, name)
        if not re.fullmatch("[LMNPSZC][a-z]?", prefix):
            self.refuse("a Unicode property that is not supported")
        return partial(_one_of, (partial(_in_category, prefix),), letter == "P")

    def _escaped(self) -> str:
        if found := self._matched(HEX):
            code = int(found[found.lastindex or 0], 16)
            if code > 0x10FFFF or 0xD800 <= code < 0xE000:
                self.refuse("half a character")
            return chr(code)
        letter = self._next()
        self.at += 1
        if letter in CONTROLS and self._next() not in DIGITS:
            return CONTROLS[letter]
        if letter == "" or letter.isalnum():
            self.refuse("an escape that is not supported")
        return letter

    def _set(self) -> Matcher:
        negated = self._taken("^")
        parts: list[Matcher] = []
        if self._next() == "]":
            self.refuse("an empty set")
        while not self._taken("]"):
            parts.append(self._member())
        return partial(_one_of, tuple(parts), negated)

    def _member(self) -> Matcher:
        low = self._end_of_range()
        if self._next() != "-" or self._source.startswith("-]", self.at):
            return _matcher(low)
        self.at += 1
        high = self._end_of_range()
        if isinstance(low, str) and isinstance(high, str):
            if high < low:
                self.refuse("a range without order")
            return partial(_between, low, high)
        # `[\w-.]` is no range, and in every second pattern for mail addresses: browsers take the hyphen as one.
        return partial(_one_of, (_matcher(low), _matcher("-"), _matcher(high)), False)

    def _end_of_range(self) -> str | Matcher:
        char = self._next()
        if not char:
            self.refuse("a set without an end")
        self.at += 1
        if char != "\\":
            return char
        if self._taken("b"):
            return "\b"
        if self._next().lower() in ("d", "w", "s", "p"):
            return self._escape()
        return self._escaped()
