"""A model of a provider, without an SDK: it streams what a test scripts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count
from threading import Event
from typing import Any, TypeAlias

from anyio import sleep_forever
from anyio.lowlevel import checkpoint

from mcp_host.errors import ProviderError, SamplingError
from mcp_host.providers.exchange.streams import Delta, OnDelta
from mcp_host.sampling import SamplingRequest, ToolCall
from mcp_host.sampling.request import ModelAnswer
from mcp_host.types import CreateMessageResult, TextContent, ToolResultContent, ToolUseContent

MODEL = "scripted:parrot"
WITH_MODEL = ("--model", MODEL)

Show: TypeAlias = Callable[[str], object]
Turn: TypeAlias = Callable[[SamplingRequest, Show], Awaitable[CreateMessageResult]]
"""Answers a request, and shows the text of the answer piece by piece."""

ids = map("call-{}".format, count())


def says(text: str = "", *calls: ToolCall, stop_reason: str | None = None) -> Turn:
    async def answer(request: SamplingRequest, show: Show) -> CreateMessageResult:
        for piece in text.partition(" "):
            await checkpoint()
            show(piece)
        content = [TextContent(text=text)] if text else []
        uses = [ToolUseContent(id=next(ids), name=call.name, input=dict(call.arguments)) for call in calls]
        reason = stop_reason or ("toolUse" if calls else "endTurn")
        usage = {"inputTokens": 11, "outputTokens": 7}
        return ModelAnswer(content=[*content, *uses], model="parrot", stop_reason=reason, usage=usage)

    return answer


def stalls(text: str = "", *, reached: Event | None = None) -> Turn:
    """After *text* nothing comes any more; *reached* is set then."""

    async def answer(request: SamplingRequest, show: Show) -> CreateMessageResult:
        show(text)
        if reached is not None:
            reached.set()
        await sleep_forever()
        raise AssertionError("unreachable")

    return answer


def refused(status: int, said: str = "", *, retry_after: float | None = None) -> Turn:
    """The provider answers with this HTTP status, and has *said* why."""
    error = ProviderError("scripted", "Error", status=status, retry_after=retry_after, original=RuntimeError(said))
    return fails(error)


def fails(error: Exception, *, after: str = "") -> Turn:
    async def answer(request: SamplingRequest, show: Show) -> CreateMessageResult:
        show(after)
        raise error

    return answer


class Provider:
    """Its model takes a turn for each request, and *requests* has them. *api_key* is the one that it was given."""

    def __init__(self) -> None:
        self.requests: list[SamplingRequest] = []
        self.api_key: str | None = None
        self._turns: list[Turn] = []

    def say(self, *turns: Turn) -> None:
        self._turns += turns

    def model(
        self, name: str, *, retry: bool, api_key: str | None, on_delta: OnDelta = lambda delta: None
    ) -> Callable[[SamplingRequest], Awaitable[CreateMessageResult]]:
        """Takes the place of `mcp_host.providers.model`."""
        assert (name, retry) == (MODEL, False)
        self.api_key = api_key

        async def answer(request: SamplingRequest) -> CreateMessageResult:
            self.requests.append(request)
            if not self._turns:
                raise SamplingError("the script has no further turn")
            return await self._turns.pop(0)(request, lambda text: on_delta(Delta(text, request)))

        return answer


def conversation(request: SamplingRequest) -> list[tuple[str, list[Any]]]:
    """Roles and texts, calls and results of a request."""
    return [(message.role, list(map(_block, message.content))) for message in request.messages]


def _block(block: object) -> object:
    match block:
        case TextContent(text=text):
            return text
        case ToolUseContent(name=name, input=arguments):
            return name, arguments
        case ToolResultContent(text=text):
            return [text]
    return block
