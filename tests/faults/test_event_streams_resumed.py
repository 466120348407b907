"""Event streams that break off and are resumed: what comes twice, what never comes, and at which pace we ask."""

from __future__ import annotations

import sys

import anyio
import pytest
from anyio.lowlevel import checkpoint

from mcp_host import Sampling, SamplingRequest, always
from mcp_host.errors import ConnectionClosed, McpError, RequestTimeout, SessionLost
from mcp_host.types import CreateMessageResult
from tests.client.support import say_paris
from tests.faults.fault import fault
from tests.faults.http_server import (
    ASK,
    DONE,
    LOG,
    chunked,
    connected,
    drop,
    failing,
    mcp,
    reset,
    says,
    sends,
    storm,
    streams,
    subjects,
    tides,
    welcome,
)
from tests.transports.http_peers import Heard, Log, Peer, Wire, event
from tests.transports.legacy_peers import Answer, in_turn, refuse

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


# Going on


@pytest.mark.parametrize("data", [b"data:\n", b"data: \n", b"", b"data\n"])
@fault("E04")
async def test_an_event_without_data_only_moves_the_cursor(data: bytes, pauses: list[float]) -> None:
    script = mcp(call=streams(b"id: e-0\n" + data + b"\n"), get=resumed(streams(event(FOUND))))
    async with connected(script, sleep=pauses) as (client, peer):
        await tides(client)
        assert client.counters == {}

    assert cursors(peer) == ["e-0"]


@pytest.mark.parametrize("reset", [False, True], ids=["end", "reset"])
@pytest.mark.parametrize(
    ("pieces", "cursor"),
    [
        ([PRIMED], "e-0"),
        ([PRIMED, event(LOG, id="e-1")], "e-1"),
        ([PRIMED, b"id: e-1\ndata: " + DONE[:-1]], "e-0"),
        ([PRIMED, event(LOG, id="e-1"), event(LOG)], "e-1"),
    ],
    ids=["after the first event", "after a notification", "inside the reply", "after an event without an id"],
)
@fault("E01", "E05")
async def test_a_reply_whose_stream_is_cut_is_fetched_from_where_it_was_cut(
    pieces: list[bytes], cursor: str, reset: bool
) -> None:
    async def call(wire: Wire, request: Heard) -> None:
        await wire.say(chunked(b"retry: 0\n", *pieces))
        if reset:
            await anyio.wait_all_tasks_blocked()  # or the reset may overtake what was said
            await wire.reset()
        else:
            await wire.end()

    async with connected(mcp(call=call, get=resumed(streams(event(FOUND))))) as (client, peer):
        await tides(client)

    assert cursors(peer) == [cursor]
    assert subjects(peer).count("call") == 1


@fault("E05")
async def test_a_reply_is_fetched_through_a_restart_of_the_server(pauses: list[float]) -> None:
    gets = resumed(drop, reset, says(b"", 503), says(b"", 429), sends(b"HTTP/1.1 20"), streams(event(FOUND)))
    async with connected(mcp(call=streams(PRIMED), get=gets), sleep=pauses) as (client, peer):
        await tides(client)

    assert subjects(peer).count("call") == 1
    assert set(cursors(peer)) == {"e-0"}


# What cannot be resumed


@pytest.mark.parametrize("status", [400, 401, 403, 405, 406, 501])
@fault("E06")
async def test_a_refused_resumption_fails_only_its_call(status: int, pauses: list[float]) -> None:
    answer = says(b"", status)
    async with connected(mcp(call=in_turn(streams(PRIMED), says()), get=resumed(answer)), sleep=pauses) as (
        client,
        peer,
    ):
        error = await failing(client)
        await tides(client)

    assert type(error) is ConnectionClosed
    assert error.may_have_run
    assert f"HTTP {status}" in str(error) or status == 501
    assert 1 <= len(cursors(peer)) <= 8
    assert subjects(peer).count("initialize") == 1


@pytest.mark.parametrize("status", [404, 410])
@fault("E06")
async def test_a_resumption_that_loses_the_session_fails_its_call_and_the_next_call_has_a_new_session(
    status: int, pauses: list[float]
) -> None:
    async with connected(
        mcp(
            initialize=in_turn(welcome("s-1"), welcome("s-2")),
            call=in_turn(streams(PRIMED), says()),
            get=resumed(says(b"", status)),
        ),
        sleep=pauses,
    ) as (client, peer):
        error = await failing(client)
        await tides(client)

    assert isinstance(error, SessionLost)
    assert error.may_have_run  # so it was not made again
    assert (len(cursors(peer)), subjects(peer).count("call"), subjects(peer).count("initialize")) == (1, 2, 2)


@pytest.mark.parametrize(
    "answer", [says(b"", 500), drop, reset, sends(b"SSH-2.0\r\n\r\n")], ids=["500", "end", "reset", "noise"]
)
@fault("E06", "E08")
async def test_a_stream_that_cannot_be_resumed_is_given_up_after_some_attempts(
    answer: Answer, pauses: list[float]
) -> None:
    async with connected(mcp(call=in_turn(streams(PRIMED), says()), get=resumed(answer)), sleep=pauses) as (client, _):
        error = await failing(client)
        await tides(client)

    assert type(error) is ConnectionClosed
    assert error.may_have_run
    assert pauses == [1.0, 1.0, 1.0, 1.0, 1.5, 2.25, 3.375, 5.0]


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


@fault("E08")
async def test_a_retry_of_0_is_raised_to_our_minimum(pauses: list[float]) -> None:
    gets = [streams(b"retry: 0\n")] * 20
    script = mcp(call=streams(b"retry: 0\n", PRIMED), get=resumed(*gets, streams(event(FOUND))))
    async with connected(script, sleep=pauses) as (client, _):
        await tides(client)

    assert pauses[0] == 0.1
    assert pauses == sorted(pauses)
    assert pauses[-1] == 5.0


@fault("E08")
async def test_a_message_resets_the_backoff(pauses: list[float]) -> None:
    gets = [streams(event(LOG, id="e-1"))] * 6
    async with connected(mcp(call=streams(PRIMED), get=resumed(*gets, streams(event(FOUND)))), sleep=pauses) as (
        client,
        _,
    ):
        await tides(client)

    assert pauses == [1.0] * 7


@fault("E09")
async def test_many_polls_do_not_grow_the_stack() -> None:
    depths: list[int] = []

    async def sleep(seconds: float) -> None:
        depths.append(depth())
        await checkpoint()

    gets = [streams(), streams(event(LOG, id="e-1")), says(b"", 503)] * 10
    script = mcp(call=streams(PRIMED), get=resumed(*gets, streams(event(FOUND))))
    async with connected(script, sleep=sleep) as (client, _):
        await tides(client)

    assert len(depths) == 31
    assert len(set(depths[1:])) == 1  # the first is of a task that has just been begun


def depth() -> int:
    frame, count = sys._getframe(), 0
    while frame.f_back is not None:
        frame, count = frame.f_back, count + 1
    return count


RETRIES = {
    "too large for a float": (b"9" * 401, 3600.0),
    "five thousand digits": (b"9" * 5000, 3600.0),
    "centuries": (b"9999999999999", 3600.0),
    "an hour": (b"3600000", 3600.0),
    "leading zeros": (b"0" * 5000 + b"500", 0.5),
    "negative": (b"-1", 1.0),
    "signed": (b"+1", 1.0),
    "a fraction": (b"0.5", 1.0),
    "an exponent": (b"1e9", 1.0),
    "infinite": (b"Infinity", 1.0),
    "no number": (b"NaN", 1.0),
    "other digits": ("\u0661\u0662".encode(), 1.0),
    "nothing": (b"", 1.0),
    "blanks": (b" 500 ", 1.0),
    "zero": (b"0", 0.1),
}


@pytest.mark.parametrize(("retry", "pause"), RETRIES.values(), ids=RETRIES)
@fault("E10", "E11")
async def test_a_retry_value_is_read_only_as_its_standard_defines_it(
    retry: bytes, pause: float, pauses: list[float]
) -> None:
    script = mcp(call=streams(b"retry: " + retry + b"\n", PRIMED), get=resumed(streams(event(FOUND))))
    async with connected(script, sleep=pauses) as (client, _):
        await tides(client)

    assert pauses == [pause]


@pytest.mark.parametrize("retry", [b"9" * 401, b"9" * 5000, b"999999999999999", b"60000"])
@fault("E11")
async def test_a_retry_of_centuries_does_not_outlast_the_call(retry: bytes) -> None:
    script = mcp(call=storm(streams(b"retry: " + retry + b"\n", PRIMED)))
    async with connected(script) as (client, peer):
        error: McpError = await failing(client, "storm", timeout=0.1)
        await tides(client)

    assert type(error) is RequestTimeout
    assert cursors(peer) == []


# Ids


@pytest.mark.parametrize(
    ("id", "cursor"),
    [
        (b"e-1", "e-1"),
        (b"a b", "a b"),
        (b"e-1\x00X-Evil: 1", "e-0"),
        (b"e-1\x0bX-Evil: 1", "e-0"),
        (b"\x7f", "e-0"),
        ("\u65e5\u672c".encode(), "e-0"),
        ("\u00e9-1".encode(), "e-0"),
        (b"\xff\xfe", "e-0"),
        (b"x" * 100_000, "e-0"),
        (b" ", "e-0"),
        (b"e-1\nX-Evil: 1", "e-1"),
        (b"e-1\rX-Evil: 1", "e-1"),
    ],
    ids=ascii,
)
@fault("E25")
async def test_an_event_id_that_is_no_valid_header_is_skipped_for_the_previous_one(
    id: bytes, cursor: str, pauses: list[float]
) -> None:
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
