"""A function that needs input from the client, where a server sends no requests (since revision 2026-07-28).

"Servers request additional information [...] by returning an `InputRequiredResult`", and the client retries the
request with the answers (basic/patterns/mrtr). So the function runs again from its start in each round. The answers
so far, which it then gets at once, travel in the `requestState`: no process has to remember them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Self, TypeAlias, TypeVar

from anyio import CancelScope, Event, get_cancelled_exc_class, get_current_task, move_on_after
from anyio.lowlevel import checkpoint

from mcp_host.errors import McpError
from mcp_host.protocol.jsonrpc import Params

T = TypeVar("T")
Key: TypeAlias = str
"""What was asked or done, and where: see `Replay._key`."""

VERSION = 2  # of the state
MAX_STATE = 2**20  # characters: the client sends all of it back with each round
QUIET_PASSES = 16  # passes of the event loop: what the function asks until then goes into the same round
PATIENCE = 30.0  # seconds: clients mostly wait for 60


class ReplayError(McpError):
    """The function cannot be run again: it asked something else than before, or the state is too large or not ours."""


@dataclass(frozen=True, slots=True)
class Questions:
    """What the client has to answer, each under its key, and the *state* that its retry has to carry."""

    requests: dict[str, Params]
    state: str


@dataclass(eq=False, slots=True)
class _Span:
    """A running function whose value will be recorded. It is *settled* if it has ended or waits for the client."""

    what: str
    path: str
    outer: _Span | None
    settled: Event = field(default_factory=Event)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the present task is: after what was recorded under *key*, inside of *span*."""

    key: Key
    span: _Span | None

    @property
    def path(self) -> str:
        return "" if self.span is None else self.span.path


# So parallel tasks, and what they run, are told apart by what each of them had before.
_PLACE: ContextVar[_Place] = ContextVar("_PLACE")


class Replay:
    """One round. *recorded* is what the rounds before brought, as (path of the span, key, value).

    The answers to the *fresh* questions come last in it. *patience* is how many seconds a round that has questions
    waits for running functions whose values will be recorded.
    """

    def __init__(
        self,
        recorded: Sequence[tuple[str, Key, Any]] = (),
        fresh: Sequence[Key] = (),
        *,
        patience: float = PATIENCE,
    ) -> None:
        self._recorded = list(recorded)
        self._fresh = fresh
        self._patience = patience
        self._values = {key: value for _, key, value in recorded}
        self._used: set[Key] = set()
        self._numbers: Counter[str] = Counter()
        self._tasks: dict[str, int] = {}
        self._running: list[_Span] = []
        self._open: dict[str, tuple[str, Key, Params]] = {}
        self._error: ReplayError | None = None

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
            recorded = [(str(path), str(key), value) for path, key, value in read["recorded"]]
            asked = {str(name): (str(path), str(key)) for name, (path, key) in read["asked"].items()}
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as exc:
            raise ReplayError("the requestState is not one that this tool has written") from exc
        answered = {name: asked[name] for name in asked if name in answers}
        recorded += [(path, key, answers[name]) for name, (path, key) in answered.items()]
        return cls(recorded, [key for _, key in answered.values()])

    async def run(self, function: Callable[[], Awaitable[T]]) -> T | Questions:
        """Run *function* to its end, or until it cannot go on without the client. It is then cancelled.

        Raises:
            ReplayError: It asked none of the questions again that the client has just answered, the answers
                are too many for a state, a function beside a question did not end, or tasks cannot be told apart.
        """
        self._task = get_current_task().id
        token = _PLACE.set(_Place("", None))
        try:
            with CancelScope() as self._round:
                outcome = await function()
                if self._error is None:
                    return outcome
        finally:
            _PLACE.reset(token)
        if self._error is not None:
            raise self._error
        if self._fresh and self._used.isdisjoint(self._fresh):
            raise ReplayError(
                "this tool runs again from its start for each answer of the client, and asked something else this time:"
                " what it asks may depend only on its arguments, on earlier answers, and on what `once` returned"
            )
        asked = {name: (path, key) for name, (path, key, _) in self._open.items()}
        state = _compact({"version": VERSION, "recorded": self._recorded, "asked": asked})
        if len(state) > MAX_STATE:
            raise ReplayError(f"the answers so far take {len(state):,} characters: too many for a requestState")
        return Questions({name: params for name, (_, _, params) in self._open.items()}, state)

    async def create_message(self, params: Params) -> Params:
        """Return the recorded answer, or end this round.

        Equal questions are told apart by what their task had before, and then by their order.
        """
        key = self._key("sampling", params)
        if key in self._values:
            answer: Params = self._take(key)
            await checkpoint()  # other tasks run, as if this had been a request
            return answer
        place = _PLACE.get()
        self._open[f"sampling-{len(self._values) + len(self._open) + 1}"] = place.path, key, params
        span = place.span
        while span is not None:
            span.settled.set()
            span = span.outer
        with move_on_after(self._patience) as waiting:
            await self._others_settle()
        if waiting.cancelled_caught:
            self._error = ReplayError(
                f"{self._busy()} did not end in {self._patience:g} s beside a question, and must not run twice:"
                " do not let it wait for another task that asks, and do what takes longer before the question"
            )
        self._round.cancel()
        await checkpoint()  # raises, unless the scope does not reach this task
        task = get_current_task()
        if task.parent_id is None and task.id != self._task:  # made by asyncio, not by a task group of anyio
            raise get_cancelled_exc_class()
        raise ReplayError("a question cannot be asked inside of a shield")

    async def once(self, what: str, function: Callable[[], Awaitable[Any]]) -> Any:
        """Return the JSON value recorded for this call, or call *function* and record what it returns.

        Calls of the same *what* are told apart as equal questions are. What was recorded inside of *function* is
        dropped when it ends. If it raises, only what it asked is recorded: it is called again in the next round.
        """
        key = self._key("once", what)
        if key in self._values:
            value = self._take(key)
            await checkpoint()
            return value
        outer = _PLACE.get()
        span = _Span(what, f"{outer.path}/{key}", outer.span)
        self._running.append(span)
        token = _PLACE.set(_Place(key, span))
        try:
            written = _compact(await function())
        finally:
            _PLACE.reset(token)
            self._running.remove(span)
            span.settled.set()
        self._recorded = [each for each in self._recorded if not each[0].startswith(span.path)]
        self._recorded.append((outer.path, key, json.loads(written)))
        _PLACE.set(_Place(key, outer.span))
        return json.loads(written)  # a copy: the function may change it

    def _key(self, kind: str, content: object) -> Key:
        """The key of what the present task does now. What is the same in all of this is numbered."""
        place = _PLACE.get()
        digest = _digest([place.path, place.key, kind, content])
        self._numbers[digest] += 1
        task = get_current_task().id
        if self._tasks.setdefault(digest, task) != task and get_cancelled_exc_class().__module__.startswith("trio"):
            self._round.cancel()
            self._error = ReplayError(
                "two tasks do the same at the same time: trio runs tasks in any order, so they cannot be told apart"
                " when this tool runs again. Let them ask for different things, or give `once` different names"
            )
            raise self._error
        return f"{digest}-{self._numbers[digest]}"

    def _take(self, key: Key) -> Any:
        self._used.add(key)
        _PLACE.set(_Place(key, _PLACE.get().span))
        return json.loads(_compact(self._values[key]))  # a copy: the function may change it

    def _busy(self) -> str | None:
        return next((span.what for span in self._running if not span.settled.is_set()), None)

    async def _others_settle(self) -> None:
        while True:
            for _ in range(QUIET_PASSES):
                await checkpoint()
            busy = [span for span in self._running if not span.settled.is_set()]
            if not busy:
                return
            for span in busy:
                await span.settled.wait()


def _digest(value: object) -> str:
    return sha256(_compact(value, sort_keys=True).encode()).hexdigest()[:32]


def _compact(value: object, *, sort_keys: bool = False) -> str:
    """JSON in ASCII, so that lone surrogates pass."""
    return json.dumps(value, sort_keys=sort_keys, separators=(",", ":"), allow_nan=False)
