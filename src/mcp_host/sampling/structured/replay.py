"""A function that needs input from the client, where a server sends no requests (since revision 2026-07-28).

"Servers request additional information [...] by returning an `InputRequiredResult`", and the client retries the
request with the answers (basic/patterns/mrtr). So the function runs again from its start in each round. The answers
so far, which it then gets at once, travel in the `requestState`: no process has to remember them.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Self, TypeAlias, TypeVar

from anyio import CancelScope, get_cancelled_exc_class, get_current_task
from anyio.lowlevel import checkpoint

from mcp_host.errors import McpError
from mcp_host.protocol.jsonrpc import Params

T = TypeVar("T")
Key: TypeAlias = str
"""What was asked: equal for equal parameters."""

VERSION = 1  # of the state
MAX_STATE = 2**20  # characters: the client sends all of it back with each round
QUIET_PASSES = 16  # passes of the event loop: what the function asks until then goes into the same round


class ReplayError(McpError):
    """The function cannot be run again: it asked something else than before, or the state is too large or not ours."""


@dataclass(frozen=True, slots=True)
class Questions:
    """What the client has to answer, each under its key, and the *state* that its retry has to carry."""

    requests: dict[str, Params]
    state: str


class Replay:
    """One round. *recorded* is what the rounds before brought; the answers to the *fresh* questions come last in it."""

    def __init__(self, recorded: Sequence[tuple[Key, Any]] = (), fresh: Sequence[Key] = ()) -> None:
        self._recorded = list(recorded)
        self._fresh = fresh
        self._unused: defaultdict[Key, deque[Any]] = defaultdict(deque)
        for key, value in recorded:
            self._unused[key].append(value)
        self._open: dict[str, tuple[Key, Params]] = {}

    @classmethod
    def read(cls, state: str | None, answers: Mapping[str, Params]) -> Self:
        """Read what the client sent. An answer to a question that the state does not name is ignored.

        Raises:
            ReplayError: The state was not written by `run`.
        """
        if state is None:
            return cls()
        try:
            read = json.loads(state)
            if read["version"] != VERSION:
                raise ValueError(read["version"])
            recorded = [(str(key), value) for key, value in read["recorded"]]
            asked = {str(name): str(key) for name, key in read["asked"].items()}
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as exc:
            raise ReplayError("the requestState is not one that this tool has written") from exc
        answered = {name: key for name, key in asked.items() if name in answers}
        return cls([*recorded, *((key, answers[name]) for name, key in answered.items())], list(answered.values()))

    async def run(self, function: Callable[[], Awaitable[T]]) -> T | Questions:
        """Run *function* to its end, or until it cannot go on without the client. It is then cancelled.

        Raises:
            ReplayError: It asked none of the questions again that the client has just answered, or the answers
                are too many for a state.
        """
        self._task = get_current_task().id
        with CancelScope() as self._round:
            return await function()
        if self._fresh and all(len(self._unused[key]) >= self._fresh.count(key) for key in self._fresh):
            raise ReplayError(
                "this tool runs again from its start for each answer of the client, and asked something else this time:"
                " what it asks may depend only on its arguments, on earlier answers, and on what `once` returned"
            )
        asked = {name: key for name, (key, _) in self._open.items()}
        state = _compact({"version": VERSION, "recorded": self._recorded, "asked": asked})
        if len(state) > MAX_STATE:
            raise ReplayError(f"the answers so far take {len(state):,} characters: too many for a requestState")
        return Questions({name: params for name, (_, params) in self._open.items()}, state)

    async def create_message(self, params: Params) -> Params:
        """Return the recorded answer, or end this round. Questions with equal *params* get their answers in order."""
        key = f"sampling {_digest(params)}"
        if unused := self._unused[key]:
            answer: Params = unused.popleft()
            await checkpoint()  # other tasks run, as if this had been a request
            return answer
        self._open[f"sampling-{len(self._recorded) + len(self._open) + 1}"] = key, params
        for _ in range(QUIET_PASSES):
            await checkpoint()
        self._round.cancel()
        await checkpoint()  # raises, unless the scope does not reach this task
        task = get_current_task()
        if task.parent_id is None and task.id != self._task:  # made by asyncio, not by a task group of anyio
            raise get_cancelled_exc_class()
        raise ReplayError("a question cannot be asked inside of a shield")

    async def once(self, name: str, function: Callable[[], Awaitable[Any]]) -> Any:
        """Return the JSON value recorded under *name*, or call *function* and record what it returns."""
        key = f"once {name}"
        if unused := self._unused[key]:
            value = unused.popleft()
            await checkpoint()
            return value
        value = json.loads(_compact(await function()))
        self._recorded.append((key, value))
        return value


def _digest(params: Params) -> str:
    return sha256(_compact(params, sort_keys=True).encode()).hexdigest()[:32]


def _compact(value: object, *, sort_keys: bool = False) -> str:
    """JSON in ASCII, so that lone surrogates pass."""
    return json.dumps(value, sort_keys=sort_keys, separators=(",", ":"), allow_nan=False)
