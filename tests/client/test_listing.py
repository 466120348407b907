"""What a listing leaves behind: its pages, the tools' annotations, and what later calls are made with."""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable
from itertools import product
from typing import Any

import anyio
import httpx
import pytest

from mcp_host import Client
from mcp_host.client.tools import TOOLS_PER_TICK, ToolCache
from mcp_host.errors import HeaderMismatch, HttpStatusError, InvalidToolOutput, ServerError
from mcp_host.protocol.jsonrpc import Params
from mcp_host.session.call import Call, CallTimeouts
from mcp_host.testing import ScriptedPeer
from mcp_host.types import CallToolResult, Tool
from tests.client.sites import Site, refused
from tests.client.support import EMPTY, HANDSHAKE, STATELESS, Era, answering, connected, names

pytestmark = pytest.mark.fake_clock  # all in memory: no deadline passes while anything can run

FRESH = {"ttlMs": 60_000}
INVALID_PARAMS = -32602
REGION = {"type": "string", "x-mcp-header": "Region"}
ZONE = {"type": "string", "x-mcp-header": "Zone"}
INVALID = {"type": "string", "x-mcp-header": "no name"}


# Pages


def page(name: str, cursor: object = None, **more: Any) -> Params:
    following = {} if cursor is None else {"nextCursor": cursor}
    return {"tools": [{"name": name, "inputSchema": {}}], **following, **more}


def refusing_stale_cursors(era: Era, *answers: Params | int) -> ScriptedPeer:
    """A peer that answers with these pages, and with an error where there is a code instead."""

    async def script(peer: ScriptedPeer) -> None:
        await era.open(peer)
        for answer in answers:
            request = await peer.receive("tools/list")
            if isinstance(answer, int):
                await peer.reply_error(request, answer, "Invalid cursor")
            else:
                await peer.reply(request, answer)

    return ScriptedPeer(script)


def cursors(peer: ScriptedPeer) -> list[str | None]:
    return [message["params"].get("cursor") for message in peer.received if message["method"] == "tools/list"]


async def test_cached_pages_are_dropped_if_a_cursor_has_become_invalid() -> None:
    """ "The client SHOULD discard all cached pages and re-fetch from the beginning" (server/utilities/caching)."""
    peer = refusing_stale_cursors(
        STATELESS,
        page("old", "1", **FRESH),
        page("older"),
        INVALID_PARAMS,
        page("new", "2", **FRESH),
        page("newer"),
        page("newest"),
    )

    async with connected(peer) as client:
        assert await names(client) == ["old", "older"]
        assert await names(client) == ["new", "newer"]
        assert await names(client) == ["new", "newest"]

    assert cursors(peer) == [None, "1", "1", None, "2", "2"]


async def test_a_cursor_that_stays_invalid_is_an_error_after_one_more_try() -> None:
    pages: list[Params | int] = [page("old", "1", **FRESH), INVALID_PARAMS]
    peer = refusing_stale_cursors(STATELESS, *pages, *pages)

    async with connected(peer) as client:
        with pytest.raises(ServerError, match="Invalid cursor"):
            await client.list_tools()

    assert cursors(peer) == [None, "1", None, "1"]


@pytest.mark.parametrize("first", [[], [page("a", "1")]], ids=["from the beginning", "without cached pages"])
async def test_a_listing_without_cached_pages_that_is_refused_is_not_repeated(era: Era, first: list[Params]) -> None:
    peer = refusing_stale_cursors(era, *first, INVALID_PARAMS)

    async with connected(peer) as client:
        with pytest.raises(ServerError, match="Invalid cursor"):
            await client.list_tools()

    assert cursors(peer) == [None, "1"][: len(first) + 1]


async def test_a_status_that_says_nothing_of_the_cursor_starts_nothing_over() -> None:
    answers: list[object] = [page("a", "1", **FRESH), httpx.Response(429)]
    site = Site(tools_list=lambda message: answers.pop(0))

    async with site.connected() as client:
        with pytest.raises(HttpStatusError, match="429"):
            await client.list_tools()

    assert site.methods() == ["server/discover", "tools/list", "tools/list"]


async def test_an_empty_cursor_ends_a_list_until_2025_11_25_and_is_a_cursor_since(era: Era) -> None:
    """ "An empty string is a valid cursor and thus MUST NOT be treated as the end" (2026-07-28, server/utilities/pagination)."""
    peer = answering(era, page("first", ""), page("last"))

    async with connected(peer) as client:
        expected = (["first"], [None]) if era is HANDSHAKE else (["first", "last"], [None, ""])
        assert (await names(client), cursors(peer)) == expected
        assert client.warnings == []


async def test_a_server_that_answers_an_empty_cursor_with_its_first_page_again_lists_nothing_twice() -> None:
    peer = answering(STATELESS, page("only", ""))

    async with connected(peer) as client:
        assert await names(client) == ["only"]
        assert client.warnings == ["the peer: tools/list ends early: the cursor '' leads nowhere new"]


async def test_a_cursor_that_is_a_number_is_sent_as_text_and_where_that_is_refused_the_list_ends() -> None:
    """The schema has texts only, and what has been read is not lost."""
    peer = refusing_stale_cursors(HANDSHAKE, page("first", 2), page("second", 3), INVALID_PARAMS)

    async with connected(peer) as client:
        assert (await names(client), cursors(peer)) == (["first", "second"], [None, "2", "3"])
        assert client.warnings == [
            "the scripted peer: tools/list ends early: the cursor '3' came as a number, and is refused as text: "
            "Invalid cursor (-32602)"
        ]


# Annotations


def tool(name: str = "query", hints: dict[str, bool] | None = None, /, **properties: object) -> Tool:
    wire = {"name": name, "inputSchema": {"type": "object", "properties": properties}}
    return Tool.from_wire(wire if hints is None else wire | {"annotations": hints})


def call(**arguments: object) -> Call:
    return Call(
        method="tools/call",
        params={"name": "query", "arguments": arguments},
        timeouts=CallTimeouts(timeout=math.inf, idle_timeout=math.inf, clock=lambda: 0),
    )


def prepared(tools: ToolCache, **arguments: object) -> Call:
    """A call of "query" as it goes out."""
    tool, query = tools.listed.get("query"), call(**arguments)
    return query if tool is None else tool.prepare(query)


def headers(tools: ToolCache) -> dict[str, str]:
    """The headers of a call that has an argument for every annotation of these tests."""
    return dict(prepared(tools, region="eu", zone="b").headers)


async def problem(tools: ToolCache, result: CallToolResult) -> str | None:
    """What is wrong with a result of "query", if that is listed."""
    tool = tools.listed.get("query")
    return None if tool is None else await tool.mismatch(result, call().timeouts)


@pytest.mark.fault("T09")
async def test_of_two_tools_with_one_name_the_first_is_used_and_the_other_left_out() -> None:
    warnings: list[str] = []
    tools = ToolCache(warnings.append, mirrored=True)

    assert await tools.replace([tool(region=REGION), tool(zone=ZONE)]) == [tool(region=REGION)]
    assert warnings == ["the tool 'query' is left out: another tool of that name stands before it"]
    assert headers(tools) == {"Mcp-Param-Region": "eu"}


async def test_a_long_listing_is_taken_in_portions() -> None:
    """Else a hundred thousand tools would block the event loop for a quarter of a second."""

    async def tick() -> None:
        finished.append("another task")

    finished: list[str] = []
    tools = ToolCache(pytest.fail, mirrored=False)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tick)
        await tools.replace([tool().model_copy(update={"name": f"t{n}"}) for n in range(2 * TOOLS_PER_TICK)])
        finished.append("the listing")

    assert finished == ["another task", "the listing"]
    assert len(tools.listed) == 2 * TOOLS_PER_TICK


async def test_the_first_that_can_be_mirrored_is_the_one_that_counts() -> None:
    tools = ToolCache(lambda text: None, mirrored=True)
    listed = await tools.replace([tool(region=INVALID), tool(zone=ZONE), tool(region=REGION)])

    assert listed == [tool(zone=ZONE)]
    assert headers(tools) == {"Mcp-Param-Zone": "b"}


async def test_arguments_are_not_mirrored_if_messages_have_no_headers() -> None:
    tools = ToolCache(pytest.fail, mirrored=False)

    assert await tools.replace([tool(region=REGION)]) == [tool(region=REGION)]
    assert headers(tools) == {}


LISTED: dict[str, tuple[list[Tool], dict[str, str]]] = {
    "not listed": ([], {}),
    "invalid": ([tool(region=INVALID)], {}),
    "not annotated": ([tool()], {}),
    "annotated": ([tool(zone=ZONE, said={"description": "x-mcp-header"})], {"Mcp-Param-Zone": "b"}),
    "mentioned": ([tool(region={"type": "string", "description": "no x-mcp-header here"})], {}),
    "not expressible in UTF-8": ([tool(zone=ZONE, half={"const": "\ud800"})], {"Mcp-Param-Zone": "b"}),
}


async def test_arguments_are_mirrored_only_as_the_last_listing_says(subtests: pytest.Subtests) -> None:
    for case, (listed, expected) in LISTED.items():
        warnings: list[str] = []
        tools = ToolCache(warnings.append, mirrored=True)
        await tools.replace([tool(region=REGION)])

        await tools.replace(listed)

        with subtests.test(case=case):
            assert headers(tools) == expected
            assert bool(warnings) == (case == "invalid")


async def test_an_annotation_too_deep_to_be_valid_is_found_in_a_schema_too_deep_to_be_written() -> None:
    deep: dict[str, Any] = {"a": REGION}
    for _ in range(400):
        deep = {"a": {"properties": deep}}
    tools = ToolCache(lambda text: None, mirrored=True)

    assert await tools.replace([tool(**deep), tool("plain")]) == [tool("plain")]


async def test_a_tool_is_said_to_be_left_out_once_and_again_when_that_is_news_again() -> None:
    warnings: list[str] = []
    tools = ToolCache(warnings.append, mirrored=True)
    for listing in ([tool(a=INVALID), tool(a=INVALID)], [tool(a=INVALID)], [tool()], [tool(a=INVALID)]):
        await tools.replace(listing)

    assert len(warnings) == 2
    assert all("'query' is left out" in warning for warning in warnings)


def checked(schema: dict[str, Any]) -> Tool:
    return Tool.from_wire({"name": "query", "inputSchema": {}, "outputSchema": schema})


def structured(**content: object) -> CallToolResult:
    return CallToolResult.from_wire({"content": [], "structuredContent": content})


async def test_a_check_that_ran_out_of_steps_is_repeated_only_for_a_changed_schema() -> None:
    numbers = {"type": "object", "properties": {"n": {"type": "array", "items": {"type": "integer"}}}}
    listed, again, changed = checked(numbers), checked({**numbers}), checked({**numbers, "title": "Numbers"})
    costly, larger = structured(n=[0] * 2_000), structured(n=[0] * 1_200, **{"x" * 2_000: 0})
    tools = ToolCache(pytest.fail, mirrored=False, max_steps=3_000)

    problems = []
    for tool, result in ((listed, larger), (listed, costly), (listed, larger), (again, larger), (changed, larger)):
        await tools.replace([tool])
        problems.append(await problem(tools, result))

    refused = "the result of 'query' is not as listed: its schema cannot be checked: it takes more than 3000 steps"
    assert problems == [None, refused, refused, refused, None]


async def test_a_schema_that_cannot_be_written_down_is_checked_against_after_every_listing() -> None:
    listed = checked({"type": "object", "properties": {"n": {"type": "integer", "title": "\ud800"}}})
    tools = ToolCache(pytest.fail, mirrored=False)

    problems = []
    for n in (1, 2, "three"):
        await tools.replace([listed])
        problems.append(await problem(tools, structured(n=n)))

    assert problems == [None, None, "the result of 'query' is not as listed: $.n: 'three' is not of type 'integer'"]


UNCHECKED: list[dict[str, Any]] = [
    {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(?=.*[A-Z]).+$"}}},
    {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?i)abc"}}},
    {"type": "object", "properties": {"a": {"type": "str"}}},
    {"type": "object", "required": "a"},
]


async def test_results_that_pass_unchecked_are_said_to_once_and_again_when_the_tool_comes_back(
    subtests: pytest.Subtests,
) -> None:
    for schema in UNCHECKED:
        with subtests.test(schema=schema):
            warnings: list[str] = []
            tools = ToolCache(warnings.append, mirrored=False)
            listed = checked(schema)
            for listing in ([listed], [listed], [], [listed]):
                await tools.replace(listing)
                assert await problem(tools, structured(a="Abc")) is None

            assert len(warnings) == 2
            assert all("'query' pass unchecked" in warning for warning in warnings)


def integer(key: str) -> dict[str, Any]:
    """The tool "query", whose results have this integer."""
    schema = {"type": "object", "properties": {key: {"type": "integer"}}, "required": [key]}
    return {"name": "query", "inputSchema": {}, "outputSchema": schema}


AFTER_A_CHANGE: dict[str, tuple[Params | int, str | None]] = {
    "right": ({"tools": [integer("new")]}, None),
    "wrong in another way": ({"tools": [integer("newer")]}, "'newer' is a required property"),
    "gone": ({"tools": []}, None),
    "not to be had": (-32603, None),
}


async def test_a_result_is_held_to_the_tool_as_it_is_listed_now(subtests: pytest.Subtests) -> None:
    """The listing is out of date: the server has announced a change meanwhile, or tells of none unless it is asked to."""
    wire: Params = {"content": [], "structuredContent": {"new": 1}}

    async def outcome(era: Era, now: Params | int) -> tuple[object, list[str]]:
        async def script(peer: ScriptedPeer) -> None:
            await era.open(peer)
            await peer.reply(await peer.receive("tools/list"), {"tools": [integer("old")]})
            called = await peer.receive("tools/call")
            if era is HANDSHAKE:
                await peer.notify("notifications/tools/list_changed")
            await peer.reply(called, wire)
            again = await peer.receive("tools/list")
            await (peer.reply_error(again, now, "down") if isinstance(now, int) else peer.reply(again, now))

        async with connected(ScriptedPeer(script, name="peer")) as client:
            await client.list_tools()
            try:
                return (await client.call_tool("query")).to_wire(), client.warnings
            except InvalidToolOutput as exc:
                return str(exc), client.warnings

    as_listed = "the result of 'query' is not as listed: "
    warning = f"peer: {as_listed}'old' is a required property; it passes, because the listing may be out of date: down (-32603)"
    for era, (case, (now, problem)) in product((HANDSHAKE, STATELESS), AFTER_A_CHANGE.items()):
        with subtests.test(era=era.version, case=case):
            warnings = [warning] if case == "not to be had" else []
            assert await outcome(era, now) == (wire if problem is None else f"{as_listed}{problem}", warnings)


async def test_a_call_may_be_repeated_where_either_hint_says_that_it_does_no_harm() -> None:
    async def is_repeatable(hints: dict[str, bool] | None) -> bool:
        tools = ToolCache(pytest.fail, mirrored=False)
        await tools.replace([tool("query", hints)])
        return prepared(tools).repeatable

    harmless = [
        {"idempotentHint": True},
        {"readOnlyHint": True},
        {"idempotentHint": False, "readOnlyHint": True},
        {"idempotentHint": True, "readOnlyHint": False},
    ]
    others = [None, {}, {"destructiveHint": False}, {"idempotentHint": False, "readOnlyHint": False}]

    assert [hints for hints in (*harmless, *others) if await is_repeatable(hints)] == harmless


# Calls that the listing did not fit


async def test_a_call_that_is_refused_for_its_headers_stays_that_when_the_list_cannot_be_had() -> None:
    site = Site(tools_list=refused(200, -32601), tools_call=refused(400, -32020))

    async with site.connected() as client:
        with pytest.raises(HeaderMismatch) as raised:
            await client.call_tool("query")

    assert isinstance(raised.value.__cause__, ServerError)
    assert raised.value.__cause__.code == -32601
    assert site.methods() == ["server/discover", "tools/call", "tools/list"]


async def test_a_header_mismatch_without_headers_does_not_list_the_tools(era: Era) -> None:
    async def script(peer: ScriptedPeer) -> None:
        await era.open(peer)
        await peer.reply_error(await peer.receive("tools/call"), -32020, "Header mismatch")
        await peer.reply(await peer.receive(), EMPTY)

    peer = ScriptedPeer(script)
    async with connected(peer) as client:
        with pytest.raises(HeaderMismatch):
            await client.call_tool("query")
        await client.call_tool("query")

    assert [message["method"] for message in era.said_to(peer)] == ["tools/call", "tools/call"]


ASKS: list[Callable[..., Awaitable[object]]] = [
    Client.list_tools,
    lambda client, **timeout: client.call_tool("query", **timeout),
    lambda client, **timeout: client.read_resource("file:///a", **timeout),
    lambda client, **timeout: client.subscribe_resource("file:///a", **timeout),
    lambda client, **timeout: client.set_log_level("info", **timeout),
]
NO_TIMEOUTS: list[tuple[object, type[Exception], str]] = [
    (math.nan, ValueError, "must be at least 0, not nan"),
    (-1, ValueError, "must be at least 0, not -1"),
    (10**400, ValueError, "must be at most 1.79769e+308, or math.inf for no bound"),
    ("5", TypeError, "must be a number of seconds, not '5'"),
    (True, TypeError, "must be a number of seconds, not True"),
]


async def test_an_invalid_timeout_is_refused_before_anything_is_sent(era: Era, subtests: pytest.Subtests) -> None:
    peer = ScriptedPeer(era.open)
    async with connected(peer) as client:
        for ask, name, (wrong, error, says) in product(ASKS, ("timeout", "idle_timeout"), NO_TIMEOUTS):
            with (
                subtests.test(ask=ASKS.index(ask), name=name, says=says),
                pytest.raises(error, match=f"^{re.escape(f'{name} {says}')}$"),
            ):
                await ask(client, **{name: wrong})

    assert era.said_to(peer) == []
