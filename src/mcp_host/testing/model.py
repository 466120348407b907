"""A model that answers from a script."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from mcp_host.errors import SamplingError
from mcp_host.sampling import SamplingRequest, ToolCall
from mcp_host.types import CreateMessageResult

Turn: TypeAlias = str | ToolCall | Sequence[ToolCall] | CreateMessageResult
"""One answer: a text, a tool call, several at once, or the whole result."""

ScriptedTurn: TypeAlias = Turn | Callable[[SamplingRequest], Turn | Awaitable[Turn]]
"""An answer, or a function of the request that gives one."""


class ScriptedModel:
    """A sampling handler that returns the scripted answers in order, and records the requests.

    >>> model = ScriptedModel(ToolCall("add", {"a": 1, "b": 2}), "The sum is 3.")
    >>> sampling = Sampling(with_tools=model, approve=always)

    A turn may be a function of the request, plain or async: to compute an answer, to
    assert something, to raise, or to wait.
    """

    def __init__(self, *turns: ScriptedTurn, name: str = "scripted") -> None:
        self._turns = turns
        self._name = name
        self.requests: list[SamplingRequest] = []
        """Every request so far, in order, including those past the end of the script."""

    @property
    def remaining(self) -> int:
        """The number of turns that have not been used."""
        return max(0, len(self._turns) - len(self.requests))

    async def __call__(self, request: SamplingRequest) -> CreateMessageResult:
        """Answer with the next turn.

        Raises:
            SamplingError: There is none left.
        """
        index = len(self.requests)
        self.requests.append(request)
        if index >= len(self._turns):
            raise SamplingError(f"the script has {len(self._turns)} turns, and this is request {index + 1}")
        turn = self._turns[index]
        if callable(turn):
            made = turn(request)
            turn = await made if inspect.isawaitable(made) else made
        return self._write(turn, request)

    def _write(self, turn: Turn, request: SamplingRequest) -> CreateMessageResult:
        match turn:
            case CreateMessageResult():
                return turn
            case str():
                return request.reply(turn, model=self._name)
            case ToolCall():
                return request.calls(turn, model=self._name)
            case _:
                return request.calls(*turn, model=self._name)
