"""Lines for a terminal: their width, their colours, and what cannot get into them."""

from __future__ import annotations

from io import StringIO

import pytest

from mcp_host.cli.output import Page, Style
from tests.cli.terminals import Terminal

TEXT = "The quick brown fox jumps over the lazy dog."


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "41")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


def test_text_of_others_is_indented_on_every_line_so_that_none_passes_for_ours() -> None:
    stream = StringIO()
    page = Page(stream)

    page.field("says", f"{TEXT}\n\nserver -> host: hi\r\x1b[2J")

    assert stream.getvalue().splitlines() == [
        "    says          The quick brown fox",
        "                  jumps over the lazy",
        "                  dog.",
        "",
        "                  server -> host: hi",
        "                  \\x1b[2J",
    ]


@pytest.mark.parametrize("columns", [1, 24, 40, 79, 500])
def test_no_line_is_wider_than_the_terminal_or_than_what_is_easy_to_read(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    stream = StringIO()
    page = Page(stream)

    page.line(TEXT * 5)
    page.field("label", TEXT * 5)
    page.field("a label that is very long", TEXT * 5)
    page.paragraph("x" * 200, indent=4)

    widest = max(map(len, stream.getvalue().splitlines()))
    assert widest == min(100, max(24, columns - 1))


def test_an_empty_text_leaves_its_label() -> None:
    stream = StringIO()
    page = Page(stream)

    page.field("text", "")
    page.line()

    assert stream.getvalue() == "    text\n\n"


def test_a_tools_own_lines_are_kept() -> None:
    stream = StringIO()

    Page(stream).text("x" * 60 + "\n\ta\x00b\u202e")

    assert stream.getvalue() == "x" * 60 + "\n    a\\x00b\\u202e\n"


@pytest.mark.parametrize(("style", "code"), [("bold", 1), ("dim", 2), ("red", 31), ("green", 32), ("cyan", 36)])
def test_a_terminal_gets_colours(style: Style, code: int) -> None:
    stream = Terminal()

    Page(stream).line("Tools", style)

    assert stream.getvalue() == f"\x1b[{code}mTools\x1b[0m\n"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colours_can_be_turned_off(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    stream = Terminal()

    Page(stream).line("Tools", "bold")

    assert stream.getvalue() == "Tools\n"


def test_what_is_no_terminal_gets_none() -> None:
    stream = StringIO()

    Page(stream).line("Tools", "bold")

    assert stream.getvalue() == "Tools\n"
