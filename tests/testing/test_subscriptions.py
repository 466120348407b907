"""Subscriptions (2026-07-28): what is granted, and which client gets which notification."""

from __future__ import annotations

import pytest

from mcp_host.testing import Server
from tests.extent import on_both
from tests.testing.raw import Raw, Wire, connect, meta, modern

pytestmark = [on_both, pytest.mark.fake_clock]  # all in memory: no deadline passes while anything can run

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


async def announce_everything(server: Server) -> None:
    await server.notify_tools_changed()
    await server.notify_prompts_changed()
    await server.notify_resources_changed()
    await server.notify_resource_updated("r://a")
    await server.notify_resource_updated("r://b")


def offering(*kinds: str) -> Server:
    """A server with one of each of these kinds."""
    server = Server("s")

    def a() -> str:
        return "a"

    for kind in kinds:
        {"tools": server.tool, "prompts": server.prompt, "resources": server.resource("r://a")}[kind](a)
    return server


@pytest.mark.parametrize(
    ("kinds", "wanted", "chosen"),
    [
        (["tools", "prompts", "resources"], {}, {}),
        (["tools", "prompts", "resources"], EVERYTHING, EVERYTHING),
        (["tools"], EVERYTHING, {"toolsListChanged": True}),
        (["prompts"], EVERYTHING, {"promptsListChanged": True}),
        (["resources"], EVERYTHING, {"resourcesListChanged": True, "resourceSubscriptions": ["r://a"]}),
        (["tools", "prompts"], {"toolsListChanged": False, "promptsListChanged": None}, {}),
        (["resources"], {"resourceSubscriptions": []}, {"resourceSubscriptions": []}),
    ],
)
async def test_a_server_grants_the_notifications_that_it_sends(kinds: list[str], wanted: Wire, chosen: Wire) -> None:
    async with modern(offering(*kinds), lenient=True) as raw:
        await raw.request("subscriptions/listen", {"notifications": wanted})

        assert (await raw.receive())["params"]["notifications"] == chosen


async def listen(raw: Raw, **wanted: object) -> int:
    """Subscribe, wait for the acknowledgment, and return the subscription's id."""
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


@pytest.mark.parametrize(
    ("chosen", "heard"),
    [
        ({}, []),
        ({"toolsListChanged": True}, ["tools/list_changed"]),
        ({"promptsListChanged": True}, ["prompts/list_changed"]),
        ({"resourcesListChanged": True}, ["resources/list_changed"]),
        ({"resourceSubscriptions": ["r://b"]}, ["r://b"]),
        (EVERYTHING, ["tools/list_changed", "prompts/list_changed", "resources/list_changed", "r://a"]),
    ],
    ids=str,
)
async def test_a_listener_gets_the_notifications_that_it_chose_after_its_acknowledgment(
    chosen: Wire, heard: list[str]
) -> None:
    server = full()
    async with modern(server) as raw:
        await announce_everything(server)
        id = await listen(raw, **chosen)
        await announce_everything(server)
        received = [await raw.receive() for _ in heard]

        assert await raw.nothing_more()

    assert received == [
        told("resources/updated", id, uri=name) if name.startswith("r://") else told(name, id) for name in heard
    ]


async def test_each_subscription_gets_its_own_notifications() -> None:
    server = full()
    async with modern(server) as raw:
        first = await listen(raw, toolsListChanged=True)
        second = await listen(raw, toolsListChanged=True, promptsListChanged=True)
        await announce_everything(server)
        heard = [await raw.receive() for _ in range(3)]

    assert heard == [
        told("tools/list_changed", first),
        told("tools/list_changed", second),
        told("prompts/list_changed", second),
    ]


async def test_a_cancelled_subscription_gets_nothing_more() -> None:
    server = full()
    async with modern(server) as raw:
        id = await listen(raw, toolsListChanged=True)
        await raw.notify("notifications/cancelled", {"requestId": id})
        assert await raw.nothing_more()
        await announce_everything(server)

        assert await raw.nothing_more()


async def test_a_server_ends_subscriptions_with_a_result() -> None:
    server = full()
    async with modern(server) as raw:
        id = await listen(raw, toolsListChanged=True)
        await server.end_subscriptions()
        ended = await raw.receive()
        await announce_everything(server)

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


async def test_a_malformed_filter_is_refused() -> None:
    async with modern(full()) as raw:
        assert await raw.error("subscriptions/listen") == {
            "code": -32602,
            "message": "malformed SubscriptionsListenRequestParams: notifications: Field required",
        }


async def test_clients_of_both_eras_get_the_same_notifications() -> None:
    server = full()
    async with connect(server) as old, connect(server) as new:
        await old.initialize()
        await old.result("resources/subscribe", {"uri": "r://a"})
        new.meta = meta()
        await listen(new, **EVERYTHING)
        await announce_everything(server)
        both = [[(await raw.receive())["method"] for _ in range(4)] for raw in (old, new)]

        assert await old.nothing_more()

    assert both[0] == both[1]
