"""Answers, cancellations, questions, progress, silence and closings in any order: no call hangs, and nothing is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

import anyio
import pytest
from anyio import BrokenResourceError, CancelScope, ClosedResourceError, Event, create_task_group, fail_after
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from mcp_host import Client, Limits, Sampling, SamplingRequest, always
from mcp_host.errors import McpError
from mcp_host.testing import ScriptedPeer
from mcp_host.types import CreateMessageResult, ProgressNotificationParams
from tests.client.support import EMPTY, HANDSHAKE, QUESTION, STATELESS, Era
from tests.extent import THOROUGH
from tests.faults.fault import leaving_nothing

BOUND = 10_000.0  # seconds for one script, most of which are put forward
LIMITS = Limits(connect_timeout=30, idle_timeout=20, timeout=100, close_timeout=5)
CALLS = 3
TURNS = 30  # of the event loop: more than any message takes to have all of its consequences
ROUND = {"resultType": "input_required", "requestState": "s"}
ASKING = {**ROUND, "inputRequests": {"q": {"method": "sampling/createMessage", "params": QUESTION}}}

ANSWERS: dict[str, dict[str, Any]] = {
    "result": {"result": EMPTY},
    "error": {"error": {"code": -1, "message": "no"}},
    "nonsense": {"result": 5},
    "a question": {"result": ASKING},
    "come again": {"result": ROUND},
}

Op: TypeAlias = tuple[str, int, str, bool]
"""What happens, to which call, in which way, and whether everybody then comes to rest before anything else does."""

OURS = [*["call"] * 5, "cancel", "think", "wait", "wait", "close", "connect"]
THEIRS = [*["answer"] * 5, "progress", "ask", "ask", "withdraw", "ping", "hang up"]

ops = st.tuples(
    st.sampled_from([*OURS, *THEIRS]), st.integers(0, CALLS - 1), st.sampled_from(sorted(ANSWERS)), st.booleans()
)


class RealTimeAndMore(asyncio.SelectorEventLoop):
    """An event loop whose clock can be put forward."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead

    def jump(self, seconds: float) -> None:
        self.ahead += seconds


class Play:
    """One client, its server, and what both do to each other."""

    def __init__(self, era: Era, lazy: bool, jump: Callable[[float], None], tasks: TaskGroup) -> None:
        self.outcomes: list[str] = []
        self.begun = 0
        self.thinking = 0
        self._lazy = lazy
        self._jump = jump
        self._tasks = tasks
        self._thought = Event()
        self._scopes: dict[int, CancelScope] = {}
        self._received: dict[int, dict[str, Any]] = {}

        async def script(peer: ScriptedPeer) -> None:
            await era.open(peer)
            while True:
                call = await peer.receive("tools/call")
                self._received[int(call["params"]["name"])] = call

        self.peer = ScriptedPeer(script)
        sampling = Sampling(with_tools=self._think, approve=always)
        self.client = Client(self.peer, sampling=sampling, limits=LIMITS, lazy=lazy)

    async def open(self) -> None:
        """Begin with a connection, or with a lazy client that has none any more."""
        await self.client.connect()
        if self._lazy:
            await self.client.aclose()
            await self.client.__aenter__()

    async def _think(self, request: SamplingRequest) -> CreateMessageResult:
        self.thinking += 1
        try:
            await self._thought.wait()
            return request.reply("Paris")
        finally:
            self.thinking -= 1

    async def do(self, what: str, number: int, how: str) -> None:
        if what in OURS:
            self._act(what, number)
        else:
            await self._say_what(what, number, how)

    def _act(self, what: str, number: int) -> None:
        match what:
            case "call":
                self._start(partial(self._call, number))
            case "cancel" if number in self._scopes:
                self._scopes[number].cancel()
            case "think":
                self._thought.set()
                self._thought = Event()
            case "wait":
                self._jump(LIMITS.timeout * 0.6)
            case "close":
                self._start(self.client.aclose)
            case "connect":
                self._start(self.client.connect)

    async def _say_what(self, what: str, number: int, how: str) -> None:
        id = self._received.get(number, {"id": "none"})["id"]
        match what:
            case "answer":
                await self._say({"id": id, **ANSWERS[how]})
            case "progress":
                await self._notify("progress", progressToken=id, progress=1)
            case "ask":
                await self._say({"id": f"q{number}", "method": "sampling/createMessage", "params": QUESTION})
            case "withdraw":
                await self._notify("cancelled", requestId=f"q{number}")
            case "ping":
                await self._say({"id": "p", "method": "ping"})
            case "hang up":
                await self.peer.aclose()

    async def _notify(self, what: str, **params: object) -> None:
        await self._say({"method": f"notifications/{what}", "params": params})

    async def _say(self, message: dict[str, Any]) -> None:
        with suppress(ClosedResourceError, BrokenResourceError):  # the client has gone
            await self.peer.send({"jsonrpc": "2.0", **message})

    def _start(self, work: Callable[[], Awaitable[object]]) -> None:
        self.begun += 1
        self._tasks.start_soon(self._note, work)

    async def _note(self, work: Callable[[], Awaitable[object]]) -> None:
        """What was begun ends with a result, an error of ours, or the cancellation that it was given."""
        try:
            await work()
        except McpError as exc:
            self.outcomes.append(type(exc).__name__)
        else:
            self.outcomes.append("done")

    async def _call(self, number: int) -> None:
        async def heed(report: ProgressNotificationParams) -> None:
            await checkpoint()

        with CancelScope() as scope:
            self._scopes[number] = scope
            await self.client.call_tool(str(number), on_progress=heed)


async def rest() -> None:
    """Let everybody go on until there is nothing to go on with."""
    for _ in range(TURNS):
        await checkpoint()


async def play(era: Era, lazy: bool, script: list[Op], jump: Callable[[float], None]) -> list[str]:
    """Run *script*, then close. What became of all that was begun."""
    async with leaving_nothing():
        with fail_after(BOUND):
            async with create_task_group() as tasks:
                acting = Play(era, lazy, jump, tasks)
                await acting.open()
                for what, number, how, resting in script:
                    await acting.do(what, number, how)
                    if resting:
                        await rest()
                await acting.client.aclose()
                await rest()
                await acting.client.aclose()  # once more, for who connected meanwhile
                await rest()
                assert len(acting.outcomes) == acting.begun
                assert acting.thinking == 0
                assert not acting.client.connected
    return acting.outcomes


def run(backend: str, era: Era, lazy: bool, script: list[Op]) -> list[str]:
    if backend == "trio":
        clock = MockClock(rate=1.0)
        return anyio.run(play, era, lazy, script, clock.jump, backend="trio", backend_options={"clock": clock})
    loop = RealTimeAndMore()
    return anyio.run(play, era, lazy, script, loop.jump, backend_options={"loop_factory": lambda: loop})


@pytest.mark.parametrize("era", [HANDSHAKE, STATELESS], ids=lambda era: era.version)
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("lazy", [False, True], ids=["", "lazy"])
@given(script=st.lists(ops, min_size=8, max_size=40))
@settings(
    max_examples=1000 if THOROUGH else 20,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)
def test_everything_that_begins_ends_in_any_order_of_events(
    backend: str, era: Era, lazy: bool, script: list[Op]
) -> None:
    run(backend, era, lazy, script)
