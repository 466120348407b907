"""The decoder of server-sent events, as tables and beside httpx-sse's.

Where the two differ, on what is not well-formed, is in the module's own docstring.
"""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import httpx
import pytest
from httpx_sse import EventSource
from hypothesis import given
from hypothesis import strategies as st

from mcp_host.errors import MessageTooLarge
from mcp_host.protocol.sse import Event, EventDecoder, LastEvent
from tests.extent import saturated
from tests.faults.measure import grows_linearly


def decoded(*chunks: bytes, limit: int = 1024) -> tuple[list[Event], LastEvent]:
    """What the chunks of one stream come to, its end included."""
    last_event = LastEvent()
    decoder = EventDecoder(limit, last_event)
    events = [event for chunk in chunks for event in decoder.feed(chunk) if event is not None]
    return [*events, *decoder.end()], last_event


def messages(*data: str) -> list[Event]:
    return [Event("message", text.encode()) for text in data]


STREAMS: dict[str, tuple[bytes, list[Event]]] = {
    "two events": (b"data: a\n\ndata: b\n\n", messages("a", "b")),
    "CRLF": (b"data: a\r\n\r\ndata: b\r\n\r\n", messages("a", "b")),
    "CR": (b"data: a\r\rdata: b\r\r", messages("a", "b")),
    "mixed line ends": (b"data: a\r\n\ndata: b\n\r\n", messages("a", "b")),
    "a BOM first": (b"\xef\xbb\xbfdata: a\n\n", messages("a")),
    "a BOM after an empty line": (b"\n\xef\xbb\xbfdata: a\n\n", []),
    "only one BOM is none of the text": (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n", []),
    "one space after the colon, or none": (b"data:a\n\ndata:  b\n\n", messages("a", " b")),
    "data of several lines": (b"data: a\ndata: b\ndata\ndata: c\n\n", messages("a\nb\n\nc")),
    "comments": (b": hello\ndata: a\n:\n: there\n\n", messages("a")),
    "a type": (b"event: ping\ndata: a\n\ndata: b\n\n", [Event("ping", b"a"), *messages("b")]),
    "the last type counts": (b"event: a\nevent: b\nevent:\ndata: c\n\n", messages("c")),
    "a type that is not UTF-8": (b"event: \xff\ndata: a\n\n", [Event("\ufffd", b"a")]),
    "a type without data is forgotten": (b"event: gone\n\ndata: a\n\n", messages("a")),
    "empty data is no event": (b"data:\n\ndata\n\n\n\n", []),
    "fields after the data": (b"data: a\nid: 1\nevent: ping\n\n", [Event("ping", b"a")]),
    "unknown fields beside the data": (b"foo: b\nfoo\ndata: a\n\n", messages("a")),
    "unknown fields": (b"Data: a\n data: b\ndata : c\nfoo: d\n\n", []),
    "JSON alone": (b'{"a": 1}\n\n{\n "b": 2\n}\r\n[1]\n\n{"c"', messages('{"a": 1}', '{\n "b": 2\n}\n[1]', '{"c"')),
    "JSON beside data": (b'data: a\n{"b": 1}\n\n', messages("a")),
    "other line ends": ("data: a\u2028b\u0085c\x0b\x0cd\n\n".encode(), messages("a\u2028b\u0085c\x0b\x0cd")),
    "no blank line at the end": (b"data: a\n\ndata: b\n", messages("a", "b")),
    "no line end at the end": (b"data: a\n\ndata: b", messages("a", "b")),
    "nothing": (b"", []),
}


@pytest.mark.fault("E03", "E20", "E21", "E22")
def test_a_stream_is_decoded_as_in_the_standard_for_any_chunking(subtests: pytest.Subtests) -> None:
    for case, (stream, events) in STREAMS.items():
        with subtests.test(case):
            assert decoded(stream)[0] == events
            assert decoded(*(stream[i : i + 1] for i in range(len(stream))))[0] == events
            for cut in range(len(stream)):
                assert decoded(stream[:cut], stream[cut:])[0] == events


def test_an_event_is_dispatched_at_the_first_byte_of_its_blank_line_end() -> None:
    decoder = EventDecoder(1024, LastEvent())

    assert list(decoder.feed(b"data: a\r\r")) == messages("a")
    assert list(decoder.feed(b"\ndata: b\r\n\r")) == messages("b")
    assert list(decoder.feed(b"\n")) == []


@given(st.lists(st.binary(max_size=20)), st.integers(1, 7))
def test_arbitrary_bytes_decode_the_same_for_any_chunking(lines: list[bytes], size: int) -> None:
    stream = b"\n".join(b"data: " + line if len(line) % 2 else line for line in lines)

    assert decoded(*(stream[i : i + size] for i in range(0, len(stream), size))) == decoded(stream)


IDS: dict[str, tuple[bytes, str]] = {
    "with data": (b"id: 1\ndata: a\n\n", "1"),
    "a priming event": (b"id: 1\ndata:\n\n", "1"),
    "kept by events without one": (b"id: 1\n\ndata: a\n\n", "1"),
    "the newest": (b"id: 1\n\nid: 2\n\n", "2"),
    "not that of an event cut off": (b"id: 1\n\nid: 2\ndata: {\n", "1"),
    "taken back": (b"id: 1\n\nid\n\n", ""),
    "NUL": (b"id: 1\n\nid: a\x00b\n\n", "1"),
    "a control character": (b"id: 1\n\nid: a\x1bb\n\n", "1"),
    "no header can hold it": ("id: 1\n\nid: \u6f6e\n\n".encode(), "1"),
    "latin-1, which only some can send": ("id: 1\n\nid: \u00e9\n\n".encode(), "1"),
    "not UTF-8": (b"id: 1\n\nid: \xff\n\n", "1"),
    "space around it": (b"id: 1\n\nid:  a \n\n", "1"),
    "space inside": (b"id: a b\n\n", "a b"),
    "long": (b"id: " + b"x" * 4096 + b"\n\n", "x" * 4096),
    "too long": (b"id: 1\n\nid: " + b"x" * 4097 + b"\n\n", "1"),
}


@pytest.mark.fault("E04", "E25")
def test_only_ids_that_are_valid_headers_are_kept(subtests: pytest.Subtests) -> None:
    for case, (stream, last_id) in IDS.items():
        with subtests.test(case):
            assert decoded(stream, limit=10_000)[1].id == last_id


RETRIES: list[tuple[bytes, float | None]] = [
    (b"500", 0.5),
    (b"0", 0.0),
    (b"0010", 0.01),
    (b"9" * 5000, math.inf),
    (b"-1", None),
    (b"+1", None),
    (b"1.5", None),
    (b"1e3", None),
    (b"1 ", None),
    (b"1_0", None),
    (b"", None),
    ("\u0663".encode(), None),
]


@pytest.mark.fault("E10")
def test_a_retry_is_ascii_digits_and_nothing_else(subtests: pytest.Subtests) -> None:
    for value, retry in RETRIES:
        with subtests.test(value=value):
            assert decoded(b"retry: " + value + b"\n", limit=10_000)[1].retry == retry


def test_an_event_of_exactly_the_limit_is_read() -> None:
    assert decoded(b"data: " + b"x" * 50 + b"\ndata: " + b"y" * 49 + b"\n\n", limit=100)[0] == messages(
        "x" * 50 + "\n" + "y" * 49
    )


@pytest.mark.fault("E23")
@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param([b"data: " + b"x" * 101 + b"\n"], id="one line"),
        pytest.param([b"data: " + b"x" * 50 + b"\ndata: " + b"y" * 50 + b"\n"], id="several lines"),
        pytest.param([b"data: "] + [b"x" * 10] * 20, id="a line without an end"),
        pytest.param([b"x" * 10] * 20, id="a field's name without an end"),
        pytest.param([b"id: "] + [b"1" * 10] * 20, id="an id without an end"),
        pytest.param([b": "] + [b"x" * 10] * 20, id="a comment without an end"),
        pytest.param([b": " + b"x" * 200 + b"\n"], id="a comment that comes at once"),
    ],
)
def test_an_event_past_the_limit_is_an_error_before_it_ends(chunks: list[bytes]) -> None:
    with pytest.raises(MessageTooLarge, match="an event is larger than 100 bytes"):
        decoded(*chunks, limit=100)


def test_an_empty_chunk_between_cr_and_lf_is_no_blank_line() -> None:
    decoder = EventDecoder(100, LastEvent())
    chunks = [b"data: a\r", b"", b"\ndata: b\r\n\r\n"]

    assert [event for chunk in chunks for event in decoder.feed(chunk)] == [Event("message", b"a\nb")]


def test_endless_comments_cost_no_memory() -> None:
    decoder = EventDecoder(100, LastEvent())

    for _ in range(1000):
        assert list(decoder.feed(b": still here\n")) == []


def test_time_grows_linearly_with_a_long_event_in_small_chunks() -> None:
    def decode(chunks: int) -> None:
        decoder = EventDecoder(32 * 1024 * 1024, LastEvent())
        list(decoder.feed(b"data: "))
        for _ in range(chunks):
            list(decoder.feed(b"x" * 1024))
        assert [*decoder.feed(b"\n\n")] == [Event("message", b"x" * 1024 * chunks)]

    assert grows_linearly(decode, 512)


# Beside httpx-sse, with which ours agrees on well-formed streams

# Neither CR nor LF, which end a line, nor NUL, which no id may hold. What is no UTF-8 cannot be sent.
texts = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), max_size=20)
ids = st.text(
    string.ascii_letters + string.digits + "-_/", min_size=1, max_size=8
)  # fit for a header, which ours checks
kinds = st.text(string.ascii_lowercase, min_size=1, max_size=8)


@dataclass(frozen=True)
class Written:
    """An event as a server writes it: fields in any order, comments between them, one way to end a line."""

    lines: Sequence[str]
    line_end: str

    def __str__(self) -> str:
        return "".join(f"{line}{self.line_end}" for line in [*self.lines, ""])


@st.composite
def events(draw: st.DrawFn) -> Written:
    space = draw(st.sampled_from(["", " "]))
    # A first line that is never empty: httpx-sse reports an event without data, which the standard drops.
    data = [draw(texts.filter(lambda text: text.strip(" "))), *draw(st.lists(texts, max_size=3))]
    rest = [f":{draw(texts)}"] if draw(st.booleans()) else []
    rest += [f"id:{space}{draw(ids)}"] if draw(st.booleans()) else []
    rest += [f"event:{space}{draw(kinds)}"] if draw(st.booleans()) else []
    rest += [f"retry:{space}{draw(st.integers(0, 10**6))}"] if draw(st.booleans()) else []
    # "data:x" and "data: x" mean the same; a line that begins with a space needs the one that is taken away.
    lines = [f"data: {line}" if line.startswith(" ") else f"data:{space}{line}" for line in data]
    cut = draw(st.integers(0, len(rest)))
    return Written([*rest[:cut], *lines, *rest[cut:]], draw(st.sampled_from(["\n", "\r", "\r\n"])))


@saturated
@given(st.lists(events(), max_size=6), st.lists(st.integers(0, 400), max_size=8))
def test_on_well_formed_streams_our_decoder_and_httpx_sse_agree(written: list[Written], cuts: list[int]) -> None:
    stream = "".join(map(str, written)).encode()
    last_event = LastEvent()
    decoder = EventDecoder(len(stream), last_event)
    bounds = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    ours = [event for start, end in pairwise(bounds) for event in decoder.feed(stream[start:end])]

    response = httpx.Response(200, headers={"content-type": "text/event-stream; charset=utf-8"}, content=stream)
    theirs = list(EventSource(response).iter_sse())
    retries = [event.retry for event in theirs if event.retry is not None]
    assert ours == [Event(event.event, event.data.encode()) for event in theirs]
    assert last_event == LastEvent(id=theirs[-1].id if theirs else "", retry=retries[-1] / 1000 if retries else None)
