"""What the group's tests share: servers whose behaviour a test changes while they run, and what a group says of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
from anyio.abc import TaskGroup

from mcp_host.group import ClientGroup, ServerOptions, ServerStatus
from mcp_host.group.options import Wait
from mcp_host.testing import ScriptedPeer
from mcp_host.transports.infer import Connectable

Wire = dict[str, Any]

METHOD_NOT_FOUND = (-32601, "Method not found")
CACHEABLE = {
    "server/discover",
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
}


class Node(ScriptedPeer):
    """A server of 2026-07-28 with *tools*, which a call runs at once, or after `answers` is set.

    While it is not `up`, it cannot be opened; while it *hangs*, it answers nothing that opens it.
    """

    def __init__(self, *tools: str | Wire, name: str = "a node", announces: bool = True, hangs: bool = False) -> None:
        super().__init__(self._serve_one, name=name)
        self.tools = [*tools]
        self.up = True
        self.hangs = hangs
        self.capabilities: Wire = {
            "tools": {"listChanged": announces},
            "prompts": {},
            "resources": {},
            "completions": {},
        }
        self.instructions: str | None = None
        self.errors: dict[str, tuple[int, str]] = {}
        """The errors of requests, by method: code and message."""
        self.results: dict[str, Wire] = {}
        """What is added to results, by method."""
        self.answers = anyio.Event()
        self.answers.set()
        self.opened = 0
        self.open_now = 0
        self.called: list[str] = []
        """The tools that were called."""
        self.calls: list[Wire] = []
        """The parameters of these calls."""
        self.calling = anyio.Event()
        """Set by each call."""
        self._stream: Wire | None = None

    async def change(self, *tools: str | Wire) -> None:
        """Have other tools, and say so."""
        self.tools = [*tools]
        if self._stream is not None:
            await self.notify_subscription(self._stream, "notifications/tools/list_changed")

    async def crash(self) -> None:
        await self.aclose()

    async def _serve_one(self, peer: ScriptedPeer) -> None:
        self.opened += 1
        if not self.up:
            raise RuntimeError("down")
        self._stream = None
        self.open_now += 1
        try:
            if self.hangs:
                await anyio.sleep_forever()
            async with anyio.create_task_group() as tasks:
                await self._answer_all(tasks)
        finally:
            self.open_now -= 1

    async def _answer_all(self, tasks: TaskGroup) -> None:
        while True:
            request = await self.receive()
            if "id" in request and "method" in request:
                tasks.start_soon(self._answer, request)

    async def _answer(self, request: Wire) -> None:
        method, params = request["method"], request["params"]
        if (error := self.errors.get(method)) is not None:
            await self.reply_error(request, *error)
            return
        if method == "subscriptions/listen":
            self._stream = request
            await self.acknowledge(request)
            return
        if method == "tools/call":
            self.called.append(params["name"])
            self.calls.append(params)
            self.calling.set()
            await self.answers.wait()
        fresh = {"ttlMs": 0, "cacheScope": "private"} if method in CACHEABLE else {}
        result = self._result(method, params) | fresh | self.results.get(method, {})
        await self.reply(request, {"resultType": "complete", **result})

    def _result(self, method: str, params: Wire) -> Wire:
        tools = [
            {"name": each, "inputSchema": {"type": "object"}} if isinstance(each, str) else each for each in self.tools
        ]
        discovered: Wire = {"supportedVersions": ["2026-07-28"], "capabilities": self.capabilities}
        if self.instructions is not None:
            discovered["instructions"] = self.instructions
        called = (
            params.get("name")
            or params.get("uri")
            or params.get("ref", {}).get("name")
            or params.get("ref", {}).get("uri")
        )
        content = {"type": "text", "text": f"{self.name}: {called}"}
        results: dict[str, Wire] = {
            "server/discover": discovered,
            "tools/list": {"tools": tools},
            "tools/call": {"content": [content]},
            "prompts/list": {"prompts": [{"name": "ask.me"}, {"name": "greet"}]},
            "prompts/get": {"messages": [{"role": "user", "content": content}]},
            "resources/list": {"resources": [{"name": "r", "uri": "x:///r"}]},
            "resources/templates/list": {"resourceTemplates": [{"name": "t", "uriTemplate": "x:///{id}"}]},
            "resources/read": {"contents": [{"uri": params.get("uri"), "text": content["text"]}]},
            "completion/complete": {"completion": {"values": [content["text"]]}},
        }
        return results[method]

    def heard(self, method: str) -> int:
        """How many requests of that method it got."""
        return sum(message.get("method") == method for message in self.received)


class Seen(list[tuple[str, str]]):
    """An *on_status* that keeps names and states, and hands over each time that it is called."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = anyio.Event()

    async def __call__(self, status: ServerStatus) -> None:
        self.append((status.name, status.state))
        self._changed.set()
        self._changed = anyio.Event()

    async def until(self, name: str, state: str, times: int = 1) -> None:
        """Wait until the server *name* was in *state* so many times."""
        while self.count((name, state)) < times:
            await self._changed.wait()

    def of(self, name: str) -> list[str]:
        return [state for its, state in self if its == name]


@asynccontextmanager
async def opened(
    servers: Mapping[str, Connectable | ServerOptions],
    *,
    wait: Wait | float = "all",
    within: float = 25,
    **options: Any,
) -> AsyncIterator[ClientGroup]:
    """An open group. It fails if what is done with it takes longer than *within* seconds.

    It waits for all servers, because how many a busy machine connects within some seconds is not known.
    """
    with anyio.fail_after(within):
        async with ClientGroup(servers, wait=wait, **options) as group:
            yield group


async def names(group: ClientGroup) -> list[str]:
    """The names of its tools now."""
    return [tool.name for tool in await group.list_tools()]


def states(group: ClientGroup) -> dict[str, str]:
    return {name: status.state for name, status in group.status().items()}
