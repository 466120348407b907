"""An answer while it is written: its text for the host and for the server, and the bounds of a stream."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from anyio import Event
from anyio.lowlevel import checkpoint

from mcp_host.concurrency import HandlerTasks, first
from mcp_host.errors import ProviderError
from mcp_host.providers.texts import ReadablePieces
from mcp_host.sampling.request import SamplingRequest
from mcp_host.types import JSONObject

MOST_BYTES = 64 * 1024 * 1024  # of all events of an answer as Python writes them: 128,000 tokens, each 500 bytes
EVENTS_AT_ONCE = 32  # then other tasks run

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of an answer that is being written, for *on_delta*. *request* is the request that it answers."""

    text: str
    request: SamplingRequest


OnDelta: TypeAlias = Callable[[Delta], object]
"""Gets the text of an answer as it comes. A plain function, called in the event loop."""

Show: TypeAlias = Callable[[str], None]
"""Gets each text that a stream adds to the answer."""


@asynccontextmanager
async def showing(
    request: SamplingRequest, on_delta: OnDelta | None, *, progress: bool, stops: Sequence[str]
) -> AsyncIterator[Show]:
    """Show the text of an answer to *on_delta*, and with *progress* to the server, up to the first of *stops*."""
    if not progress or request.reporter is None:
        with _Shown(request, on_delta).up_to(stops) as show:
            yield show
        return
    reports = _Progress(request)
    try:
        async with HandlerTasks.open() as tasks:
            tasks.start(reports.run)
            with _Shown(request, on_delta, reports).up_to(stops) as show:
                yield show
    except ExceptionGroup as group:
        raise first(group) from None


class _Shown:
    """Gives the text of an answer to *on_delta* and to the server as it comes."""

    def __init__(self, request: SamplingRequest, on_delta: OnDelta | None, progress: _Progress | None = None) -> None:
        self._request = request
        self._on_delta = on_delta
        self._progress = progress
        self._pieces = ReadablePieces()

    def __call__(self, text: str) -> None:
        if not isinstance(text, str):
            raise TypeError("the stream has something else in the place of a text")
        self._give(self._pieces.add(text))

    @contextmanager
    def up_to(self, stops: Sequence[str]) -> Iterator[Show]:
        """Show the text up to the first of *stops*. What waits for more text is shown in the end."""
        if stops:
            cut = _UpToStop(self, stops)
            yield cut
            cut.end()
        else:
            yield self
        self._give(self._pieces.end())

    def _give(self, text: str) -> None:
        if not text:
            return
        if self._on_delta is not None:
            try:
                self._on_delta(Delta(text, self._request))
            except Exception:
                logger.exception("on_delta failed; it is not called again for this answer")
                self._on_delta = None
        if self._progress is not None:
            self._progress.add(text)


class _UpToStop:
    """Gives the text of an answer up to the first stop sequence. What may be the beginning of one waits."""

    def __init__(self, show: Show, stops: Sequence[str]) -> None:
        self._show = show
        self._stops = stops
        self._longest = max(map(len, stops))
        self._waiting = ""
        self._has_stopped = False

    def __call__(self, text: str) -> None:
        if not self._has_stopped:
            self._waiting += text
            self._give(len(self._waiting) - self._longest + 1)

    def end(self) -> None:
        if not self._has_stopped:
            self._give(len(self._waiting))

    def _give(self, decided: int) -> None:
        """Give the text before the first stop sequence, if that is among the first *decided* characters, or these."""
        found = [place for stop in self._stops if 0 <= (place := self._waiting.find(stop)) <= decided]
        self._has_stopped = bool(found)
        end = min(found, default=max(decided, 0))
        text, self._waiting = self._waiting[:end], self._waiting[end:]
        if text:
            self._show(text)


class _Progress:
    """Reports the text of an answer to the server as it comes. The stream never waits: texts that come meanwhile are one report."""

    def __init__(self, request: SamplingRequest) -> None:
        self._request = request
        self._parts: list[str] = []
        self._more = Event()

    def add(self, text: str) -> None:
        self._parts.append(text)
        self._more.set()

    async def run(self) -> None:
        characters = 0
        try:
            while True:
                await self._more.wait()
                self._more = Event()
                text = "".join(self._parts)
                self._parts.clear()
                characters += len(text)
                await self._request.report_progress(characters, message=text)
        except Exception:
            logger.exception("progress of an answer cannot be reported")


class Heard:
    """What has come of a stream. Its size is bounded, and other tasks run while a reader has many events at once."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._bytes = 0
        self._events = 0

    async def add(self, event: JSONObject) -> None:
        self._events += 1
        self._bytes += len(str(event))
        if self._bytes > MOST_BYTES:
            raise ProviderError(self._provider, f"the answer has more than {MOST_BYTES // 2**20} MiB")
        if self._events % EVENTS_AT_ONCE == 0:
            await checkpoint()
