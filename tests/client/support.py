"""What the client's tests share: shapes of messages, both eras, and a sampling registration that answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any

import anyio
import pytest

from mcp_host import Client, Sampling, SamplingRequest, always
from mcp_host.errors import ConnectionClosed
from mcp_host.testing import Context, ScriptedPeer, Server
from mcp_host.types import CreateMessageResult, TextContent
from mcp_host.version import __version__

TOOLS: dict[str, Any] = {"tools": {}}
INFO = {"name": "s", "version": "0"}
EMPTY: dict[str, Any] = {"content": []}
INITIALIZED = {"protocolVersion": "2025-11-25", "capabilities": TOOLS, "serverInfo": INFO}
QUESTION = {"messages": [{"role": "user", "content": {"type": "text", "text": "capital?"}}], "maxTokens": 5}
ADD = {"name": "add", "inputSchema": {"type": "object"}}
PARIS = {"role": "assistant", "content": {"type": "text", "text": "Paris"}, "model": "m", "stopReason": "endTurn"}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "mcp-host", "version": __version__},
    "io.modelcontextprotocol/clientCapabilities": {},
}


@dataclass(frozen=True, slots=True)
class Era:
    """How a test's peer speaks, where the test is of what holds however it does. The client finds it out by itself."""

    version: str
    opening: tuple[str, ...]
    """What the client says before it says anything of the test's."""
    opening_again: tuple[str, ...]
    """What it says on its next connection, now that it knows the server."""
    first_id: int
    """What its first request bears after that."""
    meta: Mapping[str, Any]
    """What each request says of a client that can do nothing for the server."""

    async def open(self, peer: ScriptedPeer, capabilities: Mapping[str, Any] = TOOLS, **said: Any) -> None:
        """Answer the client's opening. What follows can be written as in 2025: to a result, `resultType` is optional."""
        if self.meta:
            await peer.answer_discover(capabilities=capabilities, **said)
        else:
            await peer.answer_initialize(capabilities=capabilities, **said)

    def said_to(self, peer: ScriptedPeer) -> list[dict[str, Any]]:
        """What the client has said once it had opened its only connection, as it should."""
        opening, said = peer.received[: len(self.opening)], peer.received[len(self.opening) :]
        assert [message["method"] for message in opening] == list(self.opening)
        return said

    def dressed(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """A request's *params* as they are sent."""
        return {**params, "_meta": {**params.get("_meta", {}), **self.meta}} if self.meta else dict(params)


DISCOVER = "server/discover"
SHAKING_HANDS = ("initialize", "notifications/initialized")

HANDSHAKE = Era("2025-11-25", opening=(DISCOVER, *SHAKING_HANDS), opening_again=SHAKING_HANDS, first_id=3, meta={})
STATELESS = Era("2026-07-28", opening=(DISCOVER,), opening_again=(DISCOVER,), first_id=2, meta=META)


@asynccontextmanager
async def connected(server: Any, *, within: float = 25, **options: Any) -> AsyncIterator[Client]:
    """A connected client of *server*. It fails if what is done with it takes longer than *within* seconds."""
    with anyio.fail_after(within):
        async with Client(server, **options) as client:
            yield client


def answering(era: Era, *results: dict[str, Any], capabilities: Mapping[str, Any] = TOOLS) -> ScriptedPeer:
    """A peer that answers requests with *results*, one after the other, and then with the last again and again."""

    async def script(peer: ScriptedPeer) -> None:
        await era.open(peer, capabilities)
        for result in chain(results, repeat(results[-1]) if results else ()):
            await peer.reply(await peer.receive(), result)

    return ScriptedPeer(script, name="the peer")


async def silent(peer: ScriptedPeer) -> None:
    """The script of a server that answers nothing."""


def methods(peer: ScriptedPeer) -> list[str]:
    """What the client has said, in requests and notifications."""
    return [message["method"] for message in peer.received]


async def open_listening(peer: ScriptedPeer, capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """Answer the discovery of a client that listens to changes, and acknowledge its subscription, which is returned."""
    await peer.answer_discover(capabilities=capabilities)
    listen = await peer.receive("subscriptions/listen")
    await peer.acknowledge(listen)
    return listen


async def report_progress(peer: ScriptedPeer, call: Mapping[str, Any], *steps: float) -> None:
    """Say that *call* has come so far, once for each of *steps*."""
    token = call["params"]["_meta"]["progressToken"]
    for step in steps:
        await peer.notify("notifications/progress", {"progressToken": token, "progress": step})


async def ended_by_closing(
    client: Client, *requests: Callable[[], Awaitable[object]], begun: anyio.Event | None = None
) -> list[ConnectionClosed]:
    """The errors with which *requests* end when the client is closed: when *begun* is set, or else when they wait."""

    async def make(request: Callable[[], Awaitable[object]]) -> None:
        with pytest.raises(ConnectionClosed) as ended:
            await request()
        errors.append(ended.value)

    errors: list[ConnectionClosed] = []
    async with anyio.create_task_group() as tasks:
        for request in requests:
            tasks.start_soon(make, request)
        await (anyio.wait_all_tasks_blocked() if begun is None else begun.wait())
        await client.aclose()
    return errors


async def said_to(client: Client, *tools: str) -> dict[str, str]:
    """Call all these tools at the same time, and return what each of them said."""

    async def call(tool: str) -> None:
        said[tool] = (await client.call_tool(tool)).text

    said: dict[str, str] = {}
    async with anyio.create_task_group() as tasks:
        for tool in tools:
            tasks.start_soon(call, tool)
    return said


async def names(client: Client) -> list[str]:
    """The names of its tools now."""
    return [tool.name for tool in await client.list_tools()]


async def seconds_of_call(client: Client) -> float:
    """Call a tool, and say how long that took."""
    began = anyio.current_time()
    await client.call_tool("x")
    return anyio.current_time() - began


class Recorder(list[Any]):
    """A callback that records what it is given. `called` is set as soon as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.called = anyio.Event()

    async def __call__(self, given: Any) -> None:
        self.append(given)
        self.called.set()


async def ignore(change: object) -> None:
    """A callback that does nothing. Without one for changes a client would not subscribe."""


def text(value: str) -> TextContent:
    return TextContent(text=value)


async def say_paris(request: SamplingRequest) -> CreateMessageResult:
    return request.reply("Paris", model="m")


def sampling(**handlers: Any) -> Sampling:
    return Sampling(approve=always, **(handlers or {"with_tools": say_paris}))


class HangingModel:
    """A model that never answers. Its events tell when it has been called, and when it has been cancelled."""

    def __init__(self) -> None:
        self.begun, self.ended = anyio.Event(), anyio.Event()

    async def __call__(self, request: SamplingRequest) -> CreateMessageResult:
        self.begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.ended.set()
        raise AssertionError


def asking_server(**options: Any) -> Server:
    """A server whose tool `ask` returns what the host's model says to its argument."""
    server = Server("asker", **options)

    @server.tool
    async def ask(ctx: Context, words: str = "more?") -> str:
        return (await ctx.sample(words)).text

    return server


async def ask_during_call(peer: ScriptedPeer) -> dict[str, Any]:
    """Open a session, wait for a call, and send a sampling request with the id 0 meanwhile; return the call."""
    await peer.answer_initialize(capabilities=TOOLS)
    call = await peer.receive("tools/call")
    await peer.send({"jsonrpc": "2.0", "id": 0, "method": "sampling/createMessage", "params": QUESTION})
    return call
