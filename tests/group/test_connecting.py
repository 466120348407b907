"""Servers connect at once; one that is down, hangs or crashes costs the others nothing, and is back when it is back."""

from __future__ import annotations

import gc
import math
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import wait_all_tasks_blocked as settled

from mcp_host.errors import CallerError, ConnectionClosed, NotConnected
from mcp_host.group import ClientGroup, ServerStatus
from mcp_host.group.group import WAIT
from mcp_host.group.options import Wait
from mcp_host.group.status import StatusChanges
from mcp_host.middleware import AnyRequest, CallNext
from mcp_host.testing import ScriptedPeer, Server
from mcp_host.transports.stdio import Stdio
from tests.clock import advance
from tests.extent import on_both
from tests.group.files import written
from tests.group.support import METHOD_NOT_FOUND, Node, Seen, names, opened, states
from tests.transports.children import python

pytestmark = on_both

in_no_time = pytest.mark.fake_clock


@in_no_time
async def test_ten_servers_that_take_a_second_for_each_answer_are_waited_for_at_once() -> None:
    async def take_a_second(request: AnyRequest, call_next: CallNext) -> dict[str, Any]:
        waiting[request.method] += 1
        most[request.method] = max(most[request.method], waiting[request.method])
        await anyio.sleep(1)
        waiting[request.method] -= 1
        return await call_next(request)

    waiting, most = Counter[str](), Counter[str]()
    began = anyio.current_time()
    async with opened({name: Node("x") for name in "abcdefghij"}, middleware=[take_a_second]) as group:
        assert anyio.current_time() - began == pytest.approx(3)
        assert await names(group) == [f"{name}__x" for name in "abcdefghij"]

    assert most == {"server/discover": 10, "subscriptions/listen": 10, "tools/list": 10}


@in_no_time
async def test_entering_waits_for_the_first_for_all_for_some_seconds_or_for_none(subtests: pytest.Subtests) -> None:
    """The dead one has failed at once, and the one that hangs fails after its `connect_timeout`."""
    waits: list[tuple[Wait | float, float, dict[str, str]]] = [
        ("none", 0.0, {"good": "connecting", "hangs": "connecting", "dead": "connecting"}),
        ("first", 0.0, {"good": "ready", "hangs": "connecting", "dead": "down"}),
        ("all", 30.0, {"good": "ready", "hangs": "down", "dead": "down"}),
        (7, 7.0, {"good": "ready", "hangs": "connecting", "dead": "down"}),
        (math.inf, 30.0, {"good": "ready", "hangs": "down", "dead": "down"}),
        (WAIT, 5.0, {"good": "ready", "hangs": "connecting", "dead": "down"}),
    ]
    for wait, seconds, expected in waits:
        nodes = {"good": Node("x"), "hangs": Node("x", hangs=True), "dead": Node("x")}
        nodes["dead"].up = False
        with subtests.test(wait=wait):
            began = anyio.current_time()
            async with opened(nodes, within=60, wait=wait) as group:
                assert anyio.current_time() - began == pytest.approx(seconds, abs=0.1)
                if wait == "first":
                    await settled()
                assert states(group) == expected


async def test_a_group_whose_servers_have_all_failed_is_open(subtests: pytest.Subtests) -> None:
    for wait in ("first", "all"):
        node = Node("x")
        node.up = False
        with subtests.test(wait):
            async with opened({"a": node}, wait=wait) as group:
                assert (states(group), await names(group)) == ({"a": "down"}, [])


@in_no_time
async def test_a_server_that_hangs_costs_neither_a_list_nor_the_calls_of_others_any_time() -> None:
    began = anyio.current_time()
    async with opened({"hangs": Node("x", hangs=True), "good": Node("x")}, wait="first") as group:
        assert await names(group) == ["good__x"]
        assert (await group.call_tool("good__x")).text == "a node: x"
        with pytest.raises(NotConnected, match="the server 'hangs' is connecting"):
            await group.call_tool("hangs__x")
        assert anyio.current_time() == began


@in_no_time
async def test_a_server_that_is_down_is_tried_again_with_growing_pauses_and_is_back_when_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Timed(Node):
        async def _serve_one(self, peer: ScriptedPeer) -> None:
            times[anyio.current_time()] = None  # an attempt opens it in one era and then in the other
            await super()._serve_one(peer)

    times = dict[float, None]()
    node, seen = Timed("x"), Seen()
    node.up = False
    async with opened({"a": node}, within=3600, on_status=seen) as group:
        await anyio.sleep(400)
        pauses = [round(after - before, 1) for before, after in pairwise(times)]
        assert pauses[:4] == [0.8, 1.1, 1.7, 2.5]
        assert pauses[-2:] == [60.0, 60.0]
        assert pauses == sorted(pauses)
        assert "failed: RuntimeError: down" in str(group.status()["a"].error)
        node.up = True
        await seen.until("a", "ready")
        assert await names(group) == ["a__x"]

    assert seen == [("a", "connecting"), ("a", "down"), ("a", "ready")]
    warnings = [record.getMessage() for record in caplog.records if record.name == "mcp_host.group.member"]
    assert [warning[:24] for warning in warnings] == ["the server 'a' is down: "]


@in_no_time
async def test_a_server_that_crashes_is_left_out_at_once_and_connected_again_at_once() -> None:
    node, seen = Node("x"), Seen()
    async with opened({"a": node, "b": Node("y")}, on_status=seen) as group:
        began = anyio.current_time()
        await node.crash()
        await seen.until("a", "down")
        assert await names(group) == ["b__y"]
        with pytest.raises(NotConnected, match="the server 'a' is down: a has ended"):
            await group.call_tool("a__x")
        await seen.until("a", "ready", 2)
        status = group.status()["a"]

    assert anyio.current_time() == began
    assert (status.restarts, status.tools, status.protocol_version) == (1, 1, "2026-07-28")
    assert status.error == "a has ended"


async def test_a_group_that_is_closed_says_so_and_not_why_a_server_was_down_before() -> None:
    node, gone, seen = Node("x"), Node("z"), Seen()
    gone.up = False
    async with opened({"a": node, "gone": gone}, on_status=seen) as group:
        await node.crash()
        await seen.until("a", "ready", 2)
        assert group.status()["a"].error == "a has ended"
        reason = group.status()["gone"].error

    for each in (group, ClientGroup({"a": node})):
        assert (each.status()["a"].state, each.status()["a"].error) == ("down", None)
        with pytest.raises(NotConnected, match=r"^the group is not open: use `async with`$"):
            await each.call_tool("a__x")
    assert (group.status()["gone"].state, group.status()["gone"].error) == ("down", reason)  # that was not the closing


@in_no_time
async def test_a_server_that_crashes_again_and_again_is_paused_unless_it_was_of_use() -> None:
    async def pauses_between_crashes(*, useful: bool) -> list[float]:
        node, seen = Node("x"), Seen()
        pauses = list[float]()
        async with opened({"a": node}, within=600, on_status=seen) as group:
            for crashes in range(1, 5):
                if useful:
                    await group.call_tool("a__x")
                began = anyio.current_time()
                await node.crash()
                await seen.until("a", "ready", crashes + 1)
                pauses.append(round(anyio.current_time() - began, 1))
        return pauses

    assert await pauses_between_crashes(useful=False) == [0.0, 1.1, 1.7, 2.5]
    assert await pauses_between_crashes(useful=True) == [0.0] * 4


@in_no_time
async def test_a_server_that_cannot_list_its_tools_is_down_until_it_can() -> None:
    node, seen = Node("x"), Seen()
    node.errors["tools/list"] = (-32603, "out of order")
    async with opened({"a": node, "b": Node("y")}, on_status=seen) as group:
        assert (states(group), await names(group)) == ({"a": "down", "b": "ready"}, ["b__y"])
        assert "out of order" in str(group.status()["a"].error)
        del node.errors["tools/list"]
        await seen.until("a", "ready")
        assert node.opened == 1


async def test_a_server_without_tools_is_ready() -> None:
    without = Node()
    without.errors["tools/list"] = METHOD_NOT_FOUND
    async with opened({"a": without, "b": Server("legacy", versions=["2025-11-25"])}) as group:
        assert (states(group), await names(group)) == ({"a": "ready", "b": "ready"}, [])


async def test_an_error_of_middleware_costs_its_server_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(request: AnyRequest, call_next: CallNext) -> dict[str, Any]:
        if request.server == "a":
            raise ZeroDivisionError("of the application")
        return await call_next(request)

    async with opened({"a": Node("x"), "b": Node("y")}, middleware=[fail]) as group:
        assert await names(group) == ["b__y"]
        assert "ZeroDivisionError" in str(group.status()["a"].error)

    assert "a: connecting failed" in caplog.text


async def test_a_client_that_the_application_closes_is_connected_again() -> None:
    seen = Seen()
    async with opened({"a": Node("x")}, on_status=seen) as group:
        await group.clients["a"].aclose()
        await seen.until("a", "ready", 2)

    assert seen == [("a", "connecting"), ("a", "ready"), ("a", "down"), ("a", "ready")]


DIES_IN_CALLS = """
import os
with open(sys.argv[1], "a") as starts:
    starts.write("started\\n")
while True:
    request = read()
    if request["method"] == "tools/call":
        sys.exit(3)
    reply(request, {"tools": [{"name": "x", "inputSchema": {"type": "object"}}]})
"""


@pytest.mark.adjustable_clock
async def test_a_process_that_dies_in_a_call_is_started_again_once_whatever_its_restart_says(tmp_path: Path) -> None:
    starts, seen = tmp_path / "starts", Seen()
    server = Stdio([*python(DIES_IN_CALLS), str(starts)], restart=True)
    async with opened({"a": server}, on_status=seen, within=60, wait="all") as group:
        for crashes in (1, 2):
            with pytest.raises(ConnectionClosed) as raised:
                await group.call_tool("a__x")
            assert raised.value.exit_code == 3
            await seen.until("a", "down", crashes)
            advance(5)
            await seen.until("a", "ready", crashes + 1)
        assert "exited with code 3" in str(group.status()["a"].error)
        assert group.clients["a"]._state.transport.restart is False  # its pauses would not grow

    assert starts.read_text().count("started") == 3


async def test_lines_of_stderr_come_with_the_name_of_their_server_and_one_may_have_its_own_callback(
    tmp_path: Path,
) -> None:
    lines, own = list[tuple[str, str]](), list[str]()
    command, args = sys.executable, ["-c", "import sys; sys.exit('no key')"]
    path = written(tmp_path / "mcp.json", {"a": {"command": command, "args": args}})

    def on_stderr(server: str, line: str) -> None:
        lines.append((server, line))

    with anyio.fail_after(200):
        async with ClientGroup.from_file(path, on_stderr=on_stderr, wait="all") as group:
            await group.add("b", [command, *args])
            await group.add("c", Stdio([command, *args], on_stderr=own.append))

    assert {*lines} == {("a", "no key"), ("b", "no key")}
    assert {*own} == {"no key"}


# What the group says


async def test_on_status_hears_every_change_in_order_but_nothing_of_closing() -> None:
    seen, heard = Seen(), list[ServerStatus]()

    async def on_status(status: ServerStatus) -> None:
        heard.append(status)
        await seen(status)

    node = Node("x")
    async with opened({"a": node}, on_status=on_status) as group:
        await seen.until("a", "ready")
        await group.disable("a")
        await group.enable("a")
        await node.change("x", "y")
        await seen.until("a", "ready", 3)
        assert heard[-1] == group.status()["a"]
        assert [status.tools for status in heard] == [None, 1, 1, 1, 1, 2]
        assert heard[-1].since == heard[-2].since

    assert seen.of("a") == ["connecting", "ready", "disabled", "connecting", "ready", "ready"]
    assert states(group) == {"a": "down"}


async def test_a_plain_on_status_runs_in_a_thread_and_what_it_raises_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    threads, done = list[threading.Thread](), threading.Event()

    def on_status(status: ServerStatus) -> None:
        threads.append(threading.current_thread())
        if status.state == "ready":
            done.set()
        raise ZeroDivisionError

    async with opened({"a": Node("x")}, on_status=on_status):
        assert await anyio.to_thread.run_sync(done.wait, 10)

    assert threading.main_thread() not in threads
    assert "on_status failed" in caplog.text


async def test_on_status_may_close_the_group() -> None:
    closed = anyio.Event()

    async def on_status(status: ServerStatus) -> None:
        try:
            await group.aclose()
        finally:
            closed.set()

    with anyio.fail_after(25):
        group = ClientGroup({"a": Node("x")}, on_status=on_status, wait="all")
        with pytest.raises(ConnectionClosed, match="the group was closed while it was being opened"):
            await group.__aenter__()
        await closed.wait()
        await group.aclose()


async def test_an_on_status_that_hangs_keeps_no_more_than_the_last_changes() -> None:
    heard, go_on = list[int | None](), anyio.Event()

    async def on_status(status: ServerStatus) -> None:
        await go_on.wait()
        heard.append(status.tools)

    changes = StatusChanges(on_status)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(changes.hand_over)
        await settled()
        for number in range(1_100):
            changes.add(ServerStatus(name="a", state="ready", since=datetime.now(UTC), tools=number))
        go_on.set()
        await settled()
        tasks.cancel_scope.cancel()

    assert heard == [*range(100, 1_100)]


# Opening and closing


async def test_a_group_is_used_only_while_it_is_open_and_can_be_opened_again() -> None:
    node = Node("x")
    group = ClientGroup({"a": node, "b": Node("y")}, wait="all")
    assert states(group) == {"a": "down", "b": "down"}
    uses: list[Callable[[], Any]] = [
        group.list_tools,
        group.list_prompts,
        partial(group.add, "c", Node()),
        partial(group.enable, "a"),
        partial(group.replace, "a", Node()),
        partial(group.log_in, "a"),
        partial(group.call_tool, "a__x"),
    ]

    async def refusals() -> int:
        refused = 0
        for use in uses:
            with pytest.raises(NotConnected):
                await use()
            refused += 1
        return refused

    with anyio.fail_after(25):
        await group.aclose()
        assert await refusals() == len(uses)
        await group.disable("b")
        for opened_times in (1, 2):
            async with group:
                assert (await names(group), node.opened) == (["a__x"], opened_times)
                with pytest.raises(CallerError, match="the group is open already"):
                    await group.__aenter__()
            assert await refusals() == len(uses)
            assert states(group) == {"a": "down", "b": "disabled"}
        await group.aclose()


async def test_cancelling_the_entry_closes_what_was_opened() -> None:
    good, hangs = Node("x"), Node("x", hangs=True)
    group = ClientGroup({"good": good, "hangs": hangs}, wait="all")
    with anyio.fail_after(25):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(group.__aenter__)
            await settled()
            assert (good.open_now, hangs.open_now) == (1, 1)
            tasks.cancel_scope.cancel()

        assert (good.open_now, hangs.open_now, states(group)) == (0, 0, {"good": "down", "hangs": "down"})


async def test_another_task_can_close_which_ends_calls_and_waits_for_all() -> None:
    node = Node("x")
    node.answers = anyio.Event()

    async def call() -> None:
        with pytest.raises(ConnectionClosed):
            await group.call_tool("a__x")
        ended.append("call")

    ended = list[str]()
    with anyio.fail_after(25):
        group = ClientGroup({"a": node, "hangs": Node(hangs=True)}, wait="first")
        await group.__aenter__()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await node.calling.wait()
            tasks.start_soon(group.aclose)
            tasks.start_soon(group.aclose)

        assert (ended, node.open_now) == (["call"], 0)


async def test_servers_are_closed_side_by_side() -> None:
    class Closing(Node):
        async def _serve_one(self, peer: ScriptedPeer) -> None:
            try:
                await super()._serve_one(peer)
            finally:
                closing.append(self.name)
                if len(closing) == 3:
                    all_closing.set()
                with anyio.CancelScope(shield=True):
                    await all_closing.wait()

    closing, all_closing = list[str](), anyio.Event()
    async with opened({name: Closing("x", name=name) for name in "abc"}):
        pass

    assert sorted(closing) == ["a", "b", "c"]


def test_a_group_can_be_opened_in_another_event_loop_but_not_while_it_is_open_in_one() -> None:
    group = ClientGroup({"a": Node("x")}, wait=300.0)

    async def use() -> list[str]:
        async with group:
            listed = await names(group)
            with pytest.raises(CallerError, match="this group is open in another event loop"):
                await anyio.to_thread.run_sync(anyio.run, group.aclose)
            return listed

    async def leave_open() -> None:
        await group.__aenter__()

    for backend in ("asyncio", "trio", "asyncio"):
        assert anyio.run(use, backend=backend) == ["a__x"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # the loop ends with what is open in it
            anyio.run(leave_open, backend=backend)


async def test_a_group_that_is_dropped_warns_and_is_closed() -> None:
    node = Node("x")

    async def open_and_drop() -> None:
        group = ClientGroup({"a": node}, on_status=Seen(), wait="all")
        await group.__aenter__()
        assert await names(group) == ["a__x"]
        del group
        gc.collect()

    with anyio.fail_after(25):
        with pytest.warns(ResourceWarning, match="a group of the servers 'a' was dropped without being closed"):
            await open_and_drop()
        while node.open_now:
            await settled()


def test_what_is_wrong_in_the_arguments_is_said_at_once(subtests: pytest.Subtests) -> None:
    node = Node()
    for arguments, error in (
        (([node],), "servers is a mapping of names to servers"),
        (("mcp.json",), r"not str; ClientGroup\.from_file\(path\) reads a file"),
        (({"mcpServers": {"a": {"command": "x"}}},), r"a whole configuration: write ClientGroup\.from_file\(path\)"),
        (({"": node},), "the name of a server has 1 to 64 characters"),
        (({"a": 5},), "the server 'a': Client cannot connect to a int"),
    ):
        with subtests.test(error), pytest.raises((TypeError, ValueError), match=error):
            ClientGroup(*arguments)
    for options, error in (
        ({"wait": "last"}, 'wait is "first", "all", "none" or a number of seconds'),
        ({"wait": -1}, "wait"),
        ({"on_status": 5}, "on_status"),
        ({"approve": 5}, "approve"),
        ({"limits": 5}, "limits"),
        ({"on_log": 5}, "on_log"),
        ({"on_stderr": 5}, "on_stderr has to be a plain function"),
    ):
        with subtests.test(error), pytest.raises((TypeError, ValueError), match=error):
            ClientGroup({"a": node}, **options)


def test_its_repr_says_how_many_are_ready() -> None:
    assert repr(ClientGroup({"a": Node(), "b": Node()})) == "<ClientGroup of 2 servers, 0 of them ready>"
