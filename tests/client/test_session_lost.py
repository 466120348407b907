"""A server that has lost our session gets one new handshake, and most callers do not notice."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import anyio
import httpx
import pytest

from mcp_host import Allow, Client, Deny, Sampling, SamplingRequest, StreamableHttp, ToolPins, ToolPolicy, always
from mcp_host.errors import (
    AuthError,
    CallDenied,
    CallerError,
    ConnectFailed,
    ConnectionClosed,
    ConnectTimeout,
    HttpStatusError,
    McpError,
    ProtocolError,
    RequestTimeout,
    SessionLost,
    ToolChanged,
    Unauthorized,
)
from mcp_host.limits import Limits
from mcp_host.middleware import AnyRequest, CallNext, ClientRequest, approve_tool_calls
from tests.client.rounds import SAMPLE
from tests.client.sites import refused, response, streamed
from tests.client.support import EMPTY, INITIALIZED, HangingModel, asking_server, connected, say_paris
from tests.clock import advance
from tests.extent import on_both
from tests.transports.http_peers import EVENTS

pytestmark = on_both

URL = "http://mcp.test/mcp"
WELCOME = INITIALIZED | {"capabilities": {"tools": {}, "resources": {"subscribe": True}, "logging": {}}}
Wire = dict[str, Any]


class Gate:
    """Where a server holds messages of one method until it is opened."""

    def __init__(self) -> None:
        self.reached, self.opened = anyio.Event(), anyio.Event()


class Forgetful:
    """An HTTP server with sessions, which a test can make it forget."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str | None]] = []
        self.known: set[str] = set()
        self.welcomes = True
        self.remembers = True
        self.description = "Adds numbers."
        self.gates: dict[str, Gate] = {}
        self.streams: list[httpx.Response] = []
        self.instead: dict[str, Callable[[Wire], httpx.Response]] = {}
        """What it answers to some methods, in the place of the usual results; "response" is for the client's answers."""
        self._sessions = 0

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        session = request.headers.get("mcp-session-id")
        if request.method != "POST":
            return self.streams.pop() if self.streams else httpx.Response(405)
        message = json.loads(request.content)
        method = message.get("method", "response")
        self.heard.append((method, session))
        if gate := self.gates.get(method):
            gate.reached.set()
            await gate.opened.wait()
        if method == "initialize":
            return self._welcome(message)
        if session not in self.known:
            return httpx.Response(404)
        if method in self.instead:
            return self.instead[method](message)
        if "id" not in message:
            return httpx.Response(202)
        tool = {"name": "add", "description": self.description, "inputSchema": {}}
        results: Wire = {"tools/call": EMPTY, "tools/list": {"tools": [tool]}}
        return response(message, results.get(method, {}))

    def _welcome(self, message: Wire) -> httpx.Response:
        if not self.welcomes:
            return httpx.Response(503, headers={"retry-after": "7"})
        self._sessions += 1
        id = f"s{self._sessions}"
        if self.remembers:
            self.known = {id}
        welcome = response(message, WELCOME)
        welcome.headers["mcp-session-id"] = id
        return welcome

    def methods(self, *, since: int = 0) -> list[str]:
        return [method for method, _ in self.heard[since:]]


@asynccontextmanager
async def session_with(
    server: Callable[[httpx.Request], Any], *, auth: httpx.Auth | None = None, **options: Any
) -> AsyncIterator[Client]:
    async with (
        httpx.AsyncClient(transport=httpx.MockTransport(server)) as http,
        connected(StreamableHttp(URL, client=http, auth=auth), era="legacy", **options) as client,
    ):
        yield client


async def test_a_call_that_meets_a_404_is_made_again_in_a_new_session() -> None:
    server = Forgetful()

    async with session_with(server) as client:
        server.known.clear()
        assert (await client.call_tool("x")).content == []

    assert server.heard == [
        ("initialize", None),
        ("notifications/initialized", "s1"),
        ("tools/call", "s1"),
        ("initialize", None),
        ("notifications/initialized", "s2"),
        ("tools/call", "s2"),
    ]


@pytest.mark.parametrize("policy", [None, ToolPolicy(pins=ToolPins())], ids=["no policy", "pins"])
async def test_a_call_that_was_allowed_for_a_lost_session_is_asked_about_before_it_is_sent_in_another(
    policy: ToolPolicy | None,
) -> None:
    server = Forgetful()
    decisions: list[Allow | Deny] = [Allow("session"), Allow(), Deny("not there")]

    async def approve(request: ClientRequest) -> Allow | Deny:
        return decisions.pop(0)

    async with session_with(server, tools=policy, middleware=[approve_tool_calls(approve)]) as client:
        await client.list_tools()
        for _ in range(2):
            await client.call_tool("add")
        server.known.clear()
        await client.call_tool("add")
        server.known.clear()
        with pytest.raises(CallDenied, match="not there"):
            await client.call_tool("add")

    assert [session for method, session in server.heard if method == "tools/call"] == ["s1", "s1", "s1", "s2"]


@pytest.mark.adjustable_clock
async def test_a_call_whose_session_ends_while_it_is_decided_on_is_decided_on_again_and_the_time_does_not_count() -> (
    None
):
    server, asked = Forgetful(), []

    async def approve(request: ClientRequest) -> Allow:
        asked.append(request.session_key)
        advance(100)
        if len(asked) == 1:
            server.known.clear()
            await client.ping()
        return Allow()

    async with session_with(server, within=1_000, middleware=[approve_tool_calls(approve)]) as client:
        await client.call_tool("add", timeout=60)

    assert len(set(map(id, asked))) == 2
    assert [session for method, session in server.heard if method == "tools/call"] == ["s2"]


async def test_a_call_that_meets_a_404_lists_pinned_tools_before_it_is_made_again() -> None:
    """The server may be another version by now."""
    server, policy = Forgetful(), ToolPolicy(pins=ToolPins())

    async with session_with(server, tools=policy) as client:
        await client.call_tool("add")
        for _ in range(2):
            server.heard.clear()
            server.known.clear()
            await client.call_tool("add")
        assert server.methods() == ["tools/call", "initialize", "notifications/initialized", "tools/list", "tools/call"]
        server.description = "Reads keys."
        server.known.clear()
        with pytest.raises(ToolChanged):
            await client.call_tool("add")

    assert [session for method, session in server.heard if method == "tools/call"] == ["s2", "s3", "s3"]


async def test_a_call_that_waits_for_a_new_session_lists_pinned_tools_before_it_is_sent() -> None:
    server = Forgetful()
    async with session_with(server, tools=ToolPolicy(pins=ToolPins())) as client:
        await client.call_tool("add")
        server.known.clear()
        server.description = "Reads keys."
        gate = server.gates["initialize"] = Gate()
        refused: list[ToolChanged] = []

        async def call() -> None:
            with pytest.raises(ToolChanged) as raised:
                await client.call_tool("add")
            refused.append(raised.value)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await gate.reached.wait()
            tasks.start_soon(call)
            await anyio.wait_all_tasks_blocked()
            gate.opened.set()

    assert len(refused) == 2
    assert [session for method, session in server.heard if method == "tools/call"] == ["s1", "s1"]


async def test_a_call_that_may_have_run_before_the_session_was_lost_is_not_made_again_for_pins_either() -> None:
    class Breaking(Forgetful):
        async def __call__(self, request: httpx.Request) -> httpx.Response:
            return httpx.Response(404) if "last-event-id" in request.headers else await super().__call__(request)

    server, broken = Breaking(), b"retry: 0\nid: 1\ndata:\n\n"
    server.instead["tools/call"] = lambda call: httpx.Response(200, headers=EVENTS, content=broken)
    async with session_with(server, tools=ToolPolicy(pins=ToolPins())) as client:
        with pytest.raises(SessionLost) as raised:
            await client.call_tool("add")

    assert raised.value.may_have_run
    assert server.methods().count("tools/call") == 1


@pytest.mark.fault("H05")
async def test_many_calls_that_meet_a_404_share_one_handshake_even_if_its_caller_is_cancelled() -> None:
    server, doomed = Forgetful(), anyio.CancelScope()

    async def call_and_be_cancelled() -> None:
        with doomed:
            await client.call_tool("doomed")

    async with session_with(server) as client:
        server.known.clear()
        calls = server.gates["tools/call"] = Gate()
        handshake = server.gates["initialize"] = Gate()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call_and_be_cancelled)
            for _ in range(10):
                tasks.start_soon(client.call_tool, "x")
            await anyio.wait_all_tasks_blocked()
            calls.opened.set()
            await handshake.reached.wait()
            await anyio.wait_all_tasks_blocked()
            doomed.cancel()
            await anyio.wait_all_tasks_blocked()
            handshake.opened.set()

    assert Counter(server.methods())["initialize"] == 2
    assert Counter(session for method, session in server.heard if method == "tools/call") == {"s1": 11, "s2": 10}


async def test_a_notification_waits_for_a_handshake_under_way() -> None:
    server = Forgetful()
    async with session_with(server) as client, anyio.create_task_group() as tasks:
        server.known.clear()
        gate = server.gates["initialize"] = Gate()
        tasks.start_soon(client.call_tool, "x")
        await gate.reached.wait()
        tasks.start_soon(client.notify, "notifications/moved")
        await anyio.wait_all_tasks_blocked()
        assert "notifications/moved" not in server.methods()
        gate.opened.set()

    assert ("notifications/moved", "s2") in server.heard


@pytest.mark.fault("H05")
async def test_subscriptions_and_the_log_level_are_re_established() -> None:
    server = Forgetful()

    async with session_with(server) as client:
        await client.subscribe_resource("a:b")
        await client.subscribe_resource("c:d")
        await client.unsubscribe_resource("c:d")
        await client.set_log_level("warning")
        server.known.clear()
        before = len(server.heard)
        await client.call_tool("x")

    assert server.methods(since=before) == [
        "tools/call",
        "initialize",
        "notifications/initialized",
        "resources/subscribe",
        "logging/setLevel",
        "tools/call",
    ]


@pytest.mark.fault("H06")
async def test_a_server_that_keeps_losing_sessions_fails_the_call() -> None:
    server = Forgetful()

    async with session_with(server) as client:
        server.known.clear()
        server.remembers = False
        with pytest.raises(SessionLost) as failure:
            await client.call_tool("x")

    assert not failure.value.may_have_run
    assert Counter(server.methods()) == {"initialize": 2, "notifications/initialized": 2, "tools/call": 2}


@pytest.mark.fault("H06")
async def test_a_handshake_that_fails_fails_the_call_and_the_next_call_tries_again() -> None:
    server = Forgetful()

    async with session_with(server) as client:
        server.known.clear()
        server.welcomes = False
        with pytest.raises(HttpStatusError) as failure:
            await client.call_tool("x")
        server.welcomes = True
        assert (await client.call_tool("y")).content == []

    assert (failure.value.status, failure.value.retry_after) == (503, 7)


async def test_an_approval_for_a_session_ends_with_it() -> None:
    server = asking_server()

    async def approve(request: SamplingRequest) -> Allow:
        asked.append(request)
        return Allow("session")

    asked: list[SamplingRequest] = []
    counts = []
    with anyio.fail_after(25):
        async with server.http() as url:
            client = Client(StreamableHttp(url), era="legacy", sampling=Sampling(with_tools=say_paris, approve=approve))
            async with client:
                await client.call_tool("ask")
                await client.call_tool("ask")
                counts.append(len(asked))
                await server.expire_sessions()
                await client.call_tool("ask")
                await client.call_tool("ask")
                counts.append(len(asked))
            async with client:
                await client.call_tool("ask")
                counts.append(len(asked))

    assert counts == [1, 2, 3]


USER: ContextVar[str] = ContextVar("USER", default="the application")


async def test_the_next_session_is_begun_in_the_context_of_the_client_and_not_of_the_call_that_notices() -> None:
    """Every user shares it, so the token that middleware finds for one of them must not open it."""
    server, asked = asking_server(), list[tuple[str, str]]()

    @server.tool
    def hello() -> str:
        return "hello"

    async def note(request: AnyRequest, call_next: CallNext) -> Any:
        asked.append((request.method, USER.get()))
        return await call_next(request)

    async def call_as(user: str) -> None:
        USER.set(user)
        await client.call_tool("hello")

    with anyio.fail_after(25):
        async with server.http() as url, Client(StreamableHttp(url), era="legacy", middleware=[note]) as client:
            for user in ("ada", "carol"):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(call_as, user)
                await server.expire_sessions()

    by = "the application"
    assert asked == [("initialize", by), ("tools/call", "ada"), ("tools/call", "carol"), ("initialize", by)]


async def test_a_handler_of_a_lost_session_is_cancelled() -> None:
    """What the old session asked for must not be answered into the new one."""
    server, model = asking_server(), HangingModel()

    @server.tool
    async def hello() -> str:
        return "hello"

    async def ask_and_lose(client: Client) -> None:
        with pytest.raises(McpError):
            await client.call_tool("ask")

    with anyio.fail_after(25):
        async with server.http() as url:
            sampling = Sampling(with_tools=model, approve=always)
            async with (
                Client(StreamableHttp(url), era="legacy", sampling=sampling) as client,
                anyio.create_task_group() as tasks,
            ):
                tasks.start_soon(ask_and_lose, client)
                await model.begun.wait()
                await server.expire_sessions()
                await client.call_tool("hello")
                await model.ended.wait()


async def test_a_handler_that_no_call_waits_for_is_cancelled_with_its_session_too() -> None:
    server, model = Forgetful(), HangingModel()
    server.streams.append(streamed({"id": "q", **SAMPLE}, anyio.Event()))
    async with session_with(server, sampling=Sampling(with_tools=model, approve=always)) as client:
        await model.begun.wait()
        server.known.clear()
        await client.call_tool("x")
        await model.ended.wait()

    assert server.methods() == ["initialize", "notifications/initialized", "tools/call"] * 2


@pytest.mark.fake_clock
async def test_a_call_waits_for_a_handshake_under_way_no_longer_than_it_may() -> None:
    server = Forgetful()
    async with session_with(server, limits=Limits(connect_timeout=3)) as client:
        server.known.clear()
        server.gates["initialize"] = Gate()
        with pytest.raises(RequestTimeout):
            await client.call_tool("x", timeout=0.1)


@pytest.mark.fake_clock
async def test_a_new_session_that_takes_too_long_is_a_connect_timeout() -> None:
    server = Forgetful()
    async with session_with(server, limits=Limits(connect_timeout=0.3)) as client:
        await client.subscribe_resource("a:b")
        server.known.clear()
        server.gates["resources/subscribe"] = Gate()
        with pytest.raises(ConnectTimeout, match="did not take up a new session in time"):
            await client.call_tool("x")


async def test_a_subscription_that_cannot_be_restored_is_a_warning_and_the_call_continues() -> None:
    server = Forgetful()
    async with session_with(server) as client:
        await client.set_log_level("debug")
        server.known.clear()
        server.instead["logging/setLevel"] = refused(200, -32602)
        assert (await client.call_tool("x")).content == []
        (warning,) = client.warnings

    assert "logging/setLevel could not be re-established: no" in warning


@pytest.mark.fake_clock
async def test_leaving_a_stream_does_not_cancel_so_a_notification_is_sent() -> None:
    """In these revisions "disconnection SHOULD NOT be interpreted as the client cancelling its request"."""
    server = Forgetful()

    async with session_with(server) as client:
        server.gates["tools/call"] = Gate()
        with pytest.raises(RequestTimeout):
            await client.call_tool("x", timeout=0.05)
        await anyio.wait_all_tasks_blocked()

    assert server.methods(since=2) == ["tools/call", "notifications/cancelled"]


@pytest.mark.fault("H35")
async def test_an_answer_that_cannot_be_delivered_is_counted_and_ends_nothing() -> None:
    def ping_and_answer(call: Wire) -> httpx.Response:
        return streamed({"id": "p", "method": "ping"}, {"id": call["id"], "result": EMPTY})

    server = Forgetful()
    server.instead["tools/call"] = ping_and_answer
    server.instead["response"] = lambda answer: httpx.Response(400)  # at a 500 it would be sent again
    async with session_with(server) as client:
        assert (await client.call_tool("x")).content == []
        await anyio.wait_all_tasks_blocked()

        assert client.counters == {"undelivered messages": 1}


async def test_middleware_of_the_new_handshake_cannot_wait_for_that() -> None:
    server = Forgetful()
    clients: list[Client] = []

    async def token(request: AnyRequest, call_next: CallNext) -> dict[str, Any]:
        if request.method == "initialize" and clients:
            await clients[0].call_tool("token")
        return await call_next(request)

    async with session_with(server, middleware=[token]) as client:
        clients.append(client)
        server.known.clear()
        with pytest.raises(CallerError, match=r"^the client is connecting: "):
            await client.call_tool("x")


OF_ANOTHER_SERVER = [
    SessionLost("of another server", may_have_run=False),
    ConnectionClosed("of another server"),
    ConnectFailed("of another server", may_have_run=False),
    RequestTimeout("of another server"),
    Unauthorized(401, "of another server"),
    ProtocolError("of another server"),
]


@pytest.mark.parametrize("error", OF_ANOTHER_SERVER, ids=lambda error: type(error).__name__)
async def test_an_auth_whose_own_client_fails_loses_no_session_and_is_not_asked_again(error: McpError) -> None:
    """Such as one that gets its tokens from a tool."""

    class Auth(httpx.Auth):
        requires_request_body = True
        asked = 0

        async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
            if b'"tools/call"' in request.content:
                self.asked += 1
                raise error
            yield request

    server, auth = Forgetful(), Auth()
    async with session_with(server, auth=auth) as client:
        with pytest.raises(AuthError) as raised:
            await client.call_tool("x")

    assert str(raised.value) == f"an Auth raised {type(error).__name__}: of another server"
    assert raised.value.__cause__ is error
    assert auth.asked == 1
    assert server.methods() == ["initialize", "notifications/initialized"]
