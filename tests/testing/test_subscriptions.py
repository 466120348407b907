"""Subscriptions of revision 2026-07-28: what is granted, and who hears what."""

from __future__ import annotations

from typing import Any

import pytest
from anyio import fail_after

from mcp_host.protocol.jsonrpc import Params
from mcp_host.testing import Server
from mcp_host.testing._server.subscriptions import granted, matches
from mcp_host.types import SubscriptionFilter
from tests.testing.raw import Raw, Wire, connect, meta, modern

pytestmark = pytest.mark.fake_clock  # all in memory: no deadline passes while anything can run

EVERYTHING: Wire = {
    "toolsListChanged": True,
    "promptsListChanged": True,
    "resourcesListChanged": True,
    "resourceSubscriptions": ["r://a"],
}


def full() -> Server:
    server = Server("s")

    @server.tool
    @server.prompt
    @server.resource("r://a")
    def a() -> str:
        return "a"

    return server


async def say_everything(server: Server) -> None:
    await server.notify_tools_changed()
    await server.notify_prompts_changed()
    await server.notify_resources_changed()
    await server.notify_resource_updated("r://a")
    await server.notify_resource_updated("r://b")


@pytest.mark.parametrize(
    ("wanted", "capabilities", "chosen"),
    [
        ({}, ["tools", "prompts", "resources"], {}),
        (EVERYTHING, ["tools", "prompts", "resources"], EVERYTHING),
        (EVERYTHING, ["tools"], {"toolsListChanged": True}),
        (EVERYTHING, ["prompts", "logging"], {"promptsListChanged": True}),
        (EVERYTHING, ["resources"], {"resourcesListChanged": True, "resourceSubscriptions": ["r://a"]}),
        ({"toolsListChanged": False, "promptsListChanged": None}, ["tools", "prompts"], {}),
        ({"resourceSubscriptions": []}, ["resources"], {"resourceSubscriptions": []}),
    ],
)
def test_what_there_is_to_tell_of_is_granted(wanted: Wire, capabilities: list[str], chosen: Wire) -> None:
    declared: dict[str, Any] = {capability: {} for capability in capabilities}

    assert granted(SubscriptionFilter.from_wire(wanted), declared).to_wire() == chosen


@pytest.mark.parametrize(
    ("chosen", "method", "params", "heard"),
    [
        ({"toolsListChanged": True}, "notifications/tools/list_changed", {}, True),
        ({"toolsListChanged": True}, "notifications/prompts/list_changed", {}, False),
        ({"toolsListChanged": True}, "notifications/resources/updated", {"uri": "r://a"}, False),
        ({"resourceSubscriptions": ["r://a"]}, "notifications/resources/updated", {"uri": "r://a"}, True),
        ({"resourceSubscriptions": ["r://a"]}, "notifications/resources/updated", {"uri": "r://b"}, False),
        ({"resourceSubscriptions": ["r://a"]}, "notifications/resources/list_changed", {}, False),
    ],
)
def test_only_what_was_chosen_is_heard(chosen: Wire, method: str, params: Params, heard: bool) -> None:
    assert matches(SubscriptionFilter.from_wire(chosen), method, params) is heard


async def listen(raw: Raw, **wanted: object) -> int:
    """Begin to listen; the subscription's id, once it is acknowledged."""
    id = await raw.request("subscriptions/listen", {"notifications": wanted})
    assert await raw.receive() == {
        "jsonrpc": "2.0",
        "method": "notifications/subscriptions/acknowledged",
        "params": {"notifications": wanted, "_meta": {"io.modelcontextprotocol/subscriptionId": id}},
    }
    return id


def told(method: str, id: object, **params: object) -> Wire:
    signed = {**params, "_meta": {"io.modelcontextprotocol/subscriptionId": id}}
    return {"jsonrpc": "2.0", "method": f"notifications/{method}", "params": signed}


async def test_a_listener_hears_what_it_chose_from_its_acknowledgment_on() -> None:
    server = full()
    with fail_after(5):
        async with modern(server) as raw:
            await say_everything(server)
            id = await listen(raw, **EVERYTHING)
            await say_everything(server)
            heard = [await raw.receive() for _ in range(4)]

            assert await raw.nothing_more()

    assert heard == [
        told("tools/list_changed", id),
        told("prompts/list_changed", id),
        told("resources/list_changed", id),
        told("resources/updated", id, uri="r://a"),
    ]


async def test_each_subscription_has_its_own_stream() -> None:
    server = full()
    with fail_after(5):
        async with modern(server) as raw:
            first = await listen(raw, toolsListChanged=True)
            second = await listen(raw, toolsListChanged=True, promptsListChanged=True)
            await say_everything(server)
            heard = [await raw.receive() for _ in range(3)]

    assert heard == [
        told("tools/list_changed", first),
        told("tools/list_changed", second),
        told("prompts/list_changed", second),
    ]


async def test_a_subscription_that_is_cancelled_hears_nothing_more() -> None:
    server = full()
    with fail_after(5):
        async with modern(server) as raw:
            id = await listen(raw, toolsListChanged=True)
            await raw.notify("notifications/cancelled", {"requestId": id})
            assert await raw.nothing_more()
            await say_everything(server)

            assert await raw.nothing_more()


async def test_a_server_ends_subscriptions_with_a_result() -> None:
    server = full()
    with fail_after(5):
        async with modern(server) as raw:
            id = await listen(raw, toolsListChanged=True)
            await server.end_subscriptions()
            ended = await raw.receive()
            await say_everything(server)

            assert await raw.nothing_more()

    assert ended == {
        "jsonrpc": "2.0",
        "id": id,
        "result": {
            "resultType": "complete",
            "_meta": {
                "io.modelcontextprotocol/subscriptionId": id,
                "io.modelcontextprotocol/serverInfo": {"name": "s", "version": "1.0.0"},
            },
        },
    }


async def test_what_is_no_filter_is_refused() -> None:
    with fail_after(5):
        async with modern(full()) as raw:
            assert await raw.error("subscriptions/listen") == {
                "code": -32602,
                "message": "malformed SubscriptionsListenRequestParams: notifications: Field required",
            }


async def test_both_kinds_of_client_hear_the_same_news() -> None:
    server = full()
    with fail_after(5):
        async with connect(server) as old, connect(server) as new:
            await old.initialize()
            await old.result("resources/subscribe", {"uri": "r://a"})
            new.meta = meta()
            await listen(new, **EVERYTHING)
            await say_everything(server)
            both = [[(await raw.receive())["method"] for _ in range(4)] for raw in (old, new)]

            assert await old.nothing_more()

    assert both[0] == both[1]
