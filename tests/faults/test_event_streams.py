"""The event streams of calls: with the replies to others, without an end, and broken off and resumed.

What a single stream comes to is in `tests/transports/test_http.py`, and the decoder in `tests/protocol/test_sse.py`.
"""

from __future__ import annotations

import itertools
import sys

import anyio
import pytest
from anyio.lowlevel import checkpoint

from mcp_host import Sampling, SamplingRequest, always
from mcp_host.errors import ProtocolError, RequestTimeout, ServerError
from mcp_host.types import CreateMessageResult
from tests.client.support import say_paris
from tests.clock import advance
from tests.extent import on_both
from tests.faults.fault import fault
from tests.faults.http_server import ASK, DONE, LOG, accept, connected, errors_of, mcp, says, streams, tides
from tests.transports.http_peers import Heard, Log, Peer, Wire, event
from tests.transports.legacy_peers import Answer, hang, in_turn, refuse

pytestmark = on_both

PRIMED = event(b"", id="e-0")
FOUND = DONE.replace(b"@id", b"2")  # the first call's; a GET bears no id to be copied

# Whose reply


@fault("E16")
async def test_a_reply_on_another_calls_stream_finds_its_call() -> None:
    """The first call's stream stays silent; the second's brings the replies to both."""
    first = anyio.Event()

    async def silent(wire: Wire, heard: Heard) -> None:
        first.set()
        await hang(wire, heard)

    both = streams(event(FOUND) + event(DONE))
    async with connected(mcp(call=in_turn(silent, both))) as (client, _), anyio.create_task_group() as tasks:
        tasks.start_soon(tides, client)
        await first.wait()
        await tides(client)


REFUSAL = b'{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no such tool","data":[1]}}'
ENDINGS = {
    "an error": (REFUSAL % b"@id", ServerError),
    "an error without an id": (REFUSAL % b"null", ServerError),
    "a malformed reply": (b'{"jsonrpc":"2.0","id":@id,"result":7}', ProtocolError),
}


@fault("E17", "E18")
async def test_an_error_or_a_malformed_reply_on_a_stream_that_stays_open_fails_its_call_at_once() -> None:
    errors = await errors_of({name: streams(event(data), stay=True) for name, (data, _) in ENDINGS.items()})

    assert {name: type(error) for name, error in errors.items()} == {name: kind for name, (_, kind) in ENDINGS.items()}
    assert isinstance(errors["an error"], ServerError)
    assert (errors["an error"].code, errors["an error"].data) == (-32602, [1])


# A stream without an end


@pytest.mark.adjustable_clock
@fault("E23")
async def test_an_endless_stream_without_the_response_ends_at_the_calls_timeout(subtests: pytest.Subtests) -> None:
    async def answer(wire: Wire, heard: Heard) -> None:
        await wire.events(b"")
        for turn in itertools.count():
            await wire.say(pieces[heard.rpc["params"]["name"]])
            advance(9 if turn == 5 else 0)

    pieces = {
        "comments": b": still here\n\n" * 100,
        "blank lines": b"\n" * 1000,
        "logs": event(LOG) * 10,
        "pings": b"event: ping\ndata: {}\n\n" * 50,
    }
    async with connected(mcp(call=answer, cancelled=accept)) as (client, _):
        for name in pieces:
            with subtests.test(name), pytest.raises(RequestTimeout):
                await client.call_tool(name, timeout=9)


# A stream that breaks off


def resumed(*gets: Answer) -> Answer:
    """What a GET meets: a refusal of the server's own stream, and *gets* in turn for the rest of a call's."""
    rest = in_turn(*gets)

    async def answer(wire: Wire, heard: Heard) -> None:
        await (rest if "last-event-id" in heard.headers else refuse)(wire, heard)

    return answer


def cursors(peer: Peer) -> list[str]:
    """From where on the rest of streams was asked for."""
    return [heard.headers["last-event-id"] for heard in peer.heard if "last-event-id" in heard.headers]


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
