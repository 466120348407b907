"""JSON over stdio that some parsers choke on and some let through: it is read one way, or fails the one call it answers."""

from __future__ import annotations

import itertools
import json
import math
from contextlib import suppress

import pytest

from mcp_host import Limits
from mcp_host.errors import CallerError, McpError, MessageTooLarge, ProtocolError
from tests.client.support import said_to, sampling
from tests.faults.fault import fault
from tests.faults.stdio_server import GOOD, connected, error_of, errors_of, hear, unharmed

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


@fault("J13")
async def test_a_reply_of_two_million_levels_is_too_large() -> None:
    assert type(await error_of(STRUCTURED % nested(2_000_000))) is MessageTooLarge


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


@fault("J14")
async def test_a_number_too_large_for_a_float_is_read_as_infinite_and_never_written(subtests: pytest.Subtests) -> None:
    async with connected() as client:
        for number, value in ((b"1e999", math.inf), (b"-1e999", -math.inf), (b"1e-999", 0.0)):
            with subtests.test(ascii(number)):
                result = await hear(client, STRUCTURED % number)
                assert result.structured_content == {"x": value}
                if math.isinf(value):
                    with pytest.raises(CallerError, match="not expressible in JSON"):
                        await client.call_tool("x", result.structured_content)
                assert await unharmed(client)


SMUGGLED = [
    '"Id":@id,"ID":@id,"id":@other',
    '"id":@id,"id":@other',
    '"id\\u0000":@id,"id":@other',
    '"id ":@id,"id":@other,"\\u0130d":@id',
]


@fault("J15")
async def test_keys_are_exact_and_the_last_of_two_counts() -> None:
    body = f"""
    for smuggled in {SMUGGLED!r}:
        ids = [call["id"] for call in calls(2)]
        for id, other in zip(ids, reversed(ids)):
            members = smuggled.replace("@id", str(id)).replace("@other", str(other))
            line('"jsonrpc":"2.0",' + members + ',"result":' + json.dumps(text(f"to {{ids.index(other)}}")))
    read()
    """

    async with connected(body) as client:
        for smuggled in SMUGGLED:
            assert await said_to(client, "a", "b") == {"a": "to 0", "b": "to 1"}, smuggled


@fault("J15")
async def test_members_in_another_case_are_ignored() -> None:
    error = await error_of(b'{"jsonrpc":"2.0","id":@id,"Result":{"content":[]},"ERROR":{"code":1,"message":"m"}}\n')

    assert "neither result nor error" in str(error)


@fault("J16")
async def test_an_integer_of_any_size_that_python_prints_is_kept_exactly(subtests: pytest.Subtests) -> None:
    async with connected() as client:
        for digits in (19, 20, 40, 4000):
            with subtests.test(digits=digits):
                result = await hear(client, STRUCTURED % (b"9" * digits))
                assert result.structured_content == {"x": 10**digits - 1}


@fault("J16")
async def test_a_request_with_a_huge_id_is_answered_with_the_same_id() -> None:
    ids = [2**31, 2**53 + 1, 2**63, 2**64, 10**30]
    body = f"""
    call = read()
    answered = []
    for id in {ids}:
        say({{"id": id, "method": "ping"}})
        answered.append(read()["id"])
    reply(call, text(str(answered)))
    serve_all()
    """

    async with connected(body) as client:
        assert (await client.call_tool("x")).text == str(ids)


@fault("J16")
async def test_a_reply_with_a_huge_id_answers_no_call() -> None:
    """Least of all the request 2, whose id is left over where a number is cut to 32 or 64 bits."""
    ids = [b"4294967298", b"18446744073709551618", b"1e300", b"9" * 4000, b"9" * 5000]
    replies = [b'{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}\n' % id for id in ids]

    async with connected() as client:
        assert (await hear(client, *replies, GOOD)).text == "good"
        assert await unharmed(client)
        assert sum(client.counters.values()) == len(ids)


@fault("J17")
async def test_half_of_a_surrogate_pair_costs_one_character_only() -> None:
    async with connected() as client:
        assert (await hear(client, TEXT % b"\\ud83d\\ude00 and \\u0000")).text.encode() == "😀 and \0".encode()
        assert (await hear(client, TEXT % b"cut: \\ud83d")).text == "cut: \ufffd"


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
