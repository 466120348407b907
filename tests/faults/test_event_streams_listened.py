"""The stream on which a server sends unprompted, and the rest of other streams: their faults affect no call."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from mcp_host import Client, Sampling, StreamableHttp, always
from mcp_host.errors import ConnectionClosed, NotConnected
from mcp_host.limits import Limits
from mcp_host.transports._http.channel import STREAM_WAIT
from tests.client.support import say_paris
from tests.clock import advance
from tests.faults.fault import fault
from tests.faults.http_server import (
    ASK,
    DONE,
    LOG,
    SOON,
    chunked,
    connected,
    drop,
    failing,
    mcp,
    reset,
    says,
    sends,
    streams,
    subjects,
    tides,
)
from tests.transports.http_peers import EVENTS, Heard, Log, Peer, Wire, event, head, serving
from tests.transports.legacy_peers import Answer, in_turn

MODEL = Sampling(with_tools=say_paris, approve=always)


def noting(log: Log[Any]) -> Callable[[object], Awaitable[None]]:
    """A callback that writes down what it is told."""

    async def note(told: object) -> None:
        log.append(told)

    return note


def gets(peer: Peer) -> list[str | None]:
    """Where each GET wanted to begin."""
    return [heard.headers.get("last-event-id") for heard in peer.heard if heard.method == "GET"]


# The server's own stream


@pytest.mark.parametrize(
    ("end", "base"),
    [(streams(b"retry: 0\n"), 0.1), (streams(), 1.0), (drop, 1.0), (reset, 1.0), (says(b"", 503), 1.0)],
    ids=["wanting no pause", "in order", "before it began", "by a reset", "by a 503"],
)
@fault("E08", "E12")
async def test_a_stream_that_keeps_ending_is_reopened_more_slowly_and_then_given_up_with_a_warning(
    end: Answer, base: float, pauses: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    async with connected(mcp(get=end), sleep=pauses) as (client, peer):
        await given_up(caplog)
        assert pauses == [min(round(base * 1.5**count, 3), 30.0) for count in range(1, 10)]
        assert 10 <= len(gets(peer)) <= 11  # where the first met the end of a kept connection
        await tides(client)


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
    ends = [streams(event(LOG, id=f"e-{count}")) for count in range(30)]

    async with connected(
        mcp(get=in_turn(*ends, streams(event(LOG), stay=True))), on_log=noting(logs), sleep=pauses
    ) as (
        client,
        peer,
    ):
        await logs.reaches(lambda logs: len(logs) == 31)
        await tides(client)

    assert gets(peer) == [None, *(f"e-{count}" for count in range(30))]
    assert set(pauses) == {1.5}


@pytest.mark.parametrize("failures", [3, 9])
@fault("E13")
async def test_a_request_after_some_failures_of_the_servers_stream_is_answered(
    failures: int, pauses: list[float]
) -> None:
    answers = Log[Any]()

    async def answer(wire: Wire, heard: Heard) -> None:
        answers.append(heard.rpc["id"])
        await wire.reply(202)

    script = mcp(get=in_turn(*[sends(b"")] * failures, streams(event(ASK), stay=True)), answer=answer)
    async with connected(script, sampling=MODEL, sleep=pauses):
        await answers.reaches(lambda answers: answers == ["q-1"])


@fault("E13")
async def test_a_stream_that_was_given_up_is_opened_again_with_the_next_call(
    pauses: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    down = True
    answers = Log[Any]()

    async def get(wire: Wire, heard: Heard) -> None:
        await (says(b"", 503) if down else streams(event(ASK), stay=True))(wire, heard)

    async def answer(wire: Wire, heard: Heard) -> None:
        answers.append(heard.rpc["id"])
        await wire.reply(202)

    async with connected(mcp(get=get, answer=answer), sampling=MODEL, sleep=pauses) as (client, _):
        await given_up(caplog)
        down = False
        await tides(client)
        await answers.reaches(lambda answers: answers == ["q-1"])


NO_STREAM = {
    **{str(status): says(b"", status) for status in (400, 401, 403, 404, 405, 406, 500, 501, 503)},
    "a redirect": says(b"", 302, location="/login"),
    "JSON": says(b"{}"),
    "HTML": says(b"<html>", content_type="text/html"),
    "202": says(b"", 202),
    "204": says(b"", 204),
    "an end": drop,
    "a reset": reset,
    "another protocol": sends(b"SSH-2.0\r\n\r\n"),
    "nonsense": streams(event(b"not json"), event(b"{}"), event(b"[]"), b"\xff\xff\n\n"),
    "half an event": streams(b"data: x"),
    "a bad chunk": sends(chunked(event(LOG)) + b"zz\r\n"),
    "corrupt gzip": says(b"no gzip", content_type="text/event-stream", content_encoding="gzip"),
    "a reply to nothing": streams(event(DONE.replace(b"@id", b"4711")), stay=True),
    "a retry of centuries": streams(b"retry: " + b"9" * 5000 + b"\n\n"),
    "a negative retry": streams(b"retry: -1\n\n"),
    "an id that is no header": streams(event(LOG, id="\u00e9")),
}


@pytest.mark.parametrize("get", NO_STREAM.values(), ids=NO_STREAM)
@fault("E10", "E14", "E25")
async def test_no_fault_of_the_servers_stream_fails_or_delays_a_call(get: Answer, pauses: list[float]) -> None:
    async with connected(mcp(get=get), sleep=pauses) as (client, peer):
        for _ in range(3):
            await tides(client)
        await peer.hears("GET", 1)

    assert subjects(peer).count("initialize") == 1
    assert subjects(peer).count("call") == 3


@pytest.mark.parametrize(
    "beginning", [b"", b"HTTP/1.1 200 O", head(200, EVENTS)], ids=["nothing", "half a head", "a head"]
)
@pytest.mark.adjustable_clock
@fault("E14", "E15")
async def test_calls_do_not_wait_for_a_silent_stream(beginning: bytes) -> None:
    """A proxy may keep the head of a stream back until there is an event. It is heard then."""
    logs = Log[object]()
    called = anyio.Event()

    async def get(wire: Wire, heard: Heard) -> None:
        await wire.say(beginning)
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
        for _ in range(100):
            told.append(anyio.Event())
            await tides(client)
            told[-1].set()

    assert subjects(peer).count("call") == 100
    assert peer.connections <= 2, "one more for the GET"


@pytest.mark.parametrize("talk", [b"", b": and another thing\n\n" * 1000], ids=["in silence", "talking"])
@fault("E26")
async def test_a_stream_that_stays_open_after_the_reply_is_closed(talk: bytes) -> None:
    left = Log[int]()

    async def answer(wire: Wire, heard: Heard) -> None:
        await wire.events(event(DONE.replace(b"@id", str(heard.rpc["id"]).encode())))
        try:
            while talk:
                await wire.say(talk)
            await wire.hung_up()
        finally:
            left.append(heard.rpc["id"])

    async with connected(mcp(call=answer)) as (client, _):
        for _ in range(10):
            await tides(client)
        with anyio.fail_after(SOON):
            await left.reaches(lambda left: len(left) == 10)


@pytest.mark.parametrize(
    "beginning", [b"", b": hello\n\n", event(LOG) + b"data: {"], ids=["at its head", "at once", "inside"]
)
@fault("E26")
async def test_a_call_cancelled_on_its_stream_closes_the_connection(beginning: bytes) -> None:
    asked, left = anyio.Event(), anyio.Event()

    async def answer(wire: Wire, heard: Heard) -> None:
        await wire.events(beginning)
        asked.set()
        await wire.hung_up()
        left.set()

    async with connected(mcp(call=in_turn(answer, says()))) as (client, _):
        with anyio.fail_after(SOON):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.call_tool, "tides")
                await asked.wait()
                tasks.cancel_scope.cancel()
            await left.wait()
        await tides(client)


# Closing from inside


@fault("E27")
async def test_a_callback_may_close_the_client_that_calls_it() -> None:
    async def on_log(told: object) -> None:
        await client.aclose()

    async with serving(mcp(call=streams(event(LOG) * 3, stay=True))) as peer:
        client = Client(StreamableHttp(peer.url), era="legacy", on_log=on_log)
        await client.connect()
        assert type(await failing(client)) is ConnectionClosed
        await client.aclose()
        assert type(await failing(client)) is NotConnected

    assert subjects(peer)[-1] == "delete"


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


@fault("E27")
async def test_a_call_made_by_a_callback_has_its_own_stream() -> None:
    """A callback that calls, whose call is logged, and so on: no stream waits for another."""
    called = Log[object]()

    async def on_log(told: object) -> None:
        if len(called) < 20:
            await tides(client)
            called.append(told)

    async with connected(mcp(call=streams(event(LOG), event(DONE))), on_log=on_log) as (client, _):
        await tides(client)
        await called.reaches(lambda called: len(called) == 20)
