"""Text for a terminal: escaped, wrapped between words by columns, and colored where the terminal has colors."""

from __future__ import annotations

import math
import os
import re
import unicodedata
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

from mcp_host.errors import INVISIBLE, MARGIN, escaped, excerpt
from mcp_host.protocol.server_names import with_claim
from mcp_host.server_requests import OuterCall
from mcp_host.types import Implementation

Style: TypeAlias = Literal["bold", "dim", "green", "cyan", "yellow"]

Rows: TypeAlias = Iterator[str | None]
"""Rows of a terminal while they are laid out. None is no row: there, other tasks can run."""

SGR: Mapping[Style, str] = {"bold": "1", "dim": "2", "green": "32", "cyan": "36", "yellow": "33"}

NAME_SHOWN = 60  # characters of a name
NARROWEST = 10  # columns: room for a margin and a wide character
TAB = "    "
URL_INDENT = "  "  # of a URL to open; twice as much before its further rows
MAX_COUNTED = 1000  # rows that are only counted; a server may send 500,000
COUNTED_AT_ONCE = 50  # of them, before other tasks run
CLEANED_AT_ONCE = 8192  # characters of a line, likewise; a server may send a line of a million

SPACES = re.compile(" +")
MAX_MARKS = 8  # on one character; scripts need four or five, and rows would have no end
VS16 = "\ufe0f"  # makes an emoji of the character before it, which then takes another column

SPACES_AND_JOINERS = re.compile("[\u00a0\u1680\u2000-\u200a\u200c\u200d\u202f\u205f\u3000]")
"""Ordinary in a text, though Python calls them unprintable: spaces of any width, and what joins or parts letters."""

JOINERS = "\u200c\u200d"
HIDDEN = re.compile(f"{INVISIBLE.pattern}|[{JOINERS}]")
JOINED = re.compile("[\u0600-\u0dff\u1780-\u18af]")
"""Of scripts whose letters change beside joiners: from Arabic to Sinhala, Khmer, Mongolian."""

SKIN_TONES = "\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"
KEYCAPS = "0123456789#*"

CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What controls a terminal, but for tabs and line ends: control characters, and what reverses the text after it."""

DOUBTFUL = re.compile(
    "[\u17a4\u17d8\u261d\u26f9\u270c\u270d\u3248-\u324f"
    "\U0001f1e6-\U0001f1ff\U0001f3cb\U0001f3cc\U0001f574\U0001f575\U0001f590\U0001f93b\U0001f946]"
)
"""In one column by the tables of Unicode, in two on some terminals."""


def clean(text: str) -> str:
    """One line of a server's text, with what would control a terminal escaped: "\\x1b[2J" stays visible.

    So are characters that cannot be seen, and more than 8 marks on one character. Of the selectors of variants only
    the one that makes an emoji of a symbol is not.
    """
    return _Cleaner().clean(text)


def clean_prose(text: str) -> str:
    """As `clean`, for a text that is only read, such as an answer or a result: what people write with stays.

    That is spaces of any width, the joiners of the scripts that have them and of emoji, and keycaps.
    Names, definitions and questions are decided on: in them, nothing may be hidden.
    """
    return _Cleaner(prose=True).clean(text)


def clean_for_file(text: str) -> str:
    """A text for another program to read, of several lines: only what controls a terminal is escaped."""
    return CONTROLS.sub(lambda found: _escape(found[0]), text.replace("\r\n", "\n"))


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode()


class _Cleaner:
    """`clean` or `clean_prose` for one line in pieces: it counts the marks on the last character."""

    def __init__(self, *, prose: bool = False) -> None:
        self._prose = prose
        self._marks = 0
        self._last = ""

    def clean(self, piece: str) -> str:
        shown = self._escaped(piece.replace("\t", TAB))
        if shown.isascii() or not any(_is_mark(char) or HIDDEN.match(char) for char in set(shown)):
            self._marks, self._last = 0, shown[-1:]
            return shown
        return "".join(map(self._visible, shown))

    def _escaped(self, piece: str) -> str:
        if not self._prose or piece.isprintable():
            return escaped(piece)
        escapes = {ord(char): escaped(char) for char in set(piece) if not SPACES_AND_JOINERS.match(char)}
        return piece.translate(escapes)

    def _visible(self, char: str) -> str:
        if char not in JOINERS:  # after one, marks are still on the character before it
            self._marks = self._marks + 1 if _is_mark(char) else 0
        if self._marks > MAX_MARKS or (HIDDEN.match(char) and not self._is_wanted(char)):
            self._last = ""
            return _escape(char)
        self._last = char
        return char

    def _is_wanted(self, char: str) -> bool:
        """Whether a character that is not seen belongs to the one before it."""
        if char == VS16:
            return _makes_emoji(self._last) or (self._prose and self._last != "" and self._last in KEYCAPS)
        return char in JOINERS and _takes_joiner(self._last)


def _cleaned(line: str) -> Generator[None, None, str]:
    """`clean` in pieces, between which other tasks can run."""
    if len(line) <= CLEANED_AT_ONCE:
        return clean(line)
    cleaner, pieces = _Cleaner(), list[str]()
    for start in range(0, len(line), CLEANED_AT_ONCE):
        yield
        pieces.append(cleaner.clean(line[start : start + CLEANED_AT_ONCE]))
    return "".join(pieces)


def has_color(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the user's terminal has colors, and the user wants them (https://no-color.org)."""
    return not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


def styled(text: str, style: Style | None) -> str:
    return text if style is None or not text else f"\x1b[{SGR[style]}m{text}\x1b[0m"


def width(text: str) -> int:
    """The columns that escaped text takes. Where terminals differ, the larger number."""
    return len(text) if text.isascii() else sum(map(_columns, text))


@lru_cache(4096)
def _is_mark(char: str) -> bool:
    """Whether it combines with the character before."""
    return char >= "\u0300" and unicodedata.category(char) in ("Mn", "Me")


@lru_cache(256)
def _takes_joiner(char: str) -> bool:
    """Whether a joiner after it changes how the text is written: after an emoji, and after a letter of some scripts."""
    if JOINED.match(char):
        return unicodedata.category(char)[0] in "LM"
    return char == VS16 or (char != "" and (char in SKIN_TONES or unicodedata.category(char) == "So"))


@lru_cache(256)
def _makes_emoji(char: str) -> bool:
    """Whether `VS16` makes an emoji of it that is more than a letter, a digit or an ideograph."""
    from wcwidth import wcswidth

    return unicodedata.category(char or "a") in ("So", "Sm", "Po") and not char.isascii() and wcswidth(char + VS16) == 2


def _columns(char: str) -> int:
    narrow, wide = _narrow_and_wide(char)
    return wide if wide > narrow and _is_east_asian(os.environ) else narrow


@lru_cache(4096)
def _narrow_and_wide(char: str) -> tuple[int, int]:
    """The columns that a character takes, and those with the fonts of an East Asian locale."""
    if char.isascii():
        return 1, 1
    from wcwidth import wcwidth  # on demand: most texts are ASCII, and it takes 20 ms

    if _is_mark(char):
        columns = max(wcwidth(char), int(char == VS16))
        return columns, columns
    if DOUBTFUL.match(char) or unicodedata.east_asian_width(char) in "WF":
        return 2, 2
    return max(wcwidth(char), 1), max(wcwidth(char, ambiguous_width=2), 1)


def _is_east_asian(environment: Mapping[str, str]) -> bool:
    """Whether the locale is one whose fonts show Greek, Cyrillic and box-drawing characters in two columns."""
    names = ("LC_ALL", "LC_CTYPE", "LANG")
    return next(filter(None, map(environment.get, names)), "").startswith(("ja", "ko", "zh"))


def wrapped(text: str, columns: int, *, first: str = "", rest: str = "") -> Iterator[str]:
    """Rows of at most *columns*, broken between words. Only a word that is longer than a row is broken.

    *text* is one escaped line. The first row begins with *first*, the others with *rest*. Spaces at the beginning
    stay, those at a break and at the end go.
    """
    text = text.rstrip(" ")
    first_word = len(text) - len(text.lstrip(" "))
    start, room = 0, columns - width(rest)
    end, lead = _fitting(text, 0, columns - width(first)), first
    while end < len(text):
        found = SPACES.match(text, end)  # the first word that is not whole in this row
        word = found.end() if found else text.rfind(" ", start, end) + 1
        if word > max(start, first_word):
            after = _fitting(text, word, room)
            if after == len(text) or text.find(" ", word, after + 1) > 0:  # it fits into a row
                end = word
        yield (lead + text[start:end]).rstrip(" ")
        lead, start = rest, end
        end = max(_fitting(text, start, room), start + 1)  # also if a character is wider than a row
    yield lead + text[start:] if text else lead.rstrip(" ")


def _fitting(text: str, start: int, columns: int) -> int:
    """The end of the longest part of *text* from *start* on that fits into so many columns."""
    if text.isascii():
        return min(start + max(columns, 0), len(text))
    for end in range(start, len(text)):
        columns -= _columns(text[end])
        if columns < 0:
            return end
    return len(text)


class StreamedText:
    """A peer's text that comes in pieces, as rows of at most *columns* after an *indent*; what controls a terminal is escaped.

    Without *columns*, it is for a file (`clean_for_file`), else for a person (`clean_prose`).
    The last word of a piece waits for its end, because rows break between words. The rows are the same, however
    the text is split.
    """

    def __init__(self, columns: float = math.inf, indent: str = "") -> None:
        self.columns = columns
        """May change at any time; the present row then ends at once if it is wider."""
        self._indent = indent
        self._used = 0  # columns of the present row; 0 before its indent
        self._spaces: list[str] = []
        self._word: list[str] = []
        self._wanted = 0  # columns of the word
        self._cleaner = _Cleaner(prose=True)
        self._is_broken = False  # the beginning of the word is in the row: it is longer than a row
        self._returned = False  # "\r" came last, which ends a line together with "\n"

    def add(self, text: str) -> str:
        """What to write now."""
        return "".join(map(self._add, text))

    def end(self) -> str:
        """The rest, with the end of its row."""
        rest = self._end_word()
        return rest + self._end_row() if rest or self._used or self._spaces else ""

    def _add(self, char: str) -> str:
        shown = self._cleaner.clean(char) if math.isfinite(self.columns) else clean_for_file(char)
        if char == "\n":
            self._returned = False
            return self._end_word() + self._end_row()
        self._end_return()
        if char in " \t":
            written = self._end_word()
            self._spaces.append(shown)
            return written
        if char == "\r":
            self._returned = True
            return ""
        self._lengthen(shown)
        if width(char) > 1:  # scripts with wide characters have no spaces
            return self._end_word()
        if self._wanted > self.columns - len(self._indent):
            written, self._is_broken = self._write_word(), True
            return written
        return ""

    def _lengthen(self, shown: str) -> None:
        self._word.append(shown)
        self._wanted += width(shown)

    def _end_return(self) -> None:
        if self._returned:
            self._returned = False
            self._lengthen(clean("\r"))

    def _end_word(self) -> str:
        self._end_return()
        written, self._is_broken = self._write_word(), False
        return written

    def _write_word(self) -> str:
        if not self._word:
            return ""
        word, spaces, wanted = "".join(self._word), "".join(self._spaces), self._wanted
        self._word, self._spaces, self._wanted = [], [], 0
        out = ""
        is_longer = self._is_broken or wanted > self.columns - len(self._indent)
        if self._used > len(self._indent) and self._used + len(spaces) + wanted > self.columns and not is_longer:
            out, spaces = self._end_row(), ""
        for char in spaces + word:
            columns = _columns(char)
            if self._used and self._used + columns > self.columns:
                out += self._end_row()
            if not self._used:
                out += self._indent
                self._used = len(self._indent)
            out += char
            self._used += columns
        return out

    def _end_row(self) -> str:
        spaces, self._spaces, self._used = "".join(self._spaces), [], 0
        return "\n" if math.isfinite(self.columns) else f"{spaces}\n"  # for a file, the text is left as it is


@dataclass(frozen=True, slots=True)
class Layout:
    """How wide the rows of a terminal are, and whether they have colors.

    Our own words begin in the first column, each row of a server's text after a margin. So no server can forge ours.
    """

    columns: int = 80
    color: bool = False

    def ours(self, text: str, style: Style | None = None) -> Iterator[str]:
        """The rows of our own words."""
        for row in wrapped(text, self.columns):
            yield self.styled(row, style)

    def theirs(self, text: str, *, style: Style | None = None, lead: str = "", indent: int = 0, hang: int = 0) -> Rows:
        """The rows of a server's text, which may have several lines. *lead* is bold and begins the first row.

        All rows have an *indent*, and those of a wrapped line *hang* by more columns: both by fewer if they would leave
        less than half of the row.
        """
        margin = self.styled(MARGIN, "dim")
        columns = self.columns - len(MARGIN)
        first, rest = (" " * min(columns // 2, blanks) for blanks in (indent, indent + hang))
        shown = clean(lead)
        for line in text.replace("\r\n", "\n").split("\n"):
            cleaned = yield from _cleaned(line)
            for row in wrapped(shown + cleaned, columns, first=first, rest=rest):
                if shown and row.startswith(first + shown):
                    start = len(first + shown)
                    yield f"{margin}{first}{self.styled(shown, 'bold')}{self.styled(row[start:], style)}"
                else:
                    yield margin + self.styled(row, style)
                shown = ""

    def cut(self, rows: Rows, most: int | None) -> Rows:
        """The first rows of a server's text, and how many more there are. All of them if *most* is None."""
        found = hidden = 0
        for row in rows:
            found += row is not None
            if row is None or most is None or found <= most:
                yield row
                continue
            hidden += 1
            if hidden == MAX_COUNTED:
                break
            if hidden % COUNTED_AT_ONCE == 0:
                yield None
        if hidden:
            count = f"at least {hidden}" if hidden == MAX_COUNTED else f"{hidden}"
            yield from self.theirs(f"... and {count} more line{'s' * (hidden > 1)}", style="dim")

    def url(self, url: str) -> Iterator[str]:
        """The rows of a URL to open, which a server wrote.

        The margin is blank, so that it can be copied: browsers drop line breaks of what is pasted as an address, with the
        spaces around them.
        """
        yield from wrapped(url, self.columns, first=URL_INDENT, rest=URL_INDENT * 2)

    def server(self, server: str, info: Implementation | None) -> Rows:
        """The rows that name a server, with what it calls itself."""
        yield from self.theirs(with_claim(excerpt(server, NAME_SHOWN), info))

    def who_asks(self, server: str, info: Implementation | None, outer: OuterCall | None) -> Rows:
        """The rows that say which server asks, and within which call of ours."""
        yield from self.server(server, info)
        if outer is not None:
            yield from self.ours("probably while it works on" if outer.inferred else "while it works on", "cyan")
            name = "" if outer.name is None else f" {outer.name}"
            yield from self.theirs(excerpt(outer.method + name, NAME_SHOWN))

    def styled(self, text: str, style: Style | None) -> str:
        return styled(text, style if self.color else None)
