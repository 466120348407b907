"""The MCP side of cassettes: every kind of message and end, calls at the same time, and requests that differ."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import httpx
import pytest
from anyio import Event, create_task_group, fail_after, sleep_forever, to_thread, wait_all_tasks_blocked

from mcp_host import Client, Elicitation, Handler, Sampling, SamplingRequest, Stdio, StreamableHttp, always
from mcp_host.errors import (
    ConnectFailed,
    ConnectionClosed,
    ConnectTimeout,
    HttpStatusError,
    McpError,
    ProtocolError,
    RequestTimeout,
    ServerError,
)
from mcp_host.limits import Limits
from mcp_host.middleware import add_headers
from mcp_host.protocol.jsonrpc import Incoming, Success
from mcp_host.session.changes import Change
from mcp_host.testing import Cassette, CassetteError, Context, RecordMode, ScriptedPeer, Server, ToolError
from mcp_host.testing.cassettes.file import Contents, read, write
from mcp_host.testing.cassettes.mcp import RecordingHandle
from mcp_host.transports.in_process import Inbox, InProcess, MemoryChannel, Outbox
from mcp_host.types import CreateMessageResult, ElicitResult, LoggingMessageNotificationParams
from tests.client.sites import DISCOVERED, Site
from tests.client.support import QUESTION
from tests.extent import on_both
from tests.transports.http_peers import JSON, RecordedHandle, Wire, serving

NOWHERE = Stdio(["/no/such/program"])

Use = Callable[[Client], Awaitable[object]]


async def echo(request: SamplingRequest) -> CreateMessageResult:
    return request.reply(f"model of {request.messages[0].text}", model="small")


def make_server() -> Server:
    server = Server("everything")

    @server.tool
    async def ask(topic: str, context: Context) -> str:
        """Ask the model."""
        await context.report_progress(1, 2)
        return (await context.sample(topic, max_tokens=100)).text

    @server.tool
    async def fail() -> str:
        """Fail."""
        raise ToolError("it fails")

    return server


@asynccontextmanager
async def connected(
    path: Path, server: Any, record_mode: RecordMode = "once", *, require_all: bool = False, **options: Any
) -> AsyncIterator[Client]:
    """A client over a cassette; *options* are the client's."""
    with fail_after(30), Cassette(path, record_mode=record_mode, require_all=require_all) as cassette:
        async with Client(cassette.transport(server), **{"sampling": basic(echo), **options}) as client:
            yield client


def basic(model: Handler) -> Sampling:
    return Sampling(basic=model, approve=always)


async def both(path: Path, server: Any, use: Use, **options: Any) -> list[object]:
    """What *use* gives with *server*, and in the replay without it."""
    async with connected(path, server, **options) as client:
        recorded = await use(client)
    async with connected(path, NOWHERE, "none", require_all=True, **options) as client:
        return [recorded, await use(client)]


def messages(path: Path) -> list[dict[str, Any]]:
    return [entry["message"] for entry in read(path).entries if "message" in entry]


def opened(path: Path) -> list[str]:
    return [entry["open"] for entry in read(path).entries if "open" in entry]


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("over_http", [False, True], ids=["in process", "http"])
async def test_sampling_progress_and_errors_within_calls_are_replayed(path: Path, era: str, over_http: bool) -> None:
    async def use(client: Client) -> object:
        reports: list[float] = []
        asked = await client.call_tool(
            "ask", {"topic": "tides"}, on_progress=lambda report: reports.append(report.progress)
        )
        failed = await client.call_tool("fail")
        with pytest.raises(ServerError) as caught:
            await client.call_tool("unknown")
        return asked.text, reports, failed.text, failed.is_error, str(caught.value)

    server = make_server()
    async with server.http() as url:
        recorded, replayed = await both(path, StreamableHttp(url) if over_http else server, use, era=era)

    assert recorded == replayed
    assert str(recorded).startswith("('model of tides', [1")


@on_both
async def test_progress_over_http_is_delivered_while_the_recorded_call_runs(path: Path) -> None:
    heard, server = threading.Event(), Server("s")

    @server.tool
    async def report(context: Context) -> bool:
        await context.report_progress(1)
        return await to_thread.run_sync(heard.wait, 10)

    async with server.http() as url, connected(path, StreamableHttp(url)) as client:
        called = await client.call_tool("report", on_progress=lambda progress: heard.set())

    assert called.structured_content == {"result": True}


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("over_http", [False, True], ids=["in process", "http"])
@on_both
async def test_calls_at_the_same_time_each_get_their_own_answer_in_any_order(
    path: Path, era: str, over_http: bool
) -> None:
    def use_in(topics: list[str]) -> Use:
        async def use(client: Client) -> object:
            texts: dict[str, str] = {}

            async def ask(topic: str) -> None:
                texts[topic] = (await client.call_tool("ask", {"topic": topic})).text

            async with create_task_group() as tasks:
                for topic in topics:
                    tasks.start_soon(ask, topic)
            return texts

        return use

    topics = ["tides", "moons", "stars"]
    server = make_server()
    async with server.http() as url, connected(path, StreamableHttp(url) if over_http else server, era=era) as client:
        await use_in(topics)(client)
    async with connected(path, NOWHERE, "none", era=era, require_all=True) as client:
        replayed = await use_in(topics[::-1])(client)

    assert replayed == {topic: f"model of {topic}" for topic in topics}


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_calls_that_were_made_at_the_same_time_may_be_replayed_one_after_the_other(path: Path, era: str) -> None:
    """In 2025, nothing says to which of them a request of the server belongs."""
    topics = ["tides", "moons", "stars"]
    async with connected(path, make_server(), era=era) as client, create_task_group() as tasks:
        for topic in topics:
            tasks.start_soon(client.call_tool, "ask", {"topic": topic})
    async with connected(path, NOWHERE, "none", era=era, require_all=True) as client:
        replayed = [(await client.call_tool("ask", {"topic": topic})).text for topic in topics]

    assert replayed == [f"model of {topic}" for topic in topics]


@pytest.mark.parametrize("count", [0, 1, 3])
async def test_the_progress_of_our_answer_may_differ(path: Path, count: int) -> None:
    """What is reported depends on how fast a model's text comes."""

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"tools": {}})
        call = await peer.receive("tools/call")
        params = {**QUESTION, "_meta": {"progressToken": "theirs"}}
        await peer.send({"jsonrpc": "2.0", "id": "its", "method": "sampling/createMessage", "params": params})
        for _ in range(2):
            await peer.receive("notifications/progress")
        await peer.receive()
        await peer.reply(call, {"content": [{"type": "text", "text": "done"}]})

    texts = []
    for server, reports in ((ScriptedPeer(script), 2), (NOWHERE, count)):

        async def model(request: SamplingRequest, reports: int = reports) -> CreateMessageResult:
            for number in range(reports):
                await request.report_progress(number, message=f"{number + 1} of {reports}")
            return request.reply("text", model="small")

        async with connected(path, server, era="legacy", sampling=basic(model)) as client:
            texts.append((await client.call_tool("slow")).text)

    assert texts == ["done", "done"]


async def test_a_changed_call_is_an_error_that_shows_the_difference(path: Path) -> None:
    async with connected(path, make_server()) as client:
        await client.call_tool("fail")
        await client.call_tool("ask", {"topic": "tides"})
    with pytest.raises(CassetteError) as caught:
        async with connected(path, NOWHERE) as client:
            await client.call_tool("ask", {"topic": "moons"})

    text = str(caught.value)
    assert text.startswith(f"the request tools/call is not in {path}. The nearest that was not used yet:")
    difference = [line.strip() for line in text.splitlines() if line[:1] in ("-", "+")]
    assert difference[:2] == ["--- recorded", "+++ now"]
    assert [line[1:].strip() for line in difference[2:]] == [
        '"arguments": {"topic": "tides"},',
        '"arguments": {"topic": "moons"},',
    ]


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_changed_answer_to_the_server_is_an_error_too(path: Path, era: str) -> None:
    """In 2025 it is a message that no call of ours waits for; the call ends nonetheless."""

    async def answer_with(text: str) -> None:
        sampling = basic(lambda request: request.reply(text, model="small"))
        async with connected(path, make_server(), era=era, sampling=sampling) as client:
            await client.call_tool("ask", {"topic": "tides"})

    await answer_with("one")
    with pytest.raises(CassetteError, match=r'\+.*"text": "another"'):
        await answer_with("another")


@on_both
async def test_a_server_that_ends_during_a_call_ends_in_the_replay_too(path: Path) -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"tools": {}})
        await peer.receive("tools/call")
        await peer.aclose()

    async def use(client: Client) -> object:
        with pytest.raises(ConnectionClosed) as caught:
            await client.call_tool("anything")
        return str(caught.value)

    texts = [str(text).partition(";")[0] for text in await both(path, ScriptedPeer(script), use, era="legacy")]

    assert texts == ["the scripted peer has ended"] * 2


@pytest.mark.fake_clock
async def test_a_recorded_server_that_is_never_ready_fails_with_what_it_has_written_instead(path: Path) -> None:
    class Chatty(InProcess):
        @asynccontextmanager
        async def open(self, limits: Limits) -> AsyncIterator[MemoryChannel]:
            async with super().open(limits) as channel:
                channel.other_output = "; it says hello"
                yield channel

    async def serve(inbox: Inbox, outbox: Outbox) -> None:
        await sleep_forever()

    with fail_after(60), Cassette(path) as cassette, pytest.raises(ConnectTimeout, match=r"; it says hello$"):
        await Client(cassette.transport(Chatty(serve)), era="legacy").connect()


async def test_a_server_that_cannot_be_started_cannot_in_the_replay(path: Path) -> None:
    texts = []
    for _ in range(2):
        with Cassette(path) as cassette:
            with pytest.raises(ConnectFailed) as caught:
                async with Client(cassette.transport(NOWHERE)):
                    pass
            texts.append(str(caught.value))

    assert texts[0] == texts[1]


async def test_an_http_status_is_replayed_as_the_same_error(path: Path) -> None:
    texts = []
    async with make_server().http() as url:
        for _ in range(2):
            with fail_after(30), Cassette(path, allowed_hosts=()) as cassette:
                with pytest.raises(HttpStatusError) as caught:
                    async with Client(cassette.transport(f"{url}/elsewhere")):
                        pass
                texts.append((caught.value.status, str(caught.value)))

    assert texts[0] == texts[1]
    assert texts[0][0] == 404


async def test_an_answer_over_http_that_is_none_is_the_same_error_in_the_replay(path: Path) -> None:
    async def use(client: Client) -> object:
        with pytest.raises(ProtocolError) as caught:
            await client.call_tool("anything")
        return str(caught.value)

    site = Site(tools_call=lambda message: httpx.Response(200, text="Welcome"))
    async with httpx.AsyncClient(transport=httpx.MockTransport(site)) as http:
        recorded, replayed = await both(path, StreamableHttp("http://server.test/mcp", client=http), use)

    assert recorded == replayed


@on_both
async def test_a_request_that_the_server_cancels_is_cancelled_in_the_replay_too(path: Path) -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"tools": {}})
        call = await peer.receive("tools/call")
        await peer.send({"jsonrpc": "2.0", "id": "its", "method": "sampling/createMessage", "params": QUESTION})
        await peer.notify("notifications/cancelled", {"requestId": "its"})
        await peer.reply(call, {"content": []})

    async def model(request: SamplingRequest) -> CreateMessageResult:
        await sleep_forever()
        raise AssertionError

    await both(
        path, ScriptedPeer(script), lambda client: client.call_tool("anything"), era="legacy", sampling=basic(model)
    )

    sent = [entry["message"]["method"] for entry in read(path).entries if "to" in entry]
    assert sent == ["initialize", "notifications/initialized", "tools/call"]
    [cancelled] = [message for message in messages(path) if message.get("method") == "notifications/cancelled"]
    [asked] = [message for message in messages(path) if message.get("method") == "sampling/createMessage"]
    assert cancelled["params"]["requestId"] == asked["id"] == "server__1"


@pytest.mark.parametrize(
    ("era", "over_http"),
    [("modern", False), ("modern", True), ("legacy", True)],
    ids=["modern, in process", "modern, http", "legacy, http"],
)
@on_both
async def test_a_change_is_replayed(path: Path, era: str, over_http: bool) -> None:
    """As it comes on a subscription, or over HTTP on a stream of no call."""
    server = make_server()
    heard: list[str] = []
    async with server.http() as url:
        for target in (StreamableHttp(url) if over_http else server, NOWHERE):
            changed = Event()

            async def on_change(change: Change, changed: Event = changed) -> None:
                heard.append(change.method)
                changed.set()

            async with connected(path, target, era=era, on_change=on_change) as client:
                await client.call_tool("fail")
                if target is not NOWHERE:
                    await server.notify_tools_changed()
                await changed.wait()

    assert heard == ["notifications/tools/list_changed"] * 2
    apart = [entry["apart"] for entry in read(path).entries if "apart" in entry]
    assert apart == ([True] if era == "legacy" else [])


async def answers_too_late(peer: ScriptedPeer) -> None:
    await peer.answer_initialize(capabilities={"tools": {}})
    call = await peer.receive("tools/call")
    await peer.receive("notifications/cancelled")
    await peer.reply(call, {"content": []})
    await peer.reply(await peer.receive("tools/list"), {"tools": []})


async def wait_in_vain(client: Client) -> object:
    with pytest.raises(RequestTimeout) as caught:
        await client.call_tool("slow", timeout=5)
    return str(caught.value), await client.list_tools()


@pytest.mark.fake_clock
@on_both
async def test_a_call_that_timed_out_times_out_in_the_replay(path: Path) -> None:
    """The cancellation is found under the id of the moment."""
    recorded, replayed = await both(path, ScriptedPeer(answers_too_late), wait_in_vain, era="legacy")

    assert recorded == replayed
    [cancelled] = [message for message in messages(path) if message.get("method") == "notifications/cancelled"]
    [call] = [message for message in messages(path) if message.get("method") == "tools/call"]
    assert cancelled["params"]["requestId"] == call["id"]


@pytest.mark.fake_clock
@pytest.mark.parametrize("failed", [False, True], ids=["answered", "failed"])
@on_both
async def test_what_comes_on_the_stream_of_a_call_that_the_client_has_left_is_for_nobody(
    path: Path, failed: bool
) -> None:
    async with connected(path, ScriptedPeer(answers_too_late), era="legacy") as client:
        recorded = await wait_in_vain(client)
    changed = read(path).entries
    changed[0]["stream_per_request"] = True
    if failed:
        [late] = [entry for entry in changed if "content" in entry.get("message", {}).get("result", {})]
        error = {"error": "ConnectionClosed", "message": "it broke", "may_have_run": True}
        late |= {"failed": error, "during": [late.pop("message")["id"]]}
    write(path, Contents("", changed))
    async with connected(path, NOWHERE, "none", era="legacy", require_all=True) as client:
        replayed = await wait_in_vain(client)

    assert recorded == replayed


@on_both
async def test_what_the_server_sends_without_a_call_comes_after_what_came_before_it(path: Path) -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"tools": {}, "logging": {}})
        await peer.reply(await peer.receive("tools/list"), {"tools": []})
        await peer.notify("notifications/message", {"level": "info", "data": "listed"})

    heard = []
    for server in (ScriptedPeer(script), NOWHERE):
        logged = Event()

        async def on_log(params: LoggingMessageNotificationParams, logged: Event = logged) -> None:
            heard.append(params.data)
            logged.set()

        async with connected(path, server, era="legacy", on_log=on_log) as client:
            await client.list_tools()
            await logged.wait()

    assert heard == ["listed", "listed"]


async def test_a_message_that_is_none_is_one_in_the_replay_too(path: Path) -> None:
    """One that names our request fails it, and one that names none is a warning."""

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"tools": {}})
        call = await peer.receive("tools/call")
        await peer.send_raw(b"Listening.")
        await peer.send({"jsonrpc": "2.0", "id": call["id"], "result": 5})

    async def use(client: Client) -> object:
        with pytest.raises(ProtocolError) as caught:
            await client.call_tool("anything")
        return str(caught.value), [warning.partition(": ")[2] for warning in client.warnings]

    recorded, replayed = await both(path, ScriptedPeer(script), use, era="legacy")

    assert recorded == replayed
    assert [entry["malformed"]["id"] for entry in read(path).entries if "malformed" in entry] == [None, "request__2"]


@on_both
async def test_a_session_over_http_that_is_lost_is_lost_in_the_replay_too(path: Path) -> None:
    """The client opens another one, and repeats the call."""
    server = make_server()

    async def use(client: Client) -> object:
        first = (await client.call_tool("fail")).text
        await server.expire_sessions()
        return first, (await client.call_tool("fail")).text

    async with server.http() as url:
        recorded, replayed = await both(path, StreamableHttp(url), use, era="legacy")

    assert recorded == replayed
    assert [entry["failed"]["error"] for entry in read(path).entries if "failed" in entry] == ["SessionLost"]


@on_both
async def test_a_connection_that_was_given_up_while_it_was_opened_does_not_open(path: Path) -> None:
    write(path, Contents("", [{"open": "server"}]))
    opened: list[Client] = []

    async def open_it(cassette: Cassette) -> None:
        async with Client(cassette.transport(NOWHERE)) as client:
            opened.append(client)

    with fail_after(30), Cassette(path) as cassette:
        async with create_task_group() as tasks:
            tasks.start_soon(open_it, cassette)
            await wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()

    assert opened == []


async def test_a_notification_that_is_not_in_the_file_is_an_error(path: Path) -> None:
    for method in ("notifications/one", "notifications/two"):
        error = pytest.raises(CassetteError, match="the notification notifications/two is not in")
        with error if method.endswith("two") else nullcontext():
            async with connected(path, make_server(), era="legacy") as client:
                await client.notify(method)
                await client.call_tool("fail")


async def test_a_form_for_the_user_is_replayed(path: Path) -> None:
    server = Server("forms")

    @server.tool
    async def book(context: Context) -> str:
        answer = await context.elicit("Which day?", {"type": "object", "properties": {"day": {"type": "string"}}})
        return json.dumps(answer.content)

    async def use(client: Client) -> object:
        return (await client.call_tool("book")).text

    elicitation = Elicitation(form=lambda request: ElicitResult(action="accept", content={"day": "Monday"}))
    recorded, replayed = await both(path, server, use, elicitation=elicitation)

    assert recorded == replayed == '{"day": "Monday"}'


class Asked(RecordedHandle):
    """Notes which of its contexts are entered, and how it fails."""

    def __init__(self) -> None:
        super().__init__(personal=True, stateless=True)
        self.entered: list[str] = []
        self.failed: list[McpError] = []

    def queued(self) -> AbstractContextManager[None]:
        return self._entering("queued")

    def bounded(self) -> AbstractContextManager[None]:
        return self._entering("bounded")

    @contextmanager
    def authorizing(self, *, sent: bool = False) -> Iterator[None]:
        with self._entering(f"authorizing, sent: {sent}"):
            yield

    def fail(self, error: McpError) -> None:
        self.failed.append(error)

    @contextmanager
    def _entering(self, name: str) -> Iterator[None]:
        self.entered.append(name)
        yield


def test_a_channel_that_is_recorded_has_the_request_itself() -> None:
    """Whatever a transport of the application does with the handle of a request."""
    request, heard = Asked(), list[Incoming]()
    handle = RecordingHandle(request, heard.append)
    answer, error = Success(request.id, {}), ConnectionClosed("broken")

    assert (handle.stateless, handle.personal, handle.done, handle.unsent) == (True, True, False, False)
    with handle.queued(), handle.bounded(), handle.authorizing(sent=True):
        handle.unsent = True
    handle.receive(answer)
    handle.fail(error)

    assert request.entered == ["queued", "bounded", "authorizing, sent: True"]
    assert request.unsent
    assert handle.unsent
    assert handle.done
    assert heard == request.received == [answer]
    assert request.failed == [error]


async def test_several_servers_and_connections_are_kept_apart(path: Path) -> None:
    def named(name: str) -> Server:
        server = Server(name)

        @server.tool
        def who() -> str:
            return name

        return server

    said = []
    for servers in ((named("one"), named("two")), (NOWHERE, NOWHERE)):
        with fail_after(30), Cassette(path, require_all=True) as cassette:
            first, second = cassette.transport(servers[0]), cassette.transport(servers[1], name="other")
            for transport in (first, second, first):
                async with Client(transport) as client:
                    said.append((await client.call_tool("who")).text)

    assert said == ["one", "two", "one"] * 2
    assert opened(path) == ["server", "other", "server (2)"]


async def test_calls_that_are_not_made_are_an_error_if_all_are_required(path: Path) -> None:
    async with connected(path, make_server()) as client:
        await client.call_tool("fail")
    with pytest.raises(CassetteError, match=r"not used in .*: tools/call; record it again"):
        async with connected(path, NOWHERE, require_all=True):
            pass


async def test_a_connection_that_was_not_recorded_is_an_error_or_a_new_episode(path: Path) -> None:
    async with connected(path, make_server(), sampling=None):
        pass

    async def connect_twice(record_mode: RecordMode) -> None:
        with fail_after(30), Cassette(path, record_mode=record_mode) as cassette:
            transport = cassette.transport(make_server())
            for _ in range(2):
                async with Client(transport):
                    pass

    with pytest.raises(CassetteError, match=r"has no connection 'server \(2\)'; record it again"):
        await connect_twice("once")
    await connect_twice("new_episodes")

    assert opened(path) == ["server", "server (2)"]


async def test_what_a_server_echoes_of_its_arguments_and_environment_is_redacted(path: Path) -> None:
    script = """
import os, sys, anyio
from mcp_host.testing import Server
server = Server("echo")
@server.tool
def echo() -> str:
    return " ".join([*sys.argv[1:], os.environ["MY_TOKEN"], os.environ["DATABASE_URL"], os.environ["MODE"]])
server.run_stdio()
"""
    environment = {"MY_TOKEN": "ghp_0123456789", "DATABASE_URL": "pg://me:p%40ssw0rd@db/x", "MODE": "production"}
    command = [sys.executable, "-c", script, "--token", "argument-1", "--api-key=argument-2"]
    with fail_after(60), Cassette(path) as cassette:
        async with Client(cassette.transport(Stdio(command, env=environment))) as client:
            said = (await client.call_tool("echo")).text

    assert said.startswith("--token argument-1 --api-key=argument-2 ghp_0123456789")
    recorded = [
        message["result"]["content"][0]["text"] for message in messages(path) if "content" in message.get("result", {})
    ]
    assert recorded == ["--token <redacted> --api-key=<redacted> <redacted> pg://me:<redacted>@db/x production"]


@pytest.mark.parametrize("over_httpx", [False, True], ids=["our pool", "httpx"])
async def test_what_a_server_echoes_of_the_headers_that_it_gets_is_redacted(path: Path, over_httpx: bool) -> None:
    """Those of the transport, its URL and a middleware, cookies, and what an Auth and a client add."""
    heard: list[str] = []

    class Renewing(httpx.Auth):
        def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
            for token in ("Bearer refused-k3y-1", "Bearer renewed-k3y-2"):
                yield httpx.Request("POST", request.url, headers={"Authorization": token}, content=b"{}")
            request.headers["Authorization"] = "Bearer current-k3y-3"
            yield request

    async def script(wire: Wire) -> None:
        while True:
            request = await wire.hear()
            heard.extend([request.path, *request.headers.values()])
            if (rpc := request.rpc) and rpc["method"] == "tools/call":
                echo = " and ".join(value.split(" ")[-1].split("=")[-1] for value in heard if "k3y" in value)
                result: dict[str, Any] = {"content": [{"type": "text", "text": f"You came as {echo}"}]}
            else:
                result = DISCOVERED
            body = json.dumps({"jsonrpc": "2.0", "id": rpc.get("id"), "result": {**result, "resultType": "complete"}})
            await wire.reply(200, {**JSON, "Set-Cookie": "sid=cookie-k3y-4"}, body.encode())

    own = {"X-App-Secret": "header-k3y-5"}
    client = httpx.AsyncClient(headers={"Api-Key": "client-k3y-7"}, params={"token": "url-k3y-8"})
    options: dict[str, Any] = {"client": client, "auth": Renewing()} if over_httpx else {}
    async with client, serving(script) as peer:
        url = peer.url if over_httpx else peer.url.replace("//", "//me:current-k3y-3@")
        with fail_after(30), Cassette(path) as cassette:
            transport = cassette.transport(StreamableHttp(url, headers=own, **options))
            async with Client(transport, middleware=[add_headers({"X-Api-Key": "middle-k3y-6"})]) as connected:
                said = (await connected.call_tool("who")).text

    assert set(re.findall(r"k3y-\d", said)) == {f"k3y-{n}" for n in (range(1, 9) if over_httpx else (4, 5, 6))}
    assert "k3y" not in json.dumps(read(path).entries)


# The file


def test_without_a_file_none_says_how_to_record(path: Path) -> None:
    with pytest.raises(CassetteError, match=r'there is no .*cassette.json; to record it, use record_mode="once"'):
        Cassette(path, record_mode="none")


async def test_a_recording_in_which_nothing_was_asked_is_replayed_and_replaces_another(path: Path) -> None:
    with Cassette(path):
        pass
    assert read(path) == Contents("", [])
    with Cassette(path, record_mode="none", require_all=True):
        pass

    async with connected(path, make_server(), "all"):
        pass
    with Cassette(path, record_mode="all"):
        pass
    assert read(path) == Contents("", [])


@on_both
async def test_a_recording_that_is_interrupted_leaves_the_old_file(path: Path) -> None:
    async with connected(path, make_server()):
        pass
    old = read(path).entries
    with pytest.raises(ZeroDivisionError):  # noqa: PT012  # the block is the recording
        async with connected(path, make_server(), "all") as client:
            await client.call_tool("fail")
            raise ZeroDivisionError

    assert read(path).entries == old
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize(
    ("options", "error", "why"),
    [
        ({"record_mode": "x"}, ValueError, "^record_mode is one of none, once, new_episodes, all, not 'x'$"),
        ({"redact": [""]}, ValueError, "redact has an empty text"),
        ({"redact": "hunter2"}, TypeError, r"^redact has to be a list of texts, not one text: redact=\[\.\.\.\]$"),
        (
            {"allowed_hosts": "a"},
            TypeError,
            r"^allowed_hosts has to be a list of texts, not one text: allowed_hosts=\[\.\.\.\]$",
        ),
    ],
    ids=["an unknown mode", "an empty secret", "one secret", "one host"],
)
def test_arguments_are_checked_and_secrets_not_repeated(
    path: Path, options: dict[str, Any], error: type[Exception], why: str
) -> None:
    with pytest.raises(error, match=why):
        Cassette(path, **options)


def test_a_note_stands_at_the_top(path: Path) -> None:
    write(path, Contents("recorded against a local server", [{"open": "server"}]))

    line = '{"cassette": 1, "note": "recorded against a local server", "entries": [{"open": "server"}]}\n'
    assert path.read_text() == line
    assert read(path) == Contents("recorded against a local server", [{"open": "server"}])
