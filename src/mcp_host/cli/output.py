"""What the command prints: lines that fit the terminal, in which a stranger's text can do nothing."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from textwrap import TextWrapper
from typing import Literal, TextIO, TypeAlias

from mcp_host.errors import (
    MARGIN,
    CallerError,
    ConnectionClosed,
    InputNotGiven,
    McpError,
    McpTimeout,
    ProtocolError,
    RoundsExceeded,
    ServerError,
    escaped,
)

Style: TypeAlias = Literal["bold", "dim", "red", "green", "cyan"]

SGR = {"bold": "1", "dim": "2", "red": "31", "green": "32", "cyan": "36"}

WIDEST = 100  # columns; longer lines are hard to read
NARROWEST = 24
INDENT = "    "  # of labels
COLUMN = 18  # where the text beside a label begins
UNKNOWN_WIDTH = (80, 24)  # where the output is no terminal, and COLUMNS does not say


class Page:
    """Prints to *stream*; with colours and to the width of the terminal, if it is one."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._colours = wants_colours(stream)
        columns = shutil.get_terminal_size(UNKNOWN_WIDTH).columns
        self._width = max(NARROWEST, min(WIDEST, columns - 1))  # a full last column makes some terminals wrap

    def line(self, text: str = "", style: Style | None = None) -> None:
        """Text of ours, wrapped."""
        for part in self._wrapped(text, "", "") if text else [""]:
            self._print(part, style)

    def field(self, label: str, text: str, style: Style | None = None) -> None:
        """A label and somebody's text beside or below it: every line indented, so that none passes for ours."""
        first = (INDENT + clean(label)).ljust(COLUMN - 1) + " "
        rest = " " * len(first)
        if len(rest) > self._width // 2:  # no room beside the label
            self.paragraph(label, style, indent=len(INDENT))
            first = rest = INDENT + "  "
        for line in text.splitlines() or [""]:
            for part in self._wrapped(clean(line), first, rest):
                self._print(part, style)
            first = rest

    def paragraph(self, text: str, style: Style | None = None, *, indent: int = 0) -> None:
        """Somebody's text, wrapped and indented."""
        margin = " " * indent
        for line in text.strip().splitlines():
            for part in self._wrapped(clean(line), margin, margin):
                self._print(part, style)

    def text(self, text: str) -> None:
        """Somebody's text, harmless, but with its own lines: it may be meant for another program."""
        for line in text.splitlines():
            self._print(clean(line), None)

    def _wrapped(self, text: str, first: str, rest: str) -> Iterator[str]:
        wrapper = TextWrapper(self._width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
        yield from wrapper.wrap(text) or [first.rstrip()]

    def _print(self, text: str, style: Style | None) -> None:
        if style is not None and self._colours:
            text = f"\x1b[{SGR[style]}m{text}\x1b[0m"
        print(text, file=self._stream, flush=True)


def wants_colours(stream: TextIO) -> bool:
    """Whether to use colours: on a terminal that knows them, and not against the user's will (https://no-color.org)."""
    if not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return sys.platform != "win32"  # whose older consoles show the codes themselves


def clean(text: str) -> str:
    """One line of a stranger's text with nothing left in it that a terminal obeys: "\\x1b[2J" stays visible."""
    return escaped(text.replace("\t", "    "))


def compact(value: object) -> str:
    """JSON for people, on one line."""
    return json.dumps(value, ensure_ascii=False)


OK = 0
TOOL_ERROR = 1
USAGE = 2
NO_CONNECTION = 3
TOO_LATE = 4
REFUSED = 5
BROKEN_PROTOCOL = 6
NO_INPUT = 7
DEFECT = 70  # EX_SOFTWARE of sysexits.h
INTERRUPTED = 130  # 128 + SIGINT, as shells report it
READER_LEFT = 141  # 128 + SIGPIPE, likewise

CODES: Mapping[type[BaseException], int] = {
    CallerError: USAGE,
    ConnectionClosed: NO_CONNECTION,
    McpTimeout: TOO_LATE,
    ServerError: REFUSED,
    ProtocolError: BROKEN_PROTOCOL,
    InputNotGiven: NO_INPUT,
    RoundsExceeded: NO_INPUT,
    McpError: DEFECT,  # what is left concerns sampling, and is answered to the server instead of raised
}

MEANINGS: Mapping[int, str] = {
    OK: "done",
    TOOL_ERROR: "the tool ran and reported an error",
    USAGE: "the command was wrong, or wants what the server does not offer",
    NO_CONNECTION: "no connection to the server, or it was lost",
    TOO_LATE: "it took too long",
    REFUSED: "the server answered with an error",
    BROKEN_PROTOCOL: "the server broke the protocol",
    NO_INPUT: "the server wanted input that it did not get, or too much of it",
    DEFECT: "a defect of mcp-host",
    INTERRUPTED: "interrupted by Ctrl-C",
}


def code_of(error: McpError) -> int:
    """The exit code of an error: that of its nearest ancestor in the table."""
    return next(CODES[kind] for kind in type(error).__mro__ if kind in CODES)


def complain(stream: TextIO, text: str) -> None:
    """Say what went wrong; further lines, such as the end of a server's stderr, are set off."""
    first, *rest = text.splitlines() or [""]
    print(f"mcp-host: {clean(first)}", file=stream)
    for line in rest:
        print(f"{MARGIN}{clean(line.removeprefix(MARGIN))}", file=stream)
