"""Pings after silence: a live connection is kept alive, a dead one is found out. All on a clock that does not wait."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import chain, repeat
from typing import Any

import anyio
import httpx
import pytest

from mcp_host import Client
from mcp_host.errors import ConnectionClosed, McpError
from mcp_host.limits import Limits
from mcp_host.middleware import AnyRequest, CallNext, ClientRequest
from mcp_host.testing import ScriptedPeer
from mcp_host.testing.scripted import Script
from tests.client.support import EMPTY, HANDSHAKE, QUESTION, STATELESS, connected, methods, sampling
from tests.client.test_restart_backoff import Mortal
from tests.client.test_session_lost import URL, Forgetful, Gate, session_with
from tests.extent import on_both
from tests.transports.http_peers import NoLogin

INTERVAL, IDLE_TIMEOUT = 30.0, 7.0
LIMITS = Limits(idle_timeout=IDLE_TIMEOUT)
DAY = 86_400.0

pytestmark = [on_both, pytest.mark.fake_clock]


class Answering:
    """The script of a server that notes when it is asked what, and answers all but *mute* methods."""

    def __init__(self, *mute: str, calls_take: float = 0.0, errors: Sequence[int] = ()) -> None:
        self.heard: list[tuple[str, float]] = []
        """Methods, and seconds after the handshake."""
        self.handshakes = 0
        self._mute = mute
        self._calls_take = calls_take
        self._errors = iter(errors)
        """The codes with which it answers pings, as long as there are any."""

    async def __call__(self, peer: ScriptedPeer) -> None:
        await HANDSHAKE.open(peer)
        self.handshakes += 1
        begun = anyio.current_time()
        while True:
            request = await peer.receive()
            method = request.get("method", "response")
            self.heard.append((method, round(anyio.current_time() - begun, 3)))
            if method == "tools/call":
                await anyio.sleep(self._calls_take)
            if "id" not in request or "method" not in request or method in self._mute:
                continue
            if method == "ping" and (code := next(self._errors, None)) is not None:
                await peer.reply_error(request, code, "no")
            else:
                await peer.reply(request, EMPTY if method == "tools/call" else {})


@asynccontextmanager
async def silent_for(seconds: float, server: ScriptedPeer | Script, **options: Any) -> AsyncIterator[Client]:
    """A client of *server*, or of one with that script, when it has done nothing for so many seconds."""
    peer = server if isinstance(server, ScriptedPeer) else ScriptedPeer(server)
    options = {"ping_interval": INTERVAL, "limits": LIMITS, **options}
    async with connected(peer, **options, within=30 * DAY) as client:
        await anyio.sleep(seconds)
        yield client


# Silence


@pytest.mark.parametrize("interval", [None, math.inf])
async def test_without_an_interval_no_ping_is_sent(interval: float | None) -> None:
    server = Answering()
    async with silent_for(DAY, server, ping_interval=interval):
        pass

    assert server.heard == []


async def test_a_ping_is_sent_after_each_interval_of_silence_and_an_error_is_an_answer() -> None:
    server = Answering(errors=[-32601, -32603, -1])
    async with silent_for(130, server) as client:
        assert (client.connected, client.warnings) == (True, [])
        connection = client._lifetime.connection
        assert connection is not None
        assert not connection.useful  # a server that dies after each first ping is not started for ever

    assert server.heard == [("ping", 30), ("ping", 60), ("ping", 90), ("ping", 120)]


async def test_no_ping_is_sent_while_a_call_is_in_flight_which_begins_a_new_interval() -> None:
    """Some servers answer nothing while a tool runs."""
    server = Answering(calls_take=1000)
    async with silent_for(25, server) as client:
        await client.call_tool("x", idle_timeout=2000)
        await anyio.sleep(35)

    assert server.heard == [("tools/call", 25), ("ping", 1055)]


async def test_a_message_of_the_server_begins_a_new_interval() -> None:
    pinged = anyio.Event()

    async def script(peer: ScriptedPeer) -> None:
        await HANDSHAKE.open(peer)
        begun = anyio.current_time()
        for _ in range(10):
            await anyio.sleep(29)
            await peer.notify("notifications/message", {"level": "info", "data": "waves"})
        await peer.reply(await peer.receive("ping"), {})
        assert anyio.current_time() - begun == pytest.approx(10 * 29 + 30)
        pinged.set()

    async with silent_for(0, script):
        await pinged.wait()


async def test_no_ping_is_sent_while_a_request_of_the_server_is_answered() -> None:
    ended = anyio.Event()

    async def slow(request: Any) -> Any:
        await anyio.sleep(100)
        return request.reply("Paris", model="m")

    async def script(peer: ScriptedPeer) -> None:
        await HANDSHAKE.open(peer)
        begun = anyio.current_time()
        await peer.request("sampling/createMessage", QUESTION)
        assert anyio.current_time() - begun == pytest.approx(100)
        assert [message for message in peer.received if message.get("method") == "ping"] == []
        await peer.reply(await peer.receive("ping"), {})
        ended.set()

    async with silent_for(0, script, sampling=sampling(with_tools=slow)):
        await ended.wait()


async def test_a_revision_without_ping_needs_none() -> None:
    peer = ScriptedPeer(STATELESS.open)
    async with connected(peer, ping_interval=INTERVAL, limits=LIMITS, within=2 * DAY) as client:
        await anyio.sleep(DAY)
        assert client.connected

    assert methods(peer) == ["server/discover"]


# Servers that are alive


async def test_a_server_that_ignores_pings_and_says_something_else_is_alive() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await HANDSHAKE.open(peer)
        while True:
            await peer.receive("ping")
            await anyio.sleep(IDLE_TIMEOUT - 1)
            await peer.notify("notifications/message", {"level": "info", "data": "waves"})

    async with silent_for(1000, script) as client:
        assert client.connected
        assert client.warnings == []


async def test_a_ping_is_no_sign_of_death_while_a_call_runs_that_has_begun_since() -> None:
    server = Answering("ping", calls_take=100)
    async with silent_for(30.5, server) as client:
        assert (await client.call_tool("x", idle_timeout=200)).content == []
        assert client.connected

    assert server.heard == [("ping", 30), ("tools/call", 30.5), ("notifications/cancelled", 130.5)]


# Servers that are dead


async def test_a_server_that_does_not_answer_has_ended() -> None:
    server = Answering("ping")
    async with silent_for(INTERVAL + IDLE_TIMEOUT - 0.1, server) as client:
        assert client.connected
        await anyio.sleep(0.2)
        assert not client.connected
        with pytest.raises(ConnectionClosed) as caught:
            await client.call_tool("x")

    assert str(caught.value) == "the scripted peer: no answer to a ping for 7 s"
    assert caught.value.may_have_run is False


@pytest.mark.parametrize("listens", [False, True], ids=["by the next call", "at once for a client that listens"])
async def test_it_is_restarted_where_servers_are_restarted_and_pinged_again(listens: bool) -> None:
    servers = [Answering("ping"), Answering()]
    options: dict[str, Any] = {"on_change": lambda change: None} if listens else {}
    async with silent_for(100, Mortal(*servers), era="legacy", **options) as client:
        assert servers[1].handshakes == listens
        await client.call_tool("x")
        before = len(servers[1].heard)
        await anyio.sleep(INTERVAL)

    assert [method for method, _ in servers[1].heard[before:]] == ["ping"]


# Over HTTP


def over_http(server: Callable[[httpx.Request], Any], **options: Any) -> AbstractAsyncContextManager[Client]:
    return session_with(server, ping_interval=INTERVAL, limits=LIMITS, within=30 * DAY, **options)


HELLO = ["initialize", "notifications/initialized"]


async def test_pings_keep_a_session_alive() -> None:
    """The server forgets a session that it has not heard of for a minute."""
    last = 0.0
    server = Forgetful()

    async def expiring(request: httpx.Request) -> httpx.Response:
        nonlocal last
        now = anyio.current_time()
        if now - last > 60:
            server.known.clear()
        last = now
        return await server(request)

    async with over_http(expiring) as client:
        await anyio.sleep(1000)
        await client.call_tool("x")

    assert server.methods() == [*HELLO, *33 * ["ping"], "tools/call"]
    assert {session for _, session in server.heard[1:]} == {"s1"}


async def test_a_ping_that_finds_the_session_lost_begins_another() -> None:
    server = Forgetful()
    async with over_http(server) as client:
        server.known.clear()
        await anyio.sleep(INTERVAL + 1)
        assert server.methods() == [*HELLO, "ping", *HELLO]
        await client.call_tool("x")
        assert client.warnings == []

    assert server.heard[-1] == ("tools/call", "s2")


async def test_a_session_whose_ping_is_not_answered_is_replaced() -> None:
    server = Forgetful()
    async with over_http(server) as client:
        gate = server.gates["ping"] = Gate()
        await anyio.sleep(INTERVAL + IDLE_TIMEOUT + 1)
        gate.opened.set()
        await client.call_tool("x")

        assert client.warnings == [f"{URL}: no answer to a ping for 7 s: initializing again"]

    assert [method for method in server.methods() if method != "notifications/cancelled"] == [
        *HELLO,
        "ping",
        *HELLO,
        "tools/call",
    ]
    assert server.heard[-1] == ("tools/call", "s2")


async def test_pings_go_on_if_no_new_session_can_be_had_yet() -> None:
    server = Forgetful()
    async with over_http(server) as client:
        server.known.clear()
        server.welcomes = False
        await anyio.sleep(INTERVAL + 1)
        (warning,) = client.warnings
        assert warning.startswith(f"{URL}: no new session: HTTP 503 Service Unavailable")

        server.welcomes = True
        await anyio.sleep(INTERVAL)
        await client.call_tool("x")

    assert server.heard[-1] == ("tools/call", "s2")


@pytest.mark.parametrize("kind", [None, NoLogin], ids=["401", "an Auth"])
async def test_a_client_that_is_no_longer_authorized_pings_when_a_request_has_succeeded(
    kind: type[NoLogin] | None,
) -> None:
    auth = None if kind is None else kind()
    server, refuses = Forgetful(), False

    async def protected(request: httpx.Request) -> httpx.Response:
        answer = await server(request)
        return httpx.Response(401) if refuses and request.method == "POST" else answer

    async with over_http(protected, auth=auth) as client:
        refuses = True
        await anyio.sleep(10 * INTERVAL)
        assert server.methods() == [*HELLO, "ping"]
        with pytest.raises(McpError):
            await client.call_tool("x")
        refuses = False
        await anyio.sleep(10 * INTERVAL)
        await client.call_tool("x")
        assert server.methods() == [*HELLO, "ping", "tools/call", "tools/call"]
        await anyio.sleep(INTERVAL + 1)

    assert server.methods()[-1] == "ping"
    assert auth is None or auth.asked == 2


async def test_a_server_that_cannot_be_reached_for_a_while_is_pinged_until_it_is_back() -> None:
    server, away, refused = Forgetful(), False, 0

    async def sometimes(request: httpx.Request) -> httpx.Response:
        nonlocal refused
        if away:
            refused += request.method == "POST"  # beside the stream that the client looks for
            raise httpx.ConnectError("refused")
        return await server(request)

    async with over_http(sometimes) as client:
        away = True
        await anyio.sleep(100)
        away = False
        await anyio.sleep(INTERVAL)
        assert (client.connected, client.warnings) == (True, [])
        await client.call_tool("x")

    assert refused == 3 * 4  # each ping is sent again three times
    assert server.methods()[2:] == ["ping", "tools/call"]


async def test_a_status_is_an_answer() -> None:
    server, statuses = Forgetful(), chain(10 * [500], 10 * [503], repeat(401))
    server.instead["ping"] = lambda message: httpx.Response(next(statuses))

    async with over_http(server) as client:
        await anyio.sleep(1000)
        assert (client.connected, client.warnings) == (True, [])

    assert server.methods() == [*HELLO, *21 * ["ping"]]  # none after the 401


# Closing, middleware


async def test_closing_does_not_wait_for_a_ping() -> None:
    async with silent_for(INTERVAL + 1, Answering("ping")) as client:
        begun = anyio.current_time()
        await client.aclose()

        assert anyio.current_time() == begun


async def test_pings_go_through_middleware_for_its_headers() -> None:
    keys: list[str | None] = []
    server = Forgetful()

    async def noting(request: httpx.Request) -> httpx.Response:
        if b'"ping"' in request.content:
            keys.append(request.headers.get("x-key"))
        return await server(request)

    async def middleware(request: AnyRequest, call_next: CallNext) -> dict[str, Any]:
        if isinstance(request, ClientRequest) and request.method == "ping":
            assert request.call_id is None
            request = request.with_headers({"X-Key": "1"})
        return await call_next(request)

    async with over_http(noting, middleware=[middleware]):
        await anyio.sleep(INTERVAL + 1)

    assert keys == ["1"]


async def test_the_time_that_middleware_takes_before_a_ping_is_no_silence_of_the_server() -> None:
    async def middleware(request: AnyRequest, call_next: CallNext) -> dict[str, Any]:
        if request.method == "ping":
            await anyio.sleep(3 * IDLE_TIMEOUT)  # for a fresh token, say
        return await call_next(request)

    server = Answering()
    async with silent_for(INTERVAL + 4 * IDLE_TIMEOUT, server, middleware=[middleware]) as client:
        assert client.connected

    assert server.heard == [("ping", INTERVAL + 3 * IDLE_TIMEOUT)]


async def test_middleware_that_fails_for_pings_is_a_warning() -> None:
    async def middleware(request: AnyRequest, call_next: CallNext) -> dict[str, Any]:
        if isinstance(request, ClientRequest) and request.method == "ping":
            raise ZeroDivisionError("boo")
        return await call_next(request)

    async with silent_for(70, Answering(), middleware=[middleware]) as client:
        assert client.connected
        assert client.warnings == 2 * ["the scripted peer: a ping failed: boo"]
