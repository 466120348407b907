"""Requests and notifications that the library does not know, sent by the application."""

from __future__ import annotations

from typing import Any

import anyio
import httpx
import pytest

from mcp_host import Client, Notification, StreamableHttp, ToolPolicy
from mcp_host.errors import CallerError, NotConnected, RequestTimeout, ServerError
from mcp_host.middleware import AnyRequest, CallNext, ClientRequest
from mcp_host.testing import Context, ScriptedPeer, Server
from mcp_host.types import ProgressNotificationParams
from tests.client.sites import Site
from tests.client.support import EMPTY, QUESTION, STATELESS, Era, answering, connected, sampling
from tests.extent import on_both
from tests.testing.connecting import MODERN, ConnectBy, connect_by, over_http_in_json, versions

__all__ = ["connect_by", "versions"]  # fixtures

Wire = dict[str, Any]


# Requests


async def test_any_request_can_be_made_over_every_transport(connect_by: ConnectBy, versions: tuple[str, ...]) -> None:
    """With what every request has: progress, and notifications that the library does not know."""
    server = Server("extended", versions=versions)
    reports, seen, heard = list[float](), list[Notification](), anyio.Event()

    @server.request_handler("acme/translate")
    async def translate(params: Wire, ctx: Context) -> Wire:
        await ctx.report_progress(0.5)
        await ctx.notify("notifications/acme/working", {"on": "it"})
        return {"text": f"{params['text']} in French"}

    def on_progress(report: ProgressNotificationParams) -> None:
        reports.append(report.progress)

    def on_notification(notification: Notification) -> None:
        seen.append(notification)
        anyio.from_thread.run_sync(heard.set)

    no_way_back = (connect_by, versions) == (over_http_in_json, MODERN)  # but the JSON answer
    with anyio.fail_after(25):
        async with connect_by(server) as transport, Client(transport, on_notification=on_notification) as client:
            result = await client.request("acme/translate", {"text": "hello"}, on_progress=on_progress)
            if not no_way_back:
                await heard.wait()

    assert result["text"] == "hello in French"
    assert seen == ([] if no_way_back else [Notification("notifications/acme/working", {"on": "it"})])
    if connect_by is not over_http_in_json:  # there, a report may be later than the answer
        assert reports == [0.5]


async def test_the_params_and_the_result_are_as_written(era: Era) -> None:
    peer = answering(era, {"odd": [1, None, {"x": True}]}, {})
    async with connected(peer) as client:
        result = await client.request("acme/x", {"list": [1], "_meta": {"mine": 1}})
        await client.request("acme/without/params")

    assert result == {"odd": [1, None, {"x": True}]}
    assert [(said["method"], said["params"]) for said in era.said_to(peer)] == [
        ("acme/x", era.dressed({"list": [1], "_meta": {"mine": 1}})),
        ("acme/without/params", era.dressed({})),
    ]


async def test_errors_of_raw_requests_are_those_of_every_request(era: Era) -> None:
    async def script(peer: ScriptedPeer) -> None:
        await era.open(peer)
        await peer.reply_error(await peer.receive(), -32601, "no such method", {"x": 1})

    client = Client(ScriptedPeer(script))
    with anyio.fail_after(25):
        with pytest.raises(NotConnected):
            await client.request("acme/x")
        async with client:
            with pytest.raises(ServerError) as caught:
                await client.request("acme/x")
            with pytest.raises(RequestTimeout):
                await client.request("acme/x", timeout=0)

    assert (caught.value.code, caught.value.message, caught.value.data) == (-32601, "no such method", {"x": 1})


async def test_requests_and_notifications_that_the_client_sends_by_itself_or_has_no_more_are_refused(era: Era) -> None:
    peer = answering(era)
    requests = ["initialize", "server/discover", "subscriptions/listen"]
    notifications = ["initialized", "cancelled", "progress", "roots/list_changed"]
    async with connected(peer, roots=[]) as client:
        for method in requests:
            with pytest.raises(CallerError, match=f"^the client sends {method} by itself$"):
                await client.request(method)
        for method in notifications:
            with pytest.raises(CallerError, match=f"^the client sends notifications/{method} by itself$"):
                await client.notify(f"notifications/{method}")
        if era is STATELESS:
            with pytest.raises(CallerError, match=r"^revision 2026-07-28 has no ping$"):
                await client.notify("ping")

    assert era.said_to(peer) == []


async def test_what_is_no_request_is_refused(era: Era) -> None:
    wrong: list[tuple[Any, str]] = [
        ((5,), "method must be text, not int"),
        (("acme/x", [1]), "params must be a mapping, not list"),
        (("acme/x", {"_meta": None}), "_meta must be a mapping"),
        (("tools/call", {}), "name must be text, not NoneType"),
        (("prompts/get", {"name": 5}), "name must be text, not int"),
        (("resources/read", {}), "uri must be text, not NoneType"),
    ]
    peer, refused = answering(era), list[str]()
    async with connected(peer) as client:
        for arguments, _ in wrong:
            with pytest.raises(TypeError) as caught:
                await client.request(*arguments)
            refused.append(str(caught.value))

    assert refused == [message for _, message in wrong]
    assert era.said_to(peer) == []


async def test_a_raw_tool_call_obeys_the_policy_and_repeats_its_arguments_in_headers() -> None:
    annotated = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    site = Site(tools_list={"tools": [{"name": "query", "inputSchema": annotated}]}, tools_call=EMPTY)
    async with site.connected(tools=ToolPolicy(allow={"query"})) as client:
        await client.list_tools()
        result = await client.request("tools/call", {"name": "query", "arguments": {"region": "north"}})
        await client.request("tools/call", {"name": "query"})
        with pytest.raises(CallerError):
            await client.request("tools/call", {"name": "drop"})

    assert result == EMPTY
    assert [post.headers.get("mcp-param-region") for post in site.posts[2:]] == ["north", None]


async def test_a_raw_request_of_a_call_gives_the_input_that_its_result_requires() -> None:
    wanted = {"method": "sampling/createMessage", "params": QUESTION}
    peer = answering(STATELESS, {"resultType": "input_required", "inputRequests": {"key": wanted}}, EMPTY)
    async with connected(peer, sampling=sampling()) as client:
        result = await client.request("tools/call", {"name": "x", "arguments": {}})

    assert result == EMPTY
    assert peer.received[-1]["params"]["inputResponses"]["key"]["content"] == {"type": "text", "text": "Paris"}


# Notifications of ours


async def test_any_notification_can_be_sent(era: Era) -> None:
    async def script(peer: ScriptedPeer) -> None:
        await era.open(peer)
        await peer.receive()
        await peer.receive()
        all_heard.set()

    peer = ScriptedPeer(script)
    all_heard = anyio.Event()
    async with connected(peer) as client:
        await client.notify("notifications/acme/moved", {"to": [1, 2]})
        await client.notify("notifications/acme/stopped")
        await all_heard.wait()

    assert era.said_to(peer) == [
        {"jsonrpc": "2.0", "method": "notifications/acme/moved", "params": {"to": [1, 2]}},
        {"jsonrpc": "2.0", "method": "notifications/acme/stopped", "params": {}},
    ]


async def test_a_notification_passes_the_middleware_as_a_request_with_an_empty_result() -> None:
    seen: list[tuple[str, Wire]] = []

    async def token(request: AnyRequest, call_next: CallNext) -> Wire:
        assert isinstance(request, ClientRequest)
        result = await call_next(request.with_headers({"X-User": "ada"}).with_params(more=True))
        seen.append((request.method, result))
        return result

    site = Site(**{"notifications/acme/moved": lambda message: httpx.Response(202)})
    async with site.connected(middleware=[token]) as client:
        seen.clear()
        await client.notify("notifications/acme/moved", {"to": 1})

    assert seen == [("notifications/acme/moved", {})]
    assert site.posts[-1].headers["x-user"] == "ada"
    assert b'"params":{"to":1,"more":true}' in site.posts[-1].content


@on_both
@pytest.mark.fake_clock
async def test_a_notification_that_nothing_takes_times_out() -> None:
    class Hanging(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            if b"acme" in await request.aread():
                await anyio.sleep_forever()
            return site(request)

    site = Site()
    transport = StreamableHttp("http://server.test/mcp", client=httpx.AsyncClient(transport=Hanging()))
    async with connected(transport, within=100) as client:
        with pytest.raises(RequestTimeout) as caught:
            await client.notify("notifications/acme/x", timeout=3)

    assert str(caught.value) == "notifications/acme/x: took longer than 3 s (timeout)"
