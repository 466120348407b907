"""Connections that are slow, break off, end or are closed while something is in flight: what is settled, sent again and left."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from mcp_host import Client, EraCache, SamplingRequest, Stdio, StreamableHttp
from mcp_host.errors import (
    ConnectFailed,
    ConnectionClosed,
    ConnectTimeout,
    HeaderMismatch,
    HttpStatusError,
    RequestTimeout,
    ServerError,
    Unauthorized,
)
from mcp_host.limits import Limits
from mcp_host.protocol import backoff
from mcp_host.protocol.eras import Complete
from mcp_host.protocol.jsonrpc import Request
from mcp_host.testing import ScriptedPeer
from mcp_host.transports.base import Headers, RequestHandle
from mcp_host.transports.in_process import MemoryChannel
from mcp_host.types import CreateMessageResult
from tests.client.sites import refused, response
from tests.client.support import EMPTY, INITIALIZED, QUESTION, connected, sampling
from tests.extent import on_both
from tests.transports.children import counted, python

LISTEN = "subscriptions/listen"
MODERN = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {}}
CHANGING = {"tools": {"listChanged": True}, "resources": {"subscribe": True}}


async def ignore(change: object) -> None:
    pass


# Finding the era


@on_both
@pytest.mark.fake_clock
@pytest.mark.parametrize("code", [-32601, -32602, -32020, -32022])
async def test_a_slow_server_that_shakes_no_hands_is_waited_for(code: int) -> None:
    async def script(peer: ScriptedPeer) -> None:
        probe = await peer.receive("server/discover")
        await peer.reply_error(await peer.receive("initialize"), code, "no", {"supported": ["2026-07-28"]})
        await peer.reply(probe, MODERN)
        await peer.reply(await peer.receive("tools/call"), EMPTY)

    async with connected(ScriptedPeer(script)) as client:
        await client.call_tool("x")


@pytest.mark.fake_clock
async def test_a_silent_server_that_refuses_the_handshake_fails_with_that() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.reply_error(await peer.receive("initialize"), -32000, "out of order")

    with anyio.fail_after(5), pytest.raises(ServerError, match="out of order"):
        await Client(ScriptedPeer(script)).connect()


@on_both
@pytest.mark.fake_clock
async def test_a_wrong_era_that_ends_in_a_timeout_is_forgotten() -> None:
    """The server is modern, and says nothing to a handshake."""

    async def script(peer: ScriptedPeer) -> None:
        await peer.reply(await peer.receive("server/discover"), MODERN)

    peer = ScriptedPeer(script)
    era_cache = EraCache({peer.identity: "legacy"})
    client = Client(peer, era_cache=era_cache, limits=Limits(connect_timeout=0.2))
    with anyio.fail_after(5):
        with pytest.raises(ConnectTimeout):
            await client.connect()
        async with client:
            assert client.protocol_version == "2026-07-28"


async def test_a_wrong_era_that_ends_in_a_server_error_by_http_is_forgotten() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        message = json.loads(request.content)
        if message["method"] != "server/discover":
            return httpx.Response(500)
        return response(message, MODERN)

    transport = StreamableHttp("http://s.test/mcp", client=httpx.AsyncClient(transport=httpx.MockTransport(answer)))
    client = Client(transport, era_cache=EraCache({transport.identity: "legacy"}))
    with anyio.fail_after(5):
        with pytest.raises(HttpStatusError):
            await client.connect()
        async with client:
            assert client.protocol_version == "2026-07-28"


async def test_a_pinned_client_teaches_the_others_nothing() -> None:
    """It was not free to find out."""

    async def both(peer: ScriptedPeer) -> None:
        request = await peer.receive()
        await peer.reply(request, INITIALIZED if request["method"] == "initialize" else MODERN)

    peer, era_cache = ScriptedPeer(both), EraCache()
    with anyio.fail_after(5):
        async with Client(peer, era_cache=era_cache, era="legacy"):
            assert era_cache.export() == {}
        async with Client(peer, era_cache=era_cache) as client:
            assert client.protocol_version == "2026-07-28"


@on_both
@pytest.mark.fake_clock
async def test_a_server_known_to_be_modern_gets_no_handshake_however_slow_it_is() -> None:
    async def slow(peer: ScriptedPeer) -> None:
        probe = await peer.receive("server/discover")
        with anyio.move_on_after(20):  # ten times the silence after which another server would get one
            await peer.receive()
        await peer.reply(probe, MODERN)

    peer = ScriptedPeer(slow)
    async with connected(peer, era_cache=EraCache({peer.identity: "modern"}), within=25):
        pass

    assert [message["method"] for message in peer.received] == ["server/discover"]


async def test_a_servers_text_is_escaped_and_cut_in_a_warning() -> None:
    async def script(peer: ScriptedPeer) -> None:
        for _ in range(2):
            await peer.reply_error(await peer.receive("server/discover"), -32020, "\x1b[2J\n" + "x" * 100_000)
        await peer.reply(await peer.receive("tools/call"), EMPTY)

    async with connected(ScriptedPeer(script)) as client:
        await client.call_tool("x")
        (warning,) = client.warnings

    assert warning.isprintable()
    assert len(warning) < 500


async def test_credentials_that_are_asked_for_after_the_version_was_settled_are_an_authorization_error() -> None:
    statuses = [400, 401]

    def answer(request: httpx.Request) -> httpx.Response:
        error = {"code": -32021, "message": "no", "data": {"requiredCapabilities": {}}}
        return httpx.Response(statuses.pop(0), json={"jsonrpc": "2.0", "id": 1, "error": error})

    http = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    with anyio.fail_after(5), pytest.raises(Unauthorized):
        await Client(StreamableHttp("http://s.test/mcp", client=http)).connect()


# Rounds


def site(*answers: Callable[[dict[str, Any]], httpx.Response]) -> Client:
    """A client of a stateless server over HTTP that answers what comes after the discovery with *answers*."""
    left = list(answers)

    def answer(request: httpx.Request) -> httpx.Response:
        message = json.loads(request.content)
        return result(MODERN)(message) if message["method"] == "server/discover" else left.pop(0)(message)

    http = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    return Client(StreamableHttp("http://s.test/mcp", client=http), roots=[])


def result(value: dict[str, Any]) -> Callable[[dict[str, Any]], httpx.Response]:
    return lambda message: response(message, value)


def refuse_connection(message: dict[str, Any]) -> httpx.Response:
    raise httpx.ConnectError("refused")


WANTS_ROOTS = {"resultType": "input_required", "inputRequests": {"r": {"method": "roots/list"}}, "requestState": "s"}


def break_off(message: dict[str, Any]) -> httpx.Response:
    raise httpx.ReadError("reset")


@pytest.mark.fake_clock
@pytest.mark.parametrize(
    ("answers", "ask", "error"),
    [
        ([result(WANTS_ROOTS), *4 * [refuse_connection]], lambda client: client.call_tool("x"), ConnectFailed),
        ([result(WANTS_ROOTS), refused(400, -32020)], lambda client: client.call_tool("x"), HeaderMismatch),
        ([break_off, *5 * [refuse_connection]], lambda client: client.read_resource("a:1"), ConnectFailed),
    ],
    ids=["its first round", "headers were refused later", "its first attempt"],
)
async def test_a_call_may_have_run_if_a_part_of_it_was_sent(
    answers: list[Callable[..., httpx.Response]],
    ask: Callable[[Client], Awaitable[object]],
    error: type[Any],
) -> None:
    with anyio.fail_after(5):
        async with site(*answers) as client:
            with pytest.raises(error) as raised:
                await ask(client)

    assert raised.value.may_have_run


@on_both
@pytest.mark.fake_clock
async def test_the_pause_before_a_request_is_made_again_counts() -> None:
    with anyio.fail_after(5):
        async with site(break_off, break_off) as client:
            with pytest.raises(RequestTimeout, match=r"took longer than 0.05 s \(timeout\)$"):
                await client.read_resource("a:1", timeout=0.05)


@on_both
async def test_closing_ends_the_pause_before_a_request_is_made_again() -> None:
    broken = anyio.Event()

    def note_and_break_off(message: dict[str, Any]) -> httpx.Response:
        broken.set()
        return break_off(message)

    client = site(note_and_break_off, note_and_break_off)
    client._state.retry_delays = (60.0,)

    async def read() -> None:
        with pytest.raises(ConnectionClosed) as raised:
            await client.read_resource("a:1")
        assert raised.value.may_have_run

    with anyio.fail_after(5):
        await client.connect()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await broken.wait()
            await anyio.wait_all_tasks_blocked()
            await client.aclose()


# Subscriptions


@on_both
@pytest.mark.fake_clock
async def test_subscriptions_that_are_never_acknowledged_do_not_pile_up() -> None:
    open_streams: set[object] = set()

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover(capabilities=CHANGING)
        first = await peer.receive(LISTEN)
        await peer.acknowledge(first)
        open_streams.add(first["id"])
        while True:
            message = await peer.receive()
            if message["method"] == LISTEN:
                open_streams.add(message["id"])
            elif message["method"] == "notifications/cancelled":
                open_streams.discard(message["params"]["requestId"])
            else:
                await peer.reply(message, EMPTY)

    async with connected(ScriptedPeer(script), on_change=ignore, within=10) as client:
        for number in range(10):
            with pytest.raises(RequestTimeout):
                await client.subscribe_resource(f"a:{number}", timeout=0.02)
            with anyio.move_on_after(0.02):
                await client.subscribe_resource(f"b:{number}")
        await client.call_tool("x")
        await anyio.wait_all_tasks_blocked()

        assert open_streams == {2}  # the one that was acknowledged: it goes on


@on_both
@pytest.mark.fake_clock
async def test_a_subscription_waits_for_another_no_longer_than_it_may_take() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover(capabilities=CHANGING)

    async with connected(ScriptedPeer(script)) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(client.subscribe_resource, "a:1")
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(RequestTimeout):
            await client.subscribe_resource("a:2", timeout=0.05)
        tasks.cancel_scope.cancel()


async def test_lists_that_the_server_does_not_agree_to_are_named_in_a_warning() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover(capabilities={"tools": {"listChanged": True}, "prompts": {"listChanged": True}})
        await peer.acknowledge(await peer.receive(LISTEN), {"toolsListChanged": True})

    async with connected(ScriptedPeer(script, name="half"), on_change=ignore) as client:
        assert client.warnings == ["half does not agree to promptsListChanged: such changes are not reported"]


async def test_a_change_that_belongs_to_no_subscription_is_not_believed() -> None:
    changes: list[object] = []

    async def on_change(change: object) -> None:
        changes.append(change)

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover(capabilities=CHANGING)
        await peer.acknowledge(await peer.receive(LISTEN))
        await peer.notify("notifications/tools/list_changed")
        await peer.reply(await peer.receive("tools/call"), EMPTY)

    async with connected(ScriptedPeer(script), on_change=on_change) as client:
        await client.call_tool("x")
        await anyio.wait_all_tasks_blocked()
        assert client.counters["notifications for nothing"] == 1

    assert changes == []


async def test_an_error_without_an_id_fails_the_only_call_besides_a_subscription() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover(capabilities=CHANGING)
        await peer.acknowledge(await peer.receive(LISTEN))
        await peer.receive("tools/call")
        await peer.send({"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "cannot read that"}})

    async with connected(ScriptedPeer(script), on_change=ignore) as client:
        with pytest.raises(ServerError, match="cannot read that"):
            await client.call_tool("x")


# Starting again


@on_both
async def test_a_client_that_is_closed_while_its_dead_server_is_let_go_stays_closed(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    lingering = f"""
    discovered()
    reply(read(), text(str(start)))
    os.close(1)
    while not os.path.exists({str(gate)!r}):
        time.sleep(0.01)
    """
    client = Client(counted(tmp_path / "starts", lingering))

    async def call() -> None:
        with suppress(ConnectionClosed):
            await client.call_tool("x")

    with anyio.fail_after(20):
        await client.connect()
        await client.call_tool("x")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(client.aclose)
            await anyio.wait_all_tasks_blocked()
            gate.touch()

    assert not client.connected
    assert (tmp_path / "starts").read_text() == "x"


class Restarted(ScriptedPeer):
    restart = True


@on_both
@pytest.mark.fake_clock
async def test_closing_wakes_those_who_wait_for_a_server_that_is_started_again() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover()
        await peer.receive()
        await peer.aclose()

    async def call() -> None:
        with pytest.raises(ConnectionClosed, match="closed"):
            await client.call_tool("x")

    async with connected(Restarted(script)) as client:
        for _ in range(2):  # the second start comes at once, the third after a second
            with pytest.raises(ConnectionClosed):
                await client.call_tool("x")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await anyio.wait_all_tasks_blocked()
            await client.aclose()


@on_both
@pytest.mark.fake_clock
async def test_a_server_that_worked_once_is_not_restarted_endlessly() -> None:
    starts: list[int] = []

    async def script(peer: ScriptedPeer) -> None:
        starts.append(1)
        if len(starts) > 1:
            raise RuntimeError("out of order")
        await peer.answer_discover()
        await peer.reply(await peer.receive("tools/call"), EMPTY)
        await peer.aclose()

    async with connected(Restarted(script), era="modern", within=200) as client:
        await client.call_tool("x")
        await anyio.wait_all_tasks_blocked()  # until its end is known
        for _ in range(20):
            with pytest.raises(ConnectionClosed) as raised:
                await client.call_tool("x")
            assert not raised.value.may_have_run

    (warning,) = client.warnings
    assert "and stays down until you await client.connect()" in warning
    assert len(starts) == 1 + backoff.restart_backoff().max_failures


@on_both
@pytest.mark.fake_clock
async def test_restored_subscriptions_do_not_reset_the_count_of_failures() -> None:
    """It answers that and dies, again and again, without a single call answered."""
    starts: list[int] = []

    async def script(peer: ScriptedPeer) -> None:
        starts.append(1)
        await peer.answer_initialize(capabilities={"tools": {}, "resources": {"subscribe": True}})
        await peer.reply(await peer.receive("resources/subscribe"), {})
        if len(starts) == 1:
            await peer.receive("tools/call")
        await peer.aclose()

    async with connected(Restarted(script), era="legacy", on_change=ignore, within=200) as client:
        await client.subscribe_resource("a:1")
        with pytest.raises(ConnectionClosed):
            await client.call_tool("x")
        for _ in range(20):
            with suppress(ConnectionClosed):
                await client.call_tool("x")

    assert "times in a row and stays down until you await client.connect()" in client.warnings[-1]
    assert len(starts) == 1 + backoff.restart_backoff().max_failures


# Callbacks


@pytest.mark.backends("trio")  # asyncio itself stops for a task that exits
async def test_a_callback_whose_own_tasks_exit_ends_no_host() -> None:
    asked = anyio.Event()

    async def exits(change: object) -> None:
        asked.set()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(leave)

    async def leave() -> None:
        raise SystemExit(3)

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover(capabilities=CHANGING)
        listen = await peer.receive(LISTEN)
        await peer.acknowledge(listen)
        await peer.notify_subscription(listen, "notifications/tools/list_changed")
        await asked.wait()
        await peer.reply(await peer.receive("tools/call"), EMPTY)

    async with connected(ScriptedPeer(script), on_change=exits) as client:
        await client.call_tool("x")


@on_both
async def test_closing_while_a_subscription_ends_raises_nothing() -> None:
    unsubscribing = anyio.Event()

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover(capabilities=CHANGING)
        for _ in range(2):
            await peer.acknowledge(await peer.receive(LISTEN))
        await peer.receive(LISTEN)
        unsubscribing.set()

    client = Client(ScriptedPeer(script), on_change=ignore)

    async def unsubscribe() -> None:
        with pytest.raises(ConnectionClosed):
            await client.unsubscribe_resource("a:1")

    with anyio.fail_after(5):
        await client.connect()
        await client.subscribe_resource("a:1")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(unsubscribe)
            await unsubscribing.wait()
            await client.aclose()


@on_both
async def test_a_client_that_is_dropped_when_its_server_ends_leaves_nothing() -> None:
    left = anyio.Event()

    def drop() -> None:
        clients.clear()
        gc.collect()

    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_discover()
        try:
            await peer.receive()
        finally:
            left.set()

    peer = ScriptedPeer(script, name="brief")
    with anyio.fail_after(5):
        clients = [Client(peer)]
        await clients[0].connect()
        peer._outbox.close()  # not `aclose`, which would let the client know before it is dropped
        with pytest.warns(ResourceWarning, match="a client of brief was dropped without being closed"):
            drop()
        await left.wait()


async def test_any_refusal_clears_the_cached_discovery() -> None:
    """A server that was rolled back may refuse with any error."""
    with anyio.fail_after(5):
        async with site(refused(400, -32000)) as client:
            cache = client._state.cache
            cache.keep("server/discover", {"version": "2026-07-28"}, Complete(MODERN, 60.0))
            with pytest.raises(HttpStatusError):
                await client.call_tool("x")
            assert cache.find("server/discover", {"version": "2026-07-28"}) is None


@on_both
async def test_a_channel_that_fails_a_pending_request_ends_the_call_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def script(peer: ScriptedPeer) -> None:
        await peer.answer_initialize()

    async def lose(channel: MemoryChannel, request: Request, headers: Headers, handle: RequestHandle) -> None:
        handle.fail(ConnectionClosed("lost on its way"))
        with handle.bounded():
            await anyio.sleep_forever()

    async with connected(ScriptedPeer(script), era="legacy") as client:
        monkeypatch.setattr(MemoryChannel, "request", lose)
        with pytest.raises(ConnectionClosed, match="lost on its way"):
            await client.ping()


def test_a_handler_may_run_an_event_loop_in_a_thread_of_asyncios() -> None:
    """Such a thread inherits the handler's context, which must not say that an event loop runs there."""
    server = """
        call = read()
        say({"id": "q", "method": "sampling/createMessage", "params": json.loads(QUESTION)})
        reply(call, text(read()["result"]["content"]["text"]))
    """

    async def think() -> str:
        return "Paris"

    async def model(request: SamplingRequest) -> CreateMessageResult:
        return request.reply(await asyncio.to_thread(anyio.run, think))

    async def main() -> str:
        command = python(server.replace("QUESTION", repr(json.dumps(QUESTION))))
        async with asyncio.timeout(10), Client(Stdio(command), sampling=sampling(with_tools=model)) as client:
            return (await client.call_tool("geo")).text

    assert asyncio.run(main()) == "Paris"
