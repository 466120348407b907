"""Texts of models, whole and in pieces."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_host.providers.exchange.texts import (
    MAX_SPACES,
    Pieces,
    PiecesUpToStop,
    PiecesWithoutThinking,
    without_thinking,
)

MARKS = st.sampled_from(["<think>", "</think>", "<", "think>", "</", " ", "\n", "\x1c", "\u2003", "Yes.", "é"])
TEXTS = st.lists(MARKS, max_size=24).map("".join)


def in_pieces(pieces: Pieces, text: str, cuts: set[int]) -> str:
    """What *pieces* give of *text*, which is cut at the places *cuts*."""
    places = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    return "".join([pieces.add(text[start:end]) for start, end in pairwise(places)])


def test_the_thinking_that_a_text_begins_with_is_no_part_of_it(subtests: pytest.Subtests) -> None:
    table: list[tuple[str, str]] = [
        ("<think>Easy: 4.</think>\n\nIt is 4.", "It is 4."),
        ("\n<think>\n\n</think>\n\nIt is 4.", "It is 4."),
        ("<think>Easy: 4.</think>", ""),
        ("<think>It was cut off he", ""),
        ("<think>a</think>b</think>c", "b</think>c"),
        ("The tag is <think>, and it ends with </think>.", "The tag is <think>, and it ends with </think>."),
        ("<thinking>is no such tag</thinking>", "<thinking>is no such tag</thinking>"),
        ("<thi", "<thi"),
        (" It is 4.", " It is 4."),
        ("", ""),
        (" " * MAX_SPACES + "<think>a</think>b", "b"),
        (" " * (MAX_SPACES + 1) + "<think>a</think>b", " " * (MAX_SPACES + 1) + "<think>a</think>b"),
    ]
    for text, answer in table:
        with subtests.test(text=text):
            assert without_thinking(text) == answer
            assert answer.startswith(in_pieces(PiecesWithoutThinking(), text, set(range(len(text)))))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Easy: 4.</think>\n\nIt is 4.", "It is 4."),
        ("</think>It is 4.", "It is 4."),
        ("<think>Easy: 4.</think>It is 4.", "It is 4."),
        ("It was cut off he", ""),
        ("", ""),
    ],
)
def test_thinking_whose_first_mark_is_in_the_prompt_is_no_part_of_the_answer(text: str, answer: str) -> None:
    assert without_thinking(text, has_begun=True) == answer
    assert in_pieces(PiecesWithoutThinking(has_begun=True), text, set(range(len(text)))) == answer


def test_a_text_without_thinking_stays_the_same_object() -> None:
    text = "It is 4."

    assert without_thinking(text) is text


@given(text=TEXTS, cuts=st.sets(st.integers(1, 100)), has_begun=st.booleans())
def test_any_pieces_of_a_text_with_thinking_give_the_answer_but_for_what_may_begin_thinking(
    text: str, cuts: set[int], has_begun: bool
) -> None:
    shown = in_pieces(PiecesWithoutThinking(has_begun=has_begun), text, cuts)
    answer = without_thinking(text, has_begun=has_begun)

    assert answer.startswith(shown)
    assert shown == answer or "<think>".startswith(answer.strip())


@given(text=TEXTS, cuts=st.sets(st.integers(1, 100)), stop=MARKS)
def test_any_pieces_of_a_text_end_at_the_same_stop_sequence(text: str, cuts: set[int], stop: str) -> None:
    shown, answer = in_pieces(PiecesUpToStop([stop]), text, cuts), text.partition(stop)[0]

    assert answer.startswith(shown)
    assert len(answer) - len(shown) < len(stop)


def test_an_answer_is_shown_as_soon_as_thinking_has_ended_or_cannot_begin() -> None:
    pieces = PiecesWithoutThinking()

    shown = [pieces.add(piece) for piece in ("<th", "ink>4", "!</th", "ink>\n", "\nIt", " is", " 4.")]

    assert shown == ["", "", "", "", "It", " is", " 4."]
    pieces = PiecesWithoutThinking()
    assert [pieces.add(piece) for piece in (" ", "<t", "able>")] == ["", "", " <table>"]
