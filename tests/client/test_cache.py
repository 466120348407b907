"""Results that a server calls fresh are not asked for again while they are (2026-07-28, server/utilities/caching)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import anyio
import pytest

from mcp_host import Client
from mcp_host.errors import CallerError, HttpStatusError
from mcp_host.limits import Limits
from mcp_host.middleware import ClientRequest, add_meta
from mcp_host.protocol.cache import Cache
from mcp_host.protocol.eras import Complete
from mcp_host.protocol.jsonrpc import Notification
from mcp_host.testing import ScriptedPeer
from tests.client.sites import Site, refused
from tests.client.support import HANDSHAKE, STATELESS, Era, answering, connected, ignore, methods, open_listening

FRESH = {"resultType": "complete", "ttlMs": 60_000, "cacheScope": "public"}
TOOL = {"name": "add", "inputSchema": {"type": "object"}}


def cache(limit: int = 10_000) -> Cache:
    return Cache(limit, clock=lambda: 100.0)


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"not": schema}
    return schema


def test_a_result_is_found_until_it_is_stale() -> None:
    now = 100.0
    kept = Cache(10_000, clock=lambda: now)
    kept.keep("tools/list", {}, Complete({"tools": []}, 5.0))

    assert kept.find("tools/list", {}) == {"tools": []}
    now = 104.9
    assert kept.find("tools/list", {}) == {"tools": []}
    now = 105.0
    assert kept.find("tools/list", {}) is None


def test_another_request_is_never_served_with_it() -> None:
    kept = cache()
    kept.keep("resources/read", {"uri": "a:1"}, Complete({"contents": [1]}, 5.0))

    assert kept.find("resources/read", {"uri": "a:2"}) is None
    assert kept.find("resources/list", {"uri": "a:1"}) is None
    assert kept.find("resources/read", {"uri": "a:1", "_meta": {"user": 1}}) is None
    assert kept.find("resources/read", {"uri": "a:1", "_meta": {"traceparent": "00-1"}}) == {"contents": [1]}


def test_a_private_result_is_for_its_caller_and_a_public_one_for_all() -> None:
    kept = cache()
    for scope in ("private", "public"):
        kept.keep("resources/read", {"uri": scope}, Complete({"cacheScope": scope}, 5.0), caller="ada")

    found = {
        (uri, caller): kept.find("resources/read", {"uri": uri}, caller=caller) is not None
        for uri in ("private", "public")
        for caller in ("ada", "bob", None)
    }
    assert [key for key, hit in found.items() if hit] == [
        ("private", "ada"),
        ("public", "ada"),
        ("public", "bob"),
        ("public", None),
    ]


def test_another_login_drops_what_is_private_and_has_the_tools_listed_again() -> None:
    kept = cache()
    kept.enter("ada")
    for scope in ("private", "public"):
        kept.keep("resources/read", {"uri": scope}, Complete({"cacheScope": scope}, 5.0))
    before = (kept.changes, kept.tool_changes)

    kept.enter("ada")
    assert (kept.changes, kept.tool_changes) == before
    assert kept.find("resources/read", {"uri": "private"}) is not None
    kept.enter("bob")
    kept.keep("resources/read", {"uri": "on its way"}, Complete({}, 5.0), since=before[0])
    found = [kept.find("resources/read", {"uri": uri}) is not None for uri in ("private", "public", "on its way")]
    assert found == [False, True, False]
    assert kept.tool_changes > before[1]


class Equal:
    """Equal to everything."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


ANN, UNHASHABLE = Equal(), ["ann"]
CALLERS: list[tuple[object, object, bool]] = [
    ("ann", "".join(["an", "n"]), True),
    (("home", 1000), ("home", 500 + 500), True),
    (UUID(int=1), UUID(int=1), True),
    (ANN, ANN, True),
    (UNHASHABLE, UNHASHABLE, True),
    ("ann", b"ann", False),
    (1, True, False),
    (1, 1.0, False),
    (0, None, False),
    ((1,), (True,), False),
    (ANN, Equal(), False),
    ((ANN,), (Equal(),), False),
    (UNHASHABLE, ["ann"], False),
]


def test_callers_are_the_same_if_they_are_one_object_or_equal_plain_values(subtests: pytest.Subtests) -> None:
    for one, other, same in CALLERS:
        with subtests.test(one=one, other=other):
            kept = cache()
            kept.keep("tools/list", {}, Complete({}, 5.0), caller=one)

            assert (kept.find("tools/list", {}, caller=other) is not None) is same


def test_metadata_that_is_no_json_keeps_nothing() -> None:
    kept, params = cache(), {"_meta": {"a": object()}}
    kept.keep("tools/list", params, Complete({}, 5.0))

    assert kept.find("tools/list", params) is None


def test_a_cached_result_cannot_be_changed_by_a_caller() -> None:
    kept = cache()
    kept.keep("tools/list", {}, Complete({"tools": [{"name": "x"}]}, 5.0))

    found = kept.find("tools/list", {})
    assert found is not None
    found["tools"][0]["name"] = "y"

    assert kept.find("tools/list", {}) == {"tools": [{"name": "x"}]}


def test_the_oldest_make_room_and_what_is_too_large_is_not_kept() -> None:
    kept = cache(limit=1124)
    for number in range(4):
        kept.keep("resources/read", {"uri": str(number)}, Complete({"contents": [number]}, 5.0))
    kept.keep("resources/read", {"uri": "big"}, Complete({"contents": ["x" * 1124]}, 5.0))

    found = [uri for uri in ("0", "1", "2", "3", "big") if kept.find("resources/read", {"uri": uri})]
    assert found == ["2", "3"]


def test_entries_and_what_they_are_found_by_take_room_however_small_the_results_are() -> None:
    """512 bytes for each entry, and the length of `tools/list`, `cursor`, its value, and `{}`."""
    kept = cache(limit=9 * (512 + 10 + 6 + 2 + 2))
    for number in range(100):
        kept.keep("tools/list", {"cursor": str(number)}, Complete({}, 5.0))
    found = [number for number in range(100) if kept.find("tools/list", {"cursor": str(number)}) is not None]

    assert found == list(range(91, 100))


@pytest.mark.parametrize("room", [0, -1], ids=["just", "one byte short"])
def test_a_result_that_fits_exactly_is_kept(room: int) -> None:
    kept = cache(limit=512 + 10 + 6 + 1000 + 2 + room)
    long = {"cursor": "x" * 1000}
    kept.keep("tools/list", long, Complete({}, 5.0))

    assert (kept.find("tools/list", long) is not None) == (room == 0)


def test_a_deeply_nested_result_is_cached_unchanged_and_a_too_deeply_nested_one_is_not() -> None:
    kept = cache()
    for depth in (150, 210, 260, 5000):
        kept.keep("resources/read", {"uri": str(depth)}, Complete({"a": nested(depth)}, 5.0))

    assert kept.find("resources/read", {"uri": "150"}) == {"a": nested(150)}
    assert [kept.find("resources/read", {"uri": uri}) for uri in ("210", "260", "5000")] == [None] * 3


def test_a_request_that_takes_more_than_text_is_not_kept() -> None:
    for value in (7, None, nested(5000), ["a"], object()):
        kept = cache()
        kept.keep("tools/list", {"cursor": value}, Complete({}, 5.0))

        assert kept.find("tools/list", {"cursor": value}) is None


def test_half_a_surrogate_pair_is_text_as_good_as_any_to_be_found_by_and_none_to_be_kept() -> None:
    kept = cache()
    kept.keep("resources/read", {"uri": "a:\ud800"}, Complete({"contents": []}, 5.0))
    kept.keep("resources/read", {"uri": "a:1"}, Complete({"contents": ["\ud800"]}, 5.0))

    assert kept.find("resources/read", {"uri": "a:\ud800"}) == {"contents": []}
    assert kept.find("resources/read", {"uri": "a:1"}) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda kept: kept.invalidate(Notification("notifications/tools/list_changed", {})),
        lambda kept: kept.invalidate(Notification("notifications/resources/updated", {"uri": "a:1"})),
        lambda kept: kept.drop("tools/list"),
        lambda kept: kept.drop(),
    ],
    ids=["list changed", "updated", "dropped", "all dropped"],
)
def test_a_result_that_was_on_its_way_when_something_changed_is_not_kept(change: Callable[[Cache], None]) -> None:
    kept = cache()
    since = kept.changes
    change(kept)

    kept.keep("tools/list", {}, Complete({"tools": []}, 5.0), since=since)
    assert kept.find("tools/list", {}) is None
    kept.keep("tools/list", {}, Complete({"tools": []}, 5.0), since=kept.changes)
    assert kept.find("tools/list", {}) == {"tools": []}


def test_a_change_of_nothing_drops_nothing_from_the_cache() -> None:
    kept = cache()
    kept.keep("resources/read", {"uri": "a:1"}, Complete({"contents": []}, 5.0))
    since = kept.changes

    kept.invalidate(Notification("notifications/message", {"uri": "a:1"}))
    for no_uri in ({}, {"uri": nested(5000)}):
        kept.invalidate(Notification("notifications/resources/updated", no_uri))
    kept.keep("tools/list", {}, Complete({"tools": []}, 5.0), since=since)

    assert kept.find("resources/read", {"uri": "a:1"}) == {"contents": []}
    assert kept.find("tools/list", {}) == {"tools": []}


def test_a_result_that_comes_too_late_leaves_the_newer_one_in_its_place() -> None:
    kept = cache()
    since = kept.changes
    kept.drop("tools/list")
    kept.keep("tools/list", {}, Complete({"tools": ["new"]}, 5.0), since=kept.changes)

    kept.keep("tools/list", {}, Complete({"tools": ["old"]}, 5.0), since=since)

    assert kept.find("tools/list", {}) == {"tools": ["new"]}


def test_no_room_keeps_nothing_and_neither_does_what_is_stale_at_once() -> None:
    for limit, lifetime in ((0, 5.0), (10_000, 0.0)):
        kept = cache(limit)
        kept.keep("tools/list", {}, Complete({}, lifetime))

        assert kept.find("tools/list", {}) is None


@pytest.mark.parametrize(
    ("notification", "dropped"),
    [
        (Notification("notifications/tools/list_changed", {}), {"tools"}),
        (Notification("notifications/prompts/list_changed", {}), {"prompts"}),
        (Notification("notifications/resources/list_changed", {}), {"resources", "templates"}),
        (Notification("notifications/resources/updated", {"uri": "a"}), {"read a"}),
        (Notification("notifications/message", {"uri": "a"}), set()),
    ],
    ids=["tools", "prompts", "resources", "updated", "message"],
)
def test_a_notification_drops_what_it_makes_stale(notification: Notification, dropped: set[str]) -> None:
    requests: dict[str, tuple[str, dict[str, Any]]] = {
        "tools": ("tools/list", {"cursor": "1"}),
        "prompts": ("prompts/list", {}),
        "resources": ("resources/list", {}),
        "templates": ("resources/templates/list", {}),
        "read a": ("resources/read", {"uri": "a"}),
        "read b": ("resources/read", {"uri": "b"}),
    }
    kept = cache()
    for method, params in requests.values():
        kept.keep(method, params, Complete({"x": 1}, 5.0))

    kept.invalidate(notification)

    assert {name for name, request in requests.items() if not kept.find(*request)} == dropped


# In a client


REQUESTS: dict[str, tuple[Callable[[Client], Awaitable[object]], dict[str, Any]]] = {
    "tools/list": (Client.list_tools, {"tools": [TOOL]}),
    "prompts/list": (Client.list_prompts, {"prompts": []}),
    "resources/list": (Client.list_resources, {"resources": []}),
    "resources/templates/list": (Client.list_resource_templates, {"resourceTemplates": []}),
    "resources/read": (lambda client: client.read_resource("a:1"), {"contents": [{"uri": "a:1", "text": "t"}]}),
}


async def test_lists_and_reads_that_are_fresh_are_not_asked_for_again() -> None:
    peer = answering(STATELESS, *[FRESH | result for _, result in REQUESTS.values()])

    async with connected(peer) as client:
        first = [await request(client) for request, _ in REQUESTS.values()]
        assert [await request(client) for request, _ in REQUESTS.values()] == first

    assert methods(peer) == ["server/discover", *REQUESTS]


async def test_what_was_read_for_one_user_is_not_what_another_gets() -> None:
    """They are told apart by what middleware adds, or by the caller alone."""

    def user(request: ClientRequest) -> dict[str, object]:
        return {"user": request.caller}

    for middleware in ([add_meta(user)], []):
        secrets = [FRESH | {"cacheScope": "private", "contents": [{"uri": "a:1", "text": name}]} for name in "ab"]
        async with connected(answering(STATELESS, *secrets), middleware=middleware) as client:
            read = [(await client.read_resource("a:1", caller=caller)).to_wire() for caller in ("ann", "bob") * 2]

        assert read == [*secrets, *secrets]


async def test_each_page_is_fresh_for_as_long_as_it_says_itself() -> None:
    first = FRESH | {"tools": [TOOL], "nextCursor": "2"}
    peer = answering(STATELESS, first, {"resultType": "complete", "tools": []})

    async with connected(peer) as client:
        await client.list_tools()
        assert [tool.name for tool in await client.list_tools()] == ["add"]

    assert [message["params"].get("cursor") for message in peer.received[1:]] == [None, "2", "2"]


@pytest.mark.parametrize("options", [{"cache": False}, {"limits": Limits(max_cache=100)}])
async def test_a_client_without_a_cache_or_with_too_small_a_one_asks_every_time(options: dict[str, Any]) -> None:
    peer = answering(STATELESS, FRESH | {"contents": [{"uri": "a:1", "text": "x" * 200}]})

    async with connected(peer, **options) as client:
        await client.read_resource("a:1")
        await client.read_resource("a:1")

    assert len(peer.received) == 3


async def test_the_cache_is_for_one_connection_of_one_client() -> None:
    """Two clients share none in any scope, and another process may be another version of the server."""
    peer = answering(STATELESS, FRESH | {"tools": []})
    client = Client(peer)

    with anyio.fail_after(25):
        for each in (client, client, Client(peer)):
            async with each:
                await each.list_tools()

    assert methods(peer) == 3 * ["server/discover", "tools/list"]


async def test_a_handshake_server_is_always_asked() -> None:
    peer = answering(HANDSHAKE, {"tools": [], "ttlMs": 60_000})

    async with connected(peer, era="legacy") as client:
        await client.list_tools()
        await client.list_tools()

    assert methods(peer) == [*HANDSHAKE.opening_again, "tools/list", "tools/list"]


async def test_an_announced_change_makes_stale_what_was_listed_or_asked_for_before_it() -> None:
    changing = anyio.Event()

    async def script(peer: ScriptedPeer) -> None:
        listen = await open_listening(peer, {"tools": {"listChanged": True}})
        request = await peer.receive("tools/list")
        await peer.notify_subscription(listen, "notifications/tools/list_changed")
        await peer.reply(request, FRESH | {"tools": []})
        await peer.reply(await peer.receive("tools/list"), FRESH | {"tools": [TOOL]})
        await changing.wait()
        await peer.notify_subscription(listen, "notifications/tools/list_changed")
        await peer.reply(await peer.receive("tools/list"), FRESH | {"tools": []})

    async with connected(ScriptedPeer(script), on_change=ignore) as client:
        assert await client.list_tools() == []
        for _ in range(2):
            assert [tool.name for tool in await client.list_tools()] == ["add"]
        changing.set()
        await anyio.wait_all_tasks_blocked()
        assert await client.list_tools() == []


async def test_a_change_with_an_invalid_uri_does_not_end_the_connection(era: Era) -> None:
    async def script(peer: ScriptedPeer) -> None:
        await era.open(peer)
        request = await peer.receive("tools/list")
        deep = b"[" * 300 + b"]" * 300
        method = b"notifications/resources/updated"
        await peer.send_raw(b'{"jsonrpc":"2.0","method":"%b","params":{"uri":%b}}' % (method, deep))
        await peer.reply(request, {"tools": [TOOL]})

    async with connected(ScriptedPeer(script)) as client:
        assert [tool.name for tool in await client.list_tools()] == ["add"]


async def test_a_fresh_list_that_nests_too_deeply_to_be_kept_is_asked_for_again() -> None:
    depth = 260
    schema = b'{"not":' * depth + b"{}" + b"}" * depth
    listed = b'{"ttlMs":60000,"tools":[{"name":"deep","inputSchema":{},"outputSchema":%b}]}' % schema

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover(capabilities={"tools": {}})
        for _ in range(2):
            request = await peer.receive("tools/list")
            await peer.send_raw(b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (request["id"], listed))

    async with connected(ScriptedPeer(script)) as client:
        for _ in range(2):
            (tool,) = await client.list_tools()
            assert tool.output_schema == nested(depth)


async def test_a_uri_that_cannot_be_encoded_is_a_caller_error_even_with_a_cache() -> None:
    peer = answering(STATELESS, FRESH | {"contents": []})

    async with connected(peer) as client:
        await client.read_resource("a:1")
        with pytest.raises(CallerError, match="surrogate"):
            await client.read_resource("a:\ud800")


async def test_a_result_is_fresh_for_a_day_at_most() -> None:
    peer = answering(STATELESS, {"tools": [], "ttlMs": 10**400})

    async with connected(peer) as client:
        assert await client.list_tools() == []
        assert await client.list_tools() == []

    assert len(peer.received) == 2


async def test_any_refusal_clears_the_cached_discovery() -> None:
    """A server that was rolled back may refuse with any error."""
    async with Site(tools_call=refused(400, -32000)).connected() as client:
        cache = client._state.cache
        cache.keep("server/discover", {"version": "2026-07-28"}, Complete({}, 60.0))
        with pytest.raises(HttpStatusError):
            await client.call_tool("x")
        assert cache.find("server/discover", {"version": "2026-07-28"}) is None


async def test_an_application_can_forget_what_is_kept() -> None:
    peer = answering(STATELESS, {**FRESH, "tools": [TOOL]})
    async with connected(peer) as client:
        for _ in range(2):
            await client.list_tools()
        client.clear_cache()
        for _ in range(2):
            await client.list_tools()

    assert methods(peer) == [*STATELESS.opening, *2 * ["tools/list"]]
