"""Ids over stdio: a reply answers the request with its id, in any spelling, or nothing."""

from __future__ import annotations

import json

import pytest
from anyio import Event, create_task_group, sleep_forever

from mcp_host import Client, SamplingRequest, Stdio
from mcp_host.errors import RequestTimeout, ServerError
from mcp_host.types import CreateMessageResult
from tests.client.support import sampling
from tests.clock import advance
from tests.faults.fault import fault
from tests.faults.stdio_server import GOOD, connected, hear, said_to, server, unharmed

BAD = b'{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"bad"}]}}\n'
NO_ID = b'{"jsonrpc":"2.0",%s"error":{"code":-32700,"message":"what was that?"}}\n'


class Asked:
    """A sampling handler that never answers, and notes that it was called and cancelled."""

    def __init__(self) -> None:
        self.times = 0
        self.begun, self.cancelled = Event(), Event()

    async def __call__(self, request: SamplingRequest) -> CreateMessageResult:
        self.times += 1
        self.begun.set()
        try:
            await sleep_forever()
        finally:
            self.cancelled.set()
        raise AssertionError


@fault("J01", "J02")
@pytest.mark.parametrize("spell", ["str", "float"])
async def test_an_id_in_another_spelling_answers_the_request_it_means_and_no_other(spell: str) -> None:
    body = f"""
    for call in reversed(calls(2)):
        reply({{"id": {spell}(call["id"])}}, text("this is " + call["params"]["name"]))
    read()
    """

    async with connected(body) as client:
        assert await said_to(client, "a", "b") == {"a": "this is a", "b": "this is b"}


@fault("J01", "J02")
@pytest.mark.parametrize(
    ("id", "counter"),
    [
        (b'"@idx"', "answers to nothing"),
        (b'" @id"', "answers to nothing"),
        (b'"@id.0"', "answers to nothing"),
        (b"-@id", "answers to nothing"),
        (b"@id.5", "malformed messages"),
        (b"true", "malformed messages"),
        (b"[@id]", "malformed messages"),
    ],
    ids=["letters", "space", "float-in-text", "negative", "fraction", "bool", "list"],
)
async def test_a_reply_with_an_unknown_id_answers_no_call_and_is_counted(id: bytes, counter: str) -> None:
    async with connected() as client:
        assert (await hear(client, BAD % id, GOOD)).text == "good"
        assert client.counters == {counter: 1}


@fault("J02")
async def test_an_id_with_a_fraction_is_reported_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with connected() as client:
        await hear(client, BAD % b"@id.5", GOOD)

    (message,) = caplog.messages
    assert message.endswith(": skipped something that is no message (1 so far): a response without a usable id")
    assert client.warnings == [message]


@fault("J03")
@pytest.mark.parametrize("id", [b'"id":null,', b""], ids=["null", "absent"])
async def test_an_error_without_an_id_fails_the_only_call_in_flight(id: bytes) -> None:
    async with connected() as client:
        with pytest.raises(ServerError, match="what was that") as raised:
            await hear(client, NO_ID % id)
        assert raised.value.code == -32700
        assert await unharmed(client)


@fault("J03")
async def test_an_error_without_an_id_fails_no_call_when_two_are_in_flight() -> None:
    body = """
    waiting = calls(2)
    say({"id": None, "error": {"code": -32700, "message": "what was that?"}})
    for call in waiting:
        serve(call)
    read()
    """

    async with connected(body) as client:
        assert await said_to(client, "a", "b") == {"a": "a", "b": "b"}
        assert client.counters == {"errors without an id": 1}


@fault("J04")
async def test_zero_is_a_valid_id() -> None:
    """The server's requests under it are answered, and can be cancelled."""
    body = """
    first = read()
    sample(0)
    second = read()
    tell("cancelled", requestId=0)
    say({"id": 0, "method": "ping"})
    reply(second, text(json.dumps(read())))
    third = read()
    serve(first)
    serve(third)
    read()
    """
    model = Asked()

    async with connected(body, sampling=sampling(with_tools=model)) as client, create_task_group() as tasks:
        tasks.start_soon(client.call_tool, "first")
        await model.begun.wait()
        heard = json.loads((await client.call_tool("second")).text)
        await model.cancelled.wait()  # though the call that it asked for goes on
        await client.call_tool("third")

    assert heard == {"jsonrpc": "2.0", "id": 0, "result": {}}
    assert model.times == 1


@fault("J05", "J06")
async def test_the_first_reply_is_used_and_all_others_are_counted() -> None:
    async with connected() as client:
        assert (await hear(client, BAD % b"999", BAD % b'"x"', GOOD, BAD % b"@id", BAD % b"@id")).text == "good"
        assert await unharmed(client)
        assert client.counters == {"answers to nothing": 4}


@pytest.mark.adjustable_clock
@fault("J07", within=60 + 20)
async def test_a_late_reply_does_not_answer_the_next_call() -> None:
    body = """
    late = read()
    print("silent", file=sys.stderr, flush=True)
    call = until("tools/call")
    reply(late, text("bad"))
    serve(call)
    read()
    """

    async with Client(Stdio(server(body), on_stderr=lambda line: advance(60)), era="legacy") as client:
        with pytest.raises(RequestTimeout):
            await client.call_tool("slow", timeout=60)
        assert (await client.call_tool("good")).text == "good"
        assert client.counters == {"answers to nothing": 1}


@fault("J08")
async def test_a_second_request_under_the_same_id_is_refused_and_the_first_can_still_be_cancelled() -> None:
    body = """
    first = read()
    sample("q")
    second = read()
    sample("q")
    refusal = read()
    tell("cancelled", requestId="q")
    reply(second, text(json.dumps(refusal)))
    third = read()
    serve(first)
    serve(third)
    read()
    """
    model = Asked()

    async with connected(body, sampling=sampling(with_tools=model)) as client, create_task_group() as tasks:
        tasks.start_soon(client.call_tool, "first")
        await model.begun.wait()
        refusal = json.loads((await client.call_tool("second")).text)
        await model.cancelled.wait()  # though the call that it asked for goes on
        await client.call_tool("third")
        assert client.counters == {"repeated requests": 1}

    assert (refusal["id"], refusal["error"]["code"]) == ("q", -32600)
    assert model.times == 1
