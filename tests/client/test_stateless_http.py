"""Revision 2026-07-28 over HTTP: what each POST says, what a refusal means, and what a broken stream costs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
import pytest

from mcp_host import Change, Client, EraCache, StreamableHttp
from mcp_host.errors import (
    CallerError,
    ConnectFailed,
    ConnectionClosed,
    HeaderMismatch,
    HttpStatusError,
    MissingRequiredClientCapability,
    NoCommonVersion,
    ProtocolError,
    RequestTimeout,
    ResourceNotFound,
    ServerError,
    Unauthorized,
    UnsupportedProtocolVersion,
)
from mcp_host.types import PromptReference, ToolListChangedNotification
from tests.client.sites import (
    BROKEN,
    DISCOVERED,
    MIRRORED,
    PLAIN,
    SAFE,
    Site,
    handshake,
    mirrored_headers,
    refused,
    response,
    streamed,
)
from tests.client.support import EMPTY, INITIALIZED, connected
from tests.clock import advance
from tests.extent import on_both
from tests.transports.http_peers import EVENTS, JSON, Peer, Wire, head, serving


async def test_every_post_says_in_headers_what_a_gateway_looks_for() -> None:
    site = Site(
        tools_call=EMPTY, resources_read={"contents": []}, prompts_get={"messages": []}, tools_list={"tools": []}
    )

    async with site.connected() as client:
        await client.list_tools()
        await client.call_tool("grüß")
        await client.read_resource("file:///a b")
        await client.get_prompt("p")

    version = {"mcp-protocol-version": "2026-07-28"}
    assert [mirrored_headers(post) for post in site.posts] == [
        version | {"mcp-method": "server/discover"},
        version | {"mcp-method": "tools/list"},
        version | {"mcp-method": "tools/call", "mcp-name": "=?base64?Z3LDvMOf?="},
        version | {"mcp-method": "resources/read", "mcp-name": "file:///a b"},
        version | {"mcp-method": "prompts/get", "mcp-name": "p"},
    ]


async def test_annotated_parameters_are_repeated_in_headers_once_the_tool_is_listed() -> None:
    """An argument that no header may carry is refused here."""
    site = Site(tools_list={"tools": [MIRRORED]}, tools_call=EMPTY)

    async with site.connected() as client:
        await client.list_tools()
        await client.call_tool("query", {"region": "Zürich", "deep": {"n": 42}})
        await client.call_tool("query", {"region": None})
        with pytest.raises(CallerError, match="header"):
            await client.call_tool("query", {"deep": {"n": 2**53}})

    with_both, without = (mirrored_headers(post) for post in site.posts[2:])
    assert (with_both["mcp-param-region"], with_both["mcp-param-n"]) == ("=?base64?WsO8cmljaA==?=", "42")
    assert not any(name.startswith("mcp-param-") for name in without)


@pytest.mark.fault("T15")
async def test_a_tool_whose_annotations_are_invalid_is_left_out_with_one_warning() -> None:
    site = Site(tools_list={"tools": [BROKEN, PLAIN]})

    async with site.connected() as client:
        for _ in range(2):
            assert [tool.name for tool in await client.list_tools()] == ["plain"]

        (warning,) = client.warnings
    assert "'broken' is left out" in warning


@pytest.mark.parametrize("is_listed", [False, True], ids=["unlisted", "listed before it was annotated"])
async def test_a_call_that_lacks_headers_is_made_once_more_with_what_the_list_says_now(is_listed: bool) -> None:
    """However fresh the last list is: the call shows that it is not."""
    refusals = [True, False]
    lists = [[PLAIN], [MIRRORED]] if is_listed else [[MIRRORED]]

    def call(message: dict[str, Any]) -> object:
        return refused(400, -32020)(message) if refusals.pop(0) else EMPTY

    site = Site(tools_list=lambda message: {"tools": lists.pop(0), "ttlMs": 60_000}, tools_call=call)
    async with site.connected() as client:
        if is_listed:
            await client.list_tools()
        await client.call_tool("query", {"region": "eu"})

    assert site.methods()[-3:] == ["tools/call", "tools/list", "tools/call"]
    assert site.posts[-1].headers["mcp-param-region"] == "eu"
    assert "mcp-param-region" not in site.posts[-3].headers


async def test_headers_that_stay_wrong_are_an_error_after_one_more_try() -> None:
    site = Site(tools_list={"tools": [MIRRORED]}, tools_call=refused(400, -32020))

    async with site.connected() as client:
        with pytest.raises(HeaderMismatch):
            await client.call_tool("query", {"region": "eu"})

    assert site.methods() == ["server/discover", "tools/call", "tools/list", "tools/call"]


async def test_errors_are_typed_under_any_http_status(subtests: pytest.Subtests) -> None:
    needed: dict[str, Any] = {"requiredCapabilities": {"sampling": {}}}
    supported = {"supported": ["2031-01-01"], "requested": "2026-07-28"}
    rows: list[tuple[int, int, object, type[ServerError], dict[str, object]]] = [
        (400, -32020, None, HeaderMismatch, {"code": -32020}),
        (400, -32021, needed, MissingRequiredClientCapability, {"required_capabilities": {"sampling": {}}}),
        (400, -32022, supported, UnsupportedProtocolVersion, {"supported": ["2031-01-01"]}),
        (400, -32022, None, UnsupportedProtocolVersion, {"supported": []}),
        (400, -32602, {"uri": "a:1"}, ResourceNotFound, {"code": -32602, "message": "no"}),
        (200, -32602, {"uri": "a:1"}, ResourceNotFound, {"code": -32602, "message": "no"}),
        (404, -32601, None, HttpStatusError, {"status": 404, "code": -32601}),
        (200, -32000, None, ServerError, {"code": -32000}),
        (401, -32021, None, Unauthorized, {"status": 401}),
    ]
    for status, code, data, error, attributes in rows:
        with subtests.test(f"{status}, {code}"):
            async with Site(resources_read=refused(status, code, data)).connected() as client:
                with pytest.raises(ServerError) as raised:
                    await client.read_resource("a:1")

            assert type(raised.value) is error
            assert {name: getattr(raised.value, name) for name in attributes} == attributes


# Finding out


async def test_a_server_that_is_not_modern_is_initialized(subtests: pytest.Subtests) -> None:
    answers: list[Callable[[dict[str, Any]], httpx.Response]] = [
        *(lambda message, status=status: httpx.Response(status) for status in (202, 400, 404, 405, 406, 415)),
        lambda message: httpx.Response(400, text="Bad Request: No valid session ID provided"),
        lambda message: httpx.Response(200, json={"jsonrpc": "2.0", "id": message["id"], "result": {}}),
        lambda message: httpx.Response(200, html="<p>hello</p>"),
        refused(200, -32601),
        refused(400, -32600),
        refused(400, -32000),
    ]
    for number, discover in enumerate(answers):
        with subtests.test(f"answer {number}"):
            accepted = {"notifications/initialized": httpx.Response(202)}
            site = Site(server_discover=discover, initialize=handshake, tools_call=EMPTY, **accepted)
            async with site.connected(era_cache=EraCache()) as client:
                await client.call_tool("x")
                assert client.protocol_version == "2025-11-25"

            assert site.methods()[:3] == ["server/discover", "initialize", "notifications/initialized"]


async def test_a_response_that_does_not_tell_the_era_or_none_causes_no_handshake(subtests: pytest.Subtests) -> None:
    def gone(message: object) -> httpx.Response:
        raise httpx.ConnectError("refused")

    answers: list[tuple[Any, type[Exception]]] = [(httpx.Response(401), Unauthorized), (gone, ConnectFailed)]
    for discover, error in answers:
        with subtests.test(ascii(discover)):
            site = Site(server_discover=discover)
            with anyio.fail_after(25), pytest.raises(error):
                await site.client().connect()

            assert site.methods() == ["server/discover"]


async def reply(wire: Wire, request: dict[str, Any], result: object) -> None:
    await wire.reply(200, dict(JSON), response(request, result).content)


async def serve_fresh(wire: Wire) -> None:
    """Serve a stateless server whose word about itself is good for a minute."""
    while True:
        request = (await wire.hear()).rpc
        is_probe = request["method"] == "server/discover"
        await reply(wire, request, DISCOVERED | {"ttlMs": 60_000} if is_probe else EMPTY)


@on_both
async def test_a_discovery_that_is_fresh_serves_the_next_connection_of_the_client() -> None:
    with anyio.fail_after(25):
        async with serving(serve_fresh) as peer:
            client = Client(StreamableHttp(peer.url))
            for _ in range(2):
                async with client:
                    await client.call_tool("x")
                    assert client.server_capabilities.tools is not None

    assert [heard.rpc["method"] for heard in peer.heard] == ["server/discover", "tools/call", "tools/call"]


async def test_with_the_callers_own_client_each_connection_has_a_new_cache() -> None:
    """The caller's HTTP client may have other credentials by then."""
    site = Site(server_discover=DISCOVERED | {"ttlMs": 60_000}, tools_list={"tools": [], "ttlMs": 60_000})
    client = site.client()

    with anyio.fail_after(25):
        for _ in range(2):
            async with client:
                await client.list_tools()

    assert site.methods() == 2 * ["server/discover", "tools/list"]


async def test_a_discovery_is_forgotten_when_the_server_speaks_like_an_older_one() -> None:
    """It has been rolled back: the next connection finds out, however fresh its last word was."""
    rolled_back = False

    async def script(wire: Wire) -> None:
        while True:
            heard = await wire.hear()
            if heard.method != "POST":
                await wire.reply(405)
            elif not rolled_back:
                await reply(wire, heard.rpc, DISCOVERED | {"ttlMs": 60_000_000})
            elif heard.rpc["method"] == "initialize":
                await reply(wire, heard.rpc, INITIALIZED)
            else:
                await wire.reply(202 if "id" not in heard.rpc else 400)

    with anyio.fail_after(25):
        async with serving(script) as peer:
            client = Client(StreamableHttp(peer.url))
            async with client:
                assert client.protocol_version == "2026-07-28"
                rolled_back = True
                with pytest.raises(ConnectionClosed):
                    await client.call_tool("x")
            async with client:
                assert client.protocol_version == "2025-11-25"


async def test_a_modern_server_that_refuses_a_pinned_handshake_is_said_to_be_one() -> None:
    site = Site(initialize=refused(400, -32022, {"supported": ["2026-07-28"]}))

    with anyio.fail_after(25), pytest.raises(NoCommonVersion, match="2026-07-28"):
        await site.client(era="legacy").connect()


async def test_the_cache_is_cleared_when_the_server_asks_for_credentials() -> None:
    statuses = [200, 401, 200]

    def read(message: dict[str, Any]) -> object:
        status = statuses.pop(0)
        return {"contents": [], "ttlMs": 60_000} if status == 200 else httpx.Response(status)

    site = Site(resources_read=read)
    async with site.connected() as client:
        await client.read_resource("a:1")
        with pytest.raises(Unauthorized):
            await client.read_resource("a:2")
        await client.read_resource("a:1")

    assert site.methods().count("resources/read") == 3


# Broken streams


NOTHING: dict[str, Any] = {
    **{name: [] for name in ("contents", "messages", "prompts", "resources", "resourceTemplates")},
    "completion": {"values": []},
}


async def answer_or_break(wire: Wire, breaking: list[str]) -> None:
    """Serve; the first requests of the methods in *breaking* get the beginning of a stream, and its end."""
    while True:
        request = (await wire.hear()).rpc
        method, results = request["method"], {"server/discover": DISCOVERED, "tools/list": {"tools": [SAFE, PLAIN]}}
        if method in breaking:
            breaking.remove(method)
            await wire.say(head(200, {**EVENTS, "connection": "close"}) + b": soon\n\n")
            await wire.end()
            return
        await reply(wire, request, results.get(method, EMPTY | NOTHING))


@asynccontextmanager
async def breaking_site(breaking: list[str]) -> AsyncIterator[tuple[Peer, Client]]:
    """Such a server, and a client that makes a request whose stream broke again without a pause."""
    with anyio.fail_after(25):
        async with serving(lambda wire: answer_or_break(wire, breaking)) as peer:
            client = Client(StreamableHttp(peer.url))
            client._state.retry_delays = (0.0, 0.0, 0.0)
            async with client:
                yield peer, client


@on_both
async def test_a_request_that_may_run_twice_is_repeated_with_a_new_id() -> None:
    requests: dict[str, Callable[[Client], Awaitable[object]]] = {
        "tools/list": lambda client: client.list_tools(),
        "resources/read": lambda client: client.read_resource("a:1"),
        "prompts/get": lambda client: client.get_prompt("p"),
        "prompts/list": lambda client: client.list_prompts(),
        "resources/list": lambda client: client.list_resources(),
        "resources/templates/list": lambda client: client.list_resource_templates(),
        "completion/complete": lambda client: client.complete(PromptReference(name="p"), "a", ""),
        "tools/call": lambda client: client.call_tool("safe"),
    }
    breaking: list[str] = []
    async with breaking_site(breaking) as (peer, client):
        await client.list_tools()
        for method, request in requests.items():
            before = len(peer.heard)
            breaking += [method, method]
            await request(client)

            assert breaking == []
            assert [heard.rpc["method"] for heard in peer.heard[before:]] == [method] * 3
    assert len({heard.rpc["id"] for heard in peer.heard}) == len(peer.heard)


@on_both
async def test_a_call_that_may_not_run_twice_is_not_repeated() -> None:
    breaking = ["tools/call"]

    async with breaking_site(breaking) as (peer, client):
        await client.list_tools()
        with pytest.raises(ConnectionClosed) as raised:
            await client.call_tool("plain")
        assert (client.connected, raised.value.may_have_run) == (True, True)
        assert str(raised.value) == f"{peer.url}: the stream ended before the response"  # and no remedy
        await client.call_tool("plain")

    assert [heard.rpc["method"] for heard in peer.heard].count("tools/call") == 2


@on_both
@pytest.mark.adjustable_clock
async def test_leaving_the_stream_cancels_without_a_notification() -> None:
    left = anyio.Event()

    async def script(wire: Wire) -> None:
        await reply(wire, (await wire.hear()).rpc, DISCOVERED)
        await wire.hear()
        await wire.events(b": working\n\n")
        advance(60)
        await wire.hung_up()
        left.set()

    async with serving(script) as peer, connected(StreamableHttp(peer.url), within=60 + 10) as client:
        with pytest.raises(RequestTimeout):
            await client.call_tool("x", timeout=60)
        await left.wait()

    assert [heard.rpc["method"] for heard in peer.heard] == ["server/discover", "tools/call"]


@on_both
@pytest.mark.fake_clock
async def test_changes_come_on_the_stream_of_their_subscription_and_again_after_it_broke() -> None:
    streams = [1, 2]

    def listen(message: dict[str, Any]) -> httpx.Response:
        if not streams:
            return httpx.Response(404)
        streams.pop()
        meta = {"io.modelcontextprotocol/subscriptionId": message["id"]}
        acknowledged = {"notifications": message["params"]["notifications"], "_meta": meta}
        return streamed(
            {"method": "notifications/subscriptions/acknowledged", "params": acknowledged},
            {"method": "notifications/tools/list_changed", "params": {"_meta": meta}},
        )

    changes: list[Change] = []
    twice = anyio.Event()

    async def on_change(change: Change) -> None:
        changes.append(change)
        if len(changes) == 2:
            twice.set()

    async with Site(subscriptions_listen=listen).connected(on_change=on_change, within=25):
        await twice.wait()

    assert changes == 2 * [ToolListChangedNotification()]


async def test_a_result_of_an_unknown_type_is_a_protocol_error() -> None:
    site = Site(tools_call={"resultType": "later"})

    async with site.connected() as client:
        with pytest.raises(ProtocolError, match="'later'"):
            await client.call_tool("x")
