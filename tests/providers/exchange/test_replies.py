"""What is read of a reply, the same for all providers."""

from __future__ import annotations

import pytest

from mcp_host.providers.exchange.replies import Call, ReplyBlock, stopped
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
