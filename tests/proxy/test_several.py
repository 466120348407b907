"""The names of several servers as one, and which of them a URI or a method is of, as tables."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_host import ToolPins, ToolPolicy
from mcp_host.proxy.several import MAX_LINK, MAX_LINKED, ResourceOwners, declares, policy_of
from mcp_host.types import Tool

POLICIES: list[tuple[ToolPolicy | None, ToolPolicy | None, dict[str, str]]] = [
    (None, None, {"add": "a__add", "x.y": "a__x_y_b24ca9b7"}),
    (ToolPolicy(allow={"add"}), None, {"add": "a__add"}),
    (None, ToolPolicy(allow={"a__add"}), {"add": "a__add"}),
    (None, ToolPolicy(allow=lambda tool: "x_y" in tool.name), {"x.y": "a__x_y_b24ca9b7"}),
    (ToolPolicy(allow={"add"}), ToolPolicy(allow=lambda tool: "x" in tool.name), {}),
    (ToolPolicy(rename={"add": "plus"}), ToolPolicy(allow={"a__plus"}), {"add": "a__plus"}),
]


def test_the_tools_of_one_of_several_servers(subtests: pytest.Subtests) -> None:
    """Its own policy has its own names, and the common one those that the host sees."""
    for own, common, seen in POLICIES:
        with subtests.test(own=own, common=common):
            policy = policy_of("a", own, common)
            tools = [Tool(name=name, input_schema={"type": "object"}) for name in ("add", "x.y")]
            assert policy.rename_all(tool.name for tool in tools if policy.allows(tool))[0] == seen


def test_what_else_its_own_policy_says_comes_first() -> None:
    own, common = ToolPins(), ToolPins()
    assert policy_of("a", None, None).output == "auto"
    assert policy_of("a", ToolPolicy(), ToolPolicy(output="warn", pins=common)).pins is common
    policy = policy_of("a", ToolPolicy(output="error", pins=own), ToolPolicy(output="warn", pins=common))
    assert (policy.output, policy.pins) == ("error", own)


LONG = "r:" + "l" * MAX_LINK
OWNERS = {
    "r:1": "a",
    "r:2": "b",
    "t:{x}": "a",
    "t:{y}": "b",
    "t:longer:3": "b",
    "t:3": "a",
    "r:linked": "a",
    LONG: None,
    "r:other": None,
}


def test_resources() -> None:
    owners = ResourceOwners()
    lists: dict[str, list[dict[str, Any]]] = {"a": [{"uri": "r:1"}], "b": [{"uri": "r:1", "b": 1}, {"uri": "r:2"}]}
    assert owners.keep("resources/list", lists) == [{"uri": "r:1"}, {"uri": "r:2"}]
    templates = {"a": ["t:{x}"], "b": ["t:longer:{+x}", "t:{y}"]}
    wire = {server: [{"uriTemplate": each} for each in some] for server, some in templates.items()}
    assert len(owners.keep("resources/templates/list", wire)) == 3
    owners.link("a", {"content": [{"type": "resource_link", "uri": uri} for uri in ("r:linked", LONG)]})
    linked = [{"type": "resource_link", "uri": uri} for uri in ("r:linked", "r:1", 3)]
    owners.link("b", {"content": [{"type": "text"}, 3, *linked]})
    owners.link("b", {"content": {"r:other": 1}})
    assert {uri: owners.of(uri) for uri in OWNERS} == OWNERS


def test_a_template_of_any_uri_comes_last() -> None:
    owners = ResourceOwners()
    templates = {"a": [{"uriTemplate": "{+uri}"}], "b": [{"uriTemplate": "t:{x}"}]}
    owners.keep("resources/templates/list", templates)
    assert (owners.of("t:1"), owners.of("r:1")) == ("b", "a")


def test_what_a_server_has_listed_is_its_own_until_it_lists_again() -> None:
    """While it is down, no other one takes it over."""
    owners, any_uri = ResourceOwners(), {"b": [{"uriTemplate": "{+uri}"}]}
    owners.keep("resources/templates/list", any_uri)
    owners.keep("resources/list", {"a": [{"uri": "r:1"}]})
    assert owners.keep("resources/list", {"b": [{"uri": "r:1"}, {"uri": "r:2"}]}) == [{"uri": "r:2"}]
    assert (owners.of("r:1"), owners.of("r:2")) == ("a", "b")
    owners.keep("resources/list", {"a": []})
    assert owners.of("r:1") == "b"


def test_the_oldest_links_are_forgotten() -> None:
    owners = ResourceOwners()
    owners.link("a", {"content": [{"type": "resource_link", "uri": f"r:{n}"} for n in range(MAX_LINKED + 1)]})
    assert (owners.of("r:0"), owners.of("r:1"), owners.of(f"r:{MAX_LINKED}")) == (None, "a", "a")


DECLARED: list[tuple[dict[str, Any], str, bool]] = [
    ({"tools": {}}, "tools/call", True),
    ({"completions": {}}, "completion/complete", True),
    ({"prompts": {}}, "tools/call", False),
    ({"tasks": {}}, "tasks/get", True),
    ({"experimental": {"x": {}}}, "x/echo", True),
    ({"experimental": None, "extensions": None}, "x/echo", False),
    ({"extensions": {"io.example/x": {}}}, "x/echo", True),
    ({"extensions": {"io.example/x": {}}}, "notifications/x/changed", True),
    ({"extensions": {"io.example/x": {}}}, "example/x", False),
    ({"extensions": {"x": {}}}, "x/echo", True),
]


def test_what_a_server_that_declares_this_may_know(subtests: pytest.Subtests) -> None:
    for capabilities, method, may in DECLARED:
        with subtests.test(capabilities=capabilities, method=method):
            assert declares(capabilities, method) is may
