"""What is read of a reply, the same for all providers."""

from __future__ import annotations

import json

import pytest

from mcp_host.providers.exchange.replies import Call, ReplyBlock, read_json, stopped
from mcp_host.providers.openai import NAME_RULE
from tests.providers import prompts

EMOJI = "\N{GRINNING FACE}"
HIGH, LOW = "\ud83d", "\ude00"  # its halves
CALLED = Call("c1", "add", "{}")


def test_an_answer_ends_before_the_first_stop_sequence_of_its_joined_texts(subtests: pytest.Subtests) -> None:
    table: list[tuple[str, list[ReplyBlock], list[ReplyBlock]]] = [
        ("in one text", ["abENDc", "d"], ["ab"]),
        ("at the end of a text", ["ab", "ENDc"], ["ab"]),
        ("across three texts", ["abE", "N", "Dc"], ["ab"]),
        ("across a call", ["abE", CALLED, "NDc"], ["ab"]),
        ("after a call", ["a", CALLED, "bEND", CALLED], ["a", CALLED, "b"]),
        ("right after a call", ["ab", CALLED, "ENDc", CALLED], ["ab", CALLED]),
        ("all of it", ["END"], []),
        ("halves", [f"ab{HIGH}{LOW}c"], ["ab"]),
        ("halves in two texts", [f"ab{HIGH}", f"{LOW}c"], ["ab"]),
        ("after a lone half", [f"a{LOW}{EMOJI}"], ["a\N{REPLACEMENT CHARACTER}"]),
    ]
    for case, content, kept in table:
        with subtests.test(case):
            asked = prompts.prompt(rule=NAME_RULE, model="gpt-5.6", stopSequences=["END", EMOJI, ""])

            assert stopped(content, "endTurn", asked) == (kept, "stopSequence")
            for refused in ("refusal", "content_filter"):
                assert stopped(content, refused, asked) == (kept, refused)


@pytest.mark.parametrize("stops", [[], [""], ["END", EMOJI]])
def test_an_answer_without_a_stop_sequence_is_as_it_was(stops: list[str]) -> None:
    content: list[ReplyBlock] = ["abEN", CALLED, f"E{HIGH}"]

    assert stopped(content, "toolUse", prompts.prompt(rule=NAME_RULE, model="gpt-5.6", stopSequences=stops)) == (
        content,
        "toolUse",
    )


def test_json_is_read_as_python_reads_it(subtests: pytest.Subtests) -> None:
    table: list[tuple[str, str]] = [
        ("a name twice", '{"b": 1, "a": [], "b": {"c": null}}'),
        ("numbers that JSON does not have", "[NaN, Infinity, -Infinity, 1e999, -1e999, 1e-999]"),
        ("long integers", f"[{2**63}, {-(2**63) - 1}, {'9' * 4300}]"),
        ("numbers", "[0, -0, 0.0, -0.0, 1E+2, 9007199254740993.0, 2.2250738585072011e-308]"),
        ("escapes", r'["\ud83d\ude00", "\u00e9", "é", "\u0000", "\/"]'),
        ("halves of characters", r'{"\ud83d": "\ude00\ud83d"}'),
        ("deep", "[" * 300 + "]" * 300),
        ("white space", ' \n"text"\t\r'),
    ]
    for case, written in table:
        with subtests.test(case):
            assert repr(read_json(written)) == repr(json.loads(written))


def test_what_is_no_json_for_python_is_none(subtests: pytest.Subtests) -> None:
    table: list[str] = ["", "{", "[1,]", "{'a': 1}", "01", "-NaN", '"\n"', r'"\x"', "\ufeff{}", "{}{}"]
    for written in table:
        with subtests.test(written=written):
            with pytest.raises(json.JSONDecodeError):
                json.loads(written)
            with pytest.raises(json.JSONDecodeError):
                read_json(written)


def test_json_beyond_the_limits_of_python_is_an_error() -> None:
    with pytest.raises(RecursionError):
        read_json("[" * 100_000)
    with pytest.raises(ValueError, match="4300"):
        read_json("9" * 4301)
