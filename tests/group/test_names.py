"""The names of a group's tools: unique, the same in every run, and taken by every provider of models."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_host.group.names import group_name, own_names, server_prefix
from tests.extent import saturated

SERVERS = st.text(min_size=1, max_size=64) | st.from_regex(r"[a-z_-]{1,40}", fullmatch=True)
TOOLS = st.text(min_size=1, max_size=128) | st.from_regex(r"[a-z_.-]{1,80}", fullmatch=True)


def test_names(subtests: pytest.Subtests) -> None:
    for server, tool, expected in (
        ("github", "create_issue", "github__create_issue"),
        ("git-hub_2", "_x", "git-hub_2___x"),
        ("github", "issues.create", "github__issues_create_6ce69c6c"),
        ("github", "t" * 56, "github__" + "t" * 56),
        ("github", "t" * 57, "github__" + "t" * 47 + "_952e7797"),
        ("My Server", "x", "My_Server_c2d9a82f__x"),
        ("a__b", "c", "a_b_63e5c1c4__c"),
        ("a_", "b", "a_571fb0e3__b"),
        ("1password", "x", "server_1password_d58fc8da__x"),
        ("io.github.owner/a-long-name-of-one", "x", "io_github_owner_a-lon_26064db6__x"),
        ("天気", "x", "server_bc79d84d__x"),
    ):
        with subtests.test(server=server, tool=tool):
            assert group_name(server, tool) == expected


@saturated
@given(SERVERS, TOOLS)
def test_every_name_is_taken_by_all_providers_and_leads_to_its_server(server: str, tool: str) -> None:
    name = group_name(server, tool)

    assert re.fullmatch(r"[a-zA-Z][a-zA-Z0-9_-]{0,63}", name)
    assert name.partition("__")[0] == server_prefix(server)


@saturated
@given(st.lists(st.tuples(SERVERS, TOOLS), min_size=2, max_size=2, unique=True))
def test_two_tools_have_two_names(pairs: list[tuple[str, str]]) -> None:
    assert len({group_name(*pair) for pair in pairs}) == 2


SAME_DIGEST = "a....//.////...././", "a.../././////./././"  # found by trying


@given(st.permutations(["issues.create", "issues_create_6ce69c6c", "a.b", "a/b", *SAME_DIGEST]))
def test_of_two_tools_that_would_have_one_name_the_rule_keeps_one_in_whatever_order_they_are_listed(
    names: list[str],
) -> None:
    """A server calls a tool as another of its tools is shortened: the one whose name is not changed is kept."""
    assert list(own_names("github", names).items()) == [
        ("github__a___________________11b4fdd7", SAME_DIGEST[0]),
        ("github__a_b_2e7336dc", "a.b"),
        ("github__a_b_c14cddc0", "a/b"),
        ("github__issues_create_6ce69c6c", "issues_create_6ce69c6c"),
    ]
