"""The legacy session: its id, the stream on which the server speaks unprompted, resumption and the end."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import anyio
import pytest
from anyio.lowlevel import checkpoint

from mcp_host.errors import ConnectionClosed, HttpStatusError, McpError, MessageTooLarge, ProtocolError, SessionLost
from mcp_host.limits import Limits
from mcp_host.protocol.jsonrpc import Incoming, Request, Success
from mcp_host.transports._pace import RETRY_FLOOR, Pace
from mcp_host.transports.http import HttpChannel
from tests.transports.http_peers import (
    CALL,
    DONE,
    DONE_JSON,
    EVENTS,
    INITIALIZE,
    INITIALIZED,
    JSON,
    NOTE,
    NOTE_JSON,
    VERSION,
    WELCOME,
    Heard,
    Log,
    Peer,
    RecordedExchange,
    Wire,
    ask,
    event,
    head,
    opened,
    serving,
)

Answer: TypeAlias = Callable[[Wire, Heard], Awaitable[None]]

PING = Request(7, "ping", {})


async def refuse(wire: Wire, heard: Heard) -> None:
    await wire.reply(405)


async def hang(wire: Wire, heard: Heard) -> None:
    await wire.hung_up()


async def finish(wire: Wire, heard: Heard) -> None:
    await wire.reply(200, JSON, DONE_JSON)


def stream(*parts: bytes, stay: bool = False) -> Answer:
    """An event stream of *parts*, which then ends, or stays open."""

    async def answer(wire: Wire, heard: Heard) -> None:
        await wire.events(*parts)
        if stay:
            await wire.hung_up()
        else:
            await wire.end()

    return answer


def in_turn(*answers: Answer) -> Answer:
    """One answer after the other; the last for ever."""
    left = list(answers)

    async def answer(wire: Wire, heard: Heard) -> None:
        await (left.pop(0) if len(left) > 1 else left[0])(wire, heard)

    return answer


def legacy(*, get: Answer = refuse, post: Answer = finish, delete: Answer = refuse, **handshake: Any) -> Any:
    """The script of a server with sessions: what it says to GET, to requests and to DELETE."""
    ids = handshake.get("ids", iter(["s-1", "s-2"]))
    confirmed = handshake.get("initialized", in_turn(lambda wire, heard: wire.reply(202)))

    async def script(wire: Wire) -> None:
        while True:
            heard = await wire.hear()
            if heard.method == "GET":
                await get(wire, heard)
            elif heard.method == "DELETE":
                await delete(wire, heard)
            elif heard.rpc.get("method") == "initialize":
                id = next(ids)
                await wire.reply(200, {**JSON, **({"mcp-session-id": id} if id else {})}, WELCOME)
            elif heard.rpc.get("method") == "notifications/initialized":
                await confirmed(wire, heard)
            else:
                await post(wire, heard)

    return script


@asynccontextmanager
async def listening(peer: Peer, received: Log[Incoming] | None = None, **options: Any) -> AsyncIterator[HttpChannel]:
    """A channel whose link listens, as it does from the beginning."""
    heard = Log[Incoming]() if received is None else received
    async with opened(peer.url, **options) as channel, anyio.create_task_group() as tasks:
        tasks.start_soon(channel.listen, heard.append)
        await anyio.wait_all_tasks_blocked()
        yield channel
        tasks.cancel_scope.cancel()


async def shake_hands(channel: HttpChannel) -> None:
    await channel.request(INITIALIZE, {}, RecordedExchange(0))
    await channel.send(INITIALIZED, VERSION)


class Records(logging.Handler):
    """What is logged while the block runs, as something to wait for."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.seen = Log[tuple[int, str]]()

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append((record.levelno, record.getMessage()))

    def __enter__(self) -> Log[tuple[int, str]]:
        logging.getLogger("mcp_host").addHandler(self)
        return self.seen

    def __exit__(self, *exc_info: object) -> None:
        logging.getLogger("mcp_host").removeHandler(self)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses before reconnecting, which take no time here."""
    taken: list[float] = []

    async def sleep(seconds: float) -> None:
        taken.append(round(seconds, 3))
        await checkpoint()

    monkeypatch.setattr("mcp_host.transports._session.sleep", sleep)
    return taken


# The id


async def test_the_session_id_of_the_initialize_reply_goes_with_every_later_message() -> None:
    async with serving(legacy(delete=lambda w, h: w.reply(200))) as peer:
        async with listening(peer, headers={"X-Key": "k"}) as channel:
            await shake_hands(channel)
            await ask(channel)
            await channel.send(Success(1, {}), VERSION)
            await channel.request(INITIALIZE, {}, RecordedExchange(0))
            await ask(channel, PING)
            await channel.send(Success(2, {}), {})  # as before the version is known
        asked = [
            (heard.method, heard.headers.get("mcp-session-id"), heard.headers.get("mcp-protocol-version"))
            for heard in peer.heard
        ]

    assert asked == [
        ("POST", None, None),
        ("POST", "s-1", "2025-11-25"),
        ("GET", "s-1", "2025-11-25"),
        ("POST", "s-1", "2025-11-25"),
        ("POST", "s-1", "2025-11-25"),
        ("POST", None, None),
        ("POST", "s-2", "2025-11-25"),
        ("POST", "s-2", None),
        ("DELETE", "s-2", "2025-11-25"),
    ]
    assert {heard.headers["x-key"] for heard in peer.heard} == {"k"}


async def test_an_event_stream_may_begin_a_session_too() -> None:
    async def script(wire: Wire) -> None:
        heard = await wire.hear()
        if heard.headers.get("mcp-session-id") == "s-1":
            await finish(wire, heard)
        else:
            await wire.events(event(WELCOME), **{"mcp-session-id": "s-1"})

    async with serving(script) as peer, opened(peer.url) as channel:
        await channel.request(INITIALIZE, {}, RecordedExchange(0))
        assert await ask(channel) == [DONE]


async def test_an_id_in_any_other_reply_means_nothing() -> None:
    async def offer(wire: Wire, heard: Heard) -> None:
        await wire.reply(200, {**JSON, "mcp-session-id": "other"}, DONE_JSON)

    async with serving(legacy(post=offer)) as peer, opened(peer.url) as channel:
        await shake_hands(channel)
        await ask(channel)
        await ask(channel)

    assert peer.heard[-2].headers["mcp-session-id"] == "s-1"


async def test_an_id_that_is_no_visible_ascii_fails_the_handshake() -> None:
    async with serving(legacy(ids=iter(["s 1"]))) as peer, opened(peer.url) as channel:
        with pytest.raises(ProtocolError, match="the server's session id is not visible ASCII: 's 1'"):
            await ask(channel, INITIALIZE)


# A lost session


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(lambda wire, heard: wire.reply(404), id="404"),
        pytest.param(lambda wire, heard: wire.reply(410), id="410"),
        pytest.param(lambda wire, heard: wire.reply(400, JSON, b'{"error":"No valid session ID"}'), id="400 in words"),
        pytest.param(lambda wire, heard: wire.reply(200, JSON, b'{"error":"Session not found"}'), id="200 in words"),
        pytest.param(stream(event(b'{"error":"Session not found"}')), id="an event in words"),
    ],
)
async def test_a_server_that_forgot_the_session_certainly_did_not_run_the_request(answer: Answer) -> None:
    async with serving(legacy(post=answer)) as peer, opened(peer.url) as channel:
        await shake_hands(channel)
        with pytest.raises(SessionLost, match="the session is lost") as caught:
            await ask(channel)

    assert not caught.value.may_have_run
    assert "DELETE" not in peer.methods()  # there is nothing left to delete


async def test_a_notification_may_be_the_first_to_hear_of_a_lost_session() -> None:
    async with serving(legacy(post=lambda wire, heard: wire.reply(404))) as peer, opened(peer.url) as channel:
        await shake_hands(channel)
        with pytest.raises(SessionLost) as caught:
            await channel.send(NOTE, VERSION)

    assert not caught.value.may_have_run


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


# The server's own stream


@pytest.mark.parametrize("id", ["s-1", None])
async def test_the_servers_stream_is_open_before_the_first_call(id: str | None) -> None:
    received = Log[Incoming]()

    async with (
        serving(legacy(ids=iter([id]), get=stream(event(NOTE_JSON), stay=True))) as peer,
        listening(peer, received) as channel,
    ):
        await shake_hands(channel)
        assert peer.methods() == ["POST", "POST", "GET"]
        await received.reaches(lambda messages: messages == [NOTE])
        await ask(channel)

    get = peer.heard[2]
    assert (get.headers["accept"], get.headers.get("mcp-session-id"), get.body) == ("text/event-stream", id, b"")
    assert "content-type" not in get.headers
    assert "last-event-id" not in get.headers


@pytest.mark.parametrize(
    "get",
    [
        pytest.param(lambda wire, heard: wire.reply(404), id="404"),
        pytest.param(lambda wire, heard: wire.reply(405), id="405"),
        pytest.param(lambda wire, heard: wire.reply(403), id="403"),
        pytest.param(lambda wire, heard: wire.reply(500), id="500"),
        pytest.param(lambda wire, heard: wire.reply(302, {"location": "/login"}), id="a redirect"),
        pytest.param(lambda wire, heard: wire.reply(200, JSON, b"{}"), id="JSON"),
        pytest.param(lambda wire, heard: wire.reset(), id="a reset"),
        pytest.param(stream(), id="an end at once"),
        pytest.param(stream(event(b"not json"), event(b"{}")), id="nonsense"),
        pytest.param(stream(b"data: x"), id="half an event"),
    ],
)
async def test_no_fault_of_the_servers_stream_fails_a_call(get: Answer, pauses: list[float]) -> None:
    async with serving(legacy(get=get)) as peer, listening(peer) as channel:
        await shake_hands(channel)
        for _ in range(3):
            assert await ask(channel) == [DONE]


async def test_a_server_that_says_nothing_to_the_get_is_waited_for_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_host.transports.http.STREAM_WAIT", 0.05)

    async with serving(legacy(get=hang)) as peer, listening(peer) as channel:
        await shake_hands(channel)
        assert await ask(channel) == [DONE]

    assert peer.methods() == ["POST", "POST", "GET", "POST", "DELETE"]


async def test_nobody_waits_for_a_stream_that_nobody_listens_to() -> None:
    async with serving(legacy()) as peer, opened(peer.url) as channel:
        await shake_hands(channel)

    assert peer.methods() == ["POST", "POST", "DELETE"]


async def test_the_first_call_opens_the_stream_of_a_server_that_fumbled_the_handshake() -> None:
    received = Log[Incoming]()
    script = legacy(get=stream(event(NOTE_JSON), stay=True), initialized=lambda wire, heard: wire.reply(500))

    async with serving(script) as peer, listening(peer, received) as channel:
        with pytest.raises(HttpStatusError, match="HTTP 500"):
            await shake_hands(channel)
        await ask(channel, PING)
        assert "GET" not in peer.methods()  # a ping may come before the end of the handshake
        await ask(channel)
        await received.reaches(lambda messages: messages == [NOTE])


async def test_a_stream_that_ends_is_opened_again_from_where_it_ended(pauses: list[float]) -> None:
    received = Log[Incoming]()
    get = in_turn(
        stream(b"retry: 250\n", event(NOTE_JSON, id="e-1")),
        stream(event(b"", id="e-2")),
        stream(event(NOTE_JSON), stay=True),
    )

    async with serving(legacy(get=get)) as peer, listening(peer, received) as channel:
        await shake_hands(channel)
        await received.reaches(lambda messages: messages == [NOTE, NOTE])

    gets = [heard.headers.get("last-event-id") for heard in peer.heard if heard.method == "GET"]
    assert gets == [None, "e-1", "e-2"]
    assert pauses == [0.375, 0.562]


async def test_a_stream_that_keeps_failing_is_opened_ever_more_slowly_then_given_up_and_taken_up_by_the_next_call(
    pauses: list[float],
) -> None:
    received = Log[Incoming]()
    get = in_turn(*[stream(b"retry: 0\n")] * 5, *[lambda w, h: w.reply(503)] * 5, stream(event(NOTE_JSON), stay=True))

    async with serving(legacy(get=get)) as peer, listening(peer, received) as channel:
        with Records() as logged:
            await shake_hands(channel)
            await logged.reaches(lambda records: len(records) == 1)
        assert (received, peer.methods().count("GET")) == ([], 10)
        await ask(channel)
        await received.reaches(lambda messages: messages == [NOTE])

    assert pauses == [round(RETRY_FLOOR * 1.5**count, 3) for count in range(1, 10)]
    assert logged == [
        (logging.WARNING, f"{peer.url}: the stream for server messages keeps failing; waiting for activity")
    ]


async def test_a_stream_that_had_lasted_begins_its_pauses_anew(
    pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_host.transports._session.STEADY", 0.0)

    async with serving(legacy(get=in_turn(*[stream()] * 20, refuse))) as peer, listening(peer) as channel:
        await shake_hands(channel)
        await peer.hears("GET", 21)

    assert pauses == [1.5] * 20


async def test_an_event_id_that_the_server_refuses_is_dropped(pauses: list[float]) -> None:
    received = Log[Incoming]()
    get = in_turn(stream(event(NOTE_JSON, id="e-1")), lambda w, h: w.reply(400), stream(event(NOTE_JSON), stay=True))

    async with serving(legacy(get=get)) as peer, listening(peer, received) as channel:
        await shake_hands(channel)
        await received.reaches(lambda messages: messages == [NOTE, NOTE])

    gets = [heard.headers.get("last-event-id") for heard in peer.heard if heard.method == "GET"]
    assert gets == [None, "e-1", None]


async def test_a_server_message_past_the_limit_is_reported_and_the_stream_opened_again(
    pauses: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    received = Log[Incoming]()
    get = in_turn(stream(b"data: " + b"x" * 2000), stream(event(NOTE_JSON), stay=True))

    async with (
        serving(legacy(get=get)) as peer,
        listening(peer, received, limits=Limits(max_message=1000)) as channel,
    ):
        await shake_hands(channel)
        await received.reaches(lambda messages: messages == [NOTE])

    assert [record.getMessage() for record in caplog.records] == [
        f"{peer.url}: the stream for server messages: an event is larger than 1000 bytes"
    ]


async def test_a_new_handshake_ends_the_old_stream_and_opens_one_of_its_own() -> None:
    received = Log[Incoming]()
    ended = Log[str]()

    async def get(wire: Wire, heard: Heard) -> None:
        await wire.events(event(NOTE_JSON))
        await wire.hung_up()
        ended.append(heard.headers["mcp-session-id"])

    async with serving(legacy(get=get)) as peer, listening(peer, received) as channel:
        await shake_hands(channel)
        await received.reaches(lambda messages: messages == [NOTE])
        await shake_hands(channel)
        await received.reaches(lambda messages: messages == [NOTE, NOTE])
        await ended.reaches(lambda ids: ids == ["s-1"])

    assert [heard.headers["mcp-session-id"] for heard in peer.heard if heard.method == "GET"] == ["s-1", "s-2"]


async def test_a_server_may_answer_a_call_on_its_own_stream() -> None:
    """The link then ends the wait of the request, whose own stream says nothing."""
    received = Log[Incoming]()
    asked = anyio.Event()

    async def get(wire: Wire, heard: Heard) -> None:
        await wire.events()
        await asked.wait()
        await wire.say(event(DONE_JSON))
        await wire.hung_up()

    async def post(wire: Wire, heard: Heard) -> None:
        await wire.events()
        asked.set()
        await wire.hung_up()

    async with serving(legacy(get=get, post=post)) as peer, listening(peer, received) as channel:
        await shake_hands(channel)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, channel)
            await received.reaches(lambda messages: messages == [DONE])
            tasks.cancel_scope.cancel()


# Resumption


async def test_a_response_whose_stream_is_cut_is_fetched_from_where_it_was_cut(pauses: list[float]) -> None:
    get = in_turn(
        refuse,
        stream(event(NOTE_JSON, id="e-2"), b"id: e-3\ndata: {"),
        stream(event(DONE_JSON, id="e-3")),
    )
    script = legacy(post=stream(b"retry: 500\n", event(b"", id="e-1")), get=get)

    async with serving(script) as peer, listening(peer) as channel:
        await shake_hands(channel)
        assert await ask(channel) == [NOTE, DONE]

    gets = [heard for heard in peer.heard if heard.method == "GET"][1:]
    assert [
        (get.headers["last-event-id"], get.headers["mcp-session-id"], get.headers["mcp-protocol-version"])
        for get in gets
    ] == [("e-1", "s-1", "2025-11-25"), ("e-2", "s-1", "2025-11-25")]
    assert pauses == [0.5, 0.5]


@pytest.mark.parametrize("cut", ["end", "reset"])
async def test_a_reset_is_a_cut_like_any_other(cut: str, pauses: list[float]) -> None:
    async def post(wire: Wire, heard: Heard) -> None:
        await wire.say(head(200, {**EVENTS, "transfer-encoding": "chunked"}))
        await wire.say(b"%x\r\n%s\r\n" % (len(event(NOTE_JSON, id="e")), event(NOTE_JSON, id="e")))
        await (wire.end() if cut == "end" else wire.reset())

    async with serving(legacy(post=post, get=stream(event(DONE_JSON)))) as peer, opened(peer.url) as channel:
        await shake_hands(channel)
        received = await ask(channel)

    assert received[-1] == DONE
    assert pauses == [1.0]


async def test_callbacks_are_awaited_on_a_resumed_stream_and_their_errors_come_out(pauses: list[float]) -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    exchange = RecordedExchange(on_progress=fail)
    script = legacy(post=stream(event(b"", id="e")), get=stream(event(NOTE_JSON), event(DONE_JSON)))

    async with serving(script) as peer, opened(peer.url) as channel:
        await shake_hands(channel)
        with pytest.raises(ZeroDivisionError):
            await channel.request(CALL, VERSION, exchange)

    assert exchange.received == [NOTE]


async def test_resuming_outlives_a_restart_of_the_server(pauses: list[float]) -> None:
    get = in_turn(
        *[lambda w, h: w.reply(503)] * 3, lambda w, h: w.reply(429), lambda w, h: w.reset(), stream(event(DONE_JSON))
    )

    async with serving(legacy(post=stream(event(b"", id="e")), get=get)) as peer, opened(peer.url) as channel:
        await shake_hands(channel)
        assert await ask(channel) == [DONE]

    assert pauses == [1.0, 1.0, 1.0, 1.0, 1.5, 2.25]


async def test_resuming_is_given_up_after_failures_in_a_row(pauses: list[float]) -> None:
    script = legacy(post=stream(event(b"", id="e")), get=lambda w, h: w.reply(503))

    async with serving(script) as peer, opened(peer.url) as channel:
        await shake_hands(channel)
        with pytest.raises(ConnectionClosed, match="the response's stream broke off and stayed away") as caught:
            await ask(channel)

    assert caught.value.may_have_run
    assert peer.methods().count("GET") == 8


async def test_a_server_that_is_polled_in_silence_answers_in_the_end(pauses: list[float]) -> None:
    """What SEP-1699 allows: a tool that runs for long, and a stream that ends whenever the server likes."""
    get = in_turn(*[stream()] * 50, stream(event(DONE_JSON)))

    async with serving(legacy(post=stream(event(b"", id="e")), get=get)) as peer, opened(peer.url) as channel:
        await shake_hands(channel)
        assert await ask(channel) == [DONE]

    assert len(pauses) == 51
    assert max(pauses) == 5.0


async def test_a_server_that_is_polled_in_vain_is_given_up(
    pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_host.transports._session.resuming", lambda: Pace(patience=3, slowest=5.0, attempts=10))
    script = legacy(post=stream(b"retry: 0\n", event(b"", id="e")), get=stream())

    async with serving(script) as peer, opened(peer.url) as channel:
        await shake_hands(channel)
        with pytest.raises(ConnectionClosed, match="stayed away"):
            await ask(channel)

    assert len(pauses) == 10


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (refuse, "cannot be resumed: HTTP 405 Method Not Allowed"),
        (lambda wire, heard: wire.reply(401), "cannot be resumed: HTTP 401 Unauthorized"),
        (lambda wire, heard: wire.reply(200, JSON, b"{}"), "cannot be resumed: the answer to GET is application/json"),
        (lambda wire, heard: wire.reply(200), "cannot be resumed: the answer to GET is of no type"),
    ],
)
async def test_a_server_that_cannot_resume_fails_the_request_at_once(
    answer: Answer, complaint: str, pauses: list[float]
) -> None:
    async with serving(legacy(post=stream(event(b"", id="e")), get=answer)) as peer, opened(peer.url) as channel:
        await shake_hands(channel)
        with pytest.raises(ConnectionClosed, match=complaint) as caught:
            await ask(channel)

    assert type(caught.value) is ConnectionClosed
    assert caught.value.may_have_run
    assert len(pauses) == 1


async def test_a_session_lost_during_resumption_may_have_run_the_request(pauses: list[float]) -> None:
    script = legacy(post=stream(event(b"", id="e")), get=lambda w, h: w.reply(404))

    async with serving(script) as peer, opened(peer.url) as channel:
        await shake_hands(channel)
        with pytest.raises(SessionLost) as caught:
            await ask(channel)

    assert caught.value.may_have_run


async def test_a_resumed_message_past_the_limit_fails_the_request(pauses: list[float]) -> None:
    script = legacy(post=stream(event(b"", id="e")), get=stream(b"data: " + b"x" * 2000))

    async with serving(script) as peer, opened(peer.url, limits=Limits(max_message=1000)) as channel:
        await shake_hands(channel)
        with pytest.raises(MessageTooLarge):
            await ask(channel)


async def test_a_new_handshake_ends_what_is_being_resumed_for_the_old_session() -> None:
    lost: list[SessionLost] = []

    async def call(channel: HttpChannel) -> None:
        with pytest.raises(SessionLost, match="a new session took the place") as caught:
            await ask(channel)
        lost.append(caught.value)

    async with serving(legacy(post=stream(event(b"", id="e")), get=hang)) as peer, opened(peer.url) as channel:
        await channel.request(INITIALIZE, {}, RecordedExchange(0))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, channel)
            await peer.hears("POST", 2)
            await anyio.wait_all_tasks_blocked()
            await channel.request(INITIALIZE, {}, RecordedExchange(0))

    assert [error.may_have_run for error in lost] == [True]


async def test_a_stream_of_an_old_session_is_not_resumed_in_the_new_one() -> None:
    cut = anyio.Event()

    async def post(wire: Wire, heard: Heard) -> None:
        await wire.events(event(b"", id="e"))
        await cut.wait()
        await wire.end()

    async def call(channel: HttpChannel) -> None:
        with pytest.raises(SessionLost, match="a new session took the place"):
            await ask(channel)

    async with serving(legacy(post=post)) as peer, opened(peer.url) as channel:
        await channel.request(INITIALIZE, {}, RecordedExchange(0))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, channel)
            await peer.hears("POST", 2)
            await channel.request(INITIALIZE, {}, RecordedExchange(0))
            cut.set()

    assert "GET" not in peer.methods()


# The end


@pytest.mark.parametrize(
    "delete",
    [
        pytest.param(lambda wire, heard: wire.reply(200), id="200"),
        pytest.param(refuse, id="405"),
        pytest.param(lambda wire, heard: wire.reply(302, {"location": "/"}), id="a redirect"),
        pytest.param(lambda wire, heard: wire.reset(), id="a reset"),
        pytest.param(lambda wire, heard: wire.say(b"SSH-2.0\r\n\r\n"), id="another protocol"),
        pytest.param(stream(event(b"x"), stay=True), id="a stream"),
    ],
)
async def test_the_session_is_deleted_at_the_end_whatever_the_server_makes_of_it(delete: Answer) -> None:
    async with serving(legacy(delete=delete)) as peer:
        async with listening(peer) as channel:
            await shake_hands(channel)

        assert peer.methods() == ["POST", "POST", "GET", "DELETE"]


async def test_a_server_that_never_answers_the_delete_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_host.transports._session.DELETE_TIME", 0.05)

    async with serving(legacy(delete=hang)) as peer:
        async with listening(peer) as channel:
            await shake_hands(channel)

        assert peer.methods()[-1] == "DELETE"


async def test_closing_keeps_to_the_limit_even_when_cancelled() -> None:
    async with serving(legacy(delete=hang)) as peer:
        with anyio.fail_after(5), anyio.CancelScope() as scope:
            async with opened(peer.url, limits=Limits(close_timeout=0.1)) as channel:
                await shake_hands(channel)
                scope.cancel()
                await checkpoint()

        assert peer.methods()[-1] == "DELETE"
