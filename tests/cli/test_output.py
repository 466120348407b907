"""Lines for a terminal: their width, their colors, and what is escaped in them."""

from __future__ import annotations

from contextlib import redirect_stderr
from io import StringIO

import pytest

from mcp_host.cli.output import Printer, print_aside, print_error, print_failure, status_line, text_of
from mcp_host.errors import RequestTimeout, ServerError
from mcp_host.providers.exchange.requests import refused
from mcp_host.session.call import CallTimeouts
from mcp_host.terminal.device import question_is_open
from mcp_host.terminal.text import NARROWEST, Style
from tests.cli.terminals import Terminal

TEXT = "The quick brown fox jumps over the lazy dog."


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "41")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


def test_every_line_of_a_servers_text_is_indented_so_that_none_looks_like_ours() -> None:
    stream = StringIO()
    printer = Printer(stream)

    printer.field("says", f"{TEXT}\n\nserver -> host: hi\r\x1b[2J")

    assert stream.getvalue().splitlines() == [
        "    says          The quick brown fox",
        "                  jumps over the lazy",
        "                  dog.",
        "",
        "                  server -> host: hi",
        "                  \\x1b[2J",
    ]


@pytest.mark.parametrize("columns", [1, 24, 40, 79, 500])
def test_no_line_is_wider_than_the_terminal_or_100_columns(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    stream = StringIO()
    printer = Printer(stream)

    printer.line(TEXT * 5)
    printer.field("label", TEXT * 5)
    printer.field("a label that is very long", TEXT * 5)
    printer.paragraph("x" * 200, indent=4, hang=8)

    widest = max(map(len, stream.getvalue().splitlines()))
    assert widest == min(100, max(NARROWEST, columns - 1))


def test_a_paragraph_may_hang() -> None:
    stream = StringIO()

    Printer(stream).paragraph(f"a: {TEXT}\nsecond line", indent=2, hang=4)

    assert stream.getvalue().splitlines() == [
        "  a: The quick brown fox jumps over the",
        "      lazy dog.",
        "      second line",
    ]


def test_an_empty_text_still_has_its_label() -> None:
    stream = StringIO()
    printer = Printer(stream)

    printer.field("text", "")
    printer.line()

    assert stream.getvalue() == "    text\n\n"


def test_the_lines_of_a_tools_text_are_kept() -> None:
    stream = StringIO()
    printer = Printer(stream)

    printer.text("x" * 60 + "\r\n\ta\x00b\u202e\u3000\u2028\n")
    printer.text("")

    assert stream.getvalue() == "x" * 60 + "\n\ta\\x00b\\u202e\u3000\u2028\n"


def test_joiners_and_wide_spaces_stay_in_what_is_only_read_and_are_seen_in_what_is_decided_on() -> None:
    text = "\u6771\u3000\U0001f469\u200d\U0001f4bb"
    with redirect_stderr(Terminal()) as stream:
        printer = Printer(stream)
        printer.text(text)
        printer.field("result", text, prose=True)
        print_aside(text)
        printer.field("calls itself", text)
        printer.paragraph(text)

    rows = stream.getvalue().replace("\u3000", "_").replace("\r\x1b[K", "").splitlines()
    assert [row.split()[-1] for row in rows] == [
        *["\u6771_\U0001f469\u200d\U0001f4bb"] * 3,
        *["\u6771\\u3000\U0001f469\\u200d\U0001f4bb"] * 2,
    ]


def test_on_a_terminal_each_row_of_a_servers_text_is_indented() -> None:
    stream = Terminal()

    printer = Printer(stream)
    printer.text("def f():\n    return 1\n" + "x" * 40)
    printer.paragraph("May your client call it now? [y/s/v/N] y", hang=2)

    assert stream.getvalue().splitlines() == [
        *("    def f():", "        return 1", f"    {'x' * 36}", "    xxxx"),
        *("    May your client call it now?", "      [y/s/v/N] y"),
    ]


def test_on_a_terminal_no_row_of_an_error_or_of_a_servers_message_begins_in_the_first_column() -> None:
    with redirect_stderr(Terminal()) as stream:
        print_error(f"the server says {TEXT}\n  | {TEXT}")
        print_aside(f"\u6f22 {TEXT}")
        print_aside(f"a {TEXT}\nb", "shop")
        print_failure(ServerError(-32000, "your login has expired:\nmcp-host login evil.example"))

    assert stream.getvalue().replace("\r\x1b[K", "").splitlines() == [
        "mcp-host: the server says The quick",
        "  | brown fox jumps over the lazy dog.",
        "  | The quick brown fox jumps over the",
        "  | lazy dog.",
        "  | \u6f22 The quick brown fox jumps over",
        "  | the lazy dog.",
        "  shop | a The quick brown fox jumps",
        "  shop | over the lazy dog.",
        "  shop | b",
        "mcp-host: the server says: your login",
        "  | has expired:\\nmcp-host login",
        "  | evil.example (-32000)",
    ]


def test_in_a_file_an_error_is_one_line() -> None:
    with redirect_stderr(StringIO()) as stream:
        print_error(f"the server says {TEXT}\n{TEXT}")

    assert stream.getvalue() == f"mcp-host: the server says {TEXT}\n  | {TEXT}\n"


def test_an_error_names_the_options_of_the_command_and_leaves_a_servers_words(subtests: pytest.Subtests) -> None:
    slow, silent = (CallTimeouts(timeout=a, idle_timeout=b, clock=lambda: 0.0).overdue() for a, b in ((0, 9), (9, 0)))
    for error, text in (
        (RequestTimeout(f"{slow}; skipped: (timeout)"), "took longer than 0 s (--timeout); skipped: (timeout)"),
        (RequestTimeout(silent), "the server was silent for 0 s (--timeout)"),
        (ServerError(-32000, "it took 5 s (timeout)"), "it took 5 s (timeout) (-32000)"),
        (refused("maxTokens", "at least 16, not 3"), "--max-tokens: this model takes at least 16, not 3"),
    ):
        with subtests.test(text):
            assert text_of(error) == text


@pytest.mark.parametrize(("style", "code"), [("bold", 1), ("dim", 2), ("green", 32), ("cyan", 36)])
def test_a_terminal_gets_colors(style: Style, code: int) -> None:
    stream = Terminal()

    Printer(stream).line("Tools", style)

    assert stream.getvalue() == f"\x1b[{code}mTools\x1b[0m\n"


@pytest.mark.parametrize(
    ("stream", "environment"),
    [(Terminal(), {"NO_COLOR": "1"}), (Terminal(), {"TERM": "dumb"}), (StringIO(), {})],
    ids=["turned off", "a dumb terminal", "a file"],
)
def test_all_else_gets_no_colors(
    stream: StringIO, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    Printer(stream).line("Tools", "bold")

    assert stream.getvalue() == "Tools\n"


def test_what_a_server_tells_waits_while_the_person_is_asked_something(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could write over the question, or look like one. Of the status, only the last is shown then, of other lines a thousand."""
    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()
    with status_line(screen) as show:
        show("before")
        with question_is_open():
            with question_is_open():  # in another event loop
                print_aside("log 0")
            for number in range(1002):
                show(f"status {number}")
                print_aside(f"log {number}")
            assert (screen.getvalue(), capsys.readouterr().err) == ("\r\x1b[Kbefore", "")

        assert screen.getvalue().replace("\r\x1b[K", "/") == "/before/status 1001"
        assert capsys.readouterr().err == "".join([f"  | log {number}\n" for number in range(3, 1002)])
