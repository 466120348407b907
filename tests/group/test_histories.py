"""Random histories of a group: names stay, no call reaches another server, what is up comes back, and nothing is left."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, TypeAlias

import anyio
import pytest
from anyio import CancelScope
from anyio.abc import TaskGroup
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_host.errors import McpError
from mcp_host.group import ClientGroup, ServerOptions, ServerStatus, group_name
from mcp_host.limits import Limits
from tests.clock import with_fake_clock
from tests.extent import THOROUGH
from tests.group.support import Node
from tests.sampling.loop.test_random_loops import tasks as running_tasks

SERVERS = ("a", "a_", "a b", "b")
TOOLS = ("x", "y.z", group_name("a", "y.z").partition("__")[2], "y/z", "t" * 100)
LIMITS = Limits(connect_timeout=20, timeout=50, close_timeout=5)
BOUND = 100_000.0  # seconds of a clock that jumps

Step: TypeAlias = tuple[str, str, tuple[str, ...], float]
"""What happens, to which server, with which tools, and a number of seconds for it."""

KINDS = (
    *["call"] * 8,
    *("list", "cancel", "cancel", "wait", "wait", "answer"),
    *("crash", "down", "up", "hang", "change", "fail to list"),
    *("add", "remove", "replace", "enable", "disable", "log in"),
)
steps = st.tuples(
    st.sampled_from(KINDS),
    st.sampled_from(SERVERS),
    st.lists(st.sampled_from(TOOLS), unique=True, min_size=1).map(tuple),
    st.sampled_from([0.0, 0.0, 0.5, 10.0, 100.0]),
)


@dataclass
class History:
    """A group, all servers that it ever had, and what is under way."""

    group: ClientGroup
    tasks: TaskGroup
    nodes: dict[str, list[Node]]
    """By the name of the server, the last one first."""
    scopes: list[CancelScope] = field(default_factory=list)

    def node(self, server: str) -> Node:
        return self.nodes[server][0]

    def new_node(self, server: str, tools: tuple[str, ...]) -> Node:
        node = Node(*tools, name=f"{server} {len(self.nodes[server])}")
        self.nodes[server].insert(0, node)
        return node

    def begin(self, job: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Run *job* in a task, which a later step may cancel. It may fail as the group says."""

        async def run() -> None:
            with CancelScope() as scope:
                self.scopes.append(scope)
                try:
                    await job()
                except (McpError, ValueError):
                    pass
                finally:
                    self.scopes.remove(scope)

        self.tasks.start_soon(run)

    async def call(self, server: str, tool: str) -> None:
        name = group_name(server, tool)
        result = await self.group.call_tool(name, {"as": name})
        node, _, own = result.text.partition(": ")
        assert node in [each.name for each in self.nodes[server]]
        assert group_name(server, own) == name

    async def check_list(self) -> None:
        listed = [tool.name for tool in await self.group.list_tools()]
        owners = [self.group.server_of(name) for name in listed]
        order = list(self.group.status())
        listed_by = list(zip([order.index(owner) for owner in owners], listed, strict=True))

        assert len(set(listed)) == len(listed)
        assert all(re.fullmatch(r"[a-zA-Z][a-zA-Z0-9_-]{0,63}", name) for name in listed)
        assert listed_by == sorted(listed_by)
        for owner, name in zip(owners, listed, strict=True):
            assert name in [group_name(owner, tool) for tool in TOOLS]


async def take(history: History, step: Step) -> None:
    kind, server, tools, seconds = step
    if kind in IN_BACKGROUND:
        if (job := IN_BACKGROUND[kind](history, server, tools, seconds)) is not None:
            history.begin(job)
    else:
        await AT_ONCE[kind](history, server, tools, seconds)
    await anyio.wait_all_tasks_blocked()


Job: TypeAlias = Callable[[], Coroutine[Any, Any, object]]


def call(history: History, server: str, tools: tuple[str, ...], seconds: float) -> Job:
    if seconds:
        history.node(server).answers = anyio.Event()
    return partial(history.call, server, tools[0])


def add(history: History, server: str, tools: tuple[str, ...], seconds: float) -> Job | None:
    if server in history.group.status():
        return None
    return partial(history.group.add, server, history.new_node(server, tools))


def replace(history: History, server: str, tools: tuple[str, ...], seconds: float) -> Job | None:
    if server not in history.group.status():
        return None
    return partial(history.group.replace, server, history.new_node(server, tools), grace=seconds)


IN_BACKGROUND: dict[str, Callable[[History, str, tuple[str, ...], float], Job | None]] = {
    "call": call,
    "add": add,
    "replace": replace,
    "remove": lambda history, server, _, seconds: partial(history.group.remove, server, grace=seconds),
    "disable": lambda history, server, _, seconds: partial(history.group.disable, server, grace=seconds),
    "enable": lambda history, server, *_: partial(history.group.enable, server),
    "log in": lambda history, server, *_: partial(history.group.log_in, server),
}


async def check_list(history: History, *_: object) -> None:
    await history.check_list()


async def cancel(history: History, server: str, tools: tuple[str, ...], seconds: float) -> None:
    if history.scopes:
        history.scopes[int(seconds) % len(history.scopes)].cancel()


async def wait(history: History, server: str, tools: tuple[str, ...], seconds: float) -> None:
    await anyio.sleep(seconds)


async def answer(history: History, server: str, *_: object) -> None:
    history.node(server).answers.set()


async def crash(history: History, server: str, *_: object) -> None:
    if history.node(server).open_now:
        await history.node(server).crash()


async def go_down(history: History, server: str, *_: object) -> None:
    history.node(server).up = False
    await crash(history, server)


async def come_back(history: History, server: str, *_: object) -> None:
    node = history.node(server)
    node.up, node.hangs, node.errors = True, False, {}


async def hang(history: History, server: str, *_: object) -> None:
    history.node(server).hangs = True


async def fail_to_list(history: History, server: str, *_: object) -> None:
    history.node(server).errors["tools/list"] = (-32603, "broken")


async def change(history: History, server: str, tools: tuple[str, ...], seconds: float) -> None:
    if history.node(server).open_now:
        with suppress(anyio.ClosedResourceError):  # it has crashed, and its client has not left yet
            await history.node(server).change(*tools)


AT_ONCE: dict[str, Callable[[History, str, tuple[str, ...], float], Coroutine[Any, Any, None]]] = {
    "list": check_list,
    "cancel": cancel,
    "wait": wait,
    "answer": answer,
    "crash": crash,
    "down": go_down,
    "up": come_back,
    "hang": hang,
    "fail to list": fail_to_list,
    "change": change,
}


async def live(plan: list[Step]) -> None:
    statuses: dict[str, list[ServerStatus]] = {server: [] for server in SERVERS}

    async def on_status(status: ServerStatus) -> None:
        statuses[status.name].append(status)

    before = running_tasks()
    nodes = {server: [Node(*TOOLS, name=f"{server} 0")] for server in SERVERS}
    servers: dict[str, Any] = {"a": nodes["a"][0], "a b": ServerOptions(nodes["a b"][0]), "b": nodes["b"][0]}
    with anyio.fail_after(BOUND):
        async with ClientGroup(servers, limits=LIMITS, on_status=on_status, wait="none") as group:
            async with anyio.create_task_group() as tasks:
                history = History(group, tasks, nodes)
                for step in plan:
                    await take(history, step)
                for each in [each for group_of in nodes.values() for each in group_of]:
                    each.up, each.hangs, each.errors = True, False, {}
                    each.answers.set()
                await anyio.sleep(500)
                await history.check_list()
                await anyio.sleep(1)  # a list that could not be had when it changed is asked for once more, by that
                for tool in await group.list_tools():
                    server = group.server_of(tool.name)
                    called = await group.call_tool(tool.name, {"as": tool.name})
                    assert called.text.startswith(f"{nodes[server][0].name}: ")
                tasks.cancel_scope.cancel()
            states = {name: status.state for name, status in group.status().items()}
            last = {name: said[-1] for name, said in statuses.items() if said and name in states}
            assert set(states.values()) <= {"ready", "disabled"}
            assert last == {name: status for name, status in group.status().items() if statuses[name]}
            open_now = {name: nodes[name][0].open_now for name in states}
            assert open_now == {name: int(state == "ready") for name, state in states.items()}
    await anyio.wait_all_tasks_blocked()

    for server, its in nodes.items():
        assert [node.open_now for node in its] == [0] * len(its)
        for call in [call for node in its for call in node.calls]:
            assert call["arguments"]["as"] == group_name(server, call["name"])
    for said in statuses.values():
        assert all(first != second for first, second in pairwise(said))
    assert running_tasks() == before


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_whatever_happens_to_servers_names_calls_and_what_is_left_are_right(backend: str) -> None:
    name, options = with_fake_clock(backend)

    @settings(max_examples=500 if THOROUGH else 25, deadline=None)
    @given(st.lists(steps, max_size=25))
    def run(plan: list[Step]) -> None:
        anyio.run(live, plan, backend=name, backend_options=options)

    run()
