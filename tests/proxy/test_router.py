"""Several servers as one, for a host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from anyio import Event, create_task_group, current_time, fail_after, sleep, sleep_forever, wait_all_tasks_blocked

from mcp_host import Client, Deny, Elicitation, FormRequest, Limits, Stdio, ToolPins, ToolPolicy
from mcp_host.errors import McpError, ResourceNotFound, ServerError
from mcp_host.group import ServerOptions, group_name
from mcp_host.middleware import AnyRequest, CallNext
from mcp_host.proxy import Proxy, allow_tools, ask_host
from mcp_host.proxy.router import ANSWER_TIMEOUT, WAIT
from mcp_host.proxy.upstream import UNWRITABLE
from mcp_host.serving.errors import RequestError
from mcp_host.serving.remote_client import RemoteClient
from mcp_host.testing import Context, ScriptedPeer, Server
from mcp_host.types import (
    ClientCapabilities,
    ElicitRequestURLParams,
    ElicitResult,
    Implementation,
    PromptReference,
    ResourceTemplateReference,
)
from tests.extent import on_both
from tests.group.support import METHOD_NOT_FOUND, Node
from tests.proxy.servers import ERAS, Planner, model_of, text_of, through
from tests.proxy.test_mirrored import annotated
from tests.proxy.test_tools import RESULT, Shop, of_result
from tests.testing import raw
from tests.transports.http_peers import Log

each_host = pytest.mark.parametrize("host", ["legacy", "modern"])
in_no_time = pytest.mark.fake_clock

NOWHERE = Stdio(["/no/such/program"])


def planners() -> dict[str, Planner]:
    """One of each era."""
    return {"old": Planner(ERAS["legacy"]), "new": Planner(ERAS["modern"])}


async def refused(client: Client, method: str, params: Mapping[str, object] | None = None) -> str:
    with pytest.raises(ServerError) as failed:
        await client.request(method, params)
    return failed.value.message


# What they offer


@each_host
async def test_a_host_sees_the_tools_of_all_under_the_names_of_a_group(host: str) -> None:
    """Of all pages, as their servers define them, and calls reach the servers as the host has written them."""
    shops = {"my shop": Shop("legacy"), "b": Shop("modern")}
    async with through(Proxy({name: shop.peer for name, shop in shops.items()}), host) as client:
        listed = of_result(await client.request("tools/list"))["tools"]
        for name in shops:
            params = {"name": group_name(name, "add"), "arguments": {"a": 1}, "extra": 2}
            assert of_result(await client.request("tools/call", params)) == RESULT
        unknown = [await refused(client, "tools/call", {"name": name}) for name in ("add", "c__add", "b__nothing")]

    tools = [*shops["b"].first, *shops["b"].second]
    assert listed == [{**tool, "name": group_name(name, tool["name"])} for name in shops for tool in tools]
    for shop in shops.values():
        assert shop.asked("tools/call") == [{"name": "add", "arguments": {"a": 1}, "extra": 2}]
    assert unknown == [
        "'add' is of none of the servers 'my shop', 'b'",
        "'c__add' is of none of the servers 'my shop', 'b'",
        "ToolPolicy lets no tool 'b__nothing' of this server through",
    ]


@each_host
async def test_prompts_completions_and_what_they_say_of_themselves(host: str) -> None:
    proxy = Proxy({**planners(), "silent": Node()}, name="all of them")
    async with through(proxy, host) as client:
        assert client.instructions == "\n\n".join(
            f'How the server "{name}" describes its use, in its own words:\n\n> Plan well.' for name in ("old", "new")
        )
        assert client.server_info.name == "all of them"
        assert {*client.server_capabilities.to_wire()} == {"tools", "prompts", "resources", "completions", "logging"}
        prompts = [prompt.name for prompt in await client.list_prompts()]
        assert prompts == ["old__invite", "new__invite", group_name("silent", "ask.me"), "silent__greet"]
        [message] = (await client.get_prompt("new__invite", {"guest": "Ada"})).messages
        assert message.content.to_wire() == {"type": "text", "text": "Dear Ada"}
        [message] = (await client.get_prompt(prompts[2])).messages
        assert message.content.to_wire()["text"] == "a node: ask.me"
        completed = await client.complete(PromptReference(name="old__invite"), "guest", "Al")
        assert completed.completion.values == ["Alan"]
        wrong = {"ref": {"type": "ref/tool"}, "argument": {"name": "a", "value": ""}}
        assert "does not say which server it is for" in await refused(client, "completion/complete", wrong)


@each_host
async def test_a_host_need_not_have_listed_a_prompt_that_it_asks_for(host: str) -> None:
    """Another process may have listed it. That of a server which lists none goes by what is left of its name."""
    nodes = {"a": Node(), "b": Node()}
    nodes["b"].errors["prompts/list"] = (-32603, "not now")
    async with through(Proxy(nodes), host) as client:
        for name, own in ((group_name("a", "ask.me"), "ask.me"), ("a__greet", "greet"), ("b__greet", "greet")):
            [message] = (await client.get_prompt(name)).messages
            assert message.content.to_wire()["text"] == f"a node: {own}"
    assert [node.heard("prompts/list") for node in nodes.values()] == [1, 1]


class Library(Node):
    """A server of the resource *uri*, of a template and of a tool whose results link to another one."""

    def __init__(self, name: str, uri: str) -> None:
        super().__init__("find", name=name)
        self.results = {
            "resources/list": {"resources": [{"name": "r", "uri": uri}, {"name": "both", "uri": "all:1"}]},
            "resources/templates/list": {"resourceTemplates": [{"name": "t", "uriTemplate": f"{name}:page/{{n}}"}]},
            "tools/call": {"content": [{"type": "resource_link", "name": "l", "uri": f"linked:{name}"}]},
        }


@each_host
async def test_a_resource_is_read_from_its_server(host: str) -> None:
    """It lists it, has linked to it, or has a template for it; of two that list it, the first."""
    libraries = {name: Library(name, f"{name}:1") for name in ("a", "b")}
    async with through(Proxy({**libraries, "c": Shop().peer}), host) as client:

        async def read(uri: str) -> object:
            [contents] = (await client.read_resource(uri)).contents
            return contents.to_wire()["text"]

        assert await read("b:1") == "b: b:1"  # though the host has listed nothing
        assert [item.uri for item in await client.list_resources()] == ["a:1", "all:1", "b:1"]
        assert await read("all:1") == "a: all:1"
        assert await read("b:page/3") == "b: b:page/3"
        with pytest.raises(ResourceNotFound, match="no server lists the resource 'linked:b'"):
            await read("linked:b")
        await client.call_tool("b__find")
        assert await read("linked:b") == "b: linked:b"
        templates = [template.uri_template for template in await client.list_resource_templates()]
        assert templates == ["a:page/{n}", "b:page/{n}"]
        completed = await client.complete(ResourceTemplateReference(uri="b:page/{n}"), "n", "")
        assert completed.completion.values == ["b: b:page/{n}"]


@each_host
async def test_a_resource_of_a_server_that_does_not_list_now_is_read_from_no_other(host: str) -> None:
    libraries = {name: Library(name, f"{name}:1") for name in ("a", "b")}
    libraries["b"].results["resources/templates/list"] = {"resourceTemplates": [{"name": "t", "uriTemplate": "{+any}"}]}
    async with through(Proxy(libraries), host) as client:
        assert [item.uri for item in await client.list_resources()] == ["a:1", "all:1", "b:1"]
        await client.list_resource_templates()
        libraries["a"].errors["resources/list"] = (-32603, "not now")
        assert [item.uri for item in await client.list_resources()] == ["b:1"]
        [contents] = (await client.read_resource("a:1")).contents
        assert contents.to_wire()["text"] == "a: a:1"


async def test_a_host_need_not_have_listed_the_resources_that_it_listens_to() -> None:
    """They are listed for it. What a server asks meanwhile is refused: a host of 2026-07-28 is asked within calls only."""
    answers: list[Any] = []

    def peer(uri: str) -> ScriptedPeer:
        async def script(peer: ScriptedPeer) -> None:
            await peer.answer_initialize(capabilities={"resources": {"subscribe": True}})
            listing = await peer.receive("resources/list")
            answers.append(await peer.request("roots/list"))
            await peer.reply(listing, {"resources": [{"uri": uri, "name": "x"}]})
            await peer.reply(await peer.receive("resources/templates/list"), {"resourceTemplates": []})
            await peer.reply(await peer.receive("resources/subscribe"), {})

        return ScriptedPeer(script)

    uris = ["mem://a", "mem://b", "mem://c"]
    proxy = Proxy({uri[-1]: peer(uri) for uri in uris[:2]})
    async with raw.modern(proxy) as host:
        await host.request("subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}})
        acknowledged = await host.receive()
    await proxy.aclose()
    assert acknowledged["params"]["notifications"] == {"resourceSubscriptions": uris[:2]}
    assert [answer["error"]["message"] for answer in answers] == ["the client cannot be asked now"] * 2


@each_host
async def test_a_resource_that_no_server_lists_is_that_of_the_only_one_with_resources(host: str) -> None:
    async with through(Proxy({"a": Shop().peer, "b": Library("b", "b:1")}), host) as client:
        [contents] = (await client.read_resource("elsewhere:1")).contents
        assert contents.to_wire()["text"] == "b: elsewhere:1"


@on_both
@each_host
async def test_changes_of_all_are_announced(host: str) -> None:
    servers = planners()
    for name, server in servers.items():
        server.resource(f"mem://{name}")(lambda: "")
    heard: list[dict[str, Any]] = []
    changed = Event()

    async def change(change: Any) -> None:
        nonlocal changed
        heard.append(change.to_wire())
        changed.set()
        changed = Event()

    async with through(Proxy(servers), host, on_change=change) as client:
        assert len(await client.list_resources()) == 3  # so it is known where they are
        await client.subscribe_resource("mem://old")
        await client.subscribe_resource("mem://new")
        for name, server in servers.items():
            seen = changed
            await server.notify_resource_updated(f"mem://{name}")
            await seen.wait()
        seen = changed
        await servers["new"].notify_prompts_changed()
        await seen.wait()
        await client.unsubscribe_resource("mem://old")
        with pytest.raises(McpError, match="did not agree" if host == "modern" else "no server lists the resource"):
            await client.subscribe_resource("mem://nothing")
    updated = [{"method": "notifications/resources/updated", "params": {"uri": f"mem://{name}"}} for name in servers]
    assert [{key: each[key] for key in each if key != "jsonrpc"} for each in heard] == [
        *updated,
        {"method": "notifications/prompts/list_changed"},
    ]


@each_host
async def test_the_host_chooses_the_level_of_the_log_of_all(host: str, caplog: pytest.LogCaptureFixture) -> None:
    logged: list[object] = []

    async def log(message: Any) -> None:
        logged.append(message.data)

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"logging": {}})
        while True:
            await peer.reply_error(await peer.receive("logging/setLevel"), -32603, "no level")

    proxy = Proxy({**planners(), "deaf": ScriptedPeer(script), "silent": Shop().peer})
    async with through(proxy, host, on_log=log) as client:
        await client.set_log_level("error")
        for name in ("old", "new"):
            for level in ("warning", "error"):
                await client.call_tool(f"{name}__note", {"level": level})
    assert logged == ["error", "error"]
    failed = "deaf: its log level cannot be set: no level"
    assert [text for text in caplog.messages if "level" in text] == ([failed] if host == "legacy" else [])


# Servers that are down, slow or wrong


@on_both
@in_no_time
@each_host
async def test_a_server_that_is_down_is_left_out_until_it_is_back(host: str, caplog: pytest.LogCaptureFixture) -> None:
    node = Node("x")
    node.up = False
    changed = Event()

    async def change(change: object) -> None:
        changed.set()

    proxy = Proxy({"down": node, "up": Node("x")})
    with fail_after(200):
        async with Client(proxy, era=host, on_change=change) as client:
            assert [tool.name for tool in await client.list_tools()] == ["up__x"]
            with pytest.raises(ServerError, match="down failed: RuntimeError: down"):
                await client.call_tool("down__x")
            await sleep(20)
            tried = node.opened
            assert [tool.name for tool in await client.list_tools()] == ["up__x"]
            assert node.opened == tried
            node.up = True
            await changed.wait()
            assert [tool.name for tool in await client.list_tools()] == ["down__x", "up__x"]
            assert text_of(await client.call_tool("down__x")) == "a node: x"
        await proxy.aclose()
    assert caplog.messages == ["down: down failed: RuntimeError: down"]


@on_both
@in_no_time
@each_host
async def test_a_server_that_hangs_is_not_waited_for_longer_than_a_group_does(host: str) -> None:
    began = current_time()
    with fail_after(60):
        async with Client(proxy := Proxy({"hangs": Node("x", hangs=True), "good": Node("x")}), era=host) as client:
            assert current_time() == pytest.approx(began + WAIT)
            assert [tool.name for tool in await client.list_tools()] == ["good__x"]
            assert current_time() == pytest.approx(began + WAIT)
        await proxy.aclose()
        assert current_time() == pytest.approx(began + WAIT, abs=4)


@in_no_time
@each_host
async def test_a_server_that_is_slow_alone_is_waited_for(host: str) -> None:
    async def script(peer: ScriptedPeer) -> None:
        await sleep(3 * WAIT)
        await peer.answer_initialize(capabilities={"tools": {}})
        await peer.reply(await peer.receive("tools/list"), {"tools": []})

    dead = Node()
    dead.up = False
    with fail_after(60):
        async with Client(proxy := Proxy({"slow": ScriptedPeer(script), "dead": dead}), era=host) as client:
            assert await client.list_tools() == []
        await proxy.aclose()


@each_host
async def test_if_all_are_down_the_host_is_told_why(host: str) -> None:
    node = Node()
    node.up = False
    with fail_after(25):
        with pytest.raises(McpError, match=r"a: cannot start '/no/such/program'.*; b failed: RuntimeError: down"):
            async with Client(proxy := Proxy({"a": NOWHERE, "b": node}), era=host):
                pass
        await proxy.aclose()


DEEP, ENDLESS = b'{"a":' * 600 + b"1" + b"}" * 600, b'{"a":1e999}'


def verbose(part: str, words: bytes) -> ScriptedPeer:
    """A server with a tool "good" that says something of its own in *part* of what it offers, a tool among it."""
    said = {name: words if name == part else b"{}" for name in ("tool", "experimental", "info")}

    async def script(peer: ScriptedPeer) -> None:
        await peer.reply_error(await peer.receive("server/discover"), *METHOD_NOT_FOUND)
        first = await peer.receive("initialize")
        declared = b'{"tools":{},"experimental":{"of":%(experimental)s}}' % {b"experimental": said["experimental"]}
        info = b'{"name":"v","version":"1","of":%s}' % said["info"]
        result = b'{"protocolVersion":"2025-11-25","capabilities":%s,"serverInfo":%s}' % (declared, info)
        await peer.send_raw(b'{"jsonrpc":"2.0","id":%d,"result":%s}' % (first["id"], result))
        while True:
            asked = await peer.receive("tools/list")
            tools = b'{"name":"good","inputSchema":{}},{"name":"other","inputSchema":%s}' % said["tool"]
            await peer.send_raw(b'{"jsonrpc":"2.0","id":%d,"result":{"tools":[%s]}}' % (asked["id"], tools))

    return ScriptedPeer(script)


@pytest.mark.fault("J13", "T05")
@each_host
async def test_what_a_server_says_of_itself_and_cannot_be_passed_on_is_left_out(
    host: str, subtests: pytest.Subtests, caplog: pytest.LogCaptureFixture
) -> None:
    """A host could not connect, or see any tool, also of the other servers."""
    for part in ("tool", "experimental", "info"):
        for words in (DEEP, ENDLESS):
            with subtests.test(part, words=words[:20]):
                async with through(Proxy({"one": verbose(part, words), "other": verbose(part, words)}), host) as client:
                    listed = [tool.name for tool in await client.list_tools()]
                async with through(Proxy(verbose(part, words)), host) as client:
                    alone = [tool.name for tool in await client.list_tools()]
                expected = ["good"] if part == "tool" else ["good", "other"]
                assert alone == expected
                assert listed == [f"{server}__{name}" for server in ("one", "other") for name in expected]
    assert {text.partition(": ")[2] for text in caplog.messages if "left out" in text} == {
        f"1 of its tools are left out: {UNWRITABLE}",
        f"some of its capabilities are left out: {UNWRITABLE}",
    }


@in_no_time
async def test_a_server_that_does_not_set_its_level_keeps_it_from_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async def deaf(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"logging": {}})
        await sleep_forever()

    async def good(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"logging": {}})
        await peer.reply(await peer.receive("logging/setLevel"), {})
        set_level.set()

    set_level = Event()
    with fail_after(100):
        async with Client(
            proxy := Proxy({"deaf": ScriptedPeer(deaf), "good": ScriptedPeer(good)}), era="legacy"
        ) as client:
            await client.set_log_level("error")
            await set_level.wait()
        await proxy.aclose()
    assert "deaf: its log level cannot be set: no answer within 20 seconds" in caplog.messages


@in_no_time
@each_host
async def test_a_list_that_a_server_does_not_give_is_left_out(host: str, caplog: pytest.LogCaptureFixture) -> None:
    class Waiting(Node):
        async def reply(self, request: dict[str, Any], result: Mapping[str, Any]) -> None:
            if request["method"] == "resources/list":
                await sleep(2 * ANSWER_TIMEOUT)
            await super().reply(request, result)

    nodes = {"good": Node(), "refuses": Node(), "waits": Waiting(), "none": Node()}
    nodes["refuses"].errors["resources/list"] = (-32603, "not now")
    nodes["none"].errors["resources/list"] = METHOD_NOT_FOUND
    with fail_after(100):
        async with Client(proxy := Proxy(nodes), era=host) as client:
            assert [item.name for item in await client.list_resources()] == ["r"]
            nodes["good"].errors["resources/list"] = (-32603, "no more")
            assert await client.list_resources() == []
            nodes["none"].errors["resources/list"] = (-32603, "nor here")
            with pytest.raises(ServerError, match="no more"):
                await client.list_resources()
        await proxy.aclose()
    said = {text for text in caplog.messages if "is left out" in text}
    assert said >= {
        "refuses: what resources/list lists is left out: not now",
        "waits: what resources/list lists is left out: no answer within 20 seconds",
    }


@each_host
async def test_a_list_for_which_middleware_fails_is_left_out(host: str, caplog: pytest.LogCaptureFixture) -> None:
    """Its own timeout is not that of the proxy."""

    async def fails(request: AnyRequest, call_next: CallNext) -> dict[str, Any]:
        if request.method == "resources/list" and request.server == "bad":
            raise TimeoutError("of the audit log")
        return await call_next(request)

    with fail_after(100):
        async with Client(proxy := Proxy({"good": Node(), "bad": Node()}, middleware=[fails]), era=host) as client:
            assert [item.name for item in await client.list_resources()] == ["r"]
        await proxy.aclose()
    assert "bad: what resources/list lists is left out: Internal error" in caplog.messages
    [failure] = [record for record in caplog.records if record.message == "bad: resources/list failed"]
    assert failure.exc_info is not None
    assert str(failure.exc_info[1]) == "of the audit log"


@on_both
async def test_a_host_over_http_repeats_the_parameters_that_headers_have() -> None:
    call = raw.with_meta(raw.call(1, "a__find", arguments={"region": "south"}), {})
    headers = {"mcp-protocol-version": raw.MODERN, "mcp-method": "tools/call", "mcp-name": "a__find"}
    headers["accept"] = "application/json, text/event-stream"
    with fail_after(25):
        async with Proxy({"a": annotated("legacy")}).http() as url, httpx.AsyncClient() as http:
            async with Client(url, era="modern") as client:
                assert [tool.name for tool in await client.list_tools()] == ["a__find"]
                assert text_of(await client.call_tool("a__find", {"region": "north"})) == "north"
            assert (await http.post(url, json=call, headers=headers)).status_code == 400
            unknown = call | {"params": call["params"] | {"name": "b__find"}}
            response = await http.post(url, json=unknown, headers=headers | {"mcp-name": "b__find"})
            assert "is of none of the servers 'a'" in response.text


def test_a_host_has_no_requests_of_the_other_era() -> None:
    router = Proxy({"a": Shop().peer})._service
    for method, version in (("server/discover", "2025-11-25"), ("resources/subscribe", "2026-07-28")):
        host = RemoteClient(Implementation(name="host", version="1"), ClientCapabilities(), version)
        with pytest.raises(RequestError, match=f"Method not found: {method}"):
            router.find(method, {"uri": "r:1"}, host)


@on_both
async def test_a_host_without_a_handshake_need_not_have_asked_for_anything_before_it_calls_a_tool() -> None:
    with fail_after(25):
        async with Proxy({"a": Shop().peer, "b": Shop().peer}).http() as url, Client(url, era="modern") as client:
            params = {"name": "b__add", "arguments": {}}
            assert of_result(await client.request("tools/call", params)) == RESULT
            assert "does not say which server it is for" in await refused(client, "x/echo")


# What they ask


@each_host
async def test_a_call_of_one_server_allows_no_other_the_model(host: str) -> None:
    """Nor does the same name of a tool; patterns are of the names that the host sees."""
    sampling = model_of("proxy", approve=allow_tools("old__*", "write", otherwise=lambda request: Deny("no")))
    async with through(Proxy(planners(), sampling=sampling), host) as client:
        assert text_of(await client.call_tool("old__write")) == "proxy after 0"
        denied = await refused_or_error(client, "new__write")
    assert "no" in denied


async def refused_or_error(client: Client, tool: str) -> str:
    try:
        result = await client.call_tool(tool)
    except McpError as exc:
        return str(exc)
    assert result.is_error
    return str(result.text)


async def test_a_server_that_asks_while_another_is_called_has_no_call_that_allows_it() -> None:
    answers: list[dict[str, Any]] = []
    done = Event()
    message = {"role": "user", "content": {"type": "text", "text": "?"}}

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"tools": {}})
        await planner.started.wait()
        answers.append(await peer.request("sampling/createMessage", {"messages": [message], "maxTokens": 1}))
        done.set()

    planner = Planner(ERAS["legacy"])
    sampling = model_of("proxy", approve=allow_tools("*", otherwise=lambda request: Deny("not in a call")))
    proxy = Proxy({"a": planner, "b": ScriptedPeer(script)}, sampling=sampling)
    async with through(proxy, "legacy") as client, create_task_group() as tasks:
        tasks.start_soon(client.call_tool, "a__wait")
        await done.wait()
        tasks.cancel_scope.cancel()
    assert answers[0]["error"]["message"] == "not in a call"


@each_host
async def test_forms_name_their_server(host: str) -> None:
    """Those of the proxy do so by themselves."""
    asked: list[str] = []

    async def fill_in(request: FormRequest) -> ElicitResult:
        asked.append(request.message)
        properties: Any = request.requested_schema["properties"]
        content = {"answer": "once"} if "answer" in properties else {"name": "Ada"}
        return ElicitResult(action="accept", content={**content})

    proxy = Proxy(planners(), sampling=model_of("proxy", approve=ask_host))
    async with through(proxy, host, elicitation=Elicitation(form=fill_in)) as client:
        for name in ("old", "new"):
            assert text_of(await client.call_tool(f"{name}__book")) == "accept Ada"
            assert text_of(await client.call_tool(f"{name}__write")) == "proxy after 0"
    assert [asked[0], asked[2]] == ["old: name?", "new: name?"]
    assert ("old" in asked[1], "new" in asked[3]) == (True, True)


async def test_a_notification_of_the_host_goes_to_those_that_declare_it_and_roots_to_all() -> None:
    asked = {name: Event() for name in ("a", "b")}

    def server(name: str) -> ScriptedPeer:
        async def script(peer: ScriptedPeer) -> None:
            await peer.answer_initialize(capabilities={"tools": {}, "experimental": {name: {}}})
            await peer.request("roots/list")
            asked[name].set()
            while True:
                heard[name].append(await peer.receive())

        return ScriptedPeer(script)

    heard = {name: Log[dict[str, Any]]() for name in asked}
    async with through(Proxy({name: server(name) for name in asked}), "legacy", roots=[]) as client:
        for name in asked:
            await asked[name].wait()
        await client.set_roots(["/home/ada/there"])
        await client.notify("a/seen", {})
        await client.notify("c/seen", {})
        await client.notify("tools/call", {"name": "a__wipe"})
        await heard["a"].reaches(lambda heard: len(heard) == 2)
        await heard["b"].reaches(bool)
        await wait_all_tasks_blocked()

    methods = {name: [each["method"] for each in some] for name, some in heard.items()}
    of_all = ["notifications/roots/list_changed"]
    assert methods == {"a": [*of_all, "a/seen"], "b": of_all}


def asking(method: str, params: Mapping[str, object], **capabilities: object) -> ScriptedPeer:
    """A server that makes a request when it is asked for its tools."""

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"tools": {}, **capabilities})
        listing = await peer.receive("tools/list")
        await peer.request(method, params)
        await peer.reply(listing, {"tools": []})
        await peer.receive("nothing")

    return ScriptedPeer(script)


def heard_of(peer: ScriptedPeer, method: str) -> list[object]:
    """The params of each such message that it got."""
    return [each["params"] for each in peer.received if each.get("method") == method]


async def test_progress_goes_to_the_server_that_asked_and_tokens_of_two_do_not_collide() -> None:
    """ "Progress tokens [...] MUST be unique across all active requests", and each server has chosen its own."""
    tokens = {"a": 1, "b": 1, "c": "1"}
    servers = {name: asking("roots/list", {"_meta": {"progressToken": token}}) for name, token in tokens.items()}
    proxy = Proxy(servers)
    async with raw.legacy(proxy) as host:
        await host.request("tools/list")
        asked = [await host.receive() for _ in servers]
        given = [each["params"]["_meta"]["progressToken"] for each in asked]
        for step, token in enumerate([*given, 1, "a__x", "d__1", "a", [], *given]):
            await host.notify("notifications/progress", {"progressToken": token, "progress": step})
        await host.notify("notifications/progress", {"progress": 1})
        for each in asked:
            await host.reply(each, {"roots": []})
        await host.receive()
        await wait_all_tasks_blocked()
    await proxy.aclose()
    assert len({*given}) == 3
    of_servers = [name for token in given for name in servers if token.startswith(f"{name}__")]
    for name, server in servers.items():
        steps = [of_servers.index(name), of_servers.index(name) + 8]
        reports = [{"progressToken": tokens[name], "progress": step} for step in steps]
        assert heard_of(server, "notifications/progress") == reports


async def test_what_becomes_of_a_task_goes_to_the_only_server_that_can_have_it() -> None:
    """Nothing says whose it is: of several servers with tasks, none is told."""
    for others, told in (dict[str, object](), 1), ({"tasks": {}}, 0):
        servers = {"a": asking("ping", {}, tasks={}), "b": asking("ping", {}, **others)}
        proxy = Proxy(servers)
        async with raw.legacy(proxy) as host:
            await host.result("tools/list")
            await host.notify("notifications/tasks/status", {"taskId": "t", "status": "working"})
            await wait_all_tasks_blocked()
        await proxy.aclose()
        assert [len(heard_of(server, "notifications/tasks/status")) for server in servers.values()] == [told, 0]


async def test_the_ids_of_elicitations_of_two_servers_do_not_collide() -> None:
    """An id "MUST be unique" for a server, and the host sees one: in requests, in the error -32042, and when it is done."""
    url = ElicitRequestURLParams(message="Pay", url="https://pay.test/", elicitation_id="e1")

    def server() -> Server:
        server = Server("shop", versions=ERAS["legacy"])

        @server.tool
        async def pay(context: Context) -> None:
            await context.elicit_url("Pay", "https://pay.test/", "e1")
            await context.elicit_complete("e1")
            raise RequestError.url_required("not paid", url)

        return server

    proxy = Proxy({"a": server(), "b": server()})
    seen = list[dict[str, Any]]()
    async with raw.legacy(proxy) as host:
        for name in ("a", "b"):
            await host.start(f"{name}__pay")
            request = await host.receive()
            await host.reply(request, {"action": "accept"})
            complete, refused = await host.receive(), await host.receive()
            assert refused["error"]["data"] == {"elicitations": [request["params"]]}
            assert complete["params"] == {"elicitationId": request["params"]["elicitationId"]}
            seen.append(request["params"])
    await proxy.aclose()
    assert [each["message"] for each in seen] == ["a: Pay", "b: Pay"]
    assert len({each["elicitationId"] for each in seen}) == 2


@each_host
async def test_a_method_that_is_not_known_goes_to_the_only_server_that_declares_it(host: str) -> None:
    def peer(*experimental: str) -> ScriptedPeer:
        async def script(peer: ScriptedPeer) -> None:
            await peer.answer_initialize(capabilities={"experimental": {name: {} for name in experimental}})
            while True:
                request = await peer.receive()
                if "id" in request:
                    await peer.reply(request, {"unknown": request["params"]["unknown"], "of": peer.name})

        return ScriptedPeer(script, name="/".join(experimental))

    async with through(Proxy({"a": peer("x", "y"), "b": peer("y")}), host) as client:
        echoed = of_result(await client.request("x/echo", {"unknown": [1, {"a": None}]}))
        assert echoed == {"unknown": [1, {"a": None}], "of": "x/y"}
        for method, servers in (("y/echo", "'a', 'b'"), ("z/echo", "none")):
            says = f"{method} does not say which server it is for. Those that may know it are: {servers}"
            assert await refused(client, method) == says
    async with through(Proxy({"a": peer()}), host) as client:
        assert of_result(await client.request("x/echo", {"unknown": 1})) == {"unknown": 1, "of": ""}


# What it is made with


async def test_the_tools_of_all_may_be_chosen_and_pinned_and_those_of_each() -> None:
    shops, pins = {name: Shop() for name in ("a", "b", "off")}, ToolPins()
    servers: dict[str, Any] = {
        "a": ServerOptions(shops["a"].peer, tools=ToolPolicy(allow={"add", "wipe"}), limits=Limits(timeout=7)),
        "b": shops["b"].peer,
        "off": ServerOptions(shops["off"].peer, enabled=False),
    }
    policy = ToolPolicy(allow=lambda tool: tool.name.endswith("__add"), pins=pins)
    async with through(Proxy(servers, tools=policy), "legacy") as client:
        assert [tool.name for tool in await client.list_tools()] == ["a__add", "b__add"]
    assert {name: list(tools) for name, tools in pins.servers().items()} == {"a": ["add"], "b": ["add"]}
    assert shops["off"].peer.received == []


def test_what_several_servers_cannot_be_made_with(subtests: pytest.Subtests) -> None:
    twice: dict[str, Any] = {"a b": ["x"], "a_b_c8687a08": ["x"]}
    rows: list[tuple[dict[str, Any], ToolPolicy | None, str]] = [
        ({}, None, "there are no servers"),
        ({"a": ServerOptions(["x"], enabled=False)}, None, "there are no servers"),
        (twice, None, "the servers 'a b' and 'a_b_c8687a08' would have tools of the same names"),
        ({"a": ["x"]}, ToolPolicy(rename={"a": "b"}), "several servers have the names of a group"),
        ({"": ["x"]}, None, "name"),
    ]
    for servers, tools, says in rows:
        with subtests.test(says), pytest.raises(ValueError, match=says):
            Proxy(servers, tools=tools)
    assert Proxy({"a": ["x"]}).name == "mcp-host"
