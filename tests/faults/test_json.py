"""JSON over stdio that some parsers choke on and some let through: it is read one way, or fails the one call it answers."""

from __future__ import annotations

import itertools
import json
from contextlib import suppress

import pytest

from mcp_host import Limits
from mcp_host.errors import McpError, MessageTooLarge, ProtocolError
from tests.client.support import sampling
from tests.faults.fault import fault
from tests.faults.stdio_server import GOOD, connected, errors_of, hear, unharmed

STRUCTURED = b'{"jsonrpc":"2.0","id":@id,"result":{"content":[],"structuredContent":{"x":%s}}}\n'
TEXT = b'{"jsonrpc":"2.0","id":@id,"result":{"content":[{"type":"text","text":"%s"}]}}\n'


def nested(levels: int, inside: bytes = b"") -> bytes:
    return b"[" * levels + inside + b"]" * levels


VALUES = [b"NaN", b"Infinity", b"-Infinity", b"nan", b"0x10", b"01", b".5", b"+1", b"9" * 1_000_000]
UNREADABLE = {
    **{f"{value[:9]!r} {deep} levels deep": STRUCTURED % nested(deep, value) for value in VALUES for deep in (0, 300)},
    **{f"{levels} levels": STRUCTURED % nested(levels) for levels in (638, 1_500, 100_000)},
    "Latin-1": TEXT % b"caf\xe9",
    "half a character": TEXT % b"\xed\xa0\x80",
    "not UTF-8, and the id comes last": b'{"jsonrpc":"2.0","result":{"content":[{"type":"text","text":"\xff"}]},"id":@id}\n',
}


@fault("F09", "J12", "J13", "J14", "J16")
async def test_a_reply_that_cannot_be_read_fails_its_call_at_once_and_no_other(subtests: pytest.Subtests) -> None:
    errors = await errors_of(UNREADABLE)

    for name, error in errors.items():
        with subtests.test(name):
            assert type(error) is ProtocolError
            assert "the server's answer is no JSON-RPC response: not JSON" in str(error)
            assert len(str(error)) < 500


PLACES = [
    b'{"jsonrpc":"2.0","id":@id,"result":{"content":[{"type":"new","x":%s}],"structuredContent":{"x":1}}}\n',
    b'{"jsonrpc":"2.0","id":@id,"result":{"content":%s}}\n',
    b'{"jsonrpc":"2.0","id":@id,"error":{"code":1,"message":"m","data":%s}}\n',
    b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"x":%s}}\n',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}\n',
    b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}\n',
    b'{"jsonrpc":"2.0","id":%s,"result":{}}\n',
    b'{"jsonrpc":"2.0","id":"r","method":"sampling/createMessage","params":{"maxTokens":%s}}\n',
    b"%s\n",
]


@fault("J13")
async def test_deep_nesting_breaks_nothing_wherever_it_is(subtests: pytest.Subtests) -> None:
    async def on_change(change: object) -> None:
        changes.append(change)

    changes: list[object] = []
    async with connected(on_change=on_change, sampling=sampling()) as client:
        for message, levels in itertools.product(PLACES, (150, 630, 800)):
            with subtests.test(message=message, levels=levels):
                with suppress(McpError):
                    await hear(client, (message % nested(levels)) * 2, GOOD)
                assert await unharmed(client)


@fault("J12", "J13")
async def test_a_request_that_cannot_be_read_is_refused_and_not_taken_for_an_answer() -> None:
    """Its id is that of the call in flight, as it may be: both sides count from the same number."""
    body = """
    call = read()
    deep = '"params":{"x":' + "[" * 1500 + "]" * 1500 + "}"
    line('"jsonrpc":"2.0","id":%d,"method":"ping",%s' % (call["id"], deep))
    line('"method":"ping",%s,"jsonrpc":"2.0","id":%d' % (deep, call["id"]))
    refusals = [read(), read()]
    reply(call, text(json.dumps([[refusal["id"] == call["id"], refusal["error"]["code"]] for refusal in refusals])))
    read()
    """

    async with connected(body) as client:
        assert json.loads((await client.call_tool("x")).text) == [[True, -32600]] * 2


@fault("J12")
@pytest.mark.parametrize("place", [0, 3], ids=["id-first", "id-last"])
async def test_a_message_over_the_limit_that_is_no_answer_fails_no_call(place: int) -> None:
    body = f"""
    call = read()
    tell("message", level="info", data="x" * 300_000)
    members = ['"method":"ping"', '"params":{{"x":"' + "x" * 300_000 + '"}}', '"jsonrpc":"2.0"']
    members.insert({place}, '"id":%d' % call["id"])
    line(",".join(members))
    refusal = read()
    reply(call, text(json.dumps([refusal["id"] == call["id"], refusal["error"]["code"]])))
    reply(read(), text("x" * 300_000))
    serve_all()
    """

    async with connected(body, limits=Limits(max_message=200_000)) as client:
        assert json.loads((await client.call_tool("x")).text) == [True, -32600]
        with pytest.raises(MessageTooLarge):
            await client.call_tool("y")
        assert (await client.call_tool("good")).text == "good"
