"""How soon and how often a dead server is restarted, and for which callers."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import anyio
import pytest

from mcp_host import Client
from mcp_host.errors import AuthError, ConnectFailed, ConnectionClosed, RequestTimeout
from mcp_host.middleware import AnyRequest, CallNext
from mcp_host.protocol.backoff import restart_backoff
from mcp_host.testing import ScriptedPeer
from mcp_host.testing.scripted import Script
from mcp_host.types import ToolListChangedNotification
from tests.client.support import (
    EMPTY,
    Recorder,
    connected,
    ended_by_closing,
    ignore,
    methods,
    open_listening,
    seconds_of_call,
)
from tests.extent import on_both


class Mortal(ScriptedPeer):
    """A server that can be started again. Each script is one of its lives, and the last is repeated."""

    restart = True

    def __init__(self, *lives: Script) -> None:
        super().__init__(self._live)
        self.starts = 0
        self._lives = lives

    async def _live(self, peer: ScriptedPeer) -> None:
        life = self._lives[min(self.starts, len(self._lives) - 1)]
        self.starts += 1
        await life(peer)


pytestmark = [
    on_both,
    pytest.mark.fake_clock,
]  # on which a call takes as long as the pause before its server is started again


async def good_for_one_call(peer: ScriptedPeer) -> None:
    await peer.answer_discover()
    await peer.reply(await peer.receive("tools/call"), EMPTY)
    await peer.aclose()


async def good_for_many(peer: ScriptedPeer) -> None:
    await peer.answer_discover()
    while True:
        await peer.reply(await peer.receive("tools/call"), EMPTY)


async def good_for_nothing(peer: ScriptedPeer) -> None:
    await peer.answer_discover()
    await peer.receive("tools/call")
    await peer.aclose()


async def out_of_order(peer: ScriptedPeer) -> None:
    raise RuntimeError("out of order")


async def call_to_the_end(client: Client) -> float:
    """Call a tool until the end of the server is known, and say how long the call took."""
    took = await seconds_of_call(client)
    await anyio.wait_all_tasks_blocked()
    return took


async def die_over_a_call(client: Client) -> float:
    """The same, of a call that the server does not outlive."""
    began = anyio.current_time()
    with pytest.raises(ConnectionClosed):
        await client.call_tool("x")
    return anyio.current_time() - began


@pytest.mark.parametrize(
    ("pause", "expected"),
    [(0, [0, 0, 1.125, 1.6875, 2.53125, 3.796875]), (1.5, [0, 0, 0, 0.1875, 1.03125, 2.296875])],
    ids=["calls at once", "later calls"],
)
async def test_a_server_that_keeps_dying_is_started_again_less_and_less_soon_after_its_end(
    pause: float, expected: list[float]
) -> None:
    took: list[float] = []
    async with connected(Mortal(good_for_nothing), within=20) as client:
        for _ in range(6):
            took.append(await die_over_a_call(client))
            await anyio.sleep(pause)

    assert took == pytest.approx(expected)


async def test_a_server_that_answers_before_it_dies_is_started_again_at_once_and_without_end() -> None:
    peer = Mortal(good_for_one_call)
    took: list[float] = []

    async with connected(peer) as client:
        for _ in range(20):
            took.append(await call_to_the_end(client))

    assert methods(peer) == 20 * ["server/discover", "tools/call"]
    assert took == pytest.approx(20 * [0])


async def test_an_answer_resets_the_count_of_failed_restarts() -> None:
    lives = good_for_nothing, good_for_nothing, good_for_one_call, good_for_nothing, good_for_one_call

    async with connected(Mortal(*lives)) as client:
        took = [await die_over_a_call(client), await die_over_a_call(client), await seconds_of_call(client)]
        await anyio.wait_all_tasks_blocked()  # until its end is known
        took += [await die_over_a_call(client), await seconds_of_call(client)]

    assert took == pytest.approx([0, 0, 1.125, 0, 1.125])


async def test_a_server_that_keeps_ending_stays_down_until_connect_and_the_errors_say_so() -> None:
    peer, errors = Mortal(good_for_nothing), list[ConnectionClosed]()
    async with connected(peer, within=200) as client:
        for attempt in [lambda: client.call_tool("x")] * 11 + [client.list_tools]:
            with pytest.raises(ConnectionClosed) as raised:
                await attempt()
            errors.append(raised.value)
        starts = len(peer.received) // 2
        await client.connect()

    ended = "the scripted peer has ended"
    stays_down = f"{ended}; it has ended 9 times in a row and stays down until you await client.connect()"
    assert [(str(error), error.may_have_run) for error in errors] == [(ended, True)] * 9 + [(stays_down, False)] * 3
    assert (starts, [message["method"] for message in peer.received[18:]]) == (9, ["server/discover"])


async def test_a_server_that_worked_once_is_not_restarted_endlessly() -> None:
    peer = Mortal(good_for_one_call, out_of_order)
    async with connected(peer, era="modern", within=200) as client:
        await call_to_the_end(client)
        for _ in range(20):
            with pytest.raises(ConnectionClosed) as raised:
                await client.call_tool("x")
            assert not raised.value.may_have_run

    (warning,) = client.warnings
    assert "and stays down until you await client.connect()" in warning
    assert peer.starts == 1 + restart_backoff().max_failures


async def test_restored_subscriptions_do_not_reset_the_count_of_failures() -> None:
    """It answers that and dies, again and again, without a single call answered."""

    async def good_for_a_subscription(peer: ScriptedPeer) -> None:
        await peer.answer_initialize(capabilities={"tools": {}, "resources": {"subscribe": True}})
        await peer.reply(await peer.receive("resources/subscribe"), {})
        if mortal.starts == 1:
            await peer.receive("tools/call")
        await peer.aclose()

    mortal = Mortal(good_for_a_subscription)
    async with connected(mortal, era="legacy", on_change=ignore, within=200) as client:
        await client.subscribe_resource("a:1")
        with pytest.raises(ConnectionClosed):
            await client.call_tool("x")
        for _ in range(20):
            with suppress(ConnectionClosed):
                await client.call_tool("x")

    assert "times in a row and stays down until you await client.connect()" in client.warnings[-1]
    assert mortal.starts == 1 + restart_backoff().max_failures


async def test_many_calls_at_once_start_a_server_again_once() -> None:
    peer = Mortal(good_for_one_call, good_for_many)
    async with connected(peer) as client:
        await call_to_the_end(client)
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(client.call_tool, "x")

    assert methods(peer).count("server/discover") == 2


async def test_a_server_that_cannot_be_started_again_fails_the_call_and_may_come_back() -> None:
    async with connected(Mortal(good_for_one_call, out_of_order, good_for_many), era="modern") as client:
        await call_to_the_end(client)
        with pytest.raises(ConnectFailed, match="out of order"):
            await client.call_tool("x")
        await client.call_tool("x")


async def test_a_call_waits_for_a_restart_up_to_its_timeout_and_the_restart_continues() -> None:
    ready = anyio.Event()

    async def slow(peer: ScriptedPeer) -> None:
        await ready.wait()
        await good_for_one_call(peer)

    peer = Mortal(good_for_one_call, slow)
    async with connected(peer, within=60) as client:
        await call_to_the_end(client)
        with pytest.raises(RequestTimeout, match=r"the server was silent for 1 s \(idle_timeout\)$"):
            await client.call_tool("x", idle_timeout=1)
        with pytest.raises(RequestTimeout) as raised:
            await client.call_tool("x", timeout=1)
        ready.set()
        await client.call_tool("x")

    assert str(raised.value) == "starting the scripted peer again: took longer than 1 s (timeout)"
    assert not raised.value.may_have_run
    assert methods(peer) == 2 * ["server/discover", "tools/call"]


async def test_closing_while_a_server_is_started_again_leaves_nothing() -> None:
    ended = anyio.Event()

    async def never_ready(peer: ScriptedPeer) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    async with connected(Mortal(good_for_one_call, never_ready), within=60) as client:
        await call_to_the_end(client)
        with pytest.raises(RequestTimeout):
            await client.call_tool("x", timeout=1)
        await client.aclose()
        await ended.wait()

    assert not client.connected


async def test_subscriptions_are_restored_without_a_call_though_the_server_dies_of_that_once() -> None:
    lives = [1, 2, 3]

    async def life(peer: ScriptedPeer) -> None:
        number = lives.pop(0)
        await peer.answer_discover(capabilities={"tools": {}, "resources": {"subscribe": True}})
        listen = await peer.receive("subscriptions/listen")
        if number != 2:
            await peer.acknowledge(listen)
        if number == 1:
            await peer.reply(await peer.receive("tools/call"), EMPTY)
        if number != 3:
            await peer.aclose()
        else:
            await peer.notify_subscription(listen, "notifications/resources/updated", {"uri": "a:1"})

    peer, changes = Mortal(life), Recorder()
    async with connected(peer, on_change=changes, within=20) as client:
        await client.subscribe_resource("a:1")
        await client.call_tool("x")
        await changes.called.wait()

    listens = [message["params"] for message in peer.received if message["method"] == "subscriptions/listen"]
    assert [params["notifications"] for params in listens] == [{"resourceSubscriptions": ["a:1"]}] * 3


async def test_with_on_change_a_dead_server_is_restarted_without_a_call() -> None:
    """Nothing is subscribed to by name: to listen to the lists is enough."""
    opened, changes = anyio.Event(), Recorder()

    tools = {"tools": {"listChanged": True}}

    async def ends(peer: ScriptedPeer) -> None:
        await open_listening(peer, tools)
        await opened.wait()
        await peer.aclose()

    async def changes_its_tools(peer: ScriptedPeer) -> None:
        await peer.notify_subscription(await open_listening(peer, tools), "notifications/tools/list_changed")

    peer = Mortal(ends, changes_its_tools)
    async with connected(peer, on_change=changes):
        opened.set()
        await changes.called.wait()

    assert changes == [ToolListChangedNotification()]
    assert methods(peer) == 2 * ["server/discover", "subscriptions/listen"]


async def test_a_restart_without_a_call_that_needs_a_login_is_left_to_the_next_call() -> None:
    asked = 0

    async def authorize(request: AnyRequest, call_next: CallNext) -> dict[str, Any]:
        nonlocal asked
        if request.method == "server/discover":
            asked += 1
            if asked == 2:
                raise AuthError("a login is needed")
        return await call_next(request)

    async with connected(Mortal(good_for_one_call), on_change=ignore, middleware=[authorize], within=100) as client:
        await client.call_tool("x")
        await anyio.sleep(50)
        assert asked == 2
        await client.call_tool("x")

    assert asked == 3


async def test_a_server_that_ends_when_the_client_is_nearly_connected_fails_that_or_is_restarted_without_a_call() -> (
    None
):
    """The server acknowledges the subscription and ends. Which of the two the client learns first may differ."""

    async def life(peer: ScriptedPeer) -> None:
        await peer.answer_discover(capabilities={"tools": {"listChanged": True}})
        listen = await peer.receive("subscriptions/listen")
        if restarted.is_set():
            await peer.acknowledge(listen)
            await peer.notify_subscription(listen, "notifications/tools/list_changed")
            return
        restarted.set()
        meta = {"io.modelcontextprotocol/subscriptionId": listen["id"]}
        params = listen["params"] | {"_meta": meta}
        acknowledgment = {"method": "notifications/subscriptions/acknowledged", "params": params}
        peer._outbox.send_nowait(json.dumps({"jsonrpc": "2.0", **acknowledgment}).encode())
        peer._outbox.close()  # at once: with `aclose`, the client would be connected before

    for _ in range(10):
        restarted, changes = anyio.Event(), Recorder()
        peer = Mortal(life)
        openings = 1
        with anyio.fail_after(5), suppress(ConnectFailed):
            async with Client(peer, on_change=changes):
                openings = 2
                await changes.called.wait()

        assert methods(peer).count("server/discover") == openings


async def test_closing_wakes_those_who_wait_for_a_server_that_is_started_again() -> None:
    async with connected(Mortal(good_for_nothing)) as client:
        for _ in range(2):  # the second start comes at once, the third after a second
            await die_over_a_call(client)
        (ended,) = await ended_by_closing(client, lambda: client.call_tool("x"))

    assert "closed" in str(ended)


async def test_a_call_that_waits_for_a_restart_ends_if_the_client_is_closed_as_soon_as_it_is_connected() -> None:
    answer_discover = anyio.Event()

    async def slow(peer: ScriptedPeer) -> None:
        await answer_discover.wait()
        await peer.answer_discover()

    async def call_again() -> None:
        with pytest.raises(ConnectionClosed, match="the client was closed"):
            await client.call_tool("x")

    async def connect_and_close() -> None:
        await client.connect()
        await client.aclose()

    client = Client(Mortal(good_for_one_call, slow))
    with anyio.fail_after(5):
        await client.connect()
        await call_to_the_end(client)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call_again)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(connect_and_close)
            await anyio.wait_all_tasks_blocked()
            answer_discover.set()

    assert not client.connected


async def test_a_call_while_the_application_connects_again_waits_for_that_and_restarts_nothing() -> None:
    answer_discover = anyio.Event()

    async def slow(peer: ScriptedPeer) -> None:
        await answer_discover.wait()
        await good_for_one_call(peer)

    peer = Mortal(good_for_one_call, slow)
    async with connected(peer) as client:
        await call_to_the_end(client)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.connect)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(client.call_tool, "x")
            await anyio.wait_all_tasks_blocked()
            answer_discover.set()

    assert methods(peer) == 2 * ["server/discover", "tools/call"]
