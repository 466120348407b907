"""Bodies of HTTP answers: empty, cut, of another kind, or without an end. One call fails, at once."""

from __future__ import annotations

from typing import Any

import pytest
from anyio import wait_all_tasks_blocked

from mcp_host.errors import (
    ProtocolError,
    RequestTimeout,
)
from tests.clock import advance
from tests.extent import on_both
from tests.faults.fault import fault
from tests.faults.http_server import (
    DONE,
    LOG,
    TIDES,
    connected,
    failing,
    mcp,
    says,
    storm,
    subjects,
    tides,
)
from tests.transports.http_peers import JSON, LENGTH, Heard, Log, Wire, head
from tests.transports.legacy_peers import Answer, in_turn

# Bodies without the reply


NO_REPLY = {
    "nothing": b"",
    "half of it": DONE[:-1],
    "another id": DONE.replace(b"@id", b"4711"),
    "a notification": LOG,
    "a request": b'{"jsonrpc":"2.0","id":"p","method":"ping"}',
}


@fault("H15", "H17", "H18")
async def test_a_body_without_the_reply_fails_its_call_at_once_and_what_it_holds_is_heeded() -> None:
    logs, answers = Log[object](), Log[object]()

    async def on_log(message: object) -> None:
        logs.append(message)

    async def answer(wire: Wire, heard: Heard) -> None:
        answers.append(heard.rpc)
        await wire.reply(202)

    call = in_turn(*(each for body in NO_REPLY.values() for each in (says(body), says())))
    async with connected(mcp(call=call, answer=answer), on_log=on_log) as (client, _):
        for body in NO_REPLY:
            assert type(await failing(client)) is ProtocolError, body
            await tides(client)
        await logs.reaches(lambda logs: len(logs) == 1)
        await answers.reaches(lambda answers: answers == [{"jsonrpc": "2.0", "id": "p", "result": {}}])
        assert client.counters == {"answers to nothing": 1, "malformed messages": 2}


# Bodies that take their time


def dripping(beginning: bytes) -> Answer:
    """There is always something more to read, and never anything in it; on the adjustable clock, five seconds for each byte."""

    async def answer(wire: Wire, heard: Heard) -> None:
        await wire.say(beginning)
        while True:
            await wire.say(b" ")
            await wait_all_tasks_blocked()  # until the client has read it
            advance(5)

    return answer


@on_both
@pytest.mark.parametrize("options", [{"idle_timeout": 9}, {"timeout": 9}], ids=["idle timeout", "timeout"])
@pytest.mark.parametrize("beginning", [b"HTTP/1.1 200 OK\r\nx: y", head(200, {**JSON, **LENGTH})], ids=["head", "body"])
@pytest.mark.adjustable_clock
@fault("H28", within=100)
async def test_a_response_that_drips_ends_at_the_calls_timeout(beginning: bytes, options: Any) -> None:
    async with connected(mcp(call=storm(dripping(beginning)))) as (client, peer):
        with pytest.raises(RequestTimeout):
            await client.call_tool("storm", **options)
        assert (await client.call_tool("tides")).content == TIDES

    assert subjects(peer).count("initialize") == 1
