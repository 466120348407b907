"""Messages over stdio that are none, or say what they should not: one call is hurt at most, at once and by a typed error."""

from __future__ import annotations

import itertools
import json

import pytest
from anyio import Event

from mcp_host.errors import ProtocolError, ServerError
from mcp_host.types import LoggingMessageNotificationParams
from tests.client.support import sampling
from tests.faults.fault import fault
from tests.faults.stdio_server import GOOD, connected, hear, unharmed

HOSTILE = "\x1b[2J\x1b]0;owned\x07\u202e\x00\r\n" * 5_000
"""A hundred thousand characters that clear a screen, name a window, and turn the text around."""


METHODS = [b"cancelled", b"progress", b"message", b"resources/updated", b"elicitation/complete", b"who/knows"]
PARAMS = [b"", b',"params":null', b',"params":[]', b',"params":7', b',"params":{}']


@fault("J22")
async def test_malformed_notifications_are_ignored() -> None:
    async def on_log(log: LoggingMessageNotificationParams) -> None:
        logged.append(log.data)
        last.set()

    async def on_progress(progress: object) -> None:
        raise AssertionError

    logged: list[object] = []
    last = Event()
    bad = [b'{"jsonrpc":"2.0","method":"notifications/%s"%s}\n' % each for each in itertools.product(METHODS, PARAMS)]
    log = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"heard"}}\n'

    async with connected(on_log=on_log) as client:
        assert (await hear(client, *bad, log, GOOD, on_progress=on_progress)).text == "good"
        await last.wait()
        assert await unharmed(client)

    assert logged == ["heard"]


ASKED = [
    ('"id": "r", "method": "ping", "params": [1]', "r", -32600),
    ('"id": "r", "method": "ping", "params": "x"', "r", -32600),
    ('"id": "r", "method": "sampling/createMessage", "params": []', "r", -32602),
    ('"id": "r", "method": "sampling/createMessage"', "r", -32602),
    ('"id": "r", "method": "sampling/createMessage", "params": null', "r", -32602),
    ('"id": "r", "method": "tools/call", "params": {"name": "x"}', "r", -32601),
    ('"id": "r", "method": ""', "r", -32601),
    ('"id": "", "method": "who/knows"', "", -32601),
    ('"id": -5, "method": "who/knows"', -5, -32601),
]


@fault("J23", "J24")
async def test_a_request_that_cannot_be_served_is_refused_with_the_right_code() -> None:
    body = f"""
    call = read()
    answers = []
    for asked in {[asked for asked, *_ in ASKED]!r}:
        line('"jsonrpc": "2.0", ' + asked)
        answers.append(read())
    reply(call, text(json.dumps(answers)))
    serve_all()
    """

    async with connected(body, sampling=sampling()) as client:
        answers = json.loads((await client.call_tool("x")).text)
        assert (await client.call_tool("good")).text == "good"

    assert [(answer["id"], answer["error"]["code"]) for answer in answers] == [(id, code) for _, id, code in ASKED]


REPLY = b'{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"bad"}]}}\n'
REQUEST = b'{"jsonrpc":"2.0","id":%s,"method":"ping"}\n'
UNKNOWN = [b"4294967298", b"1e300", b"9" * 4000, b"999", b'"x"', b'"@idx"', b'" @id"', b'"@id.0"', b"-@id"]
INVALID = [REPLY % id for id in (b"@id.5", b"true", b"[@id]")]
INVALID += [REQUEST % id for id in (b"null", b"true", b"[]", b"{}", b"1.5")]


@fault("J01", "J02", "J05", "J06", "J16", "J23")
async def test_messages_with_an_unknown_used_or_invalid_id_are_counted_and_do_no_harm() -> None:
    """Cut to 32 bits, the first would be the id of the request 2."""
    async with connected() as client:
        for message in (*(REPLY % id for id in UNKNOWN), *INVALID):
            assert (await hear(client, message, GOOD)).text == "good", message
        assert (await hear(client, GOOD, REPLY % b"@id", REPLY % b"@id")).text == "good"
        assert await unharmed(client), "which it is not if the parrot has heard anything but calls"
        assert client.counters == {"answers to nothing": len(UNKNOWN) + 2, "malformed messages": len(INVALID)}


@fault("J30")
async def test_a_hostile_error_message_is_cut_and_harmless_wherever_it_is_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    text = json.dumps(HOSTILE).encode()

    async with connected() as client:
        with pytest.raises(ServerError) as caught:
            await hear(client, b'{"jsonrpc":"2.0","id":@id,"error":{"code":1,"message":%s}}\n' % text)
        await hear(client, b"%s\n" % HOSTILE.replace("\n", "").encode(), b'{"\x1b[2J":\n', GOOD)
        with pytest.raises(ProtocolError) as malformed:
            await hear(client, b'{"jsonrpc":"2.0","id":@id,"result":{"content":[{"type":"text",%s:1}]}}\n' % text)

    assert caught.value.message == HOSTILE
    for shown in (str(caught.value), repr(caught.value), str(malformed.value), *caplog.messages):
        assert shown.isprintable()
        assert len(shown) < 1000
    assert len(caplog.messages) >= 2
