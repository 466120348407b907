"""A server of the handshake era, down to the bytes: sessions, a GET stream, and scripted answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import anyio

from mcp_host.protocol.jsonrpc import Incoming
from mcp_host.transports._http.channel import HttpChannel
from tests.clock import advance
from tests.transports.http_peers import (
    DONE_JSON,
    INITIALIZE,
    INITIALIZED,
    JSON,
    VERSION,
    WELCOME,
    Heard,
    Log,
    Peer,
    RecordedHandle,
    Wire,
    event,
    opened,
    serving,
)

Answer: TypeAlias = Callable[[Wire, Heard], Awaitable[None]]


def status(code: int) -> Answer:
    """An empty reply."""
    return lambda wire, heard: wire.reply(code)


refuse = status(405)


async def hang(wire: Wire, heard: Heard) -> None:
    await wire.hung_up()


def hang_for(seconds: float, beginning: bytes = b"") -> Answer:
    """Nothing but a *beginning*, and on the adjustable clock so many seconds are over at once."""

    async def answer(wire: Wire, heard: Heard) -> None:
        await wire.say(beginning)
        advance(seconds)
        await wire.hung_up()

    return answer


async def finish(wire: Wire, heard: Heard) -> None:
    await wire.reply(200, JSON, DONE_JSON)


def stream(*parts: bytes, stay: bool = False) -> Answer:
    """An event stream of *parts*, which then ends, or stays open."""

    async def answer(wire: Wire, heard: Heard) -> None:
        await wire.events(*parts)
        if stay:
            await wire.hung_up()
        else:
            await wire.end()

    return answer


def in_turn(*answers: Answer) -> Answer:
    """One answer after the other; the last one repeats."""
    left = list(answers)

    async def answer(wire: Wire, heard: Heard) -> None:
        await (left.pop(0) if len(left) > 1 else left[0])(wire, heard)

    return answer


def legacy(*, get: Answer = refuse, post: Answer = finish, delete: Answer = refuse, **handshake: Any) -> Any:
    """The script of a server with sessions: what it says to GET, to requests and to DELETE."""
    ids = handshake.get("ids", iter(["s-1", "s-2"]))
    confirmed = handshake.get("initialized", in_turn(lambda wire, heard: wire.reply(202)))

    async def script(wire: Wire) -> None:
        while True:
            heard = await wire.hear()
            if heard.method == "GET":
                await get(wire, heard)
            elif heard.method == "DELETE":
                await delete(wire, heard)
            elif heard.rpc.get("method") == "initialize":
                id = next(ids)
                await wire.reply(200, {**JSON, **({} if id is None else {"mcp-session-id": id})}, WELCOME)
            elif heard.rpc.get("method") == "notifications/initialized":
                await confirmed(wire, heard)
            else:
                await post(wire, heard)

    return script


@asynccontextmanager
async def resuming(get: Answer, **options: Any) -> AsyncIterator[HttpChannel]:
    """A channel in a session at a server that cuts the stream of a response after an event, and has *get* for what follows it."""
    script = legacy(ids=iter([options.pop("id", "s-1")]), post=stream(event(b"", id="e")), get=get)
    async with serving(script) as peer, opened(peer.url, **options) as channel:
        await shake_hands(channel)
        yield channel


@asynccontextmanager
async def listening(peer: Peer, received: Log[Incoming] | None = None, **options: Any) -> AsyncIterator[HttpChannel]:
    """A channel whose link listens, as it does from the beginning."""
    heard = Log[Incoming]() if received is None else received
    async with opened(peer.url, **options) as channel, anyio.create_task_group() as tasks:
        tasks.start_soon(channel.listen, heard.append)
        await anyio.wait_all_tasks_blocked()
        yield channel
        tasks.cancel_scope.cancel()


async def shake_hands(channel: HttpChannel) -> None:
    await channel.request(INITIALIZE, {}, RecordedHandle(0))
    await channel.send(INITIALIZED, VERSION)
