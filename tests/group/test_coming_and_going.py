"""Servers that are added, removed, replaced, enabled and disabled while calls run."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import anyio
import pytest
from anyio import wait_all_tasks_blocked as settled

from mcp_host.errors import CallerError, ConnectionClosed, NotConnected
from mcp_host.group import ClientGroup, ServerOptions
from mcp_host.middleware import AnyRequest, CallNext
from tests.extent import on_both
from tests.group.support import Node, Seen, names, opened, states

pytestmark = on_both

in_no_time = pytest.mark.fake_clock
Going = Callable[[ClientGroup, float], Coroutine[Any, Any, object]]

GOING: dict[str, Going] = {
    "remove": lambda group, grace: group.remove("a", grace=grace),
    "disable": lambda group, grace: group.disable("a", grace=grace),
    "replace": lambda group, grace: group.replace("a", Node("x", name="new"), grace=grace),
}


async def test_a_server_is_added_once_it_has_answered_and_keeps_its_place_when_it_is_replaced() -> None:
    seen, first = Seen(), Node("x", name="first")
    async with opened({"a": first}, on_status=seen) as group:
        status = await group.add("b", Node("y"))
        assert (status.state, await names(group)) == ("ready", ["a__x", "b__y"])
        replaced = await group.replace("a", Node("z", name="second"))
        assert (replaced.state, replaced.tools, await names(group)) == ("ready", 1, ["a__z", "b__y"])
        assert (await group.call_tool("a__z")).text == "second: z"
        assert (first.open_now, list(group.status()), list(group.clients)) == (0, ["a", "b"], ["a", "b"])
        dead = Node()
        dead.up = False
        assert (await group.add("dead", dead)).state == "down"
        assert (await group.add("later", ServerOptions(Node("x"), enabled=False))).state == "disabled"
        assert (await group.replace("b", ServerOptions(Node("y"), enabled=False))).state == "disabled"
        await group.remove("dead")
        assert states(group) == {"a": "ready", "b": "disabled", "later": "disabled"}

    assert seen.of("a") == ["connecting", "ready", "connecting", "ready"]
    assert seen.of("dead") == ["connecting", "down", "disabled"]


async def test_a_server_of_the_same_name_or_of_the_same_names_of_tools_is_refused() -> None:
    with pytest.raises(ValueError, match="the servers 'a b' and 'a_b_c8687a08' would have tools of the same names"):
        ClientGroup({"a b": Node(), "a_b_c8687a08": Node()})
    async with opened({"a": Node("x")}) as group:
        with pytest.raises(ValueError, match="the group has a server 'a' already"):
            await group.add("a", Node())
        for change in (group.remove, group.enable, group.disable, group.log_in, partial(group.replace, server=Node())):
            with pytest.raises(CallerError, match="'b' is none of the servers 'a'"):
                await change("b")
        with pytest.raises(ValueError, match="grace"):
            await group.disable("a", grace=-1)
        assert states(group) == {"a": "ready"}


async def test_a_server_that_is_disabled_keeps_its_place_and_takes_no_calls_until_it_is_enabled() -> None:
    seen = Seen()
    servers: dict[str, Any] = {"a": ServerOptions(Node("x"), enabled=False), "b": Node("y")}
    async with opened(servers, on_status=seen) as group:
        assert (states(group), await names(group)) == ({"a": "disabled", "b": "ready"}, ["b__y"])
        with pytest.raises(NotConnected, match=r"the server 'a' is disabled$"):
            await group.call_tool("a__x")
        with pytest.raises(NotConnected, match=r"the server 'a' is disabled$"):
            await group.log_in("a")
        assert (await group.enable("a")).state == "ready"
        assert (await group.enable("a")).state == "ready"
        assert await names(group) == ["a__x", "b__y"]
        await group.disable("a")
        await group.disable("a")
        assert await names(group) == ["b__y"]

    assert seen.of("a") == ["connecting", "ready", "disabled"]


@in_no_time
async def test_calls_in_flight_have_the_grace_that_the_host_gives_and_new_ones_are_refused(
    subtests: pytest.Subtests,
) -> None:
    """With the first grace the call ends before it, with the second it is cut off, and with none at once."""
    for way, go in GOING.items():
        for grace, answered_after, seconds, result in (
            (10.0, 3.0, 3.0, "old: x"),
            (5.0, math.inf, 5.0, "ConnectionClosed"),
            (0.0, math.inf, 0.0, "ConnectionClosed"),
        ):
            old, results = Node("x", name="old"), list[str]()
            old.answers = anyio.Event()

            async def call(group: ClientGroup, results: list[str] = results) -> None:
                try:
                    results.append((await group.call_tool("a__x")).text)
                except ConnectionClosed as exc:
                    results.append(type(exc).__name__)

            async def answer(seconds: float = answered_after, old: Node = old) -> None:
                await anyio.sleep(min(seconds, 100))
                old.answers.set()

            with subtests.test(way, grace=grace):
                async with opened({"a": old, "b": Node("y")}) as group, anyio.create_task_group() as tasks:
                    tasks.start_soon(call, group)
                    await old.calling.wait()
                    tasks.start_soon(answer)
                    began = anyio.current_time()
                    await go(group, grace)
                    assert anyio.current_time() - began == pytest.approx(seconds, abs=0.01)
                    await settled()
                    assert (results, old.open_now, old.called) == ([result], 0, ["x"])
                    assert (await group.call_tool("b__y")).text == "a node: y"
                    tasks.cancel_scope.cancel()


@in_no_time
async def test_all_that_give_a_server_grace_end_with_its_last_call() -> None:
    node, ended = Node("x"), list[float]()
    node.answers = anyio.Event()

    async def go(way: str) -> None:
        await GOING[way](group, 20)
        ended.append(anyio.current_time())

    async with opened({"a": node}) as group, anyio.create_task_group() as tasks:
        tasks.start_soon(group.call_tool, "a__x")
        await node.calling.wait()
        began = anyio.current_time()
        for way in ("disable", "remove"):
            tasks.start_soon(go, way)
            await settled()
        node.answers.set()

    assert ended == pytest.approx([began, began], abs=0.01)


@in_no_time
async def test_while_a_server_ends_its_tools_are_gone_and_a_new_one_takes_calls(subtests: pytest.Subtests) -> None:
    for way, go in GOING.items():
        old = Node("x", name="old")
        old.answers = anyio.Event()
        with subtests.test(way):
            async with opened({"a": old}) as group, anyio.create_task_group() as tasks:
                tasks.start_soon(group.call_tool, "a__x")
                await old.calling.wait()
                tasks.start_soon(go, group, 50.0)
                await settled()
                if way == "replace":
                    assert (await group.call_tool("a__x")).text == "new: x"
                else:
                    assert await names(group) == []
                    with pytest.raises(CallerError if way == "remove" else NotConnected):
                        await group.call_tool("a__x")
                old.answers.set()


@in_no_time
async def test_a_server_enabled_again_while_it_ends_connects_when_it_has_ended() -> None:
    node, seen = Node("x"), Seen()
    node.answers = anyio.Event()
    async with opened({"a": node}, on_status=seen) as group, anyio.create_task_group() as tasks:
        tasks.start_soon(group.call_tool, "a__x")
        await node.calling.wait()
        tasks.start_soon(partial(group.disable, "a", grace=50))
        await settled()
        tasks.start_soon(group.enable, "a")
        await settled()
        assert (states(group), node.opened) == ({"a": "connecting"}, 1)
        node.answers.set()
        await seen.until("a", "ready", 2)
        assert (node.opened, node.open_now) == (2, 1)


@in_no_time
async def test_closing_the_group_ends_the_grace_of_servers_that_are_leaving(subtests: pytest.Subtests) -> None:
    for way, go in GOING.items():
        node = Node("x")
        node.answers = anyio.Event()

        async def call(group: ClientGroup) -> None:
            with pytest.raises(ConnectionClosed):
                await group.call_tool("a__x")

        with subtests.test(way):
            async with anyio.create_task_group() as tasks:
                async with opened({"a": node}) as group:
                    tasks.start_soon(call, group)
                    await node.calling.wait()
                    tasks.start_soon(go, group, 1000.0)
                    await settled()
                    began = anyio.current_time()
                assert anyio.current_time() == began
            assert node.open_now == 0


async def test_cancelling_add_and_enable_undoes_them_and_cancelling_a_grace_ends_it() -> None:
    hangs, busy = Node(hangs=True), Node("x")
    busy.answers = anyio.Event()

    async def cancelled(job: Callable[[], Coroutine[Any, Any, object]]) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(job)
            await settled()
            assert (hangs.open_now, states(group)[name]) == expected
            tasks.cancel_scope.cancel()

    async with opened({"a": Node("x"), "off": ServerOptions(hangs, enabled=False), "busy": busy}) as group:
        name, expected = "new", (1, "connecting")
        await cancelled(partial(group.add, "new", hangs))
        assert (hangs.open_now, list(states(group))) == (0, ["a", "off", "busy"])
        name = "off"
        await cancelled(partial(group.enable, "off"))
        assert (hangs.open_now, states(group)["off"]) == (0, "disabled")

        async def call() -> None:
            with pytest.raises(ConnectionClosed):
                await group.call_tool("busy__x")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await busy.calling.wait()
            name, expected = "busy", (0, "disabled")
            await cancelled(partial(group.disable, "busy", grace=math.inf))
            await settled()
            assert busy.open_now == 0


async def test_a_server_removed_while_it_is_added_is_gone() -> None:
    statuses = list[str]()

    async def add() -> None:
        statuses.append((await group.add("new", hangs)).state)

    hangs = Node(hangs=True)
    async with opened({"a": Node("x")}) as group, anyio.create_task_group() as tasks:
        tasks.start_soon(add)
        await settled()
        await group.remove("new")
        await settled()

        assert (statuses, hangs.open_now, states(group)) == (["disabled"], 0, {"a": "ready"})


@in_no_time
async def test_a_server_that_crashes_in_its_grace_is_not_connected_again() -> None:
    """Although a call of it still waits in middleware, for as long as the grace is."""

    async def wait(request: AnyRequest, call_next: CallNext) -> dict[str, Any]:
        if request.method == "tools/call":
            begun.set()
            await go_on.wait()
        return await call_next(request)

    begun, go_on, node, seen = anyio.Event(), anyio.Event(), Node("x"), Seen()
    async with (
        opened({"a": node}, middleware=[wait], on_status=seen, within=600) as group,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(_fails, group)
        await begun.wait()
        tasks.start_soon(partial(group.disable, "a", grace=100))
        await settled()
        await node.crash()
        await anyio.sleep(50)
        assert (node.opened, node.open_now) == (1, 0)
        go_on.set()

    assert seen == [("a", "connecting"), ("a", "ready"), ("a", "disabled")]


@in_no_time
async def test_a_server_whose_tools_are_being_listed_again_in_its_grace_stays_disabled() -> None:
    async def wait(request: AnyRequest, call_next: CallNext) -> dict[str, Any]:
        if request.method == "tools/list" and node.calling.is_set():
            listing.set()
            await go_on.wait()
        return await call_next(request)

    listing, go_on, node = anyio.Event(), anyio.Event(), Node("x")
    node.answers = anyio.Event()
    options: dict[str, Any] = {"middleware": [wait], "within": 600}
    async with opened({"a": node}, **options) as group, anyio.create_task_group() as tasks:
        tasks.start_soon(group.call_tool, "a__x")
        await node.calling.wait()
        await anyio.sleep(31)
        await names(group)
        await listing.wait()
        tasks.start_soon(partial(group.disable, "a", grace=100))
        await settled()
        go_on.set()
        await settled()
        assert states(group) == {"a": "disabled"}
        node.answers.set()


async def _fails(group: ClientGroup) -> None:
    with pytest.raises((ConnectionClosed, NotConnected)):
        await group.call_tool("a__x")
