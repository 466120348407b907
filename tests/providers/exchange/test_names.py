"""Names of tools: what a provider takes, and back."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from mcp_host.providers.exchange.names import NameRule
from mcp_host.sampling import SamplingRequest
from tests.providers.prompts import names_of
from tests.sampling.asking import assistant, request, result, use, user

RULES = st.sampled_from(
    [
        NameRule(re.compile("[a-zA-Z0-9_-]{1,64}"), re.compile("[^a-zA-Z0-9_-]"), 64),
        NameRule(re.compile("[a-zA-Z_][a-zA-Z0-9_.:-]{0,7}"), re.compile("[^a-zA-Z0-9_.:-]"), 8),
    ]
)
NAMES = st.lists(st.text(st.sampled_from("ab/._- é1"), min_size=1, max_size=12), unique=True, max_size=8)


def asked(offered: list[str], called: list[str]) -> SamplingRequest:
    uses = [use(f"c{index}", name) for index, name in enumerate(called)]
    messages = [assistant(*uses), user(*[result(block["id"]) for block in uses])] if uses else [user()]
    return request(*messages, tools=[{"name": name, "inputSchema": {}} for name in offered])


@given(RULES, NAMES, NAMES)
def test_each_name_has_one_that_the_provider_takes_and_no_other_name_has(
    rule: NameRule, offered: list[str], called: list[str]
) -> None:
    names = names_of(asked(offered, called), rule)

    assert names.provider.keys() == {*offered, *called}
    assert all(rule.pattern.fullmatch(written) for written in names.provider.values())
    assert [names.back(names.write(name)) for name in names.provider] == [*names.provider]


@given(RULES, NAMES, NAMES)
def test_the_names_of_tools_do_not_change_with_the_conversation(
    rule: NameRule, offered: list[str], called: list[str]
) -> None:
    before, after = names_of(asked(offered, []), rule), names_of(asked(offered, called), rule)

    assert [after.write(name) for name in offered] == [before.write(name) for name in offered]


@given(RULES, NAMES)
def test_a_name_that_the_provider_takes_stays_as_it_is(rule: NameRule, offered: list[str]) -> None:
    names = names_of(asked(offered, []), rule)

    allowed = [name for name in offered if rule.pattern.fullmatch(name)]
    assert [names.write(name) for name in allowed] == allowed


def test_names_that_would_be_the_same_are_numbered() -> None:
    rule = NameRule(re.compile("[a-zA-Z_][a-zA-Z0-9_]{0,9}"), re.compile("[^a-zA-Z0-9_]"), 10)

    names = names_of(asked(["files/read", "files_read", "files.read", "1st", "much_longer_than_allowed"], []), rule)

    assert names.provider == {
        "files_read": "files_read",
        "files/read": "files_re_2",
        "files.read": "files_re_3",
        "1st": "tool_1st",
        "much_longer_than_allowed": "much_longe",
    }


def test_a_tool_that_is_called_twice_has_one_name() -> None:
    rule = NameRule(re.compile("[a-z_]+"), re.compile("[^a-z_]"), 8)

    assert names_of(asked([], ["a/b", "a/b", "a_b"]), rule).provider == {"a_b": "a_b", "a/b": "a_b_2"}


def test_a_name_that_the_model_made_up_is_its_own() -> None:
    rule = NameRule(re.compile("[a-z]+"), re.compile("[^a-z]"), 8)

    assert names_of(asked(["a"], []), rule).back("b") == "b"
