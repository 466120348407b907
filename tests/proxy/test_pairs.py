"""What passes through a proxy, for each pair of revisions of the host and of the server."""

from __future__ import annotations

from typing import Any

import pytest
from anyio import Event, create_task_group, fail_after

from mcp_host.errors import ResourceNotFound, ServerError
from mcp_host.proxy import Proxy
from mcp_host.testing import Context, ScriptedPeer
from mcp_host.types import ImageContent, PromptReference, TextContent
from tests.extent import on_both
from tests.proxy.servers import ERAS, PICTURE, Planner, model_of, text_of, through, user
from tests.testing import raw

pytestmark = on_both

HOSTS = ("2025-06-18", "2025-11-25", "2026-07-28", "auto")
PAIRS = [(server, host) for server in ERAS for host in HOSTS]

each_pair = pytest.mark.parametrize(("server", "host"), PAIRS, ids=[f"{server}-{host}" for server, host in PAIRS])


@each_pair
async def test_what_a_server_offers_is_there(server: str, host: str) -> None:
    async with through(Proxy(Planner(ERAS[server])), host) as client:
        assert client.instructions == "Plan well."
        assert client.server_info is not None
        assert client.server_info.name == "planner"
        assert [tool.name for tool in await client.list_tools()][:3] == ["plan", "write", "book"]
        [block] = (await client.call_tool("picture")).content
        assert isinstance(block, ImageContent)
        assert block.data == PICTURE
        [contents] = (await client.read_resource("mem://menu")).contents
        assert contents.to_wire() == {"uri": "mem://menu", "mimeType": "text/plain", "text": "soup"}
        [message] = (await client.get_prompt("invite", {"guest": "Ada"})).messages
        assert message.content == TextContent(text="Dear Ada")
        completed = await client.complete(PromptReference(name="invite"), "guest", "A")
        assert completed.completion.values == ["Ada", "Alan"]


@each_pair
async def test_a_model_of_the_proxy_answers_a_host_that_has_none(server: str, host: str) -> None:
    async with through(Proxy(Planner(ERAS[server]), sampling=model_of("proxy")), host) as client:
        assert text_of(await client.call_tool("plan", {"dinner": "soup"})) == "proxy after 2"
        assert text_of(await client.call_tool("write")) == "proxy after 0"


@each_pair
async def test_the_hosts_own_model_is_asked_where_it_has_one(server: str, host: str) -> None:
    proxy = Proxy(Planner(ERAS[server]), sampling=model_of("proxy"))
    async with through(proxy, host, sampling=model_of("host")) as client:
        knows_tools = client.protocol_version >= "2025-11-25"
        assert (
            text_of(await client.call_tool("plan", {"dinner": "soup"}))
            == f"{'host' if knows_tools else 'proxy'} after 2"
        )
        assert text_of(await client.call_tool("write")) == "host after 0"


@each_pair
async def test_the_user_of_the_host_is_asked_and_hears_of_progress_and_the_log(server: str, host: str) -> None:
    reports: list[str | None] = []
    logged: list[object] = []

    async def log(message: Any) -> None:
        logged.append(message.data)

    async with through(Proxy(Planner(ERAS[server])), host, elicitation=user(), on_log=log) as client:
        result = await client.call_tool("book", on_progress=lambda report: reports.append(report.message))
        assert text_of(result) == "accept Ada"
        if client.protocol_version >= "2025-11-25":
            assert text_of(await client.call_tool("pay")) == "accept"
        assert reports == ["half", "whole"]
        assert logged == ["careful"]


@each_pair
async def test_the_host_chooses_the_level_of_the_log(server: str, host: str) -> None:
    logged: list[object] = []

    async def log(message: Any) -> None:
        logged.append(message.data)

    async with through(Proxy(Planner(ERAS[server])), host, on_log=log) as client:
        for chosen in ("warning", "debug", "error"):
            await client.set_log_level(chosen)
            for level in ("debug", "warning", "error"):
                await client.call_tool("note", {"level": level})
    assert logged == ["warning", "error", "debug", "warning", "error", "error"]


@each_pair
async def test_roots_are_those_of_the_host(server: str, host: str) -> None:
    async with through(Proxy(Planner(ERAS[server])), host, roots=["/home/ada/here"]) as client:
        assert text_of(await client.call_tool("folders")) == '["file:///home/ada/here"]'


@each_pair
async def test_errors_unknown_methods_and_unknown_members_pass_as_they_are(server: str, host: str) -> None:
    async with through(Proxy(Planner(ERAS[server])), host) as client:
        with pytest.raises(ServerError) as refused:
            await client.call_tool("refuse")
        assert (refused.value.code, refused.value.message, refused.value.data) == (-31999, "no", {"why": ["because"]})
        with pytest.raises(ResourceNotFound):
            await client.read_resource("mem://nothing")
        with pytest.raises(ServerError) as unknown:
            await client.request("x/nothing")
        assert unknown.value.code == -32601
        result = await client.request("x/echo", {"unknown": [1, {"a": None}], "_meta": {"test/key": "kept"}})
        assert result["unknown"] == [1, {"a": None}]
        assert result["meta"]["test/key"] == "kept"
        assert {*result} - {"resultType", "_meta"} == {"unknown", "meta"}
        assert ("resultType" in result) == (client.protocol_version == "2026-07-28")


@each_pair
async def test_a_call_that_the_host_cancels_is_cancelled_at_the_server(server: str, host: str) -> None:
    planner = Planner(ERAS[server])
    async with through(Proxy(planner), host) as client, create_task_group() as tasks:
        tasks.start_soon(client.call_tool, "wait")
        await planner.started.wait()
        tasks.cancel_scope.cancel()
    with fail_after(25):
        await planner.cancelled.wait()


@each_pair
async def test_changes_are_announced(server: str, host: str) -> None:
    planner = Planner(ERAS[server])
    heard: list[str] = []
    changed = Event()

    async def change(change: Any) -> None:
        heard.append(change.method)
        changed.set()

    async with through(Proxy(planner), host, on_change=change) as client:
        await client.subscribe_resource("mem://menu")
        await planner.notify_resource_updated("mem://menu")
        await changed.wait()
        changed = Event()
        await planner.notify_tools_changed()
        await changed.wait()
        await client.unsubscribe_resource("mem://menu")
    assert heard == ["notifications/resources/updated", "notifications/tools/list_changed"]


@each_pair
async def test_extensions_are_declared_to_both_sides(server: str, host: str) -> None:
    """But that of tasks, which needs more than to be passed on."""
    planner, declared = Planner(ERAS[server]), list[object]()

    @planner.request_handler("com.example/x")
    async def note(params: dict[str, Any], context: Context) -> dict[str, Any]:
        declared.append(context.client_capabilities.extensions)
        return {}

    extensions: dict[str, Any] = {"com.example/x": {"a": 1}, "io.modelcontextprotocol/tasks": {}}
    async with through(Proxy(planner), host, extensions=extensions) as client:
        await client.request("com.example/x")
    assert declared == [{"com.example/x": {"a": 1}}]


@pytest.mark.parametrize("host", ["legacy", "modern"])
@pytest.mark.parametrize("server", ["legacy", "modern"])
async def test_the_extensions_of_the_server_are_declared_to_the_host(server: str, host: str) -> None:
    extensions = {"com.example/x": {"a": 1}}

    async def script(peer: ScriptedPeer) -> None:
        if server == "legacy":
            await peer.answer_initialize(capabilities={"extensions": extensions})
        else:
            await peer.answer_discover(capabilities={"extensions": extensions})

    async with through(Proxy(ScriptedPeer(script), era=server), host) as client:
        assert client.server_capabilities.extensions == extensions


@pytest.mark.parametrize("host", ["legacy", "modern"])
@pytest.mark.parametrize("server", ["legacy", "modern"])
async def test_what_a_server_says_of_itself_in_unknown_members_passes(server: str, host: str) -> None:
    """But what is of one connection."""
    info, own = {"name": "s", "version": "0"}, "io.modelcontextprotocol/"
    said = {"capabilities": {"x": {"a": 1}}, "x": {"a": [None]}, "_meta": {"test/key": 1, f"{own}protocolVersion": "x"}}
    of_era: dict[str, Any] = {
        "legacy": {"protocolVersion": "2025-11-25", "serverInfo": info, "ttlMs": 5, "resultType": "x"},
        "modern": {"supportedVersions": ["2026-07-28"], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"},
    }

    async def script(peer: ScriptedPeer) -> None:
        await peer.reply(await peer.receive(), said | of_era[server])
        await Event().wait()

    proxy = Proxy(ScriptedPeer(script), era=server)
    async with raw.connect(proxy, lenient=True) as connection:
        if host == "legacy":
            result = await connection.initialize(capabilities={})
        else:
            await connection.send(raw.with_meta(raw.request(1, "server/discover"), {}))
            result = (await connection.receive())["result"]
    await proxy.aclose()
    meta = {key: value for key, value in result["_meta"].items() if key != f"{own}serverInfo"}
    assert (result["capabilities"], result["x"], meta) == ({"x": {"a": 1}}, {"a": [None]}, {"test/key": 1})
    assert ("protocolVersion" in result, result.get("ttlMs", 0)) == (host == "legacy", 0)
