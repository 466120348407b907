"""`OAuth` and what a client does by itself: no person is asked to log in for it. On a clock that does not wait."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from mcp_host import Change, Client, OAuth, StreamableHttp
from mcp_host.auth import AuthorizationNeeded, ClientSecret, LoginFailed
from mcp_host.concurrency.asking import unattended
from mcp_host.errors import RequestTimeout
from tests.auth.authorization_server import Grant
from tests.auth.test_proofs import Bound
from tests.auth.world import Answers, Gate, World, logged_in
from tests.extent import on_both

pytestmark = [pytest.mark.fake_clock, on_both]

ERAS = pytest.mark.parametrize("era", ["modern", "legacy"])

LATER = 200.0  # seconds in which a stream that broke is opened again, if nothing keeps it from that
ACKNOWLEDGED, CHANGED = "notifications/subscriptions/acknowledged", "notifications/tools/list_changed"


class Streams(Answers):
    """A server whose first stream tells of a change and breaks, *meanwhile* something else happens. The second stays open."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        super().__init__()
        self.opened = 0
        self._meanwhile = meanwhile

    async def respond(self, method: str, message: dict[str, Any]) -> Response | None:
        if method not in ("GET", "subscriptions/listen"):
            return None
        self.opened += 1
        if self.opened == 2:
            await anyio.sleep_forever()
        self._meanwhile()
        meta = {"io.modelcontextprotocol/subscriptionId": message.get("id")}
        params = {"_meta": meta, "notifications": {"toolsListChanged": True}}
        methods = [CHANGED] if method == "GET" else [ACKNOWLEDGED, CHANGED]
        messages = [{"jsonrpc": "2.0", "method": method, "params": params} for method in methods]
        events = "".join(f"data: {json.dumps(message)}\n\n" for message in messages)
        return Response(events, media_type="text/event-stream")


@asynccontextmanager
async def listening(world: World, auth: OAuth, era: str, *, of_httpx: bool = False) -> AsyncIterator[Client]:
    """A client of the world's protected server, when its stream has broken and could be open again.

    The authorization is that of a client *of_httpx*, or of the transport.
    """

    async def note(change: Change) -> None:
        pass

    with anyio.fail_after(50 * LATER):
        http, given = (world.client(auth), None) if of_httpx else (world.client(), auth)
        async with Client(StreamableHttp(world.site.url, client=http, auth=given), era=era, on_change=note) as client:
            await anyio.sleep(LATER)
            yield client


async def calls_for_long(client: Client, tool: str) -> None:
    """Call *tool* now and then."""
    for _ in range(20):
        await client.call_tool(tool)
        await anyio.sleep(LATER)


@ERAS
async def test_a_stream_whose_token_is_refused_is_open_again_with_a_refreshed_one(era: str) -> None:
    world = World()
    world.site.app = streams = Streams(world.server.tokens.clear)

    async with listening(world, world.oauth(), era):
        pass

    assert (streams.opened, world.logins, world.refreshes) == (2, 1, 1)


@ERAS
async def test_a_web_host_has_a_login_for_a_stream_when_a_request_needs_it(era: str) -> None:
    world = World()
    world.site.app = streams = Streams(world.server.forget)
    auth = world.oauth(login=None)

    async def log_in(needing: Callable[[], Awaitable[object]]) -> None:
        with pytest.raises(AuthorizationNeeded) as needed:
            await needing()
        await auth.finish(needed.value.state, await world.person(needed.value.url))

    await log_in(lambda: world.call(auth))
    async with listening(world, auth, era) as client:
        refused = len(world.site.seen)
        await anyio.sleep(LATER)
        assert (streams.opened, len(world.site.seen)) == (1, refused)  # it waits
        await log_in(lambda: client.call_tool("x"))
        await anyio.sleep(LATER)
        assert streams.opened == 1
        await client.call_tool("x")
        await anyio.sleep(LATER)

    assert (streams.opened, world.logins) == (2, 2)


@ERAS
async def test_no_person_is_asked_to_log_in_for_a_stream(era: str) -> None:
    world = World()
    world.site.app = streams = Streams(world.server.forget)

    async with listening(world, world.oauth(), era) as client:
        assert (streams.opened, world.logins) == (1, 1)
        await client.call_tool("x")
        await anyio.sleep(LATER)

    assert (streams.opened, world.logins) == (2, 2)


class Refuses(Answers):
    """A server of the handshake revisions that takes every POST, with or without a token, and refuses its stream with *status*."""

    def __init__(self, status: int) -> None:
        super().__init__()
        self._status = status

    async def respond(self, method: str, message: dict[str, Any]) -> Response | None:
        if method != "GET":
            return None
        challenge = 'Bearer error="insufficient_scope", scope="stream"' if self._status == 403 else "Bearer"
        return Response(status_code=self._status, headers={"www-authenticate": challenge})


@pytest.mark.parametrize(
    ("status", "asked", "dpop", "of_httpx"),
    [
        (401, 20, False, False),  # with a refreshed token each time
        *((403, 1, dpop, of_httpx) for dpop in (False, True) for of_httpx in (False, True)),
    ],
)
async def test_no_person_is_asked_to_log_in_for_a_stream_that_was_never_open(
    status: int, asked: int, dpop: bool, of_httpx: bool
) -> None:
    world = Bound() if dpop else World()
    world.site.app = server = Refuses(status)
    auth = world.bound() if isinstance(world, Bound) else world.oauth()

    async with listening(world, auth, "legacy", of_httpx=of_httpx) as client:
        await calls_for_long(client, "x")

    assert world.logins == 1
    assert 1 <= server.methods.count("GET") <= asked


def lenient(world: World) -> Streams:
    """Only calls of the tool "protected", and the stream, need a token."""
    world.site.app = streams = Streams(lambda: None)
    protected = world.apps[1002]

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        body = await Request(scope, receive).body()

        async def again() -> Message:
            return {"type": "http.request", "body": body}

        is_open = scope["method"] == "POST" and b'"protected"' not in body
        await (streams if is_open else protected)(scope, again, send)

    world.apps[1002] = app
    return streams


async def test_a_stream_that_needs_the_login_of_a_call_is_opened_after_it(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    streams = lenient(world)

    async with listening(world, world.oauth(), "legacy") as client:
        await calls_for_long(client, "open")
        assert (streams.opened, world.logins, world.site.seen) == (0, 0, [""])  # it was asked for once
        await client.call_tool("protected")
        await anyio.sleep(LATER)

    assert (streams.opened, world.logins) == (2, 1)
    url = world.site.url
    why = f"{url} needs a login, and no one waits for this request"
    warning = f"{url}: no stream for server messages until a login: {why}"
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [warning]


async def test_a_stream_that_needs_a_login_is_opened_after_it_however_often_the_token_was_refreshed_before() -> None:
    world = World()
    world.site.app = streams = Streams(lambda: None)
    world.site.needs = lambda body: "stream" if not body or b'"protected"' in body else ""

    async with listening(world, world.oauth(), "legacy") as client:
        for _ in range(20):
            world.now += 2 * world.server.lifetime
            await client.call_tool("open")
            await anyio.sleep(LATER)
        assert (streams.opened, world.refreshes, world.logins) == (0, 20, 1)
        await client.call_tool("protected")
        await anyio.sleep(LATER)

    assert (streams.opened, world.logins) == (2, 2)


async def test_a_stream_whose_token_could_not_be_had_for_a_moment_is_opened_after_the_next_call() -> None:
    world = World()
    streams = lenient(world)
    world.server.clients["mine"] = {"token_endpoint_auth_method": "client_secret_basic", "client_secret": "s"}
    down = True

    async def token(request: Request) -> Response:
        if down:
            return Response(status_code=503)
        return world.server.issue(Grant("mine", "", world.site.url))

    world.server.answers["token"] = token
    auth = world.machine(ClientSecret("mine", "s"))

    async with listening(world, auth, "legacy") as client:
        assert streams.opened == 0
        down = False
        await client.call_tool("open")
        await anyio.sleep(LATER)

    assert streams.opened == 2


class Hangs(Answers):
    """A server whose first call never ends. All tokens are taken back meanwhile."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    async def respond(self, method: str, message: dict[str, Any]) -> Response | None:
        if method == "tools/call" and self.methods.count(method) == 1:
            self._world.server.forget()
            await anyio.sleep_forever()
        return None


async def test_no_person_is_asked_to_log_in_for_a_cancellation_or_a_ping() -> None:
    world = World()
    world.site.app = server = Hangs(world)
    transport = StreamableHttp(world.site.url, client=world.client(), auth=world.oauth())

    with anyio.fail_after(50 * LATER):
        async with Client(transport, era="legacy", ping_interval=30) as client:
            with pytest.raises(RequestTimeout):
                await client.call_tool("x", timeout=5)
            await anyio.sleep(LATER)
            assert (server.methods[-1], world.logins) == ("tools/call", 1)
            assert client.counters["undelivered messages"] == 1
            await client.call_tool("x")
            await anyio.sleep(LATER)

    assert (server.methods[-2:], world.logins) == (["ping", "DELETE"], 2)


async def test_a_call_asks_a_person_if_work_that_no_one_waits_for_may_not() -> None:
    world, auth = await logged_in()
    world.server.forget()
    gate = Gate(world.server, "token")

    async def in_background() -> None:
        with unattended(), pytest.raises(LoginFailed, match="needs a login, and no one waits for this request"):
            await world.call(auth)

    with anyio.fail_after(LATER):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(in_background)
            await gate.reached.wait()
            tasks.start_soon(world.call, auth)
            await anyio.wait_all_tasks_blocked()
            gate.is_open.set()

    assert world.logins == 2
