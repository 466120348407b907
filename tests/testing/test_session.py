"""One session: the handshake, lists, cancellation and announcements."""

from __future__ import annotations

from typing import Any

import pytest
from anyio import CancelScope, Event

from mcp_host.protocol.jsonrpc import INTERNAL_ERROR, Failure, Message, Request, Success
from mcp_host.serving.dispatcher import MAX_RUNNING
from mcp_host.serving.session import MAX_SUBSCRIBED, Session
from mcp_host.testing import Context, Server
from tests.extent import on_both
from tests.testing.raw import INITIALIZE, connect, legacy, waiting

pytestmark = [on_both, pytest.mark.fake_clock]  # all in memory: no deadline passes while anything can run

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")


def a(x: int = 0) -> str:
    """The first."""
    return "a"


def b() -> str:
    return "b"


async def suggest(value: str, settled: object) -> list[str]:
    return [value]


def full() -> Server:
    server = Server("full", version="1.2.3", instructions="Be kind.")
    server.tool(a)
    server.resource("r://a")(b)
    server.prompt(b)
    server.completion("b", "x")(suggest)
    return server


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_requested_revision_is_used(version: str) -> None:
    async with connect(full()) as raw:
        result = await raw.initialize(version=version)

    capabilities: dict[str, Any] = {
        "logging": {},
        "tools": {"listChanged": True},
        "resources": {"listChanged": True, "subscribe": True},
        "prompts": {"listChanged": True},
        "completions": {},
    }
    if version == "2024-11-05":
        del capabilities["completions"]
    assert result == {
        "protocolVersion": version,
        "capabilities": capabilities,
        "serverInfo": {"name": "full", "version": "1.2.3"},
        "instructions": "Be kind.",
    }


async def test_an_unsupported_revision_is_answered_with_the_preferred_one() -> None:
    async with connect(Server("s", versions=("2025-06-18", "2024-11-05"))) as raw:
        result = await raw.initialize(version="2025-11-25")

    assert result == {
        "protocolVersion": "2025-06-18",
        "capabilities": {"logging": {}},
        "serverInfo": {"name": "s", "version": "1.0.0"},
    }


@pytest.mark.parametrize("versions", [(), ("2027-07-28",)], ids=str)
def test_only_known_revisions_can_be_supported(versions: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="versions are among 2026-07-28, 2025-11-25, "):
        Server("s", versions=versions)


async def test_a_session_begins_with_one_handshake_and_before_it_only_ping_is_answered() -> None:
    async with connect(full()) as raw:
        assert await raw.result("ping") == {}
        assert await raw.error("tools/list") == {"code": -32600, "message": "not initialized yet"}
        assert await raw.error("initialize", {"protocolVersion": "2025-11-25"}) == {
            "code": -32602,
            "message": "malformed InitializeRequestParams: capabilities: Field required",
        }
        await raw.initialize()
        assert await raw.error("initialize", INITIALIZE) == {"code": -32600, "message": "initialized already"}


async def test_an_unknown_method_is_refused() -> None:
    async with legacy(full()) as raw:
        assert await raw.error("made/up") == {"code": -32601, "message": "Method not found: made/up"}


@pytest.mark.parametrize("version", VERSIONS)
async def test_lists_have_pages_of_page_size(version: str) -> None:
    server = Server("s", page_size=2)
    for name in "vwxyz":
        server.tool(name=name)(a)
        server.resource(f"r://{name}", name=name)(b)
        server.resource_template(f"t://{name}/{{x}}", name=name)(a)
        server.prompt(name=name)(a)
    lists = {
        "tools/list": "tools",
        "resources/list": "resources",
        "resources/templates/list": "resourceTemplates",
        "prompts/list": "prompts",
    }
    async with legacy(server, version=version) as raw:
        for method, key in lists.items():
            pages = [await raw.result(method)]
            while cursor := pages[-1].get("nextCursor"):
                pages.append(await raw.result(method, {"cursor": cursor}))

            assert [[item["name"] for item in page[key]] for page in pages] == [["v", "w"], ["x", "y"], ["z"]]


@pytest.mark.parametrize("cursor", ["0", "1000", "-1", "x", "²"])
async def test_an_unknown_cursor_is_refused(cursor: str) -> None:
    server = Server("s", page_size=1)
    server.tool(a)
    server.tool(b)
    async with legacy(server) as raw:
        error = await raw.error("tools/list", {"cursor": cursor})

    assert error == {"code": -32602, "message": f"Invalid cursor: {cursor}"}


@pytest.mark.parametrize("swallows", [False, True], ids=["raised", "swallowed"])
async def test_a_cancelled_tool_stops_and_is_not_answered(swallows: bool) -> None:
    """Not even if it swallows its cancellation."""
    server, ended = Server("s"), Event()

    @server.tool
    async def wait(ctx: Context) -> str:
        try:
            await ctx.sample("Wait.")
        except BaseException:
            if not swallows:
                raise
        finally:
            ended.set()
        return "all the same"

    async with legacy(server) as raw:
        call = await raw.start("wait")
        asked = await raw.receive()
        await raw.notify("notifications/cancelled", {"requestId": call, "reason": "enough"})
        cancelled = await raw.receive()
        await ended.wait()

        assert cancelled["params"] == {"requestId": asked["id"]}
        assert await raw.nothing_more()


async def test_a_float_without_a_fraction_is_an_id_and_true_is_none() -> None:
    begun, ended = waiting(server := Server("s"))
    async with connect(server, lenient=True) as raw:
        await raw.initialize()
        await raw.request_as(1, "tools/call", {"name": "wait"})
        await begun.wait()
        await raw.notify("notifications/cancelled", {"requestId": True})
        assert await raw.nothing_more()
        assert not ended.is_set()
        await raw.notify("notifications/cancelled", {"requestId": 1.0})
        await ended.wait()


@pytest.mark.parametrize("params", [{}, {"requestId": 99}, {"requestId": [1]}, {"requestId": None}], ids=str)
async def test_cancelling_an_unknown_request_is_ignored(params: dict[str, object]) -> None:
    async with legacy(full()) as raw:
        await raw.notify("notifications/cancelled", params)

        assert await raw.result("ping") == {}


async def test_a_request_id_in_use_is_refused_and_the_first_request_goes_on() -> None:
    server = Server("s")
    go = Event()

    @server.tool
    async def wait() -> str:
        await go.wait()
        return "done"

    async with legacy(server) as raw:
        await raw.request_as("x", "tools/call", {"name": "wait"})
        await raw.request_as("x", "tools/call", {"name": "wait"})
        refused = await raw.receive()
        go.set()
        answered = await raw.receive()

    assert refused == {"jsonrpc": "2.0", "id": "x", "error": {"code": -32600, "message": "this request id is in use"}}
    assert answered["result"]["content"] == [{"type": "text", "text": "done"}]


async def test_only_so_many_requests_of_a_client_are_under_way_and_resources_subscribed_to() -> None:
    sent = list[Message]()
    session = Session(full()._catalog, lambda job: CancelScope(), lambda message, related: sent.append(message))
    session.receive(Request("begin", "initialize", INITIALIZE))
    for id in range(MAX_SUBSCRIBED + 1):
        session.receive(Request(id, "resources/subscribe", {"uri": f"r://{id}"}))
    assert sent[-2:] == [
        Success(MAX_SUBSCRIBED - 1, {}),
        Failure(MAX_SUBSCRIBED, INTERNAL_ERROR, "10,000 resources are subscribed to already"),
    ]
    sent.clear()
    for id in range(MAX_RUNNING + 1):
        session.receive(Request(id, "tools/call", {"name": "a"}))
    assert sent == [Failure(MAX_RUNNING, INTERNAL_ERROR, "10,000 requests are under way already")]


async def test_a_malformed_message_is_refused_with_its_id_if_that_can_be_read() -> None:
    async with legacy(full()) as raw:
        await raw.send_raw(b"{")
        await raw.send({"jsonrpc": "2.0", "id": 7, "method": "ping", "params": [7]})
        answers = [await raw.receive(), await raw.receive()]

    assert [(answer["id"], answer["error"]["code"]) for answer in answers] == [(None, -32700), (7, -32600)]


async def test_every_client_has_its_own_session() -> None:
    server = full()
    async with legacy(server) as one, legacy(server, version="2024-11-05") as two:
        await one.result("resources/subscribe", {"uri": "r://a"})
        await server.notify_resource_updated("r://a")
        await server.notify_resource_updated("r://b")
        update = await one.receive()

        assert update == {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "r://a"}}
        assert await one.nothing_more()
        assert await two.nothing_more()

        await one.result("resources/unsubscribe", {"uri": "r://a"})
        await server.notify_resource_updated("r://a")
        assert await one.nothing_more()


async def test_changes_are_announced_to_all_initialized_clients() -> None:
    server = full()
    async with legacy(server) as one, legacy(server) as two, connect(server) as half:
        await half.result("initialize", INITIALIZE)
        server.tool(b)
        server.remove_tool("a")
        await server.notify_tools_changed()
        await server.notify_prompts_changed()
        await server.notify_resources_changed()

        for raw in (one, two):
            heard = [(await raw.receive())["method"] for _ in range(3)]
            assert heard == [f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources")]
            assert [tool["name"] for tool in (await raw.result("tools/list"))["tools"]] == ["b"]
        assert await half.nothing_more()


async def test_calls_are_cancelled_when_the_client_disconnects() -> None:
    begun, ended = waiting(server := Server("s"))
    async with legacy(server) as raw:
        await raw.start("wait")
        await begun.wait()
        await raw.close()

        await ended.wait()
        await server.notify_tools_changed()  # after the connection has ended
