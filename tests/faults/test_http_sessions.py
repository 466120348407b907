"""Sessions over HTTP: forgotten by the server, lost again, refused at the end, and messages that it does not accept."""

from __future__ import annotations

from typing import Any

import anyio
import httpx
import pytest
from anyio.lowlevel import checkpoint

from mcp_host import Client, Sampling, StreamableHttp, always
from mcp_host.errors import ConnectFailed, HttpStatusError, ProtocolError, SessionLost
from mcp_host.limits import Limits
from tests.client.support import say_paris
from tests.clock import Pauses
from tests.faults.fault import fault
from tests.faults.http_server import (
    ASK,
    CAPABILITIES,
    DONE,
    SOON,
    connected,
    drop,
    failing,
    filled,
    mcp,
    refused,
    reset,
    says,
    sends,
    storm,
    streams,
    subject,
    subjects,
    tides,
    welcome,
)
from tests.transports.http_peers import Heard, Log, Script, Wire, event, head, serving
from tests.transports.legacy_peers import Answer, hang, hang_for, in_turn

MODEL = Sampling(with_tools=say_paris, approve=always)
VERSION = "2025-11-25"


def forgetful(*forgets: Answer, **answers: Answer) -> Script:
    """A server that says so, one answer after the other, to the first calls; a session has a number."""
    sessions = [welcome(f"s-{number}") for number in range(1, 9)]
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


@pytest.mark.parametrize("forgets", FORGOTTEN.values(), ids=FORGOTTEN)
@fault("H05", "H07", "H08")
async def test_a_call_refused_because_the_session_is_lost_is_repeated_in_a_new_session(forgets: Answer) -> None:
    async with connected(forgetful(forgets)) as (client, peer):
        await tides(client)
        await tides(client)
        heard = [(subject(each), each.headers.get("mcp-session-id")) for each in peer.heard]

    assert [each for each in heard if each[0] != "get"] == [
        ("initialize", None), ("initialized", "s-1"), ("call", "s-1"),
        ("initialize", None), ("initialized", "s-2"), ("call", "s-2"),
        ("call", "s-2"),
    ]  # fmt: skip


@fault("H05")
async def test_calls_that_lose_the_session_together_share_one_new_handshake() -> None:
    async def call(wire: Wire, heard: Heard) -> None:
        await (says(b"", 404) if heard.headers["mcp-session-id"] == "s-1" else says())(wire, heard)

    async with connected(forgetful(call=call)) as (client, peer), anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(tides, client)

    assert subjects(peer).count("initialize") == 2


@fault("H05")
async def test_subscriptions_and_handlers_apply_in_the_new_session_too() -> None:
    answers = Log[Any]()

    async def answer(wire: Wire, heard: Heard) -> None:
        answers.append((heard.rpc["result"]["content"]["text"], heard.headers["mcp-session-id"]))
        await wire.reply(202)

    async def call(wire: Wire, heard: Heard) -> None:
        await wire.events(event(ASK))
        await answers.reaches(lambda answers: answers == [("Paris", "s-2")])
        await wire.say(event(filled(DONE, heard)))
        await wire.end()

    wanted = {name: says(b'{"jsonrpc":"2.0","id":@id,"result":{}}') for name in ("subscribe", "setLevel")}
    capable = [welcome(id, capabilities={**CAPABILITIES, "resources": {"subscribe": True}}) for id in ("s-1", "s-2")]
    script = mcp(
        initialize=in_turn(*capable),
        call=in_turn(says(b"", 404), call),
        answer=answer,
        **wanted,
    )
    async with connected(script, sampling=MODEL) as (client, peer):
        await client.subscribe_resource("sea:north")
        await client.set_log_level("info")
        await tides(client)

    heard = [subject(each) for each in peer.heard if each.headers.get("mcp-session-id") == "s-2"]
    assert [about for about in heard if about != "get"][:3] == ["initialized", "subscribe", "setLevel"]


@fault("H05")
async def test_the_first_request_in_a_new_session_is_answered() -> None:
    """Under an id that it had used before, and while we are still telling it that we are ready."""
    answers = Log[str]()

    async def answer(wire: Wire, heard: Heard) -> None:
        answers.append(heard.headers["mcp-session-id"])
        await wire.reply(202)

    script = forgetful(says(b"", 404), get=streams(event(ASK), stay=True), answer=answer)
    async with connected(script, sampling=MODEL) as (client, _):
        await answers.reaches(lambda answers: answers == ["s-1"])
        await tides(client)
        await answers.reaches(lambda answers: answers == ["s-1", "s-2"])


@pytest.mark.parametrize("forgets", FORGOTTEN.values(), ids=FORGOTTEN)
@fault("H06", "H07")
async def test_a_server_that_loses_every_session_is_tried_twice(forgets: Answer) -> None:
    async with connected(forgetful(call=forgets)) as (client, peer):
        error = await failing(client)

    assert type(error) is SessionLost
    assert not error.may_have_run
    assert (subjects(peer).count("initialize"), subjects(peer).count("call")) == (2, 2)


@fault("H06")
async def test_a_new_handshake_that_fails_is_the_calls_error_and_the_next_call_tries_again() -> None:
    initialize = in_turn(welcome("s-1"), says(b"", 503, retry_after="7"), welcome("s-2"))
    async with connected(mcp(initialize=initialize, call=in_turn(says(b"", 404), says(b"", 404), says()))) as (
        client,
        _,
    ):
        error = await failing(client)
        await tides(client)

    assert isinstance(error, HttpStatusError)
    assert (error.status, error.retry_after) == (503, 7)


@pytest.mark.parametrize(
    "body",
    [b'{"error":"Bad arguments"}', b"Your shopping session may be slow", b""],
    ids=["other words", "a session of another kind", "nothing"],
)
@fault("H07")
async def test_another_400_is_not_a_lost_session(body: bytes) -> None:
    async with connected(forgetful(says(body, 400, content_type="text/plain"))) as (client, peer):
        error = await failing(client)
        await tides(client)

    assert type(error) is HttpStatusError
    assert subjects(peer).count("initialize") == 1


@fault("H07")
async def test_a_404_without_a_session_is_only_a_404() -> None:
    async with connected(mcp(initialize=welcome(None), call=in_turn(says(b"", 404), says()))) as (client, peer):
        error = await failing(client)
        await tides(client)

    assert type(error) is HttpStatusError
    assert subjects(peer).count("initialize") == 1


@fault("H09")
async def test_every_request_after_the_handshake_names_the_revision_also_in_a_new_session() -> None:
    script = forgetful(says(b"", 404), get=streams(event(ASK), stay=True))
    async with connected(script, sampling=MODEL) as (client, peer):
        await peer.heard.reaches(lambda heard: [subject(each) for each in heard].count("answer") == 1)
        await tides(client)
        await peer.heard.reaches(lambda heard: [subject(each) for each in heard].count("answer") == 2)

    named = {subject(each): each.headers.get("mcp-protocol-version") for each in peer.heard}
    assert named.pop("initialize") is None
    assert named == dict.fromkeys(["initialized", "call", "get", "answer", "delete"], VERSION)


# Ids of sessions


@pytest.mark.parametrize("era", ["auto", "legacy"])
@pytest.mark.parametrize("id", ["s 1", "s\t1", "s\x7f", "\xe9", "s-1, s-2 ", ""], ids=ascii)
@fault("H39")
async def test_a_session_id_that_is_not_visible_ascii_fails_the_connect(id: str, era: str) -> None:
    async def initialize(wire: Wire, heard: Heard) -> None:
        await says(WELCOME, mcp_session_id=id or " ")(wire, heard)

    error = await refused(mcp(initialize=initialize), era=era)

    assert type(error) is ProtocolError
    assert "session id is not visible ASCII" in str(error)
    assert str(error).isprintable()


WELCOME = (
    b'{"jsonrpc":"2.0","id":@id,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},'
    b'"serverInfo":{"name":"tidal","version":"1"}}}'
)


@pytest.mark.parametrize("end", ["\r\n", "\n"], ids=ascii)
@fault("H39")
async def test_a_line_break_in_a_session_id_adds_no_header_to_our_requests(end: str) -> None:
    async with connected(mcp(initialize=sends(welcome_with(f"s-1{end}X-Evil: 1")))) as (client, peer):
        await tides(client)

    heard = [(subject(each), each.headers.get("mcp-session-id"), each.headers.get("x-evil")) for each in peer.heard]
    assert [each for each in heard if each[0] != "get"] == [
        ("initialize", None, None),
        *((about, "s-1", None) for about in ("initialized", "call", "delete")),
    ]


@pytest.mark.parametrize("id", ["s-1\rX-Evil: 1", "s-1\x00"], ids=ascii)
@fault("H39")
async def test_a_session_id_that_is_no_valid_header_fails_the_connect(id: str) -> None:
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


@pytest.mark.parametrize("badly", TAKEN_BADLY.values(), ids=TAKEN_BADLY)
@fault("H35")
async def test_a_server_that_fails_the_initialized_notification_may_still_answer_calls(badly: Answer) -> None:
    async with connected(mcp(initialized=badly)) as (client, _):
        await tides(client)
        warnings = client.warnings

    (warning,) = warnings
    assert "did not take notifications/initialized" in warning


@pytest.mark.parametrize("badly", TAKEN_BADLY.values(), ids=TAKEN_BADLY)
@fault("H35")
async def test_an_answer_that_cannot_be_delivered_is_counted_and_ends_nothing(badly: Answer) -> None:
    pinged = streams(event(b'{"jsonrpc":"2.0","id":"p","method":"ping"}'), event(DONE))
    script = mcp(call=in_turn(pinged, says()), answer=badly)
    async with connected(script, sleep_unsent=Pauses(), retry_delays=(0.0, 0.0, 0.0)) as (client, _):
        await tides(client)
        with anyio.fail_after(SOON):
            while not client.counters:
                await checkpoint()
        await tides(client)

        assert client.counters == {"undelivered messages": 1}


@pytest.mark.adjustable_clock
@fault("H36")
async def test_connecting_completes_if_the_server_never_accepts_the_initialized_notification() -> None:
    async with connected(mcp(initialized=hang_for(1))) as (client, _):
        await tides(client)

        assert ["notifications/initialized within 1 s" in text for text in client.warnings] == [True]


@fault("H36")
async def test_messages_that_are_never_accepted_delay_no_call() -> None:
    """Answers to pings and to sampling, cancellations: each is sent by itself."""
    pings = b"".join(event(b'{"jsonrpc":"2.0","id":"p-%d","method":"ping"}' % id) for id in range(20))
    asked = streams(event(ASK), pings, event(DONE))
    script = mcp(call=in_turn(asked, storm(hang)), answer=hang, cancelled=hang)
    async with connected(script, sampling=MODEL) as (client, _):
        await tides(client)
        await failing(client, "storm", timeout=0.05)
        for _ in range(3):
            await tides(client)


# The end


class Timed(httpx.AsyncHTTPTransport):
    """A real network that notes how long each request may take at most, when it is sent. Less is left as time passes."""

    def __init__(self) -> None:
        super().__init__()
        self.left: dict[str, float] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.left[request.method] = anyio.current_effective_deadline() - anyio.current_time()
        return await super().handle_async_request(request)


CLOSING = Limits(close_timeout=3)  # half of it is for the DELETE, and the other half for the sockets


@pytest.mark.parametrize("beginning", [b"", b"HTTP/1.1 2", head(200, {})], ids=["nothing", "half a head", "a stream"])
@pytest.mark.adjustable_clock
@fault("H37")
async def test_a_delete_without_a_response_does_not_delay_closing(beginning: bytes) -> None:
    network = Timed()
    with anyio.fail_after(SOON):
        async with (
            httpx.AsyncClient(transport=network) as http,
            connected(mcp(delete=hang_for(1.5, beginning)), client=http, limits=CLOSING) as (client, peer),
        ):
            await tides(client)

    assert subjects(peer)[-1] == "delete"
    assert network.left["DELETE"] <= 1.5


@pytest.mark.adjustable_clock
@fault("H37")
async def test_closing_while_everything_hangs_keeps_to_its_limit() -> None:
    network = Timed()
    async with (
        serving(mcp(call=hang, get=hang, cancelled=hang, delete=hang_for(1.5))) as peer,
        httpx.AsyncClient(transport=network) as http,
    ):
        client = Client(StreamableHttp(peer.url, client=http), era="legacy", limits=CLOSING)
        await client.connect()
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(failing, client)
            await peer.hears("POST", 7)
            with anyio.fail_after(SOON):
                await client.aclose()

    assert network.left["DELETE"] <= 1.5


@pytest.mark.parametrize(
    "refusal", [*TAKEN_BADLY.values(), says(b"", 405), says(b"", 204)], ids=[*TAKEN_BADLY, "405", "204"]
)
@fault("H38")
async def test_a_delete_that_is_refused_or_broken_off_ends_the_session(refusal: Answer) -> None:
    with anyio.fail_after(SOON):
        async with connected(mcp(delete=refusal)) as (client, peer):
            await tides(client)

    assert 1 <= subjects(peer).count("delete") <= 2  # twice where the first met the end of a kept connection
