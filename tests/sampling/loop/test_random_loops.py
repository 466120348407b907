"""Random loops: whatever models, tools and approvers do, each ends in its bounds and leaves nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
import trio
from anyio import CancelScope, current_time, sleep, sleep_forever
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_host import Allow, Client, Deny, LoopResult, ProposedCall, SamplingRequest, run_tool_loop
from mcp_host.functions import FunctionTool
from mcp_host.protocol import conversation
from mcp_host.sampling import Step
from mcp_host.testing import Server, ToolError
from mcp_host.types import CreateMessageResult, SamplingMessage, TextContent, ToolUseContent, UserMessage
from tests.clock import with_fake_clock
from tests.extent import THOROUGH

QUESTION = UserMessage("hello")
TIMEOUT, TOOL_TIMEOUT = 100.0, 30.0  # seconds of a clock that jumps
NEVER = 1_000_000.0

NAMES = ("quick", "slow", "late", "hang", "fail", "crash", "much", "picky")


class HostFailed(Exception):
    """What a model and an approver may raise."""


@dataclass(frozen=True)
class Call:
    name: str
    id: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """One answer of the model, after some seconds."""

    seconds: float
    content: list[str | Call]
    stop_reason: str | None


@dataclass(frozen=True)
class Plan:
    era: str
    answers: list[Answer]
    model_fails_in: int | None
    """The turn in which it raises."""
    max_turns: int
    choice: str | None
    approvals: list[tuple[float, Allow | Deny | None]]
    """After so many seconds; None for an exception."""
    turn_seconds: float
    cancelled_after: float


# The values that let a loop go on are named more often, so that most loops have several steps.
CALLS = st.builds(
    Call,
    name=st.sampled_from([*[f"my_{name}" for name in NAMES], *NAMES, "quick", "much", "slow", "unknown", ""]),
    id=st.sampled_from(["1", "2", "3", ""]),
    arguments=st.sampled_from([{}, {}, {}, {"n": 1}, {"n": "one"}]),
)
ANSWERS = st.builds(
    Answer,
    seconds=st.sampled_from([0.0] * 8 + [5.0, 1000.0]),
    content=st.lists(CALLS | CALLS | CALLS | st.sampled_from(["words", ""]), min_size=1, max_size=5),
    stop_reason=st.sampled_from(["toolUse"] * 6 + ["endTurn", None, "maxTokens", "refusal"]),
)
DECISIONS = st.sampled_from([Allow(), Allow(), Allow(), Allow("session"), Deny("no"), Deny("no"), None])
PLANS = st.builds(
    Plan,
    era=st.sampled_from(["2025-11-25", "2026-07-28"]),
    answers=st.lists(ANSWERS, min_size=1, max_size=6),
    model_fails_in=st.sampled_from([None] * 6 + [1, 2, 4]),
    max_turns=st.sampled_from([6, 5, 4, 3, 2, 1]),
    choice=st.sampled_from([None, None, "required", "quick", "none"]),
    approvals=st.lists(st.tuples(st.sampled_from([0.0, 0.0, 3.0, 200.0]), DECISIONS), max_size=4),
    turn_seconds=st.sampled_from([0.0, 0.0, 7.0]),
    cancelled_after=st.sampled_from([NEVER] * 8 + [60.0, 31.0, 6.0, 1.0, 0.0]),
)


@dataclass
class World:
    """What the model, the tools and the approver of one plan do, and what they see."""

    plan: Plan
    running: int = 0
    requests: list[SamplingRequest] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    failed: bool = False
    """Whether the model or the approver raised."""
    approvals: int = 0
    paused: float = 0.0
    """Seconds of waiting for approvals."""

    async def model(self, request: SamplingRequest) -> CreateMessageResult:
        conversation.check(request.messages)
        conversation.check_tools(request.tools, request.tool_choice)
        index = len(self.requests)
        self.requests.append(request)
        answer = self.plan.answers[index] if index < len(self.plan.answers) else Answer(0, ["done"], None)
        with self.runs():
            await sleep(answer.seconds)
        if len(self.requests) == self.plan.model_fails_in:
            self.failed = True
            raise HostFailed
        blocks = [
            TextContent(text=part)
            if isinstance(part, str)
            else ToolUseContent(id=part.id, name=part.name, input=part.arguments)
            for part in answer.content
        ]
        return CreateMessageResult(content=blocks, model="m", stop_reason=answer.stop_reason)

    async def approve(self, call: ProposedCall) -> Allow | Deny:
        seconds, decision = self.plan.approvals[self.approvals % len(self.plan.approvals)]
        self.approvals += 1
        began = current_time()
        try:
            with self.runs():
                await sleep(seconds)
        finally:
            self.paused += current_time() - began
        if decision is None:
            self.failed = True
            raise HostFailed
        return decision

    async def on_turn(self, step: Step) -> None:
        self.steps.append(step)
        await sleep(self.plan.turn_seconds)

    @contextmanager
    def runs(self) -> Iterator[None]:
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1


WORLD: ContextVar[World] = ContextVar("WORLD")


def tool(name: str, seconds: float, text: str, error: Exception | None = None) -> Callable[[], Awaitable[str]]:
    async def run() -> str:
        with WORLD.get().runs():
            await (sleep_forever() if seconds == NEVER else sleep(seconds))
            if error is not None:
                raise error
            return text

    run.__name__ = name
    return run


async def picky(n: int) -> str:
    return "n" * n


TOOLS = (
    tool("quick", 0, "ok"),
    tool("slow", 5, "ok"),
    tool("late", 50, "ok"),
    tool("hang", NEVER, "ok"),
    tool("fail", 0, "", ToolError("no")),
    tool("crash", 0, "", ValueError("a bug")),
    tool("much", 0, "x" * 5000),
    picky,
)
FUNCTIONS = [FunctionTool(function, name=f"my_{function.__name__}") for function in TOOLS]
SERVER = Server("random")
for function in TOOLS:
    SERVER.tool(function)


def tasks() -> int:
    """Those that run, without timers."""
    if not trio.lowlevel.in_trio_run():
        return len(asyncio.all_tasks())
    root = trio.lowlevel.current_root_task()
    assert root is not None
    found = [root]
    for task in found:
        found += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    return len([task for task in found if not task.name.endswith(".ring")])


async def run(plan: Plan) -> None:
    world = World(plan)
    WORLD.set(world)
    done: LoopResult | None = None
    async with Client(SERVER, era=plan.era) as client:
        await client.list_tools()
        await sleep(1)  # until all else waits
        before, began = tasks(), current_time()
        with CancelScope(deadline=began + plan.cancelled_after) as scope:
            try:
                done = await run_tool_loop(
                    world.model,
                    "hello",
                    tools=[client, *FUNCTIONS],
                    tool_choice=plan.choice,
                    approve=world.approve if plan.approvals else None,
                    max_turns=plan.max_turns,
                    timeout=TIMEOUT,
                    tool_timeout=TOOL_TIMEOUT,
                    max_result_bytes=1000,
                    on_turn=world.on_turn,
                )
            except HostFailed:
                assert world.failed
        seconds = current_time() - began
        await sleep(1)  # a server that was told that its call is cancelled has ended it

        assert (world.running, tasks()) == (0, before)
    assert len(world.requests) <= plan.max_turns
    assert seconds <= min(TIMEOUT + world.paused, plan.cancelled_after) + 0.001
    forbidden = [request.tool_choice is not None and request.tool_choice.mode == "none" for request in world.requests]
    assert forbidden == [plan.choice == "none" or turn == plan.max_turns for turn in range(1, len(forbidden) + 1)]
    assert not any(step.calls for step, forbids in zip(world.steps, forbidden, strict=False) if forbids)
    if done is not None:
        assert done.ended != "timeout" or seconds >= TIMEOUT + world.paused - 0.001
    assert_consistent(world, done, cancelled=scope.cancelled_caught)


def assert_consistent(world: World, done: LoopResult | None, *, cancelled: bool) -> None:
    messages: list[SamplingMessage] = [QUESTION]
    for step in world.steps:
        messages += step.messages
        conversation.check(messages)
        assert [call.use for call in step.calls] == step.answer.tool_uses
        assert all(call.seconds <= TOOL_TIMEOUT for call in step.calls)
    if done is None:
        assert cancelled or world.failed
        return
    assert not cancelled
    if done.unfinished is not None:
        messages += done.unfinished.messages
        conversation.check(messages)
    assert (done.messages, list(done.steps)) == (messages, world.steps)
    assert (done.answer is None) == (done.ended == "timeout")
    assert done.unfinished is None or done.ended == "timeout"
    assert done.ended != "tool_calls"
    assert done.ended != "max_turns" or len(world.requests) == world.plan.max_turns


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_any_loop_ends_in_its_bounds_and_leaves_nothing_behind(backend: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL")  # thousands of lines
    name, options = with_fake_clock(backend)

    @settings(max_examples=500 if THOROUGH else 50)
    @given(plan=PLANS)
    def check(plan: Plan) -> None:
        anyio.run(run, plan, backend=name, backend_options=options)

    check()
