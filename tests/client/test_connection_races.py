"""Connections that break off, end or are closed while something is in flight: what is settled, sent again and left."""

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

from mcp_host import Client, SamplingRequest, Stdio
from mcp_host.errors import (
    ConnectFailed,
    ConnectionClosed,
    HeaderMismatch,
    HttpStatusError,
    RequestTimeout,
    ServerError,
)
from mcp_host.protocol.eras import Complete
from mcp_host.protocol.jsonrpc import Request
from mcp_host.testing import ScriptedPeer
from mcp_host.transports.base import Headers, RequestHandle
from mcp_host.transports.in_process import MemoryChannel
from mcp_host.types import CreateMessageResult
from tests.client.rounds import ROOTS, wants
from tests.client.sites import Site, refused
from tests.client.support import (
    EMPTY,
    HANDSHAKE,
    QUESTION,
    Recorder,
    connected,
    ended_by_closing,
    ignore,
    open_listening,
    sampling,
)
from tests.extent import on_both
from tests.transports.children import counted, python

LISTEN = "subscriptions/listen"
CHANGING = {"tools": {"listChanged": True}, "resources": {"subscribe": True}}


# Rounds


def site(*answers: Callable[[dict[str, Any]], object]) -> Client:
    """A client of a stateless server over HTTP that answers calls and reads with *answers*."""
    left = list(answers)

    def answer(message: dict[str, Any]) -> object:
        return left.pop(0)(message)

    return Site(tools_call=answer, resources_read=answer).client(roots=[])


def want_roots(message: dict[str, Any]) -> object:
    return wants("s", r=ROOTS)


def refuse_connection(message: dict[str, Any]) -> httpx.Response:
    raise httpx.ConnectError("refused")


def break_off(message: dict[str, Any]) -> httpx.Response:
    raise httpx.ReadError("reset")


@pytest.mark.fake_clock
@pytest.mark.parametrize(
    ("answers", "ask", "error"),
    [
        ([want_roots, *4 * [refuse_connection]], lambda client: client.call_tool("x"), ConnectFailed),
        ([want_roots, refused(400, -32020)], lambda client: client.call_tool("x"), HeaderMismatch),
        ([break_off, *5 * [refuse_connection]], lambda client: client.read_resource("a:1"), ConnectFailed),
    ],
    ids=["its first round", "headers were refused later", "its first attempt"],
)
async def test_a_call_may_have_run_if_a_part_of_it_was_sent(
    answers: list[Callable[..., object]],
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
    client = site(break_off, break_off)
    client._state.retry_delays = (60.0,)

    with anyio.fail_after(5):
        await client.connect()
        (ended,) = await ended_by_closing(client, lambda: client.read_resource("a:1"))

    assert ended.may_have_run


# Subscriptions


@on_both
@pytest.mark.fake_clock
async def test_subscriptions_that_are_never_acknowledged_do_not_pile_up() -> None:
    open_streams: set[object] = set()

    async def script(peer: ScriptedPeer) -> None:
        first = await open_listening(peer, CHANGING)
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
    async def never_acknowledge(peer: ScriptedPeer) -> None:
        await peer.answer_discover(capabilities=CHANGING)

    async with connected(ScriptedPeer(never_acknowledge)) as client, anyio.create_task_group() as tasks:
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
    changes = Recorder()

    async def script(peer: ScriptedPeer) -> None:
        await open_listening(peer, CHANGING)
        await peer.notify("notifications/tools/list_changed")
        await peer.reply(await peer.receive("tools/call"), EMPTY)

    async with connected(ScriptedPeer(script), on_change=changes) as client:
        await client.call_tool("x")
        await anyio.wait_all_tasks_blocked()
        assert client.counters["notifications for nothing"] == 1

    assert changes == []


async def test_an_error_without_an_id_fails_the_only_call_besides_a_subscription() -> None:
    async def script(peer: ScriptedPeer) -> None:
        await open_listening(peer, CHANGING)
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
        listen = await open_listening(peer, CHANGING)
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

    async with connected(ScriptedPeer(script), on_change=ignore) as client:
        await client.subscribe_resource("a:1")
        await ended_by_closing(client, lambda: client.unsubscribe_resource("a:1"), begun=unsubscribing)


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
            cache.keep("server/discover", {"version": "2026-07-28"}, Complete({}, 60.0))
            with pytest.raises(HttpStatusError):
                await client.call_tool("x")
            assert cache.find("server/discover", {"version": "2026-07-28"}) is None


@on_both
async def test_a_channel_that_fails_a_pending_request_ends_the_call_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def lose(channel: MemoryChannel, request: Request, headers: Headers, handle: RequestHandle) -> None:
        handle.fail(ConnectionClosed("lost on its way"))
        with handle.bounded():
            await anyio.sleep_forever()

    async with connected(ScriptedPeer(HANDSHAKE.open), era="legacy") as client:
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
