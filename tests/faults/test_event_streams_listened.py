"""The stream on which a server sends unprompted, and the rest of other streams: their faults affect no call."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from mcp_host import Client, StreamableHttp
from mcp_host.limits import Limits
from mcp_host.transports._http.channel import STREAM_WAIT
from tests.clock import advance
from tests.extent import on_both
from tests.faults.fault import fault
from tests.faults.http_server import DONE, LOG, SOON, chunked, connected, failing, mcp, streams, subjects, tides
from tests.transports.http_peers import EVENTS, Heard, Log, Peer, Wire, event, head, serving
from tests.transports.legacy_peers import in_turn

pytestmark = on_both


def noting(log: Log[Any]) -> Callable[[object], Awaitable[None]]:
    """A callback that writes down what it is told."""

    async def note(told: object) -> None:
        log.append(told)

    return note


def gets(peer: Peer) -> list[str | None]:
    """Where each GET wanted to begin."""
    return [heard.headers.get("last-event-id") for heard in peer.heard if heard.method == "GET"]


# The server's own stream


async def given_up(caplog: pytest.LogCaptureFixture) -> None:
    with anyio.fail_after(SOON):
        while not any("keeps failing; waiting for activity" in record.getMessage() for record in caplog.records):
            await checkpoint()
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


@fault("E08", "E12")
async def test_a_stream_that_keeps_exceeding_the_limit_is_given_up_even_if_it_had_events(
    pauses: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    """What came before will be replayed, with the same end."""
    script = mcp(get=streams(event(LOG), b"data: " + b"x" * 2000))
    async with connected(script, limits=Limits(max_message=1000), sleep=pauses) as (client, _):
        await given_up(caplog)
        assert pauses == [min(round(1.5**count, 3), 30.0) for count in range(1, 10)]
        await tides(client)


@fault("E12")
async def test_a_stream_that_ends_in_order_now_and_then_is_opened_again_from_where_it_ended(
    pauses: list[float],
) -> None:
    logs = Log[object]()
    ends = [streams(event(LOG, id=f"e-{count}")) for count in range(9)]

    async with connected(
        mcp(get=in_turn(*ends, streams(event(LOG), stay=True))), on_log=noting(logs), sleep=pauses
    ) as (client, peer):
        await logs.reaches(lambda logs: len(logs) == 10)
        await tides(client)

    assert gets(peer) == [None, *(f"e-{count}" for count in range(9))]
    assert set(pauses) == {1.5}


@pytest.mark.adjustable_clock
@pytest.mark.parametrize("beginning", [b"", b"HTTP/1.1 200 O", head(200, EVENTS)], ids=["nothing", "half", "a head"])
@fault("E14", "E15")
async def test_calls_do_not_wait_for_a_silent_stream(beginning: bytes) -> None:
    """A proxy may keep the head of a stream back until there is an event. It is heard then."""
    logs = Log[object]()
    called = anyio.Event()

    async def get(wire: Wire, heard: Heard) -> None:
        await wire.say(beginning)
        advance(1)  # for which the first call waits at most
        await called.wait()
        await wire.say(head(200, EVENTS).removeprefix(beginning) + event(LOG))
        await wire.hung_up()

    async with connected(mcp(get=get), on_log=noting(logs)) as (client, _):
        advance(STREAM_WAIT)
        await tides(client)
        called.set()
        await logs.reaches(lambda logs: len(logs) == 1)


# The rest of a stream after the reply


@fault("E26")
async def test_many_calls_on_streams_share_one_connection() -> None:
    """Each stream goes on for a moment after the reply."""
    told: list[anyio.Event] = []

    async def answer(wire: Wire, heard: Heard) -> None:
        reply = event(DONE.replace(b"@id", str(heard.rpc["id"]).encode()))
        mine = told[-1]
        await wire.say(chunked(reply))
        await mine.wait()
        await wire.say(chunked(b": and goodbye\n\n").partition(b"\r\n\r\n")[2] + b"0\r\n\r\n")

    drain_time = 60.0  # as long as that moment takes on a busy machine
    async with connected(mcp(call=answer), max_connections=1, drain_time=drain_time) as (client, peer):
        for _ in range(20):
            told.append(anyio.Event())
            await tides(client)
            told[-1].set()

    assert subjects(peer).count("call") == 20
    assert peer.connections <= 2, "one more for the GET"


# Closing from inside


@fault("E27")
async def test_a_client_may_be_closed_many_times_at_once_while_it_calls() -> None:
    async with serving(mcp(call=streams(event(LOG), stay=True), get=streams(event(LOG), stay=True))) as peer:
        client = Client(StreamableHttp(peer.url), era="legacy")
        with anyio.fail_after(SOON):
            await client.connect()
            async with anyio.create_task_group() as tasks:
                for _ in range(5):
                    tasks.start_soon(failing, client)
                await peer.hears("POST", 7)
                for _ in range(5):
                    tasks.start_soon(client.aclose)

    assert subjects(peer).count("delete") == 1
