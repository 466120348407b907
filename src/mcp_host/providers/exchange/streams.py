"""An answer while it is written: its text for the host and for the server, and the bounds of a stream."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from anyio import Event, move_on_after
from anyio.lowlevel import checkpoint

from mcp_host.concurrency.tasks import HandlerTasks, first, reraise
from mcp_host.errors import ProviderError
from mcp_host.providers.exchange.texts import Pieces, ReadablePieces
from mcp_host.sampling.request import SamplingRequest
from mcp_host.types import CreateMessageResult, JSONObject, TextContent

MAX_CHARACTERS = 64_000_000  # of all events of an answer as Python writes them: 128,000 tokens, 500 for each
EVENTS_AT_ONCE = 32  # then other tasks run
CLOSE_TIME = 1.0  # seconds in which the generators of a closed response have to end
REPORT_TIME = 5.0  # seconds that a complete answer waits for the server to take the reports of its text

T = TypeVar("T")

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


def show_nothing(_: str) -> None:
    """A `Show` for a text that is not of the answer."""


@asynccontextmanager
async def unwinding(events: AsyncIterator[T], response: Any) -> AsyncIterator[AsyncIterator[T]]:
    """The *events* of an SDK's *response*, or of its stream, or its bytes. If what is inside fails, they are closed.

    They come from generators within generators, of which `aclosing` closes only the outermost, and trio warns of the
    others. All of them end where the next event is asked for after the response is closed.
    """
    try:
        yield events
    except BaseException:
        with move_on_after(CLOSE_TIME, shield=True), suppress(Exception):  # the response is closed
            await response.close()
            async for _ in events:
                pass
        raise


@asynccontextmanager
async def showing(
    request: SamplingRequest, on_delta: OnDelta | None, *, progress: bool, filters: Sequence[Pieces]
) -> AsyncIterator[Shown]:
    """Show the text of an answer to *on_delta*, and with *progress* to the server. It goes through the *filters*.

    Leaving it waits until the server has the whole text, at most `REPORT_TIME`; not if the answer fails.
    """
    reports = _Progress(request) if progress and request.reporter is not None else None
    async with nullcontext() if reports is None else reports.running():
        yield Shown(request, on_delta, reports, filters)


class Shown:
    """Gives the text of an answer to *on_delta* and to the server as it comes."""

    def __init__(
        self, request: SamplingRequest, on_delta: OnDelta | None, progress: _Progress | None, filters: Sequence[Pieces]
    ) -> None:
        self._request = request
        self._on_delta = on_delta
        self._progress = progress
        self._filters: Sequence[Pieces] = (ReadablePieces(), *filters)
        self._given: list[str] = []

    def add(self, text: str) -> None:
        """Add what a stream adds to the text. Its end may wait for more."""
        if not isinstance(text, str):
            raise TypeError("the stream has something else in the place of a text")
        for each in self._filters:
            text = each.add(text)
        self._give(text)

    def complete(self, answer: CreateMessageResult) -> None:
        """Give the rest of the text that an answer has: what waits, and what comes in another order in a stream."""
        text = "".join([block.text for block in answer.content if isinstance(block, TextContent)])
        given = "".join(self._given)
        if text.startswith(given):  # as of all streams that are not broken
            self._give(text[len(given) :])

    def _give(self, text: str) -> None:
        if not text:
            return
        self._given.append(text)
        if self._on_delta is not None:
            try:
                self._on_delta(Delta(text, self._request))
            except Exception:
                logger.exception("on_delta failed; it is not called again for this answer")
                self._on_delta = None
        if self._progress is not None:
            self._progress.add(text)


class _Progress:
    """Reports the text of an answer to the server as it comes. The stream never waits: texts that come meanwhile are one report."""

    def __init__(self, request: SamplingRequest) -> None:
        self._request = request
        self._parts: list[str] = []
        self._more = Event()
        self._is_complete = False
        self._ended = Event()

    def add(self, text: str) -> None:
        self._parts.append(text)
        self._more.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Report what is added inside. Leaving it waits for the last report, unless something is raised inside."""
        try:
            async with HandlerTasks.open() as tasks:
                tasks.start(self._run)
                yield
                self._is_complete = True
                self._more.set()
                with move_on_after(REPORT_TIME) as waiting:
                    await self._ended.wait()
                if waiting.cancelled_caught:
                    logger.warning("the server does not take the progress of an answer in time; it lacks the end")
        except ExceptionGroup as group:
            reraise(first(group))

    async def _run(self) -> None:
        characters = 0
        try:
            while self._parts or not self._is_complete:
                await self._more.wait()
                self._more = Event()
                text = "".join(self._parts)
                self._parts.clear()
                characters += len(text)
                if text:
                    await self._request.report_progress(characters, message=text)
        except Exception:
            logger.exception("progress of an answer cannot be reported")
        self._ended.set()


class Heard:
    """What has come of a stream. Its size is bounded, and other tasks run while a reader has many events at once."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._characters = 0
        self._events = 0

    @property
    def has_begun(self) -> bool:
        """Whether there was an event."""
        return self._events > 0

    async def add(self, event: JSONObject) -> None:
        self._events += 1
        self._characters += len(str(event))
        if self._characters > MAX_CHARACTERS:
            raise ProviderError(self._provider, f"the stream has more than {MAX_CHARACTERS:,} characters")
        if self._events % EVENTS_AT_ONCE == 0:
            await checkpoint()
