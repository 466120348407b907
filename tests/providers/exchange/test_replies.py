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


@pytest.mark.parametrize(
    ("content", "kept"),
    [
        (["abENDc", "d"], ["ab"]),
        (["ab", "ENDc"], ["ab"]),
        (["abE", "N", "Dc"], ["ab"]),
        (["abE", CALLED, "NDc"], ["ab"]),
        (["a", CALLED, "bEND", CALLED], ["a", CALLED, "b"]),
        (["END"], []),
        ([f"ab{HIGH}{LOW}c"], ["ab"]),
        ([f"ab{HIGH}", f"{LOW}c"], ["ab"]),
        ([f"a{LOW}{EMOJI}"], ["a\N{REPLACEMENT CHARACTER}"]),
    ],
    ids=[
        "in one text",
        "at the end of a text",
        "across three texts",
        "across a call",
        "after a call",
        "all of it",
        "halves",
        "halves in two texts",
        "after a lone half",
    ],
)
def test_an_answer_ends_before_the_first_stop_sequence_of_its_joined_texts(
    content: list[ReplyBlock], kept: list[ReplyBlock]
) -> None:
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


@pytest.mark.parametrize(
    "written",
    [
        '{"b": 1, "a": [], "b": {"c": null}}',
        "[NaN, Infinity, -Infinity, 1e999, -1e999, 1e-999]",
        f"[{2**63}, {-(2**63) - 1}, {'9' * 4300}]",
        "[0, -0, 0.0, -0.0, 1E+2, 9007199254740993.0, 2.2250738585072011e-308]",
        r'["\ud83d\ude00", "\u00e9", "é", "\u0000", "\/"]',
        r'{"\ud83d": "\ude00\ud83d"}',
        "[" * 300 + "]" * 300,
        ' \n"text"\t\r',
    ],
    ids=[
        "a name twice",
        "numbers that JSON does not have",
        "long integers",
        "numbers",
        "escapes",
        "halves of characters",
        "deep",
        "white space",
    ],
)
def test_json_is_read_as_python_reads_it(written: str) -> None:
    assert repr(read_json(written)) == repr(json.loads(written))


@pytest.mark.parametrize(
    "written",
    ["", "{", "[1,]", "{'a': 1}", "01", "-NaN", '"\n"', r'"\x"', "\ufeff{}", "{}{}"],
)
def test_what_is_no_json_for_python_is_none(written: str) -> None:
    with pytest.raises(json.JSONDecodeError):
        json.loads(written)
    with pytest.raises(json.JSONDecodeError):
        read_json(written)


def test_json_beyond_the_limits_of_python_is_an_error() -> None:
    with pytest.raises(RecursionError):
        read_json("[" * 100_000)
    with pytest.raises(ValueError, match="4300"):
        read_json("9" * 4301)
