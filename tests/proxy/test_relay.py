"""One host's connection to the server, and what belongs to no call."""

from __future__ import annotations

import sys
import threading
from collections.abc import MutableMapping
from functools import partial
from typing import Any

import httpx
import pytest
from anyio import Event, create_task_group, fail_after, sleep, to_thread, wait_all_tasks_blocked
from anyio.lowlevel import checkpoint
from pydantic_core import to_json

from mcp_host import Client, Elicitation, Stdio
from mcp_host.concurrency.tasks import HandlerTasks
from mcp_host.errors import McpError, ServerError
from mcp_host.middleware import AnyRequest, CallNext, ClientRequest
from mcp_host.protocol.eras import DISCOVER, LISTEN, REMOVED_REQUESTS
from mcp_host.protocol.jsonrpc import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    Id,
    Message,
    Notification,
    Params,
    Request,
    Success,
    decode,
    encode,
)
from mcp_host.proxy import Proxy
from mcp_host.proxy.relay import MAX_EXTENDED, MAX_NOTIFICATIONS, Relay
from mcp_host.proxy.subscriptions import ANSWER_TIMEOUT
from mcp_host.proxy.upstream import Upstream
from mcp_host.serving.errors import RequestError
from mcp_host.serving.remote_client import ReceivedRequest, RemoteClient
from mcp_host.serving.session import Session
from mcp_host.session.changes import Change
from mcp_host.testing import Context, ScriptedPeer
from mcp_host.types import (
    ClientCapabilities,
    Implementation,
    ResourceUpdatedNotification,
    ResourceUpdatedNotificationParams,
)
from tests.client.support import QUESTION, HangingModel, sampling
from tests.client.test_shape import ECHO, counted
from tests.extent import on_both
from tests.proxy.servers import ERAS, Planner, relay_of, text_of, through, user, visit
from tests.testing import raw
from tests.testing.raw_http import repeated
from tests.transports.children import python
from tests.transports.http_peers import Log

pytestmark = on_both

each_era = pytest.mark.parametrize("host", ["legacy", "modern"])

NOWHERE = Stdio(["/no/such/program"])
HEADERS = {"accept": "application/json, text/event-stream"}
ABOUT = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}
INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": ABOUT}


async def unasked(method: str, params: Params) -> Params:
    raise AssertionError(method)


@each_era
async def test_a_server_that_cannot_be_reached_is_an_error_with_a_sentence(host: str) -> None:
    with fail_after(25), pytest.raises(McpError, match=r"/no/such/program.*-32603"):
        async with Client(Proxy(NOWHERE), era=host):
            pass


async def test_over_http_a_session_whose_server_cannot_be_reached_ends() -> None:
    with fail_after(25):
        async with Proxy(NOWHERE).http() as url, httpx.AsyncClient() as http:
            for _ in range(2):
                with pytest.raises(ServerError, match="/no/such/program"):
                    async with Client(url, era="legacy"):
                        pass
            response = await http.post(url, json=INITIALIZE, headers=HEADERS)
            session = {"mcp-session-id": response.headers["mcp-session-id"]}
            again = await http.post(url, json=INITIALIZE, headers=HEADERS | session)
    assert (response.status_code, again.status_code) == (200, 404)


@each_era
@pytest.mark.parametrize("server", ["2025-11-25", "2026-07-28"])
@pytest.mark.backends("trio")  # each row starts two processes; the tests below have servers in process
async def test_a_server_that_ends_in_a_call_is_started_again_for_the_next_and_announced(host: str, server: str) -> None:
    """It may be another version with other contents, and the host knows nothing of its end."""
    announced = list[Change]()
    all_of_it = Event()

    async def take(change: Change) -> None:
        announced.append(change)
        if len(announced) == 3:
            all_of_it.set()

    proxy = Proxy([sys.executable, "-m", "tests.proxy.crashing_server"], era=server)
    async with through(proxy, host, on_change=take) as client:
        await client.subscribe_resource("mem://menu")
        with pytest.raises(ServerError, match="exited with code 3"):
            await client.call_tool("crash")
        assert text_of(await client.call_tool("live")) == "alive"
        await all_of_it.wait()
    *lists, updated = announced
    assert [each.method.split("/")[1:] for each in lists] == [["resources", "list_changed"], ["tools", "list_changed"]]
    assert updated == ResourceUpdatedNotification(params=ResourceUpdatedNotificationParams(uri="mem://menu"))


async def test_a_host_is_told_to_read_again_once_the_server_tells_of_changes_again() -> None:
    """What it reads earlier might change once more before that."""
    heard, before = list[str](), Log[list[str]]()
    told = Event()

    async def take(change: Change) -> None:
        heard.append(change.method)
        if len(heard) == 2:
            told.set()

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"resources": {"subscribe": True}})
        subscribing = await peer.receive("resources/subscribe")
        await wait_all_tasks_blocked()
        before.append([*heard])
        await peer.reply(subscribing, {})
        await peer.receive("x/end")
        raise RuntimeError("the server has crashed")

    peer = ScriptedPeer(script)
    peer.restart = True
    async with through(Proxy(peer), "legacy", on_change=take) as client:
        await client.subscribe_resource("a:1")
        with pytest.raises(ServerError, match="crashed"):
            await client.request("x/end")
        await told.wait()
        await before.reaches(lambda lives: len(lives) == 2)
    assert heard == ["notifications/resources/list_changed", "notifications/resources/updated"]
    assert before == [[], []]


async def test_each_session_over_http_has_a_connection_of_its_own_which_ends_with_it() -> None:
    opened: list[int] = []
    ended: list[int] = []
    one_has_ended = threading.Event()

    async def script(peer: ScriptedPeer) -> None:
        number = len(opened)
        opened.append(number)
        try:
            await peer.answer_initialize()
            await Event().wait()
        finally:
            ended.append(number)
            one_has_ended.set()

    with fail_after(25):
        async with Proxy(ScriptedPeer(script)).http() as url, Client(url, era="legacy"):
            async with Client(url, era="legacy"):
                assert opened == [0, 1]
            await to_thread.run_sync(one_has_ended.wait, 25)  # it runs in another thread
            assert ended == [1]
    assert ended == [1, 0]


async def test_the_era_of_the_server_is_found_out_once() -> None:
    """A server that does not answer what it does not know costs five seconds."""

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize()
        await Event().wait()

    peer = ScriptedPeer(script)
    proxy = Proxy(peer)
    for _ in range(2):
        async with through(proxy, "legacy"):
            pass
    assert [message["method"] for message in peer.received].count(DISCOVER) == 1


async def test_the_revisions_towards_the_server_can_be_chosen() -> None:
    seen = set[object]()

    async def note(request: AnyRequest, call_next: CallNext) -> Params:
        if isinstance(request, ClientRequest) and request.method == "tools/list":
            seen.add(request.protocol_version)
        return await call_next(request)

    async with through(Proxy(Planner(), era="2025-06-18", middleware=[note]), "modern") as client:
        await client.list_tools()
    assert seen == {"2025-06-18"}


async def test_hosts_without_a_handshake_share_a_connection_over_http() -> None:
    opened: list[int] = []

    async def script(peer: ScriptedPeer) -> None:
        opened.append(1)
        await peer.answer_initialize(capabilities={"tools": {}})
        while True:
            await peer.reply(await peer.receive("tools/call"), {"content": [{"type": "text", "text": "hello"}]})

    with fail_after(25):
        async with Proxy(ScriptedPeer(script)).http() as url:
            for _ in range(2):
                async with Client(url, era="modern") as client:
                    assert text_of(await client.call_tool("greet")) == "hello"
    assert opened == [1]


async def test_a_server_that_ignores_the_level_of_the_log_is_not_heard_below_it() -> None:
    heard = Log[Any]()

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"tools": {}, "logging": {}})
        await peer.reply(await peer.receive("logging/setLevel"), {})
        call = await peer.receive("tools/call")
        for level in ("debug", "error"):
            await peer.notify("notifications/message", {"level": level, "data": level})
        await peer.reply(call, {"content": []})

    async def log(message: Any) -> None:
        heard.append(message.data)

    for host in ("legacy", "modern"):
        async with through(Proxy(ScriptedPeer(script)), host, on_log=log) as client:
            await client.set_log_level("warning")
            await client.call_tool("greet")
            await heard.reaches(bool)
        assert heard == ["error"]
        heard.clear()


async def test_nothing_is_kept_of_a_host_that_has_gone() -> None:
    proxy = Proxy(Planner())
    async with through(proxy, "legacy"):
        assert len(relay_of(proxy).begun) == 1
    assert relay_of(proxy).begun == set()


async def test_the_sessions_of_a_user_over_http_share_idle_connections_with_no_other_user() -> None:
    relay = relay_of(Proxy("http://localhost/mcp"))
    sessions = [relay.begin(None, user) for user in ("ada", "ada", "bob")]
    first, second, other = (session.settings.server for session in sessions)
    assert first is second
    assert len({first, other, relay.settings.server}) == 3
    for session in sessions:
        await session._end()
    del sessions, session

    assert relay.by_principal is not None
    assert not [*relay.by_principal.items()]

    relay = relay_of(Proxy(["server"]))
    assert relay.begin(None, "ada").settings is relay.settings


async def test_a_host_that_goes_while_it_is_asked_is_no_failure_of_the_proxy(caplog: pytest.LogCaptureFixture) -> None:
    model = HangingModel()

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"tools": {}})
        await peer.request("sampling/createMessage", QUESTION)

    async with through(Proxy(ScriptedPeer(script)), "legacy", sampling=sampling(with_tools=model)):
        await model.begun.wait()

    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


@each_era
async def test_what_cannot_be_written_is_not_passed_on_and_does_no_harm(
    host: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A number beyond a float's is read as infinite, which JSON has not."""
    answers: list[Any] = []

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"tools": {"listChanged": True}, "logging": {}})
        while (call := await peer.receive())["method"] != "tools/call":
            await peer.reply(call, {})
        token = call["params"]["_meta"]["progressToken"]
        for method, params in (
            ("notifications/message", '"level":"error","data":1e999'),
            ("notifications/tools/list_changed", '"x":1e999'),
            ("notifications/progress", f'"progressToken":{token},"progress":1,"x":1e999'),
            ("x/changed", '"x":1e999'),
        ):
            await peer.send_raw(b'{"jsonrpc":"2.0","method":"%s","params":{%s}}' % (method.encode(), params.encode()))
        await peer.send_raw(b'{"jsonrpc":"2.0","id":"q","method":"roots/list","params":{"x":1e999}}')
        answers.append((await peer.receive())["error"]["code"])
        await peer.reply(call, raw.text("done"))

    told = {"on_log": print, "on_change": print, "on_notification": print, "roots": []}
    async with through(Proxy(ScriptedPeer(script)), host, **told) as client:
        assert text_of(await client.call_tool("say", on_progress=print)) == "done"

    assert answers == [INVALID_PARAMS]
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.fake_clock
async def test_what_a_server_asks_at_once_is_asked_in_one_round_though_it_arrives_in_pieces() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"tools": {}})
        call = await peer.receive("tools/call")
        for id in ("a", "b"):
            await sleep(0.01)
            await peer.send_raw(to_json({"jsonrpc": "2.0", "id": id, "method": "roots/list", "params": {}}))
        answers = [(await peer.receive())["id"] for _ in range(2)]
        await peer.reply(call, raw.text(str(sorted(answers))))

    proxy = Proxy(ScriptedPeer(script))
    async with raw.modern(proxy) as host:
        asked = await host.round("ask")
        answers: raw.Wire = {key: {"roots": []} for key in asked.requests}
        assert len(answers) == 2
        assert await host.last_round("ask", answers, asked.state) == raw.text("['a', 'b']")
    await proxy.aclose()


async def test_what_was_served_over_http_can_be_closed_from_another_event_loop() -> None:
    opened, ended = list[int](), list[int]()

    async def script(peer: ScriptedPeer) -> None:
        opened.append(1)
        try:
            await peer.answer_initialize(capabilities={"tools": {}})
            await peer.reply(await peer.receive("tools/call"), HELLO)
            await Event().wait()
        finally:
            ended.append(1)

    proxy = Proxy(ScriptedPeer(script))
    with fail_after(25):
        for _ in range(2):
            async with proxy.http() as url, Client(url) as client:
                assert text_of(await client.call_tool("greet")) == "hello"
            await proxy.aclose()

    assert opened == ended == [1, 1]


def host_with(version: str = "2026-07-28", **capabilities: Any) -> RemoteClient:
    declared = ClientCapabilities.from_wire(capabilities)
    return RemoteClient(Implementation(name="host", version="1"), declared, version)


async def test_hosts_that_answer_the_same_requests_of_a_server_share_a_connection() -> None:
    """Whatever else they declare: so there are only so many connections."""
    nested: dict[str, Any] = {}
    for _ in range(600):
        nested = {"a": nested}
    answering: list[dict[str, Any]] = [
        {"roots": {}},
        {"sampling": {}},
        {"sampling": {"tools": {}}},
        {"elicitation": {"url": {}}},
        {"elicitation": {"form": {}}},
        {"elicitation": {"form": {}, "url": {}}},
    ]
    relay = Relay.of(relay_of(Proxy(Planner(ERAS["modern"]))).settings)
    with fail_after(25):
        upstreams = [await relay._upstream(host_with(**capabilities)) for capabilities in ({}, *answering)]
        assert [*relay.upstreams.values()] == upstreams
        others: list[dict[str, Any]] = [
            {"experimental": {"x": nested}},
            {"unknown": 5},
            {"extensions": nested},
            {"extensions": {}},
        ]
        for capabilities in others:
            assert await relay._upstream(host_with(**capabilities)) is upstreams[0]
        assert await relay._upstream(host_with(elicitation={})) is upstreams[5]
        await relay.aclose()


async def test_there_are_only_so_many_connections_that_declare_extensions() -> None:
    """Hosts of 2026-07-28 may name other ones in each request."""
    heard: list[object] = []
    planner = Planner(ERAS["modern"])

    @planner.request_handler("x/note")
    async def note(params: Params, context: Context) -> Params:
        heard.append(context.client_capabilities.extensions)
        return {}

    relay = Relay.of(relay_of(Proxy(planner)).settings)

    async def request(number: int) -> None:
        await (await relay._upstream(host_with(extensions={f"x/{number}": {}}))).client.request("x/note")

    with fail_after(25):
        async with create_task_group() as tasks:
            for number in range(MAX_EXTENDED + 2):
                tasks.start_soon(request, number)
        assert len(relay.upstreams) == MAX_EXTENDED + 1
        assert [extensions is None for extensions in heard].count(True) == 2
        heard.clear()
        for number in range(MAX_EXTENDED + 2):
            await request(number)
        assert len([extensions for extensions in heard if extensions is not None]) == MAX_EXTENDED
        await relay.aclose()


async def test_requests_that_come_at_once_share_a_connection() -> None:
    relay = Relay.of(relay_of(Proxy(Planner(ERAS["modern"]))).settings)
    found: list[Upstream] = []

    async def connect() -> None:
        found.append(await relay._upstream(host_with()))

    with fail_after(25):
        async with create_task_group() as tasks:
            tasks.start_soon(connect)
            tasks.start_soon(connect)
        assert found == [*relay.upstreams.values()] * 2
        await relay.aclose()


async def test_what_a_server_asks_outside_of_calls_goes_to_a_host_with_a_handshake() -> None:
    answers: list[dict[str, Any]] = []
    done = Event()

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"tools": {}})
        answers.append(await peer.request("roots/list"))
        answers.append(await peer.request("x/ask", {"a": 1}))
        done.set()

    async with through(Proxy(ScriptedPeer(script)), "legacy", roots=["/home/ada/here"]):
        await done.wait()

    assert answers[0]["result"] == {"roots": [{"uri": "file:///home/ada/here"}]}
    assert answers[1]["error"]["code"] == -32601


async def test_a_host_without_a_handshake_is_asked_nothing_outside_of_calls() -> None:
    """Nor is it told anything."""
    answers: list[dict[str, Any]] = []
    done = Event()

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"tools": {}})
        await peer.notify("x/changed", {})
        await peer.notify("notifications/elicitation/complete", {"elicitationId": "e1"})
        await peer.notify("notifications/message", {"level": "error", "data": "careful"})
        answers.extend([await peer.request("roots/list"), await peer.request("x/ask")])
        done.set()

    heard: list[object] = []
    host = {"roots": ["/home/ada/here"], "elicitation": user(), "on_notification": heard.append, "on_log": heard.append}
    async with through(Proxy(ScriptedPeer(script)), "modern", **host):
        await done.wait()

    assert [answer["error"]["message"] for answer in answers] == [
        "the host has no roots",
        "the host knows no such request outside of a call",
    ]
    assert heard == []


async def test_forms_of_a_server_outside_of_calls_are_refused_where_only_a_call_could_ask() -> None:
    answers: list[dict[str, Any]] = []
    done = Event()

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"tools": {}})
        form = {"message": "name?", "requestedSchema": {"type": "object", "properties": {}}}
        answers.append(await peer.request("elicitation/create", form))
        done.set()

    proxy = Proxy(ScriptedPeer(script), elicitation=user())
    async with through(proxy, "modern", elicitation=user()):
        await done.wait()

    assert answers[0]["error"]["message"] == "the host cannot be asked now"


async def test_a_host_that_wants_a_log_gets_the_rest_of_a_server_that_has_none() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"tools": {}})
        await peer.reply(await peer.receive("tools/list"), {"tools": []})

    async with through(Proxy(ScriptedPeer(script)), "modern", on_log=print) as client:
        assert await client.list_tools() == []


@each_era
async def test_what_a_server_logs_just_before_its_result_reaches_the_host(host: str) -> None:
    logged: list[object] = []
    done = Event()

    async def log(message: Any) -> None:
        logged.append(message.data)
        if message.data == 4:
            done.set()

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"tools": {}})
        call = await peer.receive("tools/call")
        token = call["params"]["_meta"]["progressToken"]
        sent = list[tuple[str, dict[str, Any]]]()
        for number in range(5):
            sent.append(("notifications/progress", {"progressToken": token, "progress": number}))
            sent.append(("notifications/message", {"level": "error", "data": number}))
        notifications = [{"jsonrpc": "2.0", "method": method, "params": params} for method, params in sent]
        await peer.send_raw(to_json([*notifications, {"jsonrpc": "2.0", "id": call["id"], "result": {"content": []}}]))

    async with through(Proxy(ScriptedPeer(script)), host, on_log=log) as client:
        await client.call_tool("say", on_progress=print)
        await done.wait()
    assert logged == [0, 1, 2, 3, 4]


async def test_a_host_with_a_handshake_hears_no_progress_twice() -> None:
    """A tool of 2026-07-28 may run again for each answer, and "the progress value MUST increase" within one request."""
    form = {"mode": "form", "message": "name?", "requestedSchema": {"type": "object", "properties": {}}}
    asked = {"resultType": "input_required", "inputRequests": {"a": {"method": "elicitation/create", "params": form}}}

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover(capabilities={"tools": {}})
        for steps, result in ((1, asked), (3, {"resultType": "complete", "content": []})):
            call = await peer.receive("tools/call")
            for step in range(1, steps + 1):
                token = call["params"]["_meta"]["progressToken"]
                await peer.notify("notifications/progress", {"progressToken": token, "progress": step})
            await peer.reply(call, result)

    reports: list[float] = []
    async with through(Proxy(ScriptedPeer(script)), "legacy", elicitation=user()) as client:
        await client.call_tool("book", on_progress=lambda report: reports.append(report.progress))
    assert reports == [1, 2, 3]


async def test_malformed_params_that_cannot_be_passed_on_are_an_error_of_the_host(subtests: pytest.Subtests) -> None:
    malformed: list[tuple[str, Params, str]] = [
        ("tools/list", {"_meta": [1]}, "_meta"),
        ("tools/call", {"name": 3}, "name"),
        ("resources/read", {}, "uri"),
        ("resources/subscribe", {}, "uri"),
        ("resources/unsubscribe", {"uri": 3}, "uri"),
        ("logging/setLevel", {"level": "loud"}, "level"),
    ]
    relay = Relay.of(relay_of(Proxy(Planner(ERAS["legacy"]))).settings)
    for method, params, says in malformed:
        call = ReceivedRequest(Request(1, method, params), host_with("2025-11-25"), lambda method, params: None)
        with subtests.test(method=method), fail_after(25):
            with pytest.raises(RequestError, match=says) as refused:
                await relay._request(method, params, call, unasked)
            assert refused.value.code == INVALID_PARAMS
    await relay.aclose()


async def test_methods_that_the_hosts_revision_does_not_have_are_refused(subtests: pytest.Subtests) -> None:
    """Also those that the server has."""
    made: list[str] = []

    async def note(request: AnyRequest, call_next: CallNext) -> Params:
        if isinstance(request, ClientRequest) and request.call_id is not None:  # else it is the proxy's own
            made.append(request.method)
        return await call_next(request)

    params = raw.INITIALIZE | {"uri": "mem://menu", "level": "info"}
    removed = ["initialize", *sorted(REMOVED_REQUESTS)]
    for host, server, methods in ((raw.modern, "legacy", removed), (raw.legacy, "modern", [DISCOVER, LISTEN])):
        proxy = Proxy(Planner(ERAS[server]), middleware=[note])
        async with host(proxy) as connection:
            for method in methods:
                with subtests.test(method):
                    assert (await connection.error(method, params))["code"] == METHOD_NOT_FOUND
        await proxy.aclose()

    assert made == []


async def test_what_a_server_does_not_call_public_is_private() -> None:
    """A cache in between would serve it to others, and whether all users get the same is not known."""
    for server, versions in ERAS.items():
        passes = "private" if server == "legacy" else "public"
        for proxy, listed in ((Proxy(Planner(versions)), passes), (Proxy({"one": Planner(versions)}), "private")):
            async with raw.modern(proxy) as host:
                scopes = [(await host.result(method))["cacheScope"] for method in (DISCOVER, "tools/list")]
            await proxy.aclose()
            assert scopes == ["private", listed]


async def test_a_resource_that_cannot_be_subscribed_to_is_not_agreed_to() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"resources": {}})

    async with through(Proxy(ScriptedPeer(script)), "modern") as client:
        with pytest.raises(McpError, match="did not agree"):
            await client.subscribe_resource("mem://nothing")


async def test_notifications_of_either_side_that_the_proxy_does_not_know_pass() -> None:
    heard = Log[Any]()
    completed: list[str] = []
    done = Event()

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"tools": {}})
        await peer.notify("notifications/elicitation/complete", {"elicitationId": "e1"})
        await peer.notify("x/changed", {"a": [1]})
        await peer.receive("x/seen")
        await peer.receive("notifications/roots/list_changed")
        done.set()

    async def other(notification: Any) -> None:
        heard.append((notification.method, notification.params))

    asking = Elicitation(url=visit, on_complete=completed.append)
    host = {"roots": [], "on_notification": other, "elicitation": asking}
    async with through(Proxy(ScriptedPeer(script)), "legacy", **host) as client:
        await client.notify("x/seen", {"b": 2})
        await client.set_roots(["/home/ada/there"])
        await done.wait()
        await heard.reaches(bool)

    assert heard == [("x/changed", {"a": [1]})]
    assert completed == ["e1"]


async def test_notifications_of_a_host_are_passed_on_in_order_and_dropped_if_the_server_takes_none() -> None:
    received = Log[int]()

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize()
        while True:
            received.append((await peer.receive("x/seen"))["params"]["number"])

    proxy = Proxy(ScriptedPeer(script))
    async with raw.connect(proxy, lenient=True) as host:
        await host.initialize(capabilities={})
        session, *_ = relay_of(proxy).begun
        for number in range(MAX_NOTIFICATIONS + 5):
            session.notified(Notification("x/seen", {"number": number}))
        assert len(session.notifications) == MAX_NOTIFICATIONS
        await received.reaches(lambda received: len(received) == MAX_NOTIFICATIONS)
        session.notified(Notification("x/seen", {"number": -1}))
        await received.reaches(lambda received: len(received) > MAX_NOTIFICATIONS)
    await proxy.aclose()
    assert received == [*range(MAX_NOTIFICATIONS), -1]


HELLO = {"content": [{"type": "text", "text": "hello"}]}


async def test_a_connection_that_is_being_opened_holds_up_no_other() -> None:
    opened = list[ScriptedPeer]()
    opening, may_open = Event(), Event()

    async def script(peer: ScriptedPeer) -> None:
        opened.append(peer)
        if len(opened) == 2:
            opening.set()
            await may_open.wait()
        await peer.answer_initialize()
        await Event().wait()

    relay = Relay.of(relay_of(Proxy(ScriptedPeer(script))).settings)
    with fail_after(25):
        first = await relay._upstream(host_with())
        async with create_task_group() as tasks:
            tasks.start_soon(relay._upstream, host_with(roots={}))
            tasks.start_soon(relay._upstream, host_with(roots={}))
            await opening.wait()
            assert await relay._upstream(host_with()) is first
            may_open.set()
        await relay.aclose()
    assert len(opened) == 2


async def test_a_connection_that_is_opened_while_others_are_closed_is_the_only_one() -> None:
    opened, ended = list[Event](), list[int]()

    async def script(peer: ScriptedPeer) -> None:
        may_open, number = Event(), len(opened)
        opened.append(may_open)
        try:
            await may_open.wait()
            await peer.answer_initialize()
            await Event().wait()
        finally:
            ended.append(number)

    relay = Relay.of(relay_of(Proxy(ScriptedPeer(script))).settings)
    with fail_after(25):
        async with create_task_group() as tasks:
            for job in (partial(relay._upstream, host_with()), relay.aclose, partial(relay._upstream, host_with())):
                tasks.start_soon(job)
                await wait_all_tasks_blocked()
            opened[0].set()
            await wait_all_tasks_blocked()
            tasks.start_soon(relay._upstream, host_with())
            await wait_all_tasks_blocked()
            for may_open in opened:
                may_open.set()
        await relay.aclose()
    assert ended == [0, 1]


async def test_an_application_that_is_closed_twice_closes_what_was_opened_between() -> None:
    ended = list[int]()

    async def script(peer: ScriptedPeer) -> None:
        try:
            await peer.answer_initialize(capabilities={"tools": {}})
            await peer.reply(await peer.receive("tools/call"), HELLO)
            await Event().wait()
        finally:
            ended.append(len(ended))

    app, message = Proxy(ScriptedPeer(script)).asgi(), raw.with_meta(raw.call(1, "greet"))
    headers = {**HEADERS, **repeated(message)}
    with fail_after(25):
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:
            for number in range(2):
                assert (await http.post("/mcp", headers=headers, json=message)).status_code == 200
                await app.aclose()
                assert ended == [*range(number + 1)]


async def test_a_host_that_goes_while_its_session_begins_and_comes_back_finds_none() -> None:
    """Its server cannot be reached, so the session has ended."""
    app = Proxy(NOWHERE).asgi()
    events: list[MutableMapping[str, Any]] = [{"type": "http.disconnect"}]
    events.append({"type": "http.request", "body": to_json(INITIALIZE)})
    sent = list[MutableMapping[str, Any]]()

    async def receive() -> MutableMapping[str, Any]:
        return events.pop()

    async def send(event: MutableMapping[str, Any]) -> None:
        sent.append(event)

    given = {**HEADERS, "content-type": "application/json", "host": "localhost"}
    fields = [(name.encode(), value.encode()) for name, value in given.items()]
    with fail_after(25):
        await app({"type": "http", "method": "POST", "path": "/mcp", "headers": fields}, receive, send)
        while app._sessions and next(iter(app._sessions.values())).client is not None:
            await checkpoint()  # no event tells
        session = {"mcp-session-id": dict(sent[0]["headers"])[b"mcp-session-id"].decode()}
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:
            message = raw.request(2, "tools/list")
            statuses = [(await http.post("/mcp", headers=HEADERS | session, json=message)).status_code for _ in "ab"]
        await app.aclose()
    assert statuses == [200, 404]


async def test_a_host_that_finds_out_the_revisions_and_then_begins_with_a_handshake_is_told_and_asked() -> None:
    answers = list[Any]()

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"tools": {}})
        asking = await peer.receive("tools/call")
        await peer.notify("x/changed", {})
        await peer.reply(asking, HELLO)
        answers.append(await peer.request("roots/list"))

    proxy = Proxy(ScriptedPeer(script))
    async with raw.connect(proxy, lenient=True) as host:
        await host.send(raw.with_meta(raw.request("a", "server/discover"), raw.EVERYTHING))
        await host.receive()
        await host.initialize(capabilities=raw.EVERYTHING)
        await host.start("greet")
        messages = [await host.receive() for _ in range(3)]
    await proxy.aclose()
    assert [message.get("method", "its result") for message in messages] == ["x/changed", "its result", "roots/list"]


async def test_what_is_no_request_or_no_notification_stays_here() -> None:
    """Some servers would take it for one."""
    received = list[str]()

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"tools": {}})
        while True:
            received.append((await peer.receive())["method"])

    proxy = Proxy(ScriptedPeer(script))
    async with raw.connect(proxy, lenient=True) as host:
        await host.initialize(capabilities={})
        for method in ("initialize", DISCOVER, LISTEN):
            await host.notify(method, {"name": "x"})
        for method in ("notifications/cancelled", "notifications/x"):
            assert (await host.error(method, {"requestId": 1}))["code"] == METHOD_NOT_FOUND
        assert await host.nothing_more()
    await proxy.aclose()
    assert received == []


# Listening


class Watched:
    """A server with a handshake that lets its client subscribe to all resources but ``a:no``."""

    def __init__(self) -> None:
        self.received = Log[tuple[str, str]]()
        self.peer = ScriptedPeer(self.run)
        self.peer.restart = True
        self.proxy = Proxy(self.peer)
        self.opened = 0

    async def run(self, peer: ScriptedPeer) -> None:
        self.opened += 1
        await peer.answer_initialize(capabilities={"resources": {"subscribe": True}})
        while (message := await peer.receive())["method"] != "x/end":
            self.received.append((message["method"], message["params"]["uri"]))
            if message["params"]["uri"] == "a:no":
                await peer.reply_error(message, -32602, "no")
            else:
                await peer.reply(message, {})
        raise RuntimeError("the server has crashed")


def listen(id: int, *uris: str) -> dict[str, Any]:
    return raw.with_meta(
        raw.request(id, "subscriptions/listen", {"notifications": {"resourceSubscriptions": [*uris]}}), {}
    )


async def test_a_resource_is_subscribed_to_while_a_host_listens() -> None:
    server = Watched()
    async with raw.connect(server.proxy, lenient=True) as host:
        agreed = list[Any]()
        for message in (listen(1, "a:1", "a:no", "a:1"), listen(2, "a:1", "a:2")):
            await host.send(message)
            agreed.append((await host.receive())["params"]["notifications"]["resourceSubscriptions"])
        await server.peer.notify("notifications/resources/updated", {"uri": "a:1", "_meta": {"x/y": 1}})
        changes = [(await host.receive())["params"] for _ in range(2)]
        for id in (1, 2):
            await host.notify("notifications/cancelled", {"requestId": id})
            assert await host.nothing_more()
    await server.proxy.aclose()

    assert agreed == [["a:1", "a:1"], ["a:1", "a:2"]]
    key = "io.modelcontextprotocol/subscriptionId"
    assert changes == [{"uri": "a:1", "_meta": {"x/y": 1, key: id}} for id in (1, 2)]
    add, remove = "resources/subscribe", "resources/unsubscribe"
    assert server.received[:3] == [(add, "a:1"), (add, "a:no"), (add, "a:2")]
    assert sorted(server.received[3:]) == [(remove, "a:1"), (remove, "a:2")]


async def test_what_changes_while_a_host_begins_to_listen_is_announced_after_the_acknowledgment() -> None:
    """Of what the server agrees to."""

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"tools": {"listChanged": True}, "resources": {"subscribe": True}})
        for uri in ("a:1", "a:no"):
            asked = await peer.receive("resources/subscribe")
            for _ in range(2):
                await peer.notify("notifications/resources/updated", {"uri": uri})
            await peer.notify("notifications/tools/list_changed")
            await wait_all_tasks_blocked()
            await (peer.reply_error(asked, -32602, "no") if uri == "a:no" else peer.reply(asked, {}))
        await peer.receive("x/end")

    async with raw.connect(proxy := Proxy(ScriptedPeer(script)), lenient=True) as host:
        asked = listen(1, "a:1", "a:no")
        asked["params"]["notifications"]["toolsListChanged"] = True
        await host.send(asked)
        said = [await host.receive() for _ in range(3)]
        assert await host.nothing_more()
    await proxy.aclose()
    assert [(each["method"].removeprefix("notifications/"), each["params"].get("uri")) for each in said] == [
        ("subscriptions/acknowledged", None),
        ("resources/updated", "a:1"),
        ("tools/list_changed", None),
    ]


async def test_a_server_that_is_started_again_is_not_subscribed_to_what_no_host_listens_to() -> None:
    server = Watched()
    async with raw.connect(server.proxy, lenient=True) as host:
        await host.send(listen(1, "a:1"))
        await host.receive()
        await host.send(raw.with_meta(raw.request(2, "x/end"), {}))
        assert "error" in await host.receive()
        await host.notify("notifications/cancelled", {"requestId": 1})
        await server.received.reaches(lambda received: received[-1] == ("resources/unsubscribe", "a:1"))
    await server.proxy.aclose()
    assert server.opened == 2


@pytest.mark.fake_clock
async def test_a_subscription_that_the_server_does_not_answer_holds_up_others_for_a_time() -> None:
    agreed = list[Any]()

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"resources": {"subscribe": True}})
        while True:
            message = await peer.receive()
            if message["params"].get("uri") == "a:1":
                await peer.reply(message, {})

    async def listen(*uris: str) -> None:
        async with relay.listening(uris, host_with()) as each:
            agreed.append({*each})

    relay = Relay.of(relay_of(Proxy(ScriptedPeer(script))).settings)
    with fail_after(1.5 * ANSWER_TIMEOUT):  # of all that one listens to
        async with create_task_group() as tasks:
            for uris in (("a:silent", "a:mute", "a:dumb"), ("a:1",)):
                tasks.start_soon(listen, *uris)
                await wait_all_tasks_blocked()
        await relay.aclose()
    assert agreed == [set(), {"a:1"}]


@pytest.mark.fake_clock
async def test_a_server_that_does_not_set_the_level_of_a_call_answers_it() -> None:
    """As it would without. Calls of other hosts wait for this one, if they can only be asked in turn."""

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"logging": {}, "tools": {}})
        while True:
            await peer.reply(await peer.receive("tools/call"), {"content": []})

    with fail_after(1.5 * ANSWER_TIMEOUT):
        async with Client(proxy := Proxy(ScriptedPeer(script)), era="modern") as host:
            await host.set_log_level("info")
            await host.call_tool("x")
        await proxy.aclose()


async def test_of_a_relayed_call_each_message_is_read_and_written_once_and_nothing_is_validated() -> None:
    """It is passed on without the middleware of the proxy's client, which is for requests of the server."""
    answered = Event()
    results: list[object] = []

    def send(message: Message, related: Id | None) -> None:
        nonlocal answered
        encode(message)
        results.append(message)
        answered.set()
        answered = Event()

    async def ask(message: dict[str, Any]) -> None:
        answer = answered
        for decoded in decode(to_json({"jsonrpc": "2.0", **message})):
            session.receive(decoded)
        await answer.wait()

    relay = relay_of(Proxy(Stdio(python(ECHO))))
    call = {"method": "tools/call", "params": {"name": "echo", "arguments": {"words": "hello"}}}
    with fail_after(25):
        async with HandlerTasks.open() as tasks:
            session = Session(relay, tasks.start, send)
            await ask(INITIALIZE)
            await ask({"id": 2, **call})
            with counted() as seen:
                await ask({"id": 3, **call})
            [upstream] = next(iter(relay.begun)).upstreams.values()
            assert upstream.client._state.around_ours is None
            session.close()
        await relay.aclose()

    assert results[-1] == Success(3, {"content": [{"type": "text", "text": "hello"}]})
    seen.pop("tasks", None)  # one, which on asyncio no task factory makes
    assert seen == {"messages read": 2, "messages written": 3}  # the one of the host is written here, too
