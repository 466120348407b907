"""What the command prints, and its exit codes. Text of a server cannot control the terminal."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import IntEnum
from functools import partial
from itertools import islice
from typing import Self, TextIO

from mcp_host import errors
from mcp_host.errors import MARGIN, quoted
from mcp_host.terminal.device import write_aside
from mcp_host.terminal.text import (
    NARROWEST,
    Layout,
    Rows,
    Style,
    clean,
    clean_for_file,
    clean_prose,
    has_color,
    styled,
    wrapped,
)


class UsageError(Exception):
    """The command line is wrong, for the reason in the text: one sentence, perhaps with a list in the lines after it.

    What looks like a secret in it is hidden.
    """

    def __init__(self, text: str) -> None:
        from mcp_host.config.secret_words import without_secrets  # here, because importing it takes a while

        super().__init__(without_secrets(text))


class ConsentMissing(Exception):
    """A server of a file would be started for the first time, and no person has agreed to that."""


class ExitCode(IntEnum):
    """How the command ended, for scripts; with its *meaning*, for people."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> Self:
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    OK = 0, "done"
    TOOL_ERROR = 1, "the tool ran and reported an error"
    USAGE = 2, "the command was wrong, or needs what the server does not offer"
    NO_CONNECTION = 3, "no connection to the server, or it was lost"
    TIMEOUT = 4, "it took too long"
    SERVER_ERROR = 5, "the server answered with an error"
    PROTOCOL_ERROR = 6, "the server broke the protocol"
    INPUT_MISSING = 7, "input or an approval was missing, or the server asked for too much"
    TOOL_CHANGED = 8, "a tool has changed since it was pinned"
    MODEL_ERROR = 9, "the model, or its provider, failed"
    NO_LOGIN = 10, "the server wants a login, and there is none"
    CHECK_FAILED = 11, "a check of the host failed, or was not made"
    INTERNAL_ERROR = 70, "a bug in mcp-host"  # EX_SOFTWARE of sysexits.h
    INTERRUPTED = 130, "interrupted by Ctrl-C"  # 128 + SIGINT, as shells report it
    BROKEN_PIPE = 141, "the reader of the output has gone"  # 128 + SIGPIPE, likewise

    @classmethod
    def of(cls, error: BaseException) -> ExitCode:
        """The exit code of an error: that of its nearest base class in the table.

        If a call needs an answer of the model, and the model fails, it is that of the model's error.
        """
        error = _failure_of_model(error) or error
        codes = CODES
        if (auth := sys.modules.get("mcp_host.auth.errors")) is not None:  # few commands need it, and it imports much
            codes = {auth.TokensError: ExitCode.USAGE, auth.AuthError: ExitCode.NO_LOGIN, **CODES}
        return next(codes[kind] for kind in type(error).__mro__ if kind in codes)


CODES: Mapping[type[BaseException], ExitCode] = {
    UsageError: ExitCode.USAGE,
    errors.CallerError: ExitCode.USAGE,
    errors.ConfigError: ExitCode.USAGE,
    errors.RegistryError: ExitCode.USAGE,
    errors.ToolChanged: ExitCode.TOOL_CHANGED,
    errors.ToolPinsError: ExitCode.USAGE,
    errors.ConnectionClosed: ExitCode.NO_CONNECTION,
    errors.McpTimeout: ExitCode.TIMEOUT,
    errors.ServerError: ExitCode.SERVER_ERROR,
    errors.ProtocolError: ExitCode.PROTOCOL_ERROR,
    errors.CallDenied: ExitCode.INPUT_MISSING,
    ConsentMissing: ExitCode.INPUT_MISSING,
    errors.InputNotGiven: ExitCode.INPUT_MISSING,
    errors.RoundsExceeded: ExitCode.INPUT_MISSING,
    errors.SamplingError: ExitCode.MODEL_ERROR,
    errors.InputRefused: ExitCode.MODEL_ERROR,
    KeyboardInterrupt: ExitCode.INTERRUPTED,
    Exception: ExitCode.INTERNAL_ERROR,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a command prints at its end: with ``--json`` the *document*, in the protocol's spelling, else what *show* prints for people.

    Then stderr gets the *errors*, each a text for `print_error`.
    """

    document: Mapping[str, object] = field(default_factory=dict)
    show: Callable[[Printer], None] = lambda printer: None
    errors: Sequence[str] = ()
    code: ExitCode = ExitCode.OK


NAMED_OPTIONS: Sequence[tuple[type[BaseException], str, str]] = (
    (errors.RequestTimeout, "(timeout)", "(--timeout)"),
    (errors.RequestTimeout, "(idle_timeout)", "(--timeout)"),
    (errors.McpError, 'with Client(era="legacy")', "with --era legacy"),
    (errors.InputRefused, "maxTokens: ", "--max-tokens: "),
    (UsageError, "pass it with env=", "pass it with -e NAME"),
    (errors.ConfigError, "pass replace=True", "pass --replace"),
    (errors.ConnectFailed, "from verify=", "from --verify "),
    (errors.ConnectFailed, "from cert=", "from --cert "),
    (errors.ConnectFailed, "write cert=(certificate, key, password)", "decrypt it first, with openssl pkey"),
    (errors.ConnectFailed, "StreamableHttp(verify=...)", "--verify"),
    (errors.ConnectFailed, "StreamableHttp(cert=...)", "--cert"),
    (errors.McpError, "OAuth(client=httpx.AsyncClient(verify=...))", "SSL_CERT_FILE, a variable of the environment"),
)
"""What errors of a kind name, and the option that sets it."""

MAX_WIDTH = 100  # columns; longer lines are hard to read
INDENT = "    "  # of labels
MAX_COMPARED = 1000  # names, to find the one that was meant
SERVER_SAYS = "the server says: "
CLEAR = "\r\x1b[K"  # goes to the beginning of the line and clears it
TEXT_COLUMN = 18  # where the text beside a label begins


class Printer:
    """Prints to *stream*; on a terminal, to its width and with colors (https://no-color.org)."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.margin = len(INDENT) if stream.isatty() else 0
        """The least indent of a server's text: none where a program reads it."""
        self._color = stream.isatty() and has_color() and sys.platform != "win32"  # older consoles show the codes

    def line(self, text: str = "", style: Style | None = None) -> None:
        """Print text of the command itself, wrapped."""
        self._print_wrapped(text, columns_of(self._stream), style)

    def heading(self, text: str) -> None:
        """Print a heading of the command itself, after an empty line."""
        self.line()
        self.line(text, "bold")

    def field(self, label: str, text: str, style: Style | None = None, *, prose: bool = False) -> None:
        """Print a label with a server's text beside or below it. Every line is indented, so that none looks like ours.

        *prose* is a text that is only read.
        """
        first = (INDENT + clean(label)).ljust(TEXT_COLUMN - 1) + " "
        rest = " " * len(first)
        columns = columns_of(self._stream)
        if len(rest) > columns // 2:  # no room beside the label
            self.paragraph(label, style, indent=len(INDENT))
            first = rest = INDENT + "  "
        for line in text.splitlines() or [""]:
            self._print_wrapped((clean_prose if prose else clean)(line), columns, style, first, rest)
            first = rest

    def paragraph(self, text: str, style: Style | None = None, *, indent: int = 0, hang: int = 0) -> None:
        """Print a server's text, wrapped and indented; all rows after the first *hang* by more columns.

        On a terminal the *indent* is at least the `margin`, so that no row looks like one of ours.
        """
        indent, columns = max(indent, self.margin), columns_of(self._stream)
        first, rest = (" " * min(columns // 2, blanks) for blanks in (indent, indent + hang))
        for line in text.strip().splitlines():
            self._print_wrapped(clean(line), columns, style, first, rest)
            first = rest

    def text(self, text: str) -> None:
        """Print a server's text with its own lines, for another program to read; indented and wrapped on a terminal."""
        if self.margin:
            for line in text.splitlines():
                self._print_wrapped(clean_prose(line), columns_of(self._stream), None, INDENT, INDENT)
        elif text:
            self._print(clean_for_file(text).removesuffix("\n"))

    @property
    def layout(self) -> Layout:
        """For rows that other terminals show, too. Where there is none, they are not wrapped."""
        return Layout(columns_of(self._stream) if self._stream.isatty() else sys.maxsize, self._color)

    def rows(self, rows: Rows) -> None:
        """Print rows of a `Layout`, as they are."""
        for row in [row for row in rows if row is not None]:
            self._print(row)

    def _print_wrapped(self, text: str, columns: int, style: Style | None, first: str = "", rest: str = "") -> None:
        for row in wrapped(text, columns, first=first, rest=rest):
            self._print(row, style)

    def _print(self, text: str, style: Style | None = None) -> None:
        with writing(self._stream):
            print(styled(text, style if self._color else None), file=self._stream, flush=True)


def columns_of(stream: TextIO) -> int:
    """How wide rows are now: the person may make the terminal narrower at any time. Some wrap after a full last column."""
    return max(NARROWEST, min(MAX_WIDTH, _columns(stream) - 1))


@contextmanager
def writing(stream: TextIO) -> Iterator[None]:
    """For what writes to *stream* and flushes it. What stderr cannot take is dropped: it changes no exit code and no output.

    Raises:
        BrokenPipeError: The reader has gone.
        UsageError: The output cannot be written for another reason, such as a full disk.
    """
    try:
        yield
    except OSError as exc:
        if stream is sys.stderr:
            discard(stream)
            return
        if isinstance(exc, BrokenPipeError):
            raise
        discard(stream)
        raise UsageError(f"cannot write the output: {exc}") from exc


def discard(stream: TextIO) -> None:
    """Write to nowhere from now on. Python flushes the stream again at exit, which must not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def print_error(text: str) -> None:
    """Print an error to stderr. Further lines, such as the end of a server's stderr, get a margin."""
    first, *rest = text.splitlines() or [""]
    print_to_stderr("\n".join(_rows(first, "mcp-host: ")))
    for line in rest:
        print_to_stderr("\n".join(_rows(line.removeprefix(MARGIN), MARGIN)))


def print_to_stderr(text: str, end: str = "\n") -> None:
    """Print to stderr what is of the command itself, or escaped."""
    with writing(sys.stderr):
        print(text, end=end, file=sys.stderr, flush=True)


def print_failure(error: BaseException) -> None:
    """Print why the command failed to stderr, and which words of it are the server's."""
    is_ours = isinstance(error, errors.HttpStatusError) or not isinstance(error, errors.ServerError)
    print_error(f"{'' if is_ours else SERVER_SAYS}{text_of(error)}")


def _rows(line: str, lead: str, rest: str = MARGIN) -> Iterator[str]:
    """A line for stderr after *lead*. On a terminal, further rows have *rest*, so that none looks like ours."""
    if sys.stderr.isatty():
        return wrapped(clean_prose(line), columns_of(sys.stderr), first=lead, rest=rest)
    return iter([lead + clean_for_file(line)])


def text_of(error: BaseException) -> str:
    """What a person reads of an error: with the options of the command in the place of the library's arguments."""
    failure = _failure_of_model(error)
    if failure is not None:
        return f"the model that answers the server failed: {failure}"
    text = str(error)
    for kind, argument, option in NAMED_OPTIONS:
        if isinstance(error, kind):
            text = text.replace(argument, option, 1)  # further ones may be a server's words
    return text


def _failure_of_model(error: BaseException) -> errors.SamplingError | None:
    """Why a call did not get the answer of the model that it needs, if that is why it failed."""
    cause = error.__cause__ if isinstance(error, errors.InputNotGiven) else None
    return cause if isinstance(cause, errors.SamplingError) else None


def _columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or shutil.get_terminal_size().columns
    except OSError:  # no terminal, or no file
        return shutil.get_terminal_size().columns


def print_aside(text: str, server: str = "") -> None:
    """Print what a server tells meanwhile to stderr, with a margin. It takes the place of the status line.

    Where there are several, the name of the *server* is in the margin of each row, so that none looks like another's.
    While the person is asked something, this waits.
    """
    write_aside(partial(_print_aside, text, f"  {clean(server)} | " if server else MARGIN))


def _print_aside(text: str, margin: str) -> None:
    for line in text.splitlines():
        clear_status_line()
        print_to_stderr("\n".join(_rows(line, margin, margin)))


def clear_status_line() -> None:
    """Make place on a terminal for what another part writes to it."""
    _show_status(sys.stderr, "")


def _show_status(stream: TextIO, text: str) -> None:
    if stream.isatty() and os.environ.get("TERM") != "dumb":  # that cannot clear a line
        row = next(wrapped(clean(text), _columns(stream) - 1))
        with writing(stream):
            stream.write(f"{CLEAR}{row}")
            stream.flush()


@contextmanager
def status_line(stream: TextIO) -> Iterator[Callable[[str], None]]:
    """Show one line, the last one, while something goes on; on a terminal only. While the person is asked something, it waits."""

    def show(text: str) -> None:
        write_aside(partial(_show_status, stream, text), key=stream)

    try:
        yield show
    finally:
        show("")


def print_json(document: Mapping[str, object]) -> None:
    """Print one JSON document, in ASCII and with DEL escaped: nothing in it controls a terminal."""
    with writing(sys.stdout):
        print(json.dumps(document, indent=2).replace("\x7f", "\\u007f"), flush=True)


def near(word: str, names: Iterable[str]) -> str:
    """The end of a sentence that asks whether the most similar of *names* was meant, if there is one."""
    found = get_close_matches(word, islice(names, MAX_COMPARED), n=1)
    return f"; did you mean {quoted(found[0])}?" if found else ""


def as_json(value: object) -> str:
    """JSON for people, on one line."""
    return json.dumps(value, ensure_ascii=False)
