"""Sampling in the HTTP of the handshake era: on which stream a server asks, and how it gets its answer."""

from __future__ import annotations

import pytest
from anyio import Event, wait_all_tasks_blocked

from mcp_host import SamplingRequest
from mcp_host.types import CreateMessageResult
from tests.extent import on_both
from tests.faults.asking import PARIS, Model, sampling
from tests.faults.fault import fault
from tests.faults.http_server import ASK, DONE, accept, connected, drop, mcp, reset, says, streams, subject, tides
from tests.transports.http_peers import Heard, Log, Peer, Wire, event
from tests.transports.legacy_peers import Answer, in_turn, refuse

pytestmark = on_both

PING = b'{"jsonrpc":"2.0","id":"p-1","method":"ping"}'
ANSWERED = {"jsonrpc": "2.0", "id": "q-1"} | PARIS
PONG = {"jsonrpc": "2.0", "id": "p-1", "result": {}}
FOUND = DONE.replace(b"@id", b"2")  # the first call's; a GET bears no id to be copied


class Answers(Log[object]):
    """What the server has been answered, each by a POST, which it takes or treats as *taking* has it."""

    def __init__(self, taking: Answer = accept) -> None:
        super().__init__()
        self._taking = taking

    async def __call__(self, wire: Wire, heard: Heard) -> None:
        assert heard.method == "POST"
        self.append(heard.rpc)
        await self._taking(wire, heard)

    async def given(self, count: int = 1) -> None:
        await self.reaches(lambda answers: len(answers) >= count)


def sessions(peer: Peer) -> list[str]:
    """The session that each answer of ours named."""
    return [heard.headers.get("mcp-session-id", "none") for heard in peer.heard if subject(heard) == "answer"]


def asking(answers: Answers, *parts: bytes, count: int = 1) -> Answer:
    """Asks on the call's own stream, and finishes the call when there have been so many answers."""

    async def answer(wire: Wire, heard: Heard) -> None:
        await wire.events(*parts)
        await answers.given(count)
        await finish(wire, heard)

    return answer


async def finish(wire: Wire, heard: Heard) -> None:
    await wire.say(event(FOUND))
    await wire.end()


@fault("S21")
async def test_a_request_on_a_calls_own_stream_is_answered_by_a_post() -> None:
    answers, model = Answers(), Model()
    script = mcp(call=asking(answers, event(ASK), event(PING), count=2), answer=answers)
    async with connected(script, sampling=sampling(model)) as (client, peer):
        await tides(client)

    assert sorted(answers, key=str) == sorted([ANSWERED, PONG], key=str)
    assert sessions(peer) == ["s-1", "s-1"]
    assert [request.outer and (request.outer.name, request.outer.inferred) for request in model.asked] == [
        ("tides", False)
    ]


@fault("S21")
async def test_a_request_on_the_servers_own_stream_is_answered_by_a_post() -> None:
    answers, model, called = Answers(), Model(), Event()

    async def get(wire: Wire, heard: Heard) -> None:
        await wire.events()
        await called.wait()
        await wire.say(event(ASK) + event(PING))
        await wire.hung_up()

    async def call(wire: Wire, heard: Heard) -> None:
        called.set()
        await answers.given(2)
        await says()(wire, heard)

    async with connected(mcp(call=call, get=get, answer=answers), sampling=sampling(model)) as (client, peer):
        await tides(client)

    assert sorted(answers, key=str) == sorted([ANSWERED, PONG], key=str)
    assert sessions(peer) == ["s-1", "s-1"]
    assert [request.outer for request in model.asked] == [None]  # "SHOULD be unrelated" to the call in flight


@fault("S21")
async def test_a_request_on_the_servers_own_stream_does_not_end_with_a_call_that_the_server_has_answered() -> None:
    answers, model, returned, asked = Answers(), Model(), Event(), Event()

    async def slowly(request: SamplingRequest) -> CreateMessageResult:
        asked.set()
        await returned.wait()
        return await model(request)

    async def get(wire: Wire, heard: Heard) -> None:
        await wire.events()
        await called.wait()
        await wire.say(event(ASK))
        await wire.hung_up()

    async def call(wire: Wire, heard: Heard) -> None:
        called.set()
        await asked.wait()
        await says()(wire, heard)

    called = Event()
    async with connected(mcp(call=call, get=get, answer=answers), sampling=sampling(slowly)) as (client, _):
        await tides(client)
        returned.set()
        await answers.given()

    assert answers == [ANSWERED]


@fault("S22")
async def test_a_handler_continues_after_the_stream_of_its_request_is_cut() -> None:
    resumed = Event()

    async def slowly(request: SamplingRequest) -> CreateMessageResult:
        await resumed.wait()
        return request.reply("Paris")

    async def get(wire: Wire, heard: Heard) -> None:
        if "last-event-id" not in heard.headers:
            return await refuse(wire, heard)
        resumed.set()
        await wire.events()
        await answers.given()
        return await finish(wire, heard)

    answers = Answers()
    call = streams(b"retry: 0\n", event(ASK, id="e-1"))
    async with connected(mcp(call=call, get=get, answer=answers), sampling=sampling(slowly)) as (client, _):
        await tides(client)

    assert answers == [ANSWERED]


@fault("S23")
async def test_an_answer_lost_on_its_way_is_sent_again_without_asking_the_model_again() -> None:
    model, answers = Model(), Answers(in_turn(says(b"", 500), drop, reset, accept))
    script = mcp(call=asking(answers, event(ASK), count=4), answer=answers)
    async with connected(script, sampling=sampling(model), retry_delays=(0.0, 0.0, 0.0)) as (client, _):
        await tides(client)

    assert answers == [ANSWERED] * 4
    assert len(model.asked) == 1


@pytest.mark.parametrize(
    ("taking", "tries"), [(says(b"", 400), 1), (says(b"", 500), 3), (drop, 3)], ids=["a refusal", "errors", "drops"]
)
@fault("S23")
async def test_an_answer_that_the_server_never_reads_is_dropped_and_the_session_continues(
    taking: Answer, tries: int
) -> None:
    answers = Answers(taking)
    script = mcp(call=in_turn(asking(answers, event(ASK), count=tries), says()), answer=answers)
    async with connected(script, sampling=sampling(Model()), retry_delays=(0.0, 0.0)) as (client, _):
        for _ in range(2):
            await tides(client)
        await wait_all_tasks_blocked()

        assert client.counters == {"undelivered messages": 1}
    assert answers == [ANSWERED] * tries
