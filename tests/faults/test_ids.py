"""Ids over stdio: a reply answers the request with its id, in any spelling, or nothing."""

from __future__ import annotations

import json

from anyio import create_task_group

from mcp_host import SamplingRequest
from mcp_host.types import CreateMessageResult
from tests.client.support import HangingModel, sampling
from tests.faults.fault import fault
from tests.faults.stdio_server import GOOD, connected, hear, unharmed

BAD = b'{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"bad"}]}}\n'
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
    asked: list[SamplingRequest] = []
    hanging = HangingModel()

    async def model(request: SamplingRequest) -> CreateMessageResult:
        asked.append(request)
        return await hanging(request)

    async with connected(body, sampling=sampling(with_tools=model)) as client, create_task_group() as tasks:
        tasks.start_soon(client.call_tool, "first")
        await hanging.begun.wait()
        heard = json.loads((await client.call_tool("second")).text)
        await hanging.ended.wait()  # though the call that it asked for goes on
        await client.call_tool("third")

    assert heard == {"jsonrpc": "2.0", "id": 0, "result": {}}
    assert len(asked) == 1
