"""What a server forgot, and what can still be had of it: lost sessions, and responses whose stream broke off."""

from __future__ import annotations

import anyio
import pytest

from mcp_host.errors import ConnectionClosed, HttpStatusError, McpError, MessageTooLarge, ProtocolError, SessionLost
from mcp_host.limits import Limits
from mcp_host.protocol.backoff import Backoff
from mcp_host.protocol.jsonrpc import Failure, encode
from mcp_host.transports._http.channel import HttpChannel
from tests.transports.http_peers import (
    CALL,
    CHUNKED,
    DONE,
    DONE_JSON,
    EVENTS,
    INITIALIZE,
    JSON,
    NOTE,
    NOTE_JSON,
    VERSION,
    Heard,
    RecordedHandle,
    Wire,
    ask,
    chunk,
    event,
    head,
    opened,
    serving,
)
from tests.transports.legacy_peers import (
    Answer,
    hang,
    in_turn,
    legacy,
    listening,
    refuse,
    resuming,
    shake_hands,
    status,
    stream,
)

# A lost session

UNKNOWN_SESSION = b'{"jsonrpc":"2.0","id":7,"error":{"code":-32001,"message":"Session not found"}}'


@pytest.mark.fault("H05", "H07")
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(status(404), id="404"),
        pytest.param(status(410), id="410"),
        pytest.param(lambda wire, heard: wire.reply(400, JSON, b'{"error":"No valid session ID"}'), id="400 in words"),
        pytest.param(lambda wire, heard: wire.reply(200, JSON, b'{"error":"Session not found"}'), id="200 in words"),
        pytest.param(stream(event(b'{"error":"Session not found"}')), id="an event in words"),
        pytest.param(lambda wire, heard: wire.reply(200, JSON, UNKNOWN_SESSION), id="200 with the SDK's error"),
        pytest.param(stream(event(UNKNOWN_SESSION)), id="an event with the SDK's error"),
    ],
)
async def test_a_request_of_a_lost_session_has_certainly_not_run(answer: Answer) -> None:
    async with serving(legacy(post=answer)) as peer, opened(peer.url) as channel:
        await shake_hands(channel)
        with pytest.raises(SessionLost, match="the session is lost") as caught:
            await ask(channel)

    assert not caught.value.may_have_run
    assert "DELETE" not in peer.methods()  # there is nothing left to delete


@pytest.mark.parametrize(("code", "says"), [(-32000, "Session not found"), (-32001, "Session 4 not found")])
async def test_an_error_about_another_session_is_that_of_the_call(code: int, says: str) -> None:
    """A server may have sessions of its own, such as those of a browser."""
    body = encode(Failure(7, code, says))
    answers = in_turn(lambda wire, heard: wire.reply(200, JSON, body), stream(event(body)))
    async with serving(legacy(post=answers)) as peer, opened(peer.url) as channel:
        await shake_hands(channel)
        assert [await ask(channel) for _ in range(2)] == [[Failure(7, code, says)]] * 2


async def test_a_notification_may_be_the_first_to_hear_of_a_lost_session() -> None:
    async with serving(legacy(post=status(404))) as peer, opened(peer.url) as channel:
        await shake_hands(channel)
        with pytest.raises(SessionLost) as caught:
            await channel.send(NOTE, VERSION)

    assert not caught.value.may_have_run


@pytest.mark.fault("H07")
@pytest.mark.parametrize("body", [b"", b'{"error":"Session not found"}'])
async def test_without_a_session_id_there_is_no_session_to_lose(body: bytes) -> None:
    async def answer(wire: Wire, heard: Heard) -> None:
        await wire.reply(200 if body else 404, JSON, body)

    async with serving(legacy(ids=iter([None]), post=answer)) as peer, opened(peer.url) as channel:
        await shake_hands(channel)
        with pytest.raises(McpError) as caught:
            await ask(channel)

    assert type(caught.value) is (ProtocolError if body else HttpStatusError)
    assert peer.methods() == ["POST", "POST", "POST"]


# Resumption


@pytest.mark.fault("E01", "E04", "E05")
async def test_a_response_whose_stream_is_cut_is_fetched_from_where_it_was_cut(pauses: list[float]) -> None:
    get = in_turn(refuse, stream(event(NOTE_JSON, id="e-2"), b"id: e-3\ndata: {"), stream(event(DONE_JSON, id="e-3")))
    script = legacy(post=stream(b"retry: 500\n", event(b"", id="e-1")), get=get)

    async with serving(script) as peer, listening(peer, sleep=pauses) as channel:
        await shake_hands(channel)
        assert await ask(channel) == [NOTE, DONE]

    gets = [heard for heard in peer.heard if heard.method == "GET"][1:]
    assert [
        (get.headers["last-event-id"], get.headers["mcp-session-id"], get.headers["mcp-protocol-version"])
        for get in gets
    ] == [("e-1", "s-1", "2025-11-25"), ("e-2", "s-1", "2025-11-25")]
    assert pauses == [0.5, 0.5]


@pytest.mark.fault("E05")
@pytest.mark.parametrize("cut", ["end", "reset"])
async def test_a_reset_is_a_cut_like_any_other(cut: str, pauses: list[float]) -> None:
    async def post(wire: Wire, heard: Heard) -> None:
        await wire.say(head(200, {**EVENTS, **CHUNKED}))
        await wire.say(chunk(event(NOTE_JSON, id="e")))
        await (wire.end() if cut == "end" else wire.reset())

    async with (
        serving(legacy(post=post, get=stream(event(DONE_JSON)))) as peer,
        opened(peer.url, sleep=pauses) as channel,
    ):
        await shake_hands(channel)
        received = await ask(channel)

    assert received[-1] == DONE
    assert pauses == [1.0]


async def test_callbacks_are_awaited_on_a_resumed_stream_and_their_errors_come_out(pauses: list[float]) -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    handle = RecordedHandle(on_progress=fail)
    async with resuming(stream(event(NOTE_JSON), event(DONE_JSON)), sleep=pauses) as channel:
        with pytest.raises(ZeroDivisionError):
            await channel.request(CALL, VERSION, handle)

    assert handle.received[:1] == [NOTE]


@pytest.mark.fault("E05")
async def test_resuming_outlives_a_restart_of_the_server(pauses: list[float]) -> None:
    get = in_turn(*[status(503)] * 3, status(429), lambda wire, heard: wire.reset(), stream(event(DONE_JSON)))

    async with resuming(get, sleep=pauses) as channel:
        assert await ask(channel) == [DONE]

    assert pauses == [1.0, 1.0, 1.0, 1.0, 1.5]  # after the reset of a kept connection, a GET is sent again at once


FAILURES: list[Answer] = [
    status(503),
    lambda wire, heard: wire.end(),
    lambda wire, heard: wire.reset(),
    lambda wire, heard: wire.say(b"SSH-2.0\r\n\r\n"),
]


@pytest.mark.parametrize("failure", FAILURES, ids=["503", "end", "reset", "noise"])
@pytest.mark.fault("E06", "E08")
async def test_resuming_ends_after_consecutive_failures(failure: Answer, pauses: list[float]) -> None:
    async with resuming(failure, sleep=pauses) as channel:
        with pytest.raises(ConnectionClosed, match="the response's stream broke off and stayed away") as caught:
            await ask(channel)

    assert caught.value.may_have_run
    assert pauses == [1.0, 1.0, 1.0, 1.0, 1.5, 2.25, 3.375, 5.0]


@pytest.mark.fault("E08")
async def test_a_message_on_a_resumed_stream_resets_the_pauses(pauses: list[float]) -> None:
    get = in_turn(*[stream(event(NOTE_JSON, id="e"))] * 6, stream(event(DONE_JSON)))

    async with resuming(get, sleep=pauses) as channel:
        assert await ask(channel) == [NOTE] * 6 + [DONE]

    assert pauses == [1.0] * 7


async def test_a_server_that_is_polled_in_silence_answers_in_the_end(pauses: list[float]) -> None:
    """What SEP-1699 allows: a tool that runs for long, and a stream that ends whenever the server likes."""
    async with resuming(in_turn(*[stream()] * 50, stream(event(DONE_JSON))), sleep=pauses) as channel:
        assert await ask(channel) == [DONE]

    assert len(pauses) == 51
    assert max(pauses) == 5.0


@pytest.mark.fault("E08")
async def test_polling_without_events_ends_after_some_attempts(pauses: list[float]) -> None:
    def backoff() -> Backoff:
        return Backoff(flat_failures=3, max_delay=5.0, max_failures=10)

    async with resuming(stream(b"retry: 0\n"), sleep=pauses, resume_backoff=backoff) as channel:
        with pytest.raises(ConnectionClosed, match="stayed away"):
            await ask(channel)

    assert len(pauses) == 10


NOT_RESUMED: dict[str, Answer] = {
    "HTTP 400 Bad Request": status(400),
    "HTTP 401 Unauthorized": status(401),
    "HTTP 403 Forbidden": status(403),
    "HTTP 405 Method Not Allowed": status(405),
    "HTTP 406 Not Acceptable": status(406),
    "the answer to GET is application/json": lambda wire, heard: wire.reply(200, JSON, b"{}"),
    "the answer to GET is of no type": status(200),
}


@pytest.mark.fault("E06")
async def test_a_server_that_cannot_resume_fails_the_request_at_once(
    pauses: list[float], subtests: pytest.Subtests
) -> None:
    for complaint, answer in NOT_RESUMED.items():
        pauses.clear()
        with subtests.test(complaint):
            async with resuming(answer, sleep=pauses) as channel:
                with pytest.raises(ConnectionClosed, match=f"cannot be resumed: {complaint}") as caught:
                    await ask(channel)

            assert type(caught.value) is ConnectionClosed
            assert caught.value.may_have_run
            assert len(pauses) == 1


@pytest.mark.fault("E06")
async def test_a_session_lost_during_resumption_may_have_run_the_request(pauses: list[float]) -> None:
    async with resuming(status(404), sleep=pauses) as channel:
        with pytest.raises(SessionLost) as caught:
            await ask(channel)

    assert caught.value.may_have_run


async def test_without_a_session_id_a_404_only_means_that_the_rest_cannot_be_had(pauses: list[float]) -> None:
    async with resuming(status(404), id=None, sleep=pauses) as channel:
        with pytest.raises(ConnectionClosed, match="cannot be resumed: HTTP 404 Not Found") as caught:
            await ask(channel)

    assert type(caught.value) is ConnectionClosed
    assert caught.value.may_have_run


async def test_a_resumed_message_past_the_limit_fails_the_request(pauses: list[float]) -> None:
    too_long = stream(b"data: " + b"x" * 2000)
    async with resuming(too_long, limits=Limits(max_message=1000), sleep=pauses) as channel:
        with pytest.raises(MessageTooLarge):
            await ask(channel)


async def lose_session(channel: HttpChannel) -> None:
    """Make a call that fails because a new session has begun."""
    with pytest.raises(SessionLost, match="a new session took the place") as caught:
        await ask(channel)

    assert caught.value.may_have_run


async def test_a_new_handshake_ends_what_is_being_resumed_for_the_old_session() -> None:
    async with serving(legacy(post=stream(event(b"", id="e")), get=hang)) as peer, opened(peer.url) as channel:
        await channel.request(INITIALIZE, {}, RecordedHandle(0))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lose_session, channel)
            await peer.hears("POST", 2)
            await anyio.wait_all_tasks_blocked()
            await channel.request(INITIALIZE, {}, RecordedHandle(0))


async def test_a_stream_of_an_old_session_is_not_resumed_in_the_new_one() -> None:
    cut = anyio.Event()

    async def post(wire: Wire, heard: Heard) -> None:
        await wire.events(event(b"", id="e"))
        await cut.wait()
        await wire.end()

    async with serving(legacy(post=post)) as peer, opened(peer.url) as channel:
        await channel.request(INITIALIZE, {}, RecordedHandle(0))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lose_session, channel)
            await peer.hears("POST", 2)
            await channel.request(INITIALIZE, {}, RecordedHandle(0))
            cut.set()

    assert "GET" not in peer.methods()
