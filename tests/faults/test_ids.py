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
from tests.extent import on_both
from tests.faults.fault import fault
from tests.faults.stdio_server import GOOD, connected, errors_of, hear, said_to, server, unharmed

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
async def test_an_id_in_another_spelling_answers_the_request_it_means_and_no_other() -> None:
    body = """
    for spell in (str, float):
        for call in reversed(calls(2)):
            reply({"id": spell(call["id"])}, text("this is " + call["params"]["name"]))
    read()
    """

    async with connected(body) as client:
        for _ in range(2):
            assert await said_to(client, "a", "b") == {"a": "this is a", "b": "this is b"}


NOTHING = [b"999", b'"x"', b'"@idx"', b'" @id"', b'"@id.0"', b"-@id"]
NO_IDS = [b"@id.5", b"true", b"[@id]"]


@fault("J01", "J02", "J05", "J06")
async def test_a_reply_with_an_unknown_id_or_a_second_one_answers_no_call_and_is_counted() -> None:
    async with connected() as client:
        for id in (*NOTHING, *NO_IDS):
            assert (await hear(client, BAD % id, GOOD)).text == "good", id
        assert (await hear(client, GOOD, BAD % b"@id", BAD % b"@id")).text == "good"
        assert await unharmed(client)
        assert client.counters == {"answers to nothing": len(NOTHING) + 2, "malformed messages": len(NO_IDS)}


@fault("J02")
async def test_an_id_with_a_fraction_is_reported_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with connected() as client:
        await hear(client, BAD % b"@id.5", GOOD)

    (message,) = caplog.messages
    assert message.endswith(": skipped something that is no message (1 so far): a response without a usable id")
    assert client.warnings == [message]


@fault("J03")
async def test_an_error_without_an_id_fails_the_only_call_in_flight() -> None:
    errors = await errors_of({"null": NO_ID % b'"id":null,', "absent": NO_ID % b""})

    for error in errors.values():
        assert isinstance(error, ServerError)
        assert (error.code, error.message) == (-32700, "what was that?")


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


@on_both
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
