"""The legacy session: its id, the stream on which the server speaks unprompted, resumption and the end."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
import pytest
from anyio.lowlevel import checkpoint

from mcp_host.errors import HttpStatusError, McpError, ProtocolError
from mcp_host.limits import Limits
from mcp_host.protocol.backoff import Backoff
from mcp_host.protocol.jsonrpc import Incoming, Request, Success
from mcp_host.transports._http.channel import HttpChannel
from tests.transports.http_peers import (
    CHUNKED,
    DONE,
    DONE_JSON,
    EVENTS,
    INITIALIZE,
    JSON,
    NOTE,
    NOTE_JSON,
    VERSION,
    WELCOME,
    Heard,
    Log,
    NoLogin,
    Peer,
    RecordedHandle,
    Script,
    Wire,
    ask,
    event,
    head,
    mocked,
    opened,
    serving,
)
from tests.transports.legacy_peers import (
    Answer,
    finish,
    hang_for,
    in_turn,
    legacy,
    listening,
    refuse,
    shake_hands,
    status,
    stream,
)

PING = Request(7, "ping", {})


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


def cut(raw: bytes) -> Answer:
    """These very bytes, and the end of the connection."""

    async def answer(wire: Wire, heard: Heard) -> None:
        await wire.say(raw)
        await wire.end()

    return answer


@asynccontextmanager
async def in_session(
    script: Script, received: Log[Incoming] | None = None, **options: Any
) -> AsyncIterator[tuple[HttpChannel, Peer]]:
    """A channel that listens, after the handshake with such a server."""
    async with serving(script) as peer, listening(peer, received, **options) as channel:
        await shake_hands(channel)
        yield channel, peer


# The id


async def test_the_session_id_of_the_initialize_reply_goes_with_every_later_message() -> None:
    async with serving(legacy(delete=status(200))) as peer:
        async with listening(peer, headers={"X-Key": "k"}) as channel:
            await shake_hands(channel)
            await ask(channel)
            await channel.send(Success(1, {}), VERSION)
            await channel.request(INITIALIZE, {}, RecordedHandle(0))
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


async def test_a_stateless_request_has_no_session_id_and_no_reply_but_that_to_initialize_gives_one() -> None:
    async def offer(wire: Wire, heard: Heard) -> None:
        await wire.reply(200, {**JSON, "mcp-session-id": "other"}, DONE_JSON)

    async with serving(legacy(post=offer)) as peer, opened(peer.url) as channel:
        await shake_hands(channel)
        for stateless in (True, False, True, False):
            await channel.request(PING, VERSION, RecordedHandle(stateless=stateless))

    assert peer.sent("POST", "mcp-session-id")[2:] == [None, "s-1", None, "s-1"]


async def test_an_event_stream_may_begin_a_session_too() -> None:
    async def script(wire: Wire) -> None:
        heard = await wire.hear()
        if heard.headers.get("mcp-session-id") == "s-1":
            await finish(wire, heard)
        else:
            await wire.events(event(WELCOME), **{"mcp-session-id": "s-1"})

    async with serving(script) as peer, opened(peer.url) as channel:
        await channel.request(INITIALIZE, {}, RecordedHandle(0))
        assert await ask(channel) == [DONE]


@pytest.mark.fault("H39")
async def test_a_session_id_that_is_not_visible_ascii_fails_the_handshake() -> None:
    async with serving(legacy(ids=iter(["s 1"]))) as peer, opened(peer.url) as channel:
        with pytest.raises(ProtocolError, match=r"^the server's session id is not visible ASCII: it has ' '$"):
            await ask(channel, INITIALIZE)


async def test_an_empty_session_id_is_none() -> None:
    """Some servers without sessions write the header all the same."""
    async with serving(legacy(ids=iter([""]))) as peer, opened(peer.url) as channel:
        await shake_hands(channel)

        assert await ask(channel) == [DONE]
        assert {each.headers.get("mcp-session-id") for each in peer.heard} == {None}


# The server's own stream


@pytest.mark.parametrize("id", ["s-1", None])
async def test_the_servers_stream_is_open_before_the_first_call(id: str | None) -> None:
    received = Log[Incoming]()

    script = legacy(ids=iter([id]), get=stream(event(NOTE_JSON), stay=True))
    async with in_session(script, received) as (channel, peer):
        await ask(channel)
        assert peer.methods() == ["POST", "POST", "GET", "POST"]
        await received.reaches(lambda messages: messages == [NOTE])

    get = peer.heard[2]
    assert (get.headers["accept"], get.headers.get("mcp-session-id"), get.body) == ("text/event-stream", id, b"")
    assert get.headers["accept-encoding"] == "identity"
    assert "content-type" not in get.headers
    assert "last-event-id" not in get.headers


NO_STREAM: dict[str, Answer] = {
    **{str(code): status(code) for code in (202, 204, 400, 401, 403, 404, 405, 406, 500, 501, 503)},
    "a redirect": lambda wire, heard: wire.reply(302, {"location": "/login"}),
    "JSON": lambda wire, heard: wire.reply(200, JSON, b"{}"),
    "HTML": lambda wire, heard: wire.reply(200, {"content-type": "text/html"}, b"<html>"),
    "an end": cut(b""),
    "a reset": lambda wire, heard: wire.reset(),
    "another protocol": cut(b"SSH-2.0\r\n\r\n"),
    "corrupt gzip": lambda wire, heard: wire.reply(200, {**EVENTS, "content-encoding": "gzip"}, b"no gzip"),
    "a bad chunk": cut(head(200, {**EVENTS, **CHUNKED}) + b"zz\r\n"),
    "an end at once": stream(),
    "nonsense": stream(event(b"not json"), event(b"{}"), event(b"[]"), b"\xff\xff\n\n"),
    "half an event": stream(b"data: x"),
    "a reply to nothing": stream(event(b'{"jsonrpc":"2.0","id":4711,"result":{}}'), stay=True),
    "a retry of centuries": stream(b"retry: " + b"9" * 5000 + b"\n\n"),
    "a negative retry": stream(b"retry: -1\n\n"),
    "an id that is no header": stream(event(NOTE_JSON, id="\u00e9")),
}


@pytest.mark.fault("E10", "E14", "E25")
async def test_no_fault_of_the_servers_stream_fails_a_call(pauses: list[float], subtests: pytest.Subtests) -> None:
    for name, get in NO_STREAM.items():
        with subtests.test(name):
            async with in_session(legacy(get=get), sleep=pauses) as (channel, _):
                for _ in range(3):
                    assert await ask(channel) == [DONE]


@pytest.mark.fault("E14")
@pytest.mark.adjustable_clock
async def test_a_server_that_does_not_answer_the_get_is_waited_for_briefly() -> None:
    async with in_session(legacy(get=hang_for(1))) as (channel, peer):
        assert await ask(channel) == [DONE]

    assert peer.methods() == ["POST", "POST", "GET", "POST", "DELETE"]


@pytest.mark.fake_clock
async def test_requests_do_not_wait_for_a_stream_without_a_listener() -> None:
    def serve(request: httpx.Request) -> httpx.Response:
        methods.append(request.method)
        if b'"id"' not in request.content:
            return httpx.Response(202)
        content = WELCOME if b'"initialize"' in request.content else DONE_JSON
        return httpx.Response(200, headers=JSON, content=content)

    methods: list[str] = []
    async with mocked(serve) as channel:
        begun = anyio.current_time()
        await shake_hands(channel)
        assert await ask(channel) == [DONE]
        assert anyio.current_time() == begun

    assert methods == ["POST", "POST", "POST"]


async def test_the_first_call_opens_the_stream_of_a_server_that_fumbled_the_handshake() -> None:
    received = Log[Incoming]()
    script = legacy(get=stream(event(NOTE_JSON), stay=True), initialized=status(500))

    async with serving(script) as peer, listening(peer, received) as channel:
        with pytest.raises(HttpStatusError, match="HTTP 500"):
            await shake_hands(channel)
        await ask(channel, PING)
        assert "GET" not in peer.methods()  # a ping may come before the end of the handshake
        await ask(channel)
        await received.reaches(lambda messages: messages == [NOTE])


@pytest.mark.fault("E12")
async def test_a_stream_that_ends_is_opened_again_from_where_it_ended_unless_that_is_refused(
    pauses: list[float],
) -> None:
    received = Log[Incoming]()
    get = in_turn(
        stream(b"retry: 250\n", event(NOTE_JSON, id="e-1")),
        stream(event(b"", id="e-2")),
        status(400),
        stream(event(NOTE_JSON), stay=True),
    )

    async with in_session(legacy(get=get), received, sleep=pauses) as (_, peer):
        await received.reaches(lambda messages: messages == [NOTE, NOTE])

    assert peer.sent("GET", "last-event-id") == [None, "e-1", "e-2", None]
    assert pauses == [0.375, 0.562, 0.844]


@pytest.mark.fault("E08", "E12", "E13")
async def test_a_stream_that_keeps_failing_is_reopened_more_slowly_then_only_by_the_next_call(
    pauses: list[float],
) -> None:
    received = Log[Incoming]()
    get = in_turn(*[stream(b"retry: 0\n")] * 5, *[status(503)] * 5, stream(event(NOTE_JSON), stay=True))

    async with serving(legacy(get=get)) as peer, listening(peer, received, sleep=pauses) as channel:
        with Records() as logged:
            await shake_hands(channel)
            await logged.reaches(lambda records: len(records) == 1)
        assert (received, peer.methods().count("GET")) == ([], 10)
        await ask(channel)
        await received.reaches(lambda messages: messages == [NOTE])

    assert pauses == [round(0.1 * 1.5**count, 3) for count in range(1, 10)]
    assert logged == [
        (logging.WARNING, f"{peer.url}: the stream for server messages keeps failing; waiting for activity")
    ]


async def test_a_stable_stream_resets_the_delays(pauses: list[float]) -> None:
    def backoff() -> Backoff:
        return Backoff(max_failures=10, stable_after=0.0)

    script = legacy(get=in_turn(*[stream()] * 20, refuse))
    async with in_session(script, sleep=pauses, listen_backoff=backoff) as (_, peer):
        await peer.hears("GET", 21)

    assert pauses == [1.5] * 20


async def grown(logged: Log[tuple[int, str]], size: int) -> None:
    await logged.reaches(lambda records: len(records) == size)


unauthorized = pytest.mark.parametrize(
    ("code", "auth", "why"),
    [
        (401, None, "HTTP 401 Unauthorized from {url}"),
        (403, None, "HTTP 403 Forbidden from {url}"),
        (401, NoLogin(), "a login is needed"),
    ],
    ids=["401", "403", "an Auth"],
)


@unauthorized
async def test_a_stream_that_a_client_may_no_longer_have_is_opened_again_when_a_request_succeeds(
    code: int, auth: httpx.Auth | None, why: str, pauses: list[float]
) -> None:
    received = Log[Incoming]()
    get = in_turn(stream(event(NOTE_JSON, id="e")), status(code), status(code), stream(event(NOTE_JSON), stay=True))
    post = in_turn(status(code), finish)

    async with (
        serving(legacy(get=get, post=post)) as peer,
        listening(peer, received, auth=auth, sleep=pauses) as channel,
    ):
        with Records() as logged:
            await shake_hands(channel)
            await grown(logged, 1)
            with pytest.raises(McpError):
                await ask(channel)
            assert peer.methods().count("GET") == 2
            await ask(channel)
            await grown(logged, 2)
            await ask(channel)
            await received.reaches(lambda messages: messages == [NOTE, NOTE])

    assert peer.sent("GET", "last-event-id") == [None, "e", "e", "e"]
    assert pauses == [1.5, 2.25, 3.375]
    refusal = f"{peer.url}: no stream for server messages until a request succeeds: {why.format(url=peer.url)}"
    assert logged == [(logging.WARNING, refusal)] * 2


@pytest.mark.fault("H11")
@pytest.mark.parametrize("code", [401, 403])
async def test_a_stream_that_a_client_may_not_have_is_not_asked_for_again(code: int) -> None:
    async with serving(legacy(get=status(code))) as peer, listening(peer) as channel:
        with Records() as logged:
            await shake_hands(channel)
            for _ in range(3):
                await ask(channel)

    assert peer.methods().count("GET") == 1
    (level, text), *others = logged
    assert (level, others) == (logging.WARNING, [])
    assert text.startswith(f"{peer.url}: no stream for server messages: HTTP {code} ")


class Defective(httpx.Auth):
    """Raises what is no error of ours, for a stream."""

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        if request.method == "GET":
            raise ValueError("a defect of the host's")
        yield request


async def test_a_defect_of_an_auth_ends_the_stream_and_not_the_connection() -> None:
    async with serving(legacy()) as peer, listening(peer, auth=Defective()) as channel:
        with Records() as logged:
            await shake_hands(channel)
            for _ in range(2):
                await ask(channel)

    assert logged == [(logging.ERROR, f"{peer.url}: opening the stream for server messages failed")]
    assert "GET" not in peer.methods()


@unauthorized
async def test_a_stream_that_a_client_may_no_longer_have_is_given_up_in_the_end(
    code: int, auth: httpx.Auth | None, why: str, pauses: list[float]
) -> None:
    async with (
        serving(legacy(get=in_turn(stream(event(b"", id="e")), status(code)))) as peer,
        listening(peer, auth=auth, sleep=pauses) as channel,
    ):
        with Records() as logged:
            await shake_hands(channel)
            for refusals in range(1, 9):
                await grown(logged, refusals)
                await ask(channel)
            await grown(logged, 9)
            await ask(channel)

    assert peer.methods().count("GET") == 10
    assert logged[-1] == (logging.WARNING, f"{peer.url}: no stream for server messages: {why.format(url=peer.url)}")


@pytest.mark.fault("E12")
async def test_a_server_message_past_the_limit_is_reported_and_the_stream_opened_again(
    pauses: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    received = Log[Incoming]()
    get = in_turn(stream(event(b"", id="e"), b"data: " + b"x" * 2000), stream(event(NOTE_JSON), stay=True))

    limits = Limits(max_message=1000)
    async with in_session(legacy(get=get), received, limits=limits, sleep=pauses) as (_, peer):
        await received.reaches(lambda messages: messages == [NOTE])

    assert [record.getMessage() for record in caplog.records] == [
        f"{peer.url}: the stream for server messages: an event is larger than 1000 bytes"
    ]
    assert all("last-event-id" not in heard.headers for heard in peer.heard)  # else it would come again


async def test_a_new_handshake_ends_the_old_stream_and_opens_a_new_one() -> None:
    received = Log[Incoming]()
    ended = Log[str]()

    async def get(wire: Wire, heard: Heard) -> None:
        await wire.events(event(NOTE_JSON))
        await wire.hung_up()
        ended.append(heard.headers["mcp-session-id"])

    async with in_session(legacy(get=get), received) as (channel, peer):
        await received.reaches(lambda messages: messages == [NOTE])
        await shake_hands(channel)
        await received.reaches(lambda messages: messages == [NOTE, NOTE])
        await ended.reaches(lambda ids: ids == ["s-1"])

    assert peer.sent("GET", "mcp-session-id") == ["s-1", "s-2"]


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

    async with in_session(legacy(get=get, post=post), received) as (channel, _), anyio.create_task_group() as tasks:
        tasks.start_soon(ask, channel)
        await received.reaches(lambda messages: messages == [DONE])
        tasks.cancel_scope.cancel()


# The end


DELETES: dict[str, Answer] = {
    **{str(code): status(code) for code in (200, 204, 401, 404, 405, 500)},
    "a redirect": lambda wire, heard: wire.reply(302, {"location": "/"}),
    "an end": cut(b""),
    "a reset": lambda wire, heard: wire.reset(),
    "half a head": cut(b"HTTP/1.1 202 Acc"),
    "another protocol": cut(b"SSH-2.0\r\n\r\n"),
    "a stream": stream(event(b"x"), stay=True),
}


@pytest.mark.fault("C14", "H38")
async def test_the_session_is_deleted_at_the_end_even_if_the_server_refuses(subtests: pytest.Subtests) -> None:
    for name, delete in DELETES.items():
        with subtests.test(name):
            async with serving(legacy(delete=delete)) as peer:
                async with listening(peer) as channel:
                    await shake_hands(channel)
                    await peer.hears("GET", 1)

                assert peer.methods()[:4] == ["POST", "POST", "GET", "DELETE"]
                assert peer.methods()[4:] in ([], ["DELETE"])  # once more, where a kept connection was reset


@pytest.mark.fault("C14", "H37")
@pytest.mark.adjustable_clock
async def test_a_server_that_never_answers_the_delete_is_not_waited_for() -> None:
    async with serving(legacy(delete=hang_for(2))) as peer:
        async with listening(peer) as channel:
            await shake_hands(channel)
            await peer.hears("GET", 1)

        assert peer.methods()[-1] == "DELETE"


@pytest.mark.fault("H37")
@pytest.mark.fake_clock
async def test_the_end_of_the_session_gets_half_of_the_time_for_closing() -> None:
    left: list[float] = []

    async def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "DELETE":
            left.append(anyio.current_effective_deadline() - anyio.current_time())
            return httpx.Response(200)
        return httpx.Response(200, headers={**JSON, "mcp-session-id": "s-1"}, content=WELCOME)

    async with mocked(answer, limits=Limits(close_timeout=0.2)) as channel:
        await channel.request(INITIALIZE, {}, RecordedHandle(0))

    assert left == [pytest.approx(0.1)]


@pytest.mark.fault("H37")
@pytest.mark.adjustable_clock
async def test_closing_keeps_to_the_limit_even_when_cancelled() -> None:
    async with serving(legacy(delete=hang_for(1.5))) as peer:
        with anyio.fail_after(25), anyio.CancelScope() as scope:
            async with opened(peer.url, limits=Limits(close_timeout=3)) as channel:
                await shake_hands(channel)
                scope.cancel()
                await checkpoint()

        assert peer.methods()[-1] == "DELETE"
