"""What `chat` prints, in the cases that its own tests do not show."""

from __future__ import annotations

import sys
from io import StringIO

import pytest

from mcp_host.cli.output import Printer
from mcp_host.cli.transcript import Transcript
from mcp_host.sampling import FinishedCall
from mcp_host.types import CallToolResult, ToolUseContent
from tests.cli.terminals import Terminal
from tests.terminal.screens import Screen


@pytest.fixture(autouse=True)
def width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")


def finished(text: str, **fields: object) -> FinishedCall:
    result = CallToolResult.from_wire({"content": [{"type": "text", "text": text}] if text else [], **fields})
    return FinishedCall(ToolUseContent(id="1", name="t", input={}), result, 0.1)


def test_text_on_a_terminal_is_indented_and_wrapped_and_all_else_begins_a_row() -> None:
    stream = Terminal()
    transcript = Transcript(stream, Printer(stream))

    for piece in ("The quick brown fox jumps ", "over the la", "zy dog"):
        transcript.text(piece)
    transcript.note("Stopped.")
    transcript.text("Again\t" + "\u200b" + "e" + "\u0301" * 9)
    transcript.end_text()

    assert stream.getvalue().splitlines() == [
        "    The quick brown fox jumps over the",
        "    lazy dog",
        "Stopped.",
        "    Again    \\u200be" + "\u0301" * 8 + "\\u0301",
    ]


@pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are POSIX's")
def test_the_width_is_that_which_the_terminal_has_by_then(screen: Screen) -> None:
    """A row that wraps there begins in the first column, and can look like ours."""
    with open(screen.path, "w") as stream:
        transcript = Transcript(stream, Printer(stream))
        for columns, text in ((80, "one two three four five six "), (24, "seven eight nine ten eleven ")):
            screen.resize(columns)
            transcript.text(text)
        screen.resize(20)
        transcript.end_text()
        transcript.result(finished("a text of some words"))
        transcript.printer.text("a text of some words")

    assert screen.rest().replace("\r", "").splitlines() == [
        *("    one two three four five six", "    seven eight nine", "    ten eleven"),
        *("    result", "      t: a text of", "      some words"),
        *("    a text of some", "    words"),
    ]


def test_nothing_is_printed_while_the_person_types() -> None:
    stream = Terminal()
    transcript = Transcript(stream, Printer(stream))

    transcript.text("One")
    transcript.pause()
    transcript.pause()  # a second question waits for the first
    transcript.text(" two")
    transcript.note("A remark.")
    transcript.text("three")
    asked = stream.getvalue()
    transcript.resume()
    still_asked = stream.getvalue()
    transcript.resume()
    transcript.end_text()

    assert (asked, still_asked) == ("    One\n", "    One\n")
    assert stream.getvalue().splitlines() == ["    One", "     two", "A remark.", "    three"]


def test_results_are_short(subtests: pytest.Subtests) -> None:
    many = [
        "    result        t: a",
        *[f"                  {line}" for line in "bcdef"],
        " " * 18 + "... (15 characters)",
    ]
    table: list[tuple[str, FinishedCall, list[str]]] = [
        ("escaped", finished("ok\x1b[2J"), [r"    result        t: ok\x1b[2J"]),
        ("an error", finished("no", isError=True), ["    error         t: no"]),
        ("structured content only", finished("", structuredContent={"a": 1}), ['    result        t: {"a": 1}']),
        ("nothing", finished(""), ["    result        t:"]),
        ("many lines", finished("\n".join("abcdefgh")), many),
    ]
    for case, call, rows in table:
        with subtests.test(case):
            stream = StringIO()
            Transcript(StringIO(), Printer(stream)).result(call)
            assert [row.rstrip() for row in stream.getvalue().splitlines()] == rows


def test_the_text_of_a_pipe_is_as_it_is_but_for_escapes() -> None:
    stream = StringIO()
    transcript = Transcript(stream, Printer(StringIO()))

    for piece in ("a line of more than forty columns, with a \x1b", "[2J escape  \n", "    code"):
        transcript.text(piece)
    transcript.end_text()

    assert stream.getvalue() == "a line of more than forty columns, with a \\x1b[2J escape  \n    code\n"


def test_usage_is_told_if_both_numbers_are_known() -> None:
    stream = StringIO()
    transcript = Transcript(StringIO(), Printer(stream))

    transcript.usage({"inputTokens": 12345.0, "outputTokens": 7.0, "reasoningTokens": 3.0})
    transcript.usage({"inputTokens": 1.0})

    assert stream.getvalue() == "(12,345 tokens in, 7 out)\n"
