"""Rows for a terminal: their width in columns, where they break, and what is escaped in them."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wcwidth import wcswidth, wcwidth
from wcwidth.table_overrides import NARROW_OVERRIDES

from mcp_host.errors import MARGIN
from mcp_host.terminal.text import (
    NARROWEST,
    Layout,
    Rows,
    StreamedText,
    clean,
    clean_for_file,
    clean_prose,
    has_color,
    width,
    wrapped,
)

ROWS: list[tuple[str, list[str]]] = [
    ("hello world foo bar", ["hello", "world foo", "bar"]),
    ("ten chars.", ["ten chars."]),
    ("ten chars. more", ["ten chars.", "more"]),
    ("    code here", ["    code", "here"]),
    ("a  b", ["a  b"]),
    ("hi " + "y" * 25, ["hi yyyyyyy", "y" * 10, "y" * 8]),
    ("x" * 25, ["x" * 10, "x" * 10, "xxxxx"]),
    ("\u6f22" * 7 + " ok", ["\u6f22" * 5, "\u6f22" * 2 + " ok"]),
    ("e\u0301" * 12, ["e\u0301" * 10, "e\u0301" * 2]),
    ("", [""]),
    ("   ", [""]),
    (" " * 12 + "z", ["", "  z"]),
]


def test_rows_break_between_words_and_only_a_word_wider_than_a_row_is_broken(subtests: pytest.Subtests) -> None:
    for text, rows in ROWS:
        with subtests.test(text):
            assert [*wrapped(text, 10)] == rows


def test_further_rows_have_their_own_beginning() -> None:
    assert [*wrapped("one two three", 9, first="- ", rest="  ")] == ["- one two", "  three"]
    assert [*wrapped("", 9, first="- ", rest="  ")] == ["-"]


@pytest.mark.parametrize(
    ("text", "columns"),
    [("abc", 3), ("\u6f22\u5b57", 4), ("e\u0301", 1), ("\u2764\ufe0f", 2), ("\U0001f600", 2), ("caf\u00e9", 4)],
    ids=["ASCII", "CJK", "combining", "made an emoji", "an emoji", "Latin"],
)
def test_the_width_is_that_of_the_columns(text: str, columns: int) -> None:
    assert width(text) == columns


@pytest.mark.parametrize(
    ("locale", "columns"),
    [({"LANG": "de_DE.UTF-8"}, 5), ({"LANG": "ja_JP.UTF-8"}, 10), ({"LANG": "ja_JP.UTF-8", "LC_ALL": "C"}, 5)],
    ids=["German", "Japanese", "overridden"],
)
def test_cyrillic_is_wide_only_where_east_asian_fonts_make_it_wide(
    locale: dict[str, str], columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in locale.items():
        monkeypatch.setenv(name, value)

    assert width("\u043f\u0440\u0438\u0432\u0435") == columns


@cache
def every_shown_character() -> list[str]:
    printable = [char for char in map(chr, range(0x20, sys.maxunicode + 1)) if char.isprintable()]
    return [*"\u200c\u200d\u00a0\u2001\u202f\u3000", *(char for char in printable if clean_prose(char) == char)]


@pytest.mark.parametrize(("locale", "ambiguous"), [("de_DE.UTF-8", 1), ("ko_KR.UTF-8", 2)])
def test_no_character_takes_more_columns_than_it_is_counted_for(
    locale: str, ambiguous: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server could write into the first column of the next row."""
    monkeypatch.setenv("LC_ALL", locale)

    assert [char for char in every_shown_character() if width(char) < wcwidth(char, ambiguous_width=ambiguous)] == []


def test_what_is_wide_on_one_terminal_is_wide_on_every_one() -> None:
    """wcwidth has the widths that 23 terminals were measured to have."""
    ranges = [wide for terminal in NARROW_OVERRIDES.values() for wide in terminal.get("wider", ())]
    found = {chr(code) for first, last in ranges for code in range(first, last + 1)}
    doubtful = found | {chr(code) for code in range(0x1F1E6, 0x1F200)}

    assert len(doubtful) > 50
    assert [char for char in every_shown_character() if char in doubtful and width(char) < 2] == []


def test_what_controls_a_terminal_or_cannot_be_seen_is_made_visible(subtests: pytest.Subtests) -> None:
    many, eight, emoji = "\u0301" * 10, "\u0301" * 8, "\u2764\ufe0f\u2194\ufe0f\u2b50\ufe0f"
    table: list[tuple[str, str, str]] = [
        ("controls", "a\tb\x1b[2J\r\u202e\u200d\x00", "a    b\\x1b[2J\\r\\u202e\\u200d\\x00"),
        ("invisible", "a\U000e0100b\u3164c\ufe0d\ufe0e", "a\\U000e0100b\\u3164c\\ufe0d\\ufe0e"),
        ("blank", "\u2800\U00016fe4\U0001d159", "\\u2800\\U00016fe4\\U0001d159"),
        ("more than eight marks on a character", f"o{many}o{eight}", f"o{eight}\\u0301\\u0301o{eight}"),
        ("a selector that makes an emoji", emoji, emoji),
        (
            "after a letter, a digit, an ideograph",
            "\ufe0fa\ufe0f7\ufe0f\u6f22\ufe0f",
            "\\ufe0fa\\ufe0f7\\ufe0f\u6f22\\ufe0f",
        ),
        ("after no emoji, and twice", "\u2713\ufe0f\u2764\ufe0f\ufe0f", "\u2713\\ufe0f\u2764\ufe0f\\ufe0f"),
    ]
    for case, text, shown in table:
        with subtests.test(case):
            assert clean(text) == shown


def test_a_text_that_is_only_read_keeps_what_people_write_with(subtests: pytest.Subtests) -> None:
    controls = "a\t\x1b[2J\x85\u202e\u2066\rb"
    unseen = "\u00ad \u200b \ufeff \U000e0041 \u200e \ufe00"
    marks = "o" + "\u0301" * 10
    table: list[tuple[str, str, str]] = [
        ("a Japanese space", "\u6771\u4eac\u3000\u5927\u962a", ""),
        ("French spaces", "1\u202f234\u00a0\u20ac", ""),
        ("Persian", "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", ""),
        ("Hindi", "\u0915\u094d\u200d\u0937", ""),
        ("emoji", "\U0001f469\U0001f3fd\u200d\U0001f4bb\u2764\ufe0f\u200d\U0001f5251\ufe0f\u20e3", ""),
        ("joiners that join nothing", "\u200da\u200c\u6f22\u200d \u0645\u200d\u200d", "\\u200da\\u200c\u6f22\\u200d \u0645\u200d\\u200d"),
        ("marks around a joiner", "\u0645" + "\u0651" * 8 + "\u200c\u0651", "\u0645" + "\u0651" * 8 + "\u200c\\u0651"),
        ("not seen", unseen, "\\xad \\u200b \\ufeff \\U000e0041 \\u200e \\ufe00"),
        ("many marks", marks, "o" + "\u0301" * 8 + "\\u0301" * 2),
    ]  # fmt: skip  # one case on each line
    for case, text, shown in table:
        with subtests.test(case):
            assert clean_prose(text) == (shown or text)
            assert streamed(*text, columns=99) == f"{shown or text}\n"
            assert clean_for_file(text) == text
            assert streamed(*text, columns=math.inf) == f"{text}\n"
            assert clean(text) != text  # in a question, and in a name

    assert clean_for_file(controls) == "a\t\\x1b[2J\\x85\\u202e\\u2066\\rb"
    assert clean_prose(controls) == clean(controls)


@pytest.mark.parametrize(
    ("environment", "color"),
    [({"TERM": "xterm"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
    ids=["a terminal", "NO_COLOR", "a dumb terminal"],
)
def test_colors_are_used_where_the_terminal_has_them_and_the_user_wants_them(
    environment: dict[str, str], color: bool
) -> None:
    assert has_color(environment) is color


def test_every_row_of_a_servers_text_has_a_margin(subtests: pytest.Subtests) -> None:
    question = "May I?\n" + " " * 40 + "May I? [y/N]"
    bold = "\x1b[2m  | \x1b[0m  \x1b[1madd\x1b[0m: adds"
    table: list[tuple[str, Rows, list[str]]] = [
        (
            "with spaces",
            Layout(40).theirs(question, indent=2, hang=2),
            ["  |   May I?", "  | ", "  |           May I? [y/N]"],
        ),
        ("lines as on Windows", Layout(40).theirs("one\r\ntwo\rthree"), ["  | one", "  | two\\rthree"]),
        ("a bold lead", Layout(40, color=True).theirs(": adds", lead="add", indent=2), [bold]),
        ("a lead longer than a row", Layout(40).theirs(" more", lead="x" * 40), [f"  | {'x' * 36}", "  | xxxx more"]),
    ]
    for case, shown, rows in table:
        with subtests.test(case):
            assert [*shown] == rows


def test_rows_that_are_cut_are_counted() -> None:
    layout = Layout(40)

    assert [*layout.cut(iter("ab"), 2)] == ["a", "b"]
    assert [*layout.cut(iter("abc"), 2)] == ["a", "b", "  | ... and 1 more line"]
    assert [*layout.cut(iter("abcde"), 2)] == ["a", "b", "  | ... and 3 more lines"]
    *steps, row = layout.cut(iter("x" * 10**6), 0)
    assert (row, {*steps}, len(steps)) == ("  | ... and at least 1000 more lines", {None}, 19)


@pytest.mark.parametrize("columns", [NARROWEST, 17, 39])
def test_in_a_narrow_terminal_a_servers_rows_keep_their_margin(columns: int) -> None:
    layout, text = Layout(columns), "May your client " + "\u6f22\U0001f1e6" * 30 + "delete it? [y/N]"
    pages = [*(layout.theirs(text, indent=blanks, hang=4) for blanks in range(9)), layout.cut(layout.theirs(text), 1)]
    rows = [row or "" for page in pages for row in page]

    assert {row[: len(MARGIN)] for row in rows} == {MARGIN}
    assert max(map(wcswidth, rows)) <= columns
    assert {(row[:2], len(row) <= columns) for row in layout.url("https://a.example/" + "b" * 99)} == {("  ", True)}


def streamed(*pieces: str, columns: float = 10, indent: str = "") -> str:
    text = StreamedText(columns, indent)
    return "".join([text.add(piece) for piece in pieces]) + text.end()


@given(st.lists(st.text("ab \n\r\t\x1b[2J\u202e\u6f22\u0301\ufe0f\U000e0100", max_size=12), max_size=6))
def test_a_streamed_text_has_the_same_rows_however_it_is_split(pieces: list[str]) -> None:
    assert streamed(*pieces) == streamed("".join(pieces))
    assert streamed(*pieces, columns=math.inf) == streamed("".join(pieces), columns=math.inf)


def test_a_file_has_tabs_and_a_terminal_spaces() -> None:
    """Another program may read the columns."""
    table = "a\tb\n\tc \x1b\t\n"

    assert streamed(*table, columns=math.inf) == "a\tb\n\tc \\x1b\t\n"
    assert streamed(*table, columns=40) == "a    b\n    c \\x1b\n"


@given(st.text("ab \n\r\x1b\u6f22\u0301", max_size=60))
def test_no_row_of_a_streamed_text_is_wider_than_the_terminal_or_controls_it(text: str) -> None:
    rows = streamed(text, indent="  ").split("\n")

    assert rows.pop() == ""
    assert all(row.isprintable() and width(row) <= 10 and row[:2] in ("", "  ") for row in rows)


@given(st.text("ab \n", max_size=60))
def test_a_streamed_text_breaks_where_a_whole_one_does(text: str) -> None:
    lines = [line.rstrip() for line in text.removesuffix("\n").split("\n")] if text else []

    whole = [row.rstrip() for line in lines for row in wrapped(line, 10, first="  ", rest="  ")]

    assert [row.rstrip() for row in streamed(text, indent="  ").split("\n")[:-1]] == whole


def test_marks_on_one_character_are_counted_over_pieces() -> None:
    assert streamed("o" + "\u0301" * 6, "\u0301" * 4) == "o" + "\u0301" * 8 + "\\u0301\\u0\n301\n"


def calls_in(function: Callable[[], object]) -> int:
    """How many functions *function* calls, those of Python's own included."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(before)
    return calls


@pytest.mark.parametrize(
    ("character", "shown"),
    [("\u00e9", "\u00e9" * 5000), ("\u0301", "\u0301" * 8 + "\\u0301" * 4992), (" ", " " * 5000)],
    ids=["letters", "marks", "spaces"],
)
@pytest.mark.parametrize(("columns", "indent"), [(math.inf, ""), (42, "  ")], ids=["a file", "a terminal"])
def test_many_characters_without_a_break_cost_calls_for_each_of_them_only(
    columns: float, indent: str, character: str, shown: str
) -> None:
    """Not for each pair of them, which would be millions."""
    said: list[str] = []

    calls = calls_in(lambda: said.append(streamed(*[character] * 5000, columns=columns, indent=indent)))

    assert calls < 100 * 5000
    if columns == math.inf:
        assert said == [character * 5000 + "\n"]
    else:
        assert "".join([row.removeprefix("  ") for row in said[0].split("\n")]) == shown.strip()


def test_an_escape_sequence_that_is_split_over_two_pieces_is_escaped() -> None:
    assert streamed("a\x1b", "[2Jb\r", "\nc\r", "d", columns=40) == "a\\x1b[2Jb\nc\\rd\n"


def test_words_of_a_streamed_text_are_written_as_soon_as_they_end() -> None:
    text = StreamedText(10, "  ")

    assert [text.add(piece) for piece in ("on", "e ", "two thr", "ee\n", "\u6f22\u5b57 x" + "y" * 9)] == [
        "",
        "  one",
        " two",
        "\n  three\n",
        "  \u6f22\u5b57 xyy\n  yyyyyy",
    ]
    assert text.end() == "y\n"


def test_each_wide_character_of_a_streamed_text_is_written_at_once() -> None:
    """Their scripts have no spaces; a narrow one waits for the end of its word."""
    text = StreamedText(5)

    assert [text.add(char) for char in "\u6f22\u5b57\u6f22a\u5b57"] == ["\u6f22", "\u5b57", "\n\u6f22", "", "a\u5b57"]


def test_a_streamed_text_for_a_file_keeps_its_lines_and_spaces() -> None:
    assert streamed("if a:  \n", "    b" * 9 + "\n\n", columns=math.inf) == f"if a:  \n{'    b' * 9}\n\n"
    assert streamed(columns=math.inf) == ""


@pytest.mark.parametrize("text", ["the quick brown fox " * 5000, "x" * 100_000], ids=["words", "one long word"])
def test_plain_text_costs_a_few_calls_for_each_row_and_none_for_each_character(text: str) -> None:
    """A person views a request of megabytes without a wait."""
    rows: list[str | None] = []

    calls = calls_in(lambda: rows.extend(Layout(80).theirs(text)))

    assert len(rows) > 1000
    assert calls < 30 * len(rows)
