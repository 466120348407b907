"""The pure parts of Streamable HTTP, as tables."""

from __future__ import annotations

import gzip
import itertools
import tracemalloc
import zlib
from collections.abc import Callable
from datetime import UTC, datetime

import anyio
import httpx
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given
from hypothesis import strategies as st

from mcp_host.errors import ConnectionClosed, HttpStatusError, ProtocolError, Unauthorized
from mcp_host.protocol.sse import LastEvent
from mcp_host.transports._http.backend import HttpLibrary, HttpxResponse
from mcp_host.transports._http.response import Decompressor, HttpResponse, MessageStream, retry_after
from mcp_host.transports._http.session import check_session_id, means_session_lost
from tests.clock import stepping, stopped
from tests.transports.http_peers import DONE_JSON, NOTE_JSON, RecordedHandle, event

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
TEXT = b"the tide rises, the tide falls " * 10_000


def raw_deflate(data: bytes) -> bytes:
    squeezer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return squeezer.compress(data) + squeezer.flush()


def inflated(coding: str, *chunks: bytes) -> list[bytes]:
    decompressor = Decompressor(coding)
    pieces: list[bytes] = []
    for chunk in chunks:
        pieces += decompressor.feed(chunk)
    decompressor.finish()
    return pieces


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        pytest.param("gzip", gzip.compress(TEXT), id="gzip"),
        pytest.param("x-gzip", gzip.compress(TEXT), id="x-gzip"),
        pytest.param("deflate", zlib.compress(TEXT), id="deflate"),
        pytest.param("deflate", raw_deflate(TEXT), id="deflate without zlib's wrapper"),
    ],
)
def test_a_compressed_body_comes_back_in_bounded_pieces_however_it_is_chunked(coding: str, body: bytes) -> None:
    for chunks in ([body], [body[i : i + 1] for i in range(len(body))]):
        pieces = inflated(coding, *chunks)

        assert b"".join(pieces) == TEXT
        assert max(map(len, pieces)) <= 64 * 1024


def test_a_gzip_file_may_have_several_members() -> None:
    """RFC 1952, section 2.2."""
    members, cut = [gzip.compress(TEXT), gzip.compress(b""), gzip.compress(b"tide")], gzip.compress(b"cut")[:-1]
    whole = b"".join(members)
    for rest in (b"", b"\x1f", b"garbage" + whole):
        for chunks in (members + [rest] * bool(rest), [whole + rest], [bytes([each]) for each in whole + rest]):
            assert b"".join(inflated("gzip", *chunks)) == TEXT + b"tide"
    with pytest.raises(ConnectionClosed, match="was cut off"):
        inflated("gzip", whole, cut)


def test_a_bomb_inflates_one_piece_at_a_time() -> None:
    decompressor = Decompressor("gzip")
    pieces = decompressor.feed(gzip.compress(bytes(64 * 1024 * 1024)))

    assert 0 < len(next(pieces)) <= 64 * 1024
    assert next(pieces)


@pytest.mark.parametrize("size", [64 * 1024, 100_000, 200_000])
def test_what_follows_compression_of_several_pieces_is_dropped_once(size: int) -> None:
    """zlib returns such bytes as unconsumed each time that it is called after the end."""
    pieces = list(itertools.islice(Decompressor("gzip").feed(gzip.compress(bytes(size)) + b"garbage"), 10))

    assert (b"".join(pieces), len(pieces) < 10) == (bytes(size), True)


def test_what_follows_compression_takes_no_memory() -> None:
    """zlib itself keeps all of it."""
    decompressor = Decompressor("gzip")
    assert b"".join(decompressor.feed(gzip.compress(b"tide"))) == b"tide"

    tracemalloc.start()
    try:
        for _ in range(100):
            assert list(decompressor.feed(b"x" * 64 * 1024)) == []
        assert tracemalloc.get_traced_memory()[0] < 1024 * 1024
    finally:
        tracemalloc.stop()
    decompressor.finish()


def test_an_empty_body_need_not_be_compressed() -> None:
    assert inflated("gzip") == []


BROKEN = [b"no gzip at all", b"\x1f\x8b" + b"\xff" * 50, gzip.compress(TEXT)[:-10], zlib.compress(TEXT)[:-10]]


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "deflate"])
@pytest.mark.fault("H22")
def test_a_broken_compression_is_a_broken_connection(coding: str) -> None:
    for body in BROKEN:
        with pytest.raises(ConnectionClosed, match=f"the body's {coding} compression"):
            inflated(coding, body)


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip", "rot13"])
@pytest.mark.fault("H22")
def test_a_compression_that_was_not_requested_is_named(coding: str) -> None:
    with pytest.raises(ProtocolError, match=f"Content-Encoding {coding}; asked for were gzip, deflate"):
        Decompressor(coding)


RETRIES: dict[str | None, float | None] = {
    None: None,
    "120": 120.0,
    " 0 ": 0.0,
    "9" * 5000: 86_400,
    "-1": None,
    "1.5": None,
    "\u0663": None,
    "\xd9\xa3": None,
    "soon": None,
    "": None,
    "Thu, 01 Jan 2026 12:00:30 GMT": 30.0,
    "Thu, 01 Jan 2026 12:00:30 -0000": 30.0,
    "Thu, 01 Jan 2026 11:00:00 GMT": 0.0,
    "Fri, 01 Jan 2027 12:00:00 GMT": 86_400,
    "Fri, 01 Jan 99999 12:00:00 GMT": None,
    "Fri, 01 Jan 99999999999999999999 12:00:00 GMT": None,
    "Fri, 01 Jan 2026 99999999999999999999:00:00 GMT": None,
    "Fri, 01 Jan 2026 12:00:00 +99999999999999": None,
}


@pytest.mark.fault("H04")
def test_retry_after_is_seconds_or_a_date_within_a_day() -> None:
    assert {value: retry_after(value, NOW) for value in RETRIES} == RETRIES


@given(st.text())
def test_retry_after_of_any_text_is_a_sane_number_or_none(value: str) -> None:
    seconds = retry_after(value, NOW)

    assert seconds is None or 0 <= seconds <= 86_400


LOST = [
    (404, ""),
    (410, "Gone"),
    (400, "Bad Request: No valid session ID provided"),
    (400, '{"error":{"message":"Bad Request: No valid session ID or not an initialize request"}}'),
    (400, "Bad Request: Unknown Mcp-Session-Id header"),
    (400, "Bad Request: Server not initialized"),
    (400, "Invalid or missing session ID"),
    (400, "Invalid session ID"),
    (400, "No active session"),
    (400, "Session not found"),
    (400, "Session with ID 1f2e not found"),
    (400, "session has expired"),
    (401, "Unauthorized: Session not found"),
]
NOT_LOST = [
    (400, ""),
    (400, '{"error":"Bad arguments"}'),
    (400, "Bad Request: Unsupported protocol version"),
    (400, "Your shopping session may be slow"),
    (400, "the tool wants a session of 45 minutes"),
    (400, "x" * 2000 + "Session not found"),
    (401, "Session expired, please log in"),
    (403, "Session not found"),
    (500, "Session not found"),
]


@pytest.mark.fault("H05", "H07")
def test_a_lost_session_is_recognized_by_status_or_by_its_known_spellings() -> None:
    def means_lost(status: int, body: str) -> bool:
        return means_session_lost((Unauthorized if status == 401 else HttpStatusError)(status, "refused", body=body))

    assert [row for row in LOST if not means_lost(*row)] == []
    assert [row for row in NOT_LOST if means_lost(*row)] == []


@pytest.mark.backends("asyncio")
async def test_only_the_beginning_of_an_invalid_event_is_kept() -> None:
    response = HttpxResponse(
        httpx.Response(200, stream=httpx.ByteStream(event(b"x" * 5000))), "the server", HttpLibrary(httpx)
    )
    stream = MessageStream(response, LastEvent(), 10_000)

    assert await stream.next() is not None
    assert await stream.next() is None
    assert stream.skipped == b"x" * 1024


@pytest.mark.parametrize(("flood", "messages"), [(event(NOTE_JSON) * 100, 100), (b":\n" * 100 * 256, 0)])
@pytest.mark.parametrize(
    ("clock", "least", "most"), [(stopped, 0, 10), (stepping(), 45, 60)], ids=["stopped", "stepping"]
)
async def test_the_messages_and_lines_of_one_piece_are_read_in_turns_that_time_bounds(
    clock: Callable[[], float], least: int, most: int, flood: bytes, messages: int
) -> None:
    body = httpx.ByteStream(flood + event(DONE_JSON))
    response = HttpxResponse(httpx.Response(200, stream=body), "the server", HttpLibrary(httpx))
    handle, turns = RecordedHandle(), 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            await checkpoint()
            turns += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take_turns)
        async with response:
            await MessageStream(response, LastEvent(), 10_000, clock).read_until_done(handle)
        tasks.cancel_scope.cancel()

    assert len(handle.received) == messages + 1
    assert least <= turns <= most


@pytest.mark.backends("asyncio")
async def test_a_body_that_was_read_to_its_end_leaves_nothing_to_read() -> None:
    left: list[HttpResponse] = []

    def drain_soon(response: HttpResponse) -> bool:
        left.append(response)
        return False

    response = HttpxResponse(httpx.Response(200, stream=httpx.ByteStream(b"tide")), "the server", HttpLibrary(httpx))
    response.drain_soon = drain_soon
    async with response:
        assert await response.read_all(4) == b"tide"

    assert left == []


def test_a_header_that_a_gateway_repeats_counts_once_and_different_ones_are_a_list() -> None:
    given = [("content-type", "a/b"), ("Content-Type", "A/b;c=d"), ("retry-after", "5"), ("Retry-After", "5")]
    session = [("mcp-session-id", "s-1, s-2"), ("mcp-session-id", "s-1")]
    answer = httpx.Response(200, headers=[*given, *session])
    response = HttpxResponse(answer, "the server", HttpLibrary(httpx))

    assert (response.content_type, response.header(b"retry-after")) == ("a/b", "5")
    with pytest.raises(ProtocolError, match=r"^the server names 2 session ids$"):
        check_session_id(response.header(b"mcp-session-id"))


@pytest.mark.parametrize("id", [None, "1", "1f2e-~!", "x" * 1000])
def test_a_session_id_may_be_any_visible_ascii(id: str | None) -> None:
    assert check_session_id(id) == id


@pytest.mark.fault("H39")
@pytest.mark.parametrize("id", [" ", "a b", "a, b ", "a\tb", "\u00e9", "a\x7f", "a\r\nX: y"])
def test_any_other_session_id_breaks_the_protocol(id: str) -> None:
    with pytest.raises(
        ProtocolError, match=r"^the server's session id is not visible ASCII: it has '[^']+'$"
    ) as caught:
        check_session_id(id)

    assert str(caught.value).isprintable()
