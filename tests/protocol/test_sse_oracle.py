"""Our decoder of server-sent events beside httpx-sse's: on well-formed streams they agree.

What is not well-formed, where they do not, is in `test_sse` and in the module's own docstring.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import httpx
from httpx_sse import EventSource
from hypothesis import given
from hypothesis import strategies as st

from mcp_host.protocol.sse import Event, EventDecoder, LastEvent
from tests.extent import saturated

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
