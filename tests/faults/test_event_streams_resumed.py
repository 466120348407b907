"""Event streams that break off and are resumed: what comes twice, what never comes, and at which pace we ask."""

from __future__ import annotations

import sys

import anyio
import pytest
from anyio.lowlevel import checkpoint

from mcp_host import Sampling, SamplingRequest, always
from mcp_host.errors import ConnectionClosed, RequestTimeout, SessionLost
from mcp_host.types import CreateMessageResult
from tests.client.support import say_paris
from tests.clock import advance
from tests.extent import on_both
from tests.faults.fault import fault
from tests.faults.http_server import (
    ASK,
    DONE,
    LOG,
    connected,
    failing,
    mcp,
    says,
    streams,
    subjects,
    tides,
    welcome,
)
from tests.transports.http_peers import Heard, Log, Peer, Wire, event
from tests.transports.legacy_peers import Answer, in_turn, refuse

pytestmark = on_both

PRIMED = event(b"", id="e-0")
FOUND = DONE.replace(b"@id", b"2")  # the first call's; a GET bears no id to be copied


def resumed(*gets: Answer) -> Answer:
    """What a GET meets: a refusal of the server's own stream, and *gets* in turn for the rest of a call's."""
    rest = in_turn(*gets)

    async def answer(wire: Wire, heard: Heard) -> None:
        await (rest if "last-event-id" in heard.headers else refuse)(wire, heard)

    return answer


def cursors(peer: Peer) -> list[str]:
    """From where on the rest of streams was asked for."""
    return [heard.headers["last-event-id"] for heard in peer.heard if "last-event-id" in heard.headers]


# What cannot be resumed


@fault("E06")
async def test_a_resumption_that_loses_the_session_fails_its_call_and_the_next_call_has_a_new_session(
    pauses: list[float],
) -> None:
    script = mcp(
        initialize=in_turn(welcome("s-1"), welcome("s-2")),
        call=in_turn(streams(PRIMED), says()),
        get=resumed(says(b"", 404)),
    )
    async with connected(script, sleep=pauses) as (client, peer):
        error = await failing(client)
        await tides(client)

    assert isinstance(error, SessionLost)
    assert error.may_have_run  # so it was not made again
    assert (len(cursors(peer)), subjects(peer).count("call"), subjects(peer).count("initialize")) == (1, 2, 2)


# What comes twice


@fault("E07")
async def test_the_first_of_two_replies_is_used(pauses: list[float]) -> None:
    low = FOUND.replace(b"high", b"low")
    get = resumed(streams(event(LOG, id="e-1"), event(FOUND, id="e-2"), event(low)))
    script = mcp(call=in_turn(streams(PRIMED, event(LOG, id="e-1")), streams(event(low) + event(DONE))), get=get)
    async with connected(script, sleep=pauses) as (client, _):
        await tides(client)
        await tides(client)
        assert client.counters == {"answers to nothing": 1}


@pytest.mark.parametrize("answered", [True, False], ids=["after it was answered", "while it is being answered"])
@fault("E07", "S20")
async def test_a_replayed_request_of_the_server_is_answered_once(answered: bool, pauses: list[float]) -> None:
    prompts, answers = Log[str](), Log[Heard]()
    replayed = anyio.Event()

    async def model(request: SamplingRequest) -> CreateMessageResult:
        prompts.append("And now?")
        if not answered:
            await replayed.wait()
        return await say_paris(request)

    async def call(wire: Wire, heard: Heard) -> None:
        await wire.events(event(ASK, id="e-1"))
        await (answers if answered else prompts).reaches(lambda log: len(log) == 1)
        await wire.end()

    async def get(wire: Wire, heard: Heard) -> None:
        await wire.events(event(ASK, id="e-1"), event(LOG))
        replayed.set()
        await answers.reaches(lambda answers: len(answers) == 1)
        await wire.say(event(FOUND))
        await wire.end()

    async def answer(wire: Wire, heard: Heard) -> None:
        await wire.reply(202)
        answers.append(heard)

    sampling = Sampling(with_tools=model, approve=always)
    async with connected(mcp(call=call, get=resumed(get), answer=answer), sampling=sampling, sleep=pauses) as (
        client,
        _,
    ):
        await tides(client)
        assert client.counters == {"repeated requests": 1}

    assert (len(prompts), len(answers)) == (1, 1)


# The pace


@fault("E09")
async def test_many_polls_do_not_grow_the_stack() -> None:
    depths: list[int] = []

    async def sleep(seconds: float) -> None:
        depths.append(depth())
        await checkpoint()

    gets = [streams(), streams(event(LOG, id="e-1")), says(b"", 503)] * 3
    script = mcp(call=streams(PRIMED), get=resumed(*gets, streams(event(FOUND))))
    async with connected(script, sleep=sleep) as (client, _):
        await tides(client)

    assert len(depths) == 10
    assert len(set(depths[1:])) == 1  # the first is of a task that has just been begun


def depth() -> int:
    frame, count = sys._getframe(), 0
    while frame.f_back is not None:
        frame, count = frame.f_back, count + 1
    return count


RETRIES = {
    "five thousand digits": (b"9" * 5000, 3600.0),
    "leading zeros": (b"0" * 5000 + b"500", 0.5),
    "negative": (b"-1", 1.0),
    "no number": (b"NaN", 1.0),
    "zero": (b"0", 0.1),
}


@fault("E10", "E11")
async def test_a_retry_value_is_read_only_as_its_standard_defines_it(pauses: list[float]) -> None:
    for name, (retry, pause) in RETRIES.items():
        pauses.clear()
        script = mcp(call=streams(b"retry: " + retry + b"\n", PRIMED), get=resumed(streams(event(FOUND))))
        async with connected(script, sleep=pauses) as (client, _):
            await tides(client)

        assert pauses == [pause], name


@pytest.mark.adjustable_clock
@fault("E11", within=100)
async def test_a_retry_of_centuries_does_not_outlast_the_call() -> None:
    async def answer(wire: Wire, heard: Heard) -> None:
        await streams(b"retry: " + b"9" * 5000 + b"\n", PRIMED)(wire, heard)
        await anyio.wait_all_tasks_blocked()
        advance(9)

    async with connected(mcp(call=answer)) as (client, peer):
        with pytest.raises(RequestTimeout):
            await client.call_tool("tides", timeout=9)

    assert cursors(peer) == []


# Ids


IDS = {
    b"a b": "a b",
    b"e-1\x00X-Evil: 1": "e-0",
    b"e-1\x0bX-Evil: 1": "e-0",
    b"e-1\nX-Evil: 1": "e-1",
    b"e-1\rX-Evil: 1": "e-1",
}


@fault("E25")
async def test_an_event_id_that_is_no_valid_header_is_skipped_for_the_previous_one(pauses: list[float]) -> None:
    for id, cursor in IDS.items():
        script = mcp(call=streams(PRIMED, b"id: " + id + b"\ndata:\n\n"), get=resumed(streams(event(FOUND))))
        async with connected(script, sleep=pauses) as (client, peer):
            await tides(client)

        assert cursors(peer) == [cursor]
        assert [heard for heard in peer.heard if "x-evil" in heard.headers] == []


@fault("E25")
async def test_a_stream_without_a_usable_event_id_is_not_resumed() -> None:
    script = mcp(call=in_turn(streams(event(b"", id="\x00")), says()))
    async with connected(script) as (client, peer):
        error = await failing(client)
        await tides(client)

    assert type(error) is ConnectionClosed
    assert cursors(peer) == []
