"""Sessions over HTTP: forgotten by the server, lost again, refused at the end, and messages that it does not accept."""

from __future__ import annotations

import pytest

from mcp_host import Sampling, always
from mcp_host.errors import ConnectFailed
from tests.client.support import say_paris
from tests.extent import on_both
from tests.faults.fault import fault
from tests.faults.http_server import (
    ASK,
    connected,
    drop,
    mcp,
    refused,
    reset,
    says,
    sends,
    streams,
    subject,
    tides,
    welcome,
)
from tests.transports.http_peers import Heard, Log, Script, Wire, event
from tests.transports.legacy_peers import Answer, in_turn

pytestmark = on_both

MODEL = Sampling(with_tools=say_paris, approve=always)
VERSION = "2025-11-25"


def forgetful(*forgets: Answer, **answers: Answer) -> Script:
    """A server that says so, one answer after the other, to the first calls; a session has a number."""
    sessions = [welcome(f"s-{number}") for number in range(1, 10)]
    return mcp(**{"initialize": in_turn(*sessions), "call": in_turn(*forgets, says()), **answers})


# A server that has forgotten the session


FORGOTTEN = {
    "404": says(b"", 404),
    "404 in words": says(b'{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}', 404),
    "410": says(b"", 410),
    "400 no valid session": says(
        b'{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}',
        400,
    ),
    "400 not initialized": says(
        b'{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: Server not initialized"}}', 400
    ),
    "400 in text": says(b"Invalid session ID", 400, content_type="text/plain"),
    "200 in words": says(b'{"error":"Session not found"}'),
    "an event in words": streams(event(b'{"error":"Session not found"}')),
}


@fault("H05", "H07", "H08")
async def test_a_call_refused_because_the_session_is_lost_is_repeated_in_a_new_session() -> None:
    calls = [answer for forgets in FORGOTTEN.values() for answer in (forgets, says())]
    async with connected(forgetful(*calls)) as (client, peer):
        for _ in FORGOTTEN:
            await tides(client)
        heard = [(subject(each), each.headers.get("mcp-session-id")) for each in peer.heard]

    assert [each for each in heard if each[0] != "get"] == [
        *[("initialize", None), ("initialized", "s-1")],
        *(
            each
            for old in range(1, len(FORGOTTEN) + 1)
            for each in (
                ("call", f"s-{old}"),
                ("initialize", None),
                ("initialized", f"s-{old + 1}"),
                ("call", f"s-{old + 1}"),
            )
        ),
    ]


@fault("C22", "H05", "H09")
async def test_the_first_request_in_a_new_session_is_answered_in_the_same_revision() -> None:
    """Under an id that it had used before, and while we are still telling it that we are ready."""
    answers = Log[str]()

    async def answer(wire: Wire, heard: Heard) -> None:
        answers.append(heard.headers["mcp-session-id"])
        await wire.reply(202)

    script = forgetful(says(b"", 404), get=streams(event(ASK), stay=True), answer=answer)
    async with connected(script, sampling=MODEL) as (client, peer):
        await answers.reaches(lambda answers: answers == ["s-1"])
        await tides(client)
        await answers.reaches(lambda answers: answers == ["s-1", "s-2"])

    first, second = (heard.rpc["params"] for heard in peer.heard if subject(heard) == "initialize")
    assert first == second
    assert first["capabilities"] == {"sampling": {"tools": {}}}
    named = {subject(each): each.headers.get("mcp-protocol-version") for each in peer.heard}
    assert named.pop("initialize") is None
    assert named == dict.fromkeys(["initialized", "call", "get", "answer", "delete"], VERSION)


# Ids of sessions


WELCOME = (
    b'{"jsonrpc":"2.0","id":@id,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},'
    b'"serverInfo":{"name":"tidal","version":"1"}}}'
)


@fault("H39")
async def test_a_line_break_in_a_session_id_adds_no_header_to_our_requests(subtests: pytest.Subtests) -> None:
    for end in ("\r\n", "\n"):
        with subtests.test(ascii(end)):
            async with connected(mcp(initialize=sends(welcome_with(f"s-1{end}X-Evil: 1")))) as (client, peer):
                await tides(client)

            heard = [
                (subject(each), each.headers.get("mcp-session-id"), "x-evil" in each.headers) for each in peer.heard
            ]
            assert [each for each in heard if each[0] != "get"] == [
                ("initialize", None, False),
                *((about, "s-1", False) for about in ("initialized", "call", "delete")),
            ]


@fault("H39")
async def test_a_session_id_that_is_no_valid_header_fails_the_connect(subtests: pytest.Subtests) -> None:
    for id in ("s-1\rX-Evil: 1", "s-1\x00"):
        with subtests.test(ascii(id)):
            error = await refused(mcp(initialize=sends(welcome_with(id))), era="legacy")

            assert type(error) is ConnectFailed
            assert "illegal header line" in str(error)


def welcome_with(id: str) -> bytes:
    """The reply to initialize down to the bytes, with an *id* that may be any."""
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nmcp-session-id: {id}\r\n\r\n"
    return head.encode("latin-1") + WELCOME


# Messages that the server does not accept


TAKEN_BADLY = {
    "500": says(b"", 500),
    "404": says(b"", 404),
    "401": says(b"", 401),
    "a redirect": says(b"", 302, location="/login"),
    "an end": drop,
    "a reset": reset,
    "another protocol": sends(b"SSH-2.0\r\n\r\n"),
    "half a head": sends(b"HTTP/1.1 202 Acc"),
}


@fault("H35")
async def test_a_server_that_fails_the_initialized_notification_may_still_answer_calls(
    subtests: pytest.Subtests,
) -> None:
    for name, badly in TAKEN_BADLY.items():
        with subtests.test(name):
            async with connected(mcp(initialized=badly)) as (client, _):
                await tides(client)
                assert ["did not take notifications/initialized" in warning for warning in client.warnings] == [True]
