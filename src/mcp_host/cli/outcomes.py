"""How the command ends: an exit code that scripts can use, and one sentence for whoever reads stderr."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TextIO

from mcp_host.cli.page import clean
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
)

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
