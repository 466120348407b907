"""The lines of stderr: handed over, cut where they are too long, the last of them kept."""

from __future__ import annotations

import pytest

from mcp_host.transports._process.stderr import Stderr
from tests.clock import stepping, stopped, turns_of


def taken(*chunks: bytes) -> list[str]:
    """The lines that come of these *chunks*."""
    lines: list[str] = []
    stderr = Stderr(lines.append)
    for chunk in chunks:
        list(stderr.feed(chunk))
    stderr.end()
    return lines


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        pytest.param([b"one\ntwo\n"], ["one", "two"], id="two lines"),
        pytest.param([b"o", b"ne\ntw", b"o\n"], ["one", "two"], id="cut anywhere"),
        pytest.param([b"one\r\ntwo\r"], ["one", "two"], id="CRLF"),
        pytest.param([b"\n\n"], ["", ""], id="empty lines"),
        pytest.param([b"\r" * 20_000], ["", "", ""], id="CR"),
        pytest.param([b"one"], ["one"], id="no line end"),
        pytest.param([], [], id="nothing"),
        pytest.param([b"\xff\n"], ["\ufffd"], id="no UTF-8"),
    ],
)
def test_each_line_is_passed_on_when_it_ends(chunks: list[bytes], lines: list[str]) -> None:
    assert taken(*chunks) == lines


def test_a_turn_is_bounded_by_time_as_well_as_by_lines() -> None:
    assert [turns_of(Stderr(None, clock).feed(b"line\n" * 512)) for clock in (stopped, stepping())] == [2, 256]


@pytest.mark.fault("P20")
@pytest.mark.parametrize("end", [b"\n", b""], ids=["with a line end", "without"])
def test_a_long_line_is_passed_on_in_pieces_of_8_kib(end: bytes) -> None:
    assert taken(b"x" * 20_000 + end) == ["x" * 8192, "x" * 8192, "x" * 3616]


def test_a_line_without_an_end_waits_for_it_up_to_8_kib() -> None:
    lines: list[str] = []
    stderr = Stderr(lines.append)

    list(stderr.feed(b"x" * 8191))
    assert lines == []

    list(stderr.feed(b"x"))
    assert lines == ["x" * 8192]

    list(stderr.feed(b"and on\n"))
    assert lines == ["x" * 8192, "and on"]


def test_many_lines_are_taken_in_steps() -> None:
    lines: list[str] = []
    stderr = Stderr(lines.append, stopped)

    counts = [len(lines) for _ in stderr.feed(b"\n" * 600)]

    assert (counts, len(lines)) == ([256, 512], 600)


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        pytest.param(
            "".join(f"line {n}\n" for n in range(30)) + "\x1b[2J\n",
            "\n".join([*(f"line {n}" for n in range(11, 30)), r"\x1b[2J"]),
            id="twenty lines, escaped",
        ),
        pytest.param(
            "".join(f"{n}{'x' * 398}\n" for n in range(10, 20)),
            "18" + "x" * 398 + "\n19" + "x" * 398,
            id="a thousand characters of long lines",
        ),
        pytest.param(
            "x" * 700 + "\n" + "y" * 400 + "\n",
            "x" * 581 + "… (700 characters)\n" + "y" * 400,
            id="a line that is cut has its beginning",
        ),
        pytest.param("\x1b" * 300 + "\n", r"\x1b" * 245 + r"\x… (300 characters)", id="cut because of its escapes"),
        pytest.param("x" * 2000 + "\n", "x" * 981 + "… (2000 characters)", id="how long a line is that is longer"),
    ],
)
def test_the_last_lines_are_kept(written: str, shown: str) -> None:
    stderr = Stderr(None)
    list(stderr.feed(written.encode()))

    assert stderr.tail() == shown


def test_lines_that_wait_for_their_turn_are_counted_after_the_last_ones() -> None:
    stderr = Stderr(None, stopped)
    last = "\n".join(["line"] * 20)

    steps = stderr.feed(b"line\n" * 600)
    next(steps)
    assert stderr.tail() == f"{last}\n… (344 lines or more)"
    assert stderr.head_and_tail().endswith(f"… (231 lines)\n{last}\n… (344 lines or more)")

    list(steps)
    assert stderr.tail() == last


def test_a_question_without_a_line_end_is_the_last_line() -> None:
    """A program that has asked it waits, and may never end the line."""
    stderr = Stderr(None, stopped)
    list(stderr.feed(b"line\n" * 30 + b"Proceed? \x1b[1m(y) "))
    assert stderr.tail().split("\n")[-2:] == ["line", r"Proceed? \x1b[1m(y)"]
    assert stderr.head_and_tail().split("\n")[4:8] == ["line", "… (5 lines)", "line", "line"]

    next(stderr.feed(b"\n" + b"line\n" * 600 + b"Sure? "))
    assert stderr.tail().endswith("line\n… (345 lines or more)")


BEGUN: dict[str, tuple[str, list[str]]] = {
    "nothing": ("", [""]),
    "all of a few lines": ("one\ntwo\n", ["one", "two"]),
    "of 40 the first five and the last 20": (
        "".join(f"line {n}\n" for n in range(40)),
        [*(f"line {n}" for n in range(5)), "… (15 lines)", *(f"line {n}" for n in range(20, 40))],
    ),
    "long and escaped": (
        "\x1b[2J" + "e" * 300 + "\n" + "\n" * 20,
        [r"\x1b[2J" + "e" * 196 + "… (304 characters)", *[""] * 20],
    ),
    "no line twice": (
        "".join(f"{n}{'x' * 398}\n" for n in range(10, 14)),
        [*(f"{n}{'x' * 198}… (400 characters)" for n in (10, 11)), *(f"{n}{'x' * 398}" for n in (12, 13))],
    ),
    "the first of lines that are too long together": (
        "FATAL: NAME is not set\n" + f"{'x' * 97}\n" * 10,
        ["FATAL: NAME is not set", *["x" * 97] * 10],
    ),
    "the first before one that is too long": (
        "FATAL\n" + "x" * 2000 + "\n",
        ["FATAL", "x" * 981 + "… (2000 characters)"],
    ),
}


def test_the_first_lines_stand_before_the_last_ones(subtests: pytest.Subtests) -> None:
    for case, (written, shown) in BEGUN.items():
        with subtests.test(case=case):
            stderr = Stderr(None)
            list(stderr.feed(written.encode()))

            assert stderr.head_and_tail().split("\n") == shown
