"""The loop that servers and hosts share: ask a model, run the tools that it calls, and so on until it stops.

turn              what happens
================  ==================================================================================
each              the model is asked with the conversation so far
its answer calls  every call runs at once; the answer, and one message with all results in the order
                  of the calls, are appended
it calls none     the loop ends
the last          asked with ``toolChoice: none``, which forces an answer
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Literal, TypeAlias

from anyio import CancelScope, create_task_group, current_time, move_on_after

from mcp_host.concurrency.backends import cancellations
from mcp_host.concurrency.tasks import awaited, first, reraise
from mcp_host.errors import (
    CallDenied,
    ConnectionClosed,
    EndsLoop,
    HttpStatusError,
    InvalidToolOutput,
    McpError,
    McpTimeout,
    NotConnected,
    NotDeclared,
    ProtocolError,
    ServerError,
    UnusableCalls,
    excerpt,
    quoted,
)
from mcp_host.functions import BadArguments, FunctionTool, Injected, ToolError, error_result, text_result
from mcp_host.handlers import CountedWarnings, as_async, split_failure
from mcp_host.limits import check_count, check_seconds
from mcp_host.protocol.jsonrpc import snapshot
from mcp_host.sampling.arguments import lost_answer, no_such_tool, with_integer_arguments
from mcp_host.sampling.request import ModelAnswer
from mcp_host.sampling.stop_reasons import CUT_OFF, TRUNCATED
from mcp_host.types import (
    AssistantMessage,
    CallToolResult,
    CreateMessageRequestParams,
    CreateMessageResult,
    SamplingMessage,
    TextContent,
    ToolChoice,
    ToolResultContent,
    ToolUseContent,
    UserMessage,
)
from mcp_host.types.sampling import END_TURN, MAX_TOKENS, TOOL_USE, AssistantContentBlock

logger = logging.getLogger(__name__)

MAX_TURNS = 10
TIMEOUT = 300.0  # seconds for the whole loop
TOOL_TIMEOUT = 30.0  # seconds for one call of a tool
MAX_CALLS = 64  # in one answer; twice as many as `SamplingLimits` lets a model of ours make
MAY_HAVE_RUN = "it may have run"  # told to the model, which would otherwise do it twice

AskModel: TypeAlias = Callable[[CreateMessageRequestParams], Awaitable[CreateMessageResult]]
"""Asks the model once. What it raises ends the loop, but for `UnusableCalls`: the model is told, and asked again."""

RunTool: TypeAlias = Callable[[ToolUseContent], Awaitable[CallToolResult]]
"""Runs one call, in a time that it bounds itself. What it raises becomes a result for the model, see `_failure`."""

Permit: TypeAlias = Callable[[ToolUseContent], Awaitable[CallToolResult | None]]
"""Decides on one call: None lets it run, a result is given to the model instead. What it raises ends the loop.

The calls of one answer are decided on one after the other, in their order. Those that may run do so meanwhile.
"""

Ended: TypeAlias = Literal["answered", "max_turns", "max_tokens", "tool_calls", "timeout"]
"""Why a loop ended.

``answered``: the model answered without calling a tool. ``max_turns``: so it did, but in the last turn, where it had to.
``max_tokens``: its last answer is cut off; calls in it were not run. ``tool_calls``: it calls a tool that is not
run here. ``timeout``: the time was up.
"""


@dataclass(frozen=True, slots=True)
class FinishedCall:
    """A tool call with its whole result, which may be longer than what the model got.

    It ran for so many *seconds*, without the time for its approval.
    """

    use: ToolUseContent
    result: CallToolResult
    seconds: float


@dataclass(frozen=True, slots=True)
class Step:
    """One answer of the model, and its calls with their results.

    *messages* are what the step adds to the conversation: the answer, and the results if there are any. There are
    none if the answer is empty, or if it calls a tool that is not run here, because then its results are missing.

    *dropped* are calls that the model made in an answer that may have none: it was asked for without tools, as the last
    one is, or it is cut off. They were not run, and are no longer in *answer*.
    """

    answer: CreateMessageResult
    calls: tuple[FinishedCall, ...]
    messages: tuple[SamplingMessage, ...]
    dropped: tuple[ToolUseContent, ...] = ()


OnTurn: TypeAlias = Callable[[Step], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopResult:
    """How a loop ended, and what it did.

    *messages* is the conversation, from the first message on: every tool call in it has its result, so you can
    go on with it. *answer* is the answer that ended the loop, None after a timeout.

    *unfinished* is the step in which a timeout came, if a tool was running: its answer, and the calls that
    had finished. The others may have run, too, and their results in *messages* say so. It is not in *steps*.
    """

    ended: Ended
    answer: CreateMessageResult | None
    messages: list[SamplingMessage]
    steps: tuple[Step, ...]
    unfinished: Step | None = None

    @property
    def text(self) -> str:
        """The text of the answer; "" if there is none."""
        return "" if self.answer is None else self.answer.text

    @property
    def model(self) -> str | None:
        """The name of the model that gave the last answer."""
        return self.steps[-1].answer.model if self.steps else None

    @property
    def stop_reason(self) -> str | None:
        """Why the model stopped, in the answer."""
        return None if self.answer is None else self.answer.stop_reason

    @property
    def tool_uses(self) -> list[ToolUseContent]:
        """The calls that you have to run, if the loop ended with ``tool_calls``."""
        return [] if self.answer is None else self.answer.tool_uses

    @property
    def usage(self) -> dict[str, float] | None:
        """The sums over all answers that tell their usage, under the same names; None if none does.

        The adapters of models tell it (`ModelAnswer.usage`). The specification has no place for usage: clients that tell
        their servers write ``inputTokens`` and ``outputTokens`` as ``usage`` in the ``_meta`` of the answer.
        """
        steps = self.steps if self.unfinished is None else (*self.steps, self.unfinished)
        usages = [_usage(step.answer) for step in steps]
        total: dict[str, float] = {}
        for usage in usages:
            for name, number in usage.items() if isinstance(usage, Mapping) else ():
                if isinstance(number, int | float) and not isinstance(number, bool) and math.isfinite(number):
                    total[name] = total.get(name, 0) + number
        return total or None


def _usage(answer: CreateMessageResult) -> object:
    if isinstance(answer, ModelAnswer) and answer.usage is not None:
        return answer.usage
    return (answer.meta or {}).get("usage")


async def run_loop(
    ask: AskModel,
    params: CreateMessageRequestParams,
    *,
    tools: Mapping[str, RunTool],
    permit: Permit | None = None,
    write_result: Callable[[ToolUseContent, CallToolResult], ToolResultContent] = ToolResultContent.of,
    max_turns: int = MAX_TURNS,
    timeout: float = TIMEOUT,
    on_turn: OnTurn | None = None,
    warnings: CountedWarnings | None = None,
) -> LoopResult:
    """Ask the model until it stops, at most *max_turns* times, and run the tools that it calls.

    *params* are those of the first request: the conversation, the tools on offer, the tool choice. *tools* run
    them, by name. A call of a tool that is on offer, but not among these, ends the loop with ``tool_calls``; then
    no call of that answer is run. A call of any other tool gets a result that tells the model so.

    The *timeout* is in seconds, without the time in which *permit* decides. *write_result* makes what the
    model gets of a result; the steps have the whole. *on_turn* is awaited after each step. *warnings* counts
    the failures of tools, for the log; several loops may share it.

    The tool choice "required", or that of one tool, holds until the model has called one, or that one.

    Raises:
        SamplingError: The answer is not one that a model may give.
        Exception: The model, *permit*, *write_result* or *on_turn* raised it. *on_turn* has got every step before.
    """
    check_count("max_turns", max_turns)
    if not isinstance(max_turns, int):
        raise TypeError(f"max_turns must be a whole number, not {max_turns}")
    check_seconds("timeout", timeout, zero=False)
    loop = _Loop(params, tools, permit, write_result, CountedWarnings() if warnings is None else warnings)
    ended: Ended | None = None
    turn = 0
    with move_on_after(timeout) as loop.scope:
        while ended is None:
            turn += 1
            asked = loop.next_params(is_last=turn == max_turns)
            said, problems, lost = await _ask(ask, asked)
            answer = read_answer(said, asked)
            dropped = () if answer.tool_uses else tuple(said.tool_uses)
            ended = _ends(answer, asked, tools, is_last=turn == max_turns, is_lost=lost is not None)
            step = await loop.add(answer, run=ended is None, dropped=dropped, problems=problems, lost=lost)
            if on_turn is not None:
                await awaited(on_turn(step), "on_turn")
    last = None if ended is None else loop.steps[-1].answer
    unfinished = loop.end_unfinished()
    return LoopResult(
        ended=ended or "timeout",
        answer=last,
        messages=loop.messages,
        steps=tuple(loop.steps),
        unfinished=unfinished,
    )


def function_runner(tool: FunctionTool, injected: Injected | None = None, *, timeout: float = TOOL_TIMEOUT) -> RunTool:
    """Runs the calls of *tool*, for *timeout* seconds each. A plain function runs in a thread, which a timeout leaves behind."""
    tool = tool.calling(partial(as_async, argument="tools"))

    async def run(use: ToolUseContent) -> CallToolResult:
        with move_on_after(timeout):
            return await tool.call(use.input, injected)
        return text_result(f"{quoted(use.name)} did not finish within {timeout:g} seconds", is_error=True)

    return run


async def _ask(
    ask: AskModel, params: CreateMessageRequestParams
) -> tuple[CreateMessageResult, Mapping[str, str], SamplingMessage | None]:
    """The model's answer, what is wrong with its calls, by id, and what it is told if the provider kept its calls to itself."""
    try:
        return await awaited(ask(params), "the model"), {}, None
    except UnusableCalls as exc:
        return exc.answer, exc.problems, None if exc.problems else lost_answer(exc)


# Decisions


def read_answer(answer: CreateMessageResult, asked: CreateMessageRequestParams) -> CreateMessageResult:
    """The answer to *asked* as it goes into the conversation.

    Its calls have ids that the conversation does not have yet, integers where the tool takes no other number, and the
    stop reason ``toolUse``. Calls that the tool choice forbids are dropped, and so are those of an answer that is not
    complete.
    """
    content, stop_reason = answer.content, answer.stop_reason
    uses = answer.tool_uses
    if content and not uses:
        return answer
    why_not = _why_no_calls(asked, stop_reason)
    if uses and why_not is None:
        answer = with_integer_arguments(answer, asked.tools or ())
        content, stop_reason = _as_history(answer.content, asked.messages), TOOL_USE
    elif uses:
        dropped = excerpt(", ".join([quoted(use.name) for use in uses]))
        logger.warning("calls of %s are dropped: %s", dropped, why_not)
        content = [block for block in content if not isinstance(block, ToolUseContent)]
        if stop_reason not in CUT_OFF:
            stop_reason = END_TURN
        elif stop_reason in TRUNCATED:
            stop_reason = MAX_TOKENS
    content = content or [TextContent(text="")]  # a message has one block at least
    return answer.model_copy(update={"content": content, "stop_reason": stop_reason})


def _is_empty(answer: CreateMessageResult) -> bool:
    return all(isinstance(block, TextContent) and not block.text for block in answer.content)


def _why_no_calls(asked: CreateMessageRequestParams, stop_reason: str | None) -> str | None:
    """Why an answer to *asked* may have no tool calls; None if it may."""
    if not asked.tools:
        return "no tools are on offer"
    if asked.tool_choice is not None and asked.tool_choice.mode == "none":
        return "the tool choice is 'none'"
    return f"the answer stopped with {quoted(stop_reason)}" if stop_reason in CUT_OFF else None


def _as_history(
    content: Sequence[AssistantContentBlock], messages: Sequence[SamplingMessage]
) -> list[AssistantContentBlock]:
    used = {use.id for message in messages for use in message.tool_uses} | {""}
    fresh: list[AssistantContentBlock] = []
    for block in content:
        if isinstance(block, TextContent) and not block.text:
            continue  # no provider takes an empty text
        if isinstance(block, ToolUseContent):
            if block.id in used:
                # Not by chance: a loop that is run again has to ask the same, see `structured.replay`.
                fresh_id = next(id for n in count(len(used)) if (id := f"call_{n}") not in used)
                block = block.model_copy(update={"id": fresh_id})
            used.add(block.id)
        fresh.append(block)
    return fresh


def _ends(
    answer: CreateMessageResult,
    asked: CreateMessageRequestParams,
    tools: Mapping[str, RunTool],
    *,
    is_last: bool,
    is_lost: bool,
) -> Ended | None:
    """Why the loop ends with *answer*, if it does. One that *is_lost* is none."""
    if is_lost:
        return "max_turns" if is_last else None
    if uses := answer.tool_uses:
        offered = {tool.name for tool in asked.tools or ()}
        return "tool_calls" if any(use.name in offered and use.name not in tools for use in uses) else None
    if answer.stop_reason in TRUNCATED:
        return "max_tokens"
    return "max_turns" if is_last and asked.tools else "answered"


# The loop


@dataclass(slots=True)
class _Loop:
    """One running loop: the conversation so far, and the answer whose calls run now, with those that have finished."""

    params: CreateMessageRequestParams
    tools: Mapping[str, RunTool]
    permit: Permit | None
    write_result: Callable[[ToolUseContent, CallToolResult], ToolResultContent]
    warnings: CountedWarnings
    scope: CancelScope = field(init=False)
    messages: list[SamplingMessage] = field(init=False)
    steps: list[Step] = field(default_factory=list)
    _present: CreateMessageResult | None = None
    _finished: dict[int, FinishedCall] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.messages = list(self.params.messages)

    def next_params(self, *, is_last: bool) -> CreateMessageRequestParams:
        """What the model is asked next: the conversation so far, and the tools, because their calls are in it."""
        choice = self.params.tool_choice
        update: dict[str, object] = {"messages": self.messages.copy()}
        if self.params.tools and is_last:
            update["tool_choice"] = ToolChoice(mode="none")
        elif choice is not None and choice.mode == "required" and self._has_obeyed(choice):
            update["tool_choice"] = ToolChoice(mode="auto")
        return self.params.model_copy(update=update)

    def _has_obeyed(self, choice: ToolChoice) -> bool:
        called = {call.use.name for step in self.steps for call in step.calls}
        return choice.tool in called if choice.tool is not None else not called.isdisjoint(self.tools)

    async def add(
        self,
        answer: CreateMessageResult,
        *,
        run: bool,
        dropped: tuple[ToolUseContent, ...],
        problems: Mapping[str, str],
        lost: SamplingMessage | None,
    ) -> Step:
        """Make a step of *answer*, with *run* after its calls have run, but for those with *problems*. The conversation
        changes at once, at the end. *lost* ends the step, if there is one.
        """
        if run and answer.tool_uses:
            self._present, self._finished = answer, {}
            await self._run_all(answer.tool_uses, problems)
        calls = self._calls()
        messages: tuple[SamplingMessage, ...] = ()
        if calls or not (answer.tool_uses or _is_empty(answer)):  # no provider takes an empty message
            messages = (AssistantMessage(answer.content),)
        if calls:
            results = [self.write_result(call.use, call.result) for call in calls]
            messages += (UserMessage(results),)
        if run and lost is not None:
            messages += (lost,)
        step = Step(answer, calls, messages, dropped)
        self._present, self._finished = None, {}
        self.steps.append(step)
        self.messages += messages
        return step

    def end_unfinished(self) -> Step | None:
        """The step in which the time was up, if tools were running. The conversation has it: the model is not to do again what was done."""
        if self._present is None:
            return None
        results = [
            self.write_result(use, call.result if (call := self._finished.get(index)) else _cut_short())
            for index, use in enumerate(self._present.tool_uses)
        ]
        messages = (AssistantMessage(self._present.content), UserMessage(results))
        self.messages += messages
        return Step(self._present, self._calls(), messages)

    def _calls(self) -> tuple[FinishedCall, ...]:
        return tuple(self._finished[index] for index in sorted(self._finished))

    async def _run_all(self, uses: Sequence[ToolUseContent], problems: Mapping[str, str]) -> None:
        """Decide on one call after the other, and run those that may run at once."""
        if self.permit is not None:  # what it sees is what runs, also if the model changes the answer that it gave
            uses = [use.model_copy(update={"input": snapshot(use.input)}) for use in uses]
        if len(uses) == 1:
            await self._run(0, uses[0], await self._decide(uses[0], problems))
            return
        try:
            async with create_task_group() as tasks:
                for index, use in enumerate(uses):
                    decided = await self._decide(use, problems) if index < MAX_CALLS else _too_many()
                    tasks.start_soon(self._run, index, use, decided)
        except BaseExceptionGroup as group:  # of `permit`
            reraise(first(group.subgroup(Exception) or group))

    async def _decide(self, use: ToolUseContent, problems: Mapping[str, str]) -> CallToolResult | None:
        """The result of *use* if it is not to run. Meanwhile the time of the loop stands still: a person may be deciding."""
        if use.name not in self.tools:
            return text_result(no_such_tool(use.name, self.params.tools or ()), is_error=True)
        if (problem := problems.get(use.id)) is not None:
            return text_result(problem, is_error=True)
        if self.permit is None:
            return None
        time_left, self.scope.deadline = self.scope.deadline - current_time(), math.inf
        try:
            return await self.permit(use)
        finally:
            self.scope.deadline = current_time() + time_left

    async def _run(self, index: int, use: ToolUseContent, decided: CallToolResult | None) -> None:
        began = current_time()
        result = await result_of(self.tools[use.name], use, self.warnings) if decided is None else decided
        self._finished[index] = FinishedCall(use, result, current_time() - began)


def _too_many() -> CallToolResult:
    return text_result(f"Not run: one answer may call at most {MAX_CALLS} tools", is_error=True)


def _cut_short() -> CallToolResult:
    return text_result(f"Stopped, because the time was up: {MAY_HAVE_RUN}", is_error=True)


async def result_of(run: RunTool, use: ToolUseContent, warnings: CountedWarnings) -> CallToolResult:
    """Run one call. If it fails, that is a result, too."""
    cancelled = cancellations()
    try:
        return await run(use)
    except BaseException as exc:
        error, other = split_failure(exc, cancelled)
        try:
            if error is None:
                raise
            if other is not None:
                raise other from None
            return _failure(use.name, error, warnings)
        finally:
            del error, other  # their tracebacks refer to this frame, which must not refer to them


def _failure(name: str, exc: BaseException, warnings: CountedWarnings) -> CallToolResult:
    """The result that tells the model that the tool *name* failed.

    It has the text only of what the server, an approver or the tool's author says. The texts of other errors are for the
    host: they quote the stderr of the server, URLs and what handlers raised. They are logged.

    Raises:
        EndsLoop: It is *exc*.
    """
    match exc:
        case HttpStatusError(rpc_message=str(message)):
            why = f": {excerpt(message)}"
        case HttpStatusError(transient=False, status=status):
            why = f": its server refused the call (HTTP {status})"
        case HttpStatusError(status=408 | 425 | 429 | 503) | ConnectionClosed(may_have_run=False) | NotConnected():
            why = ": its server is not available"
        case HttpStatusError() | ConnectionClosed():  # a gateway's 502 or 504 says nothing of the call
            why = f": its server is not available; {MAY_HAVE_RUN}"
        case McpTimeout():
            why = ": it did not finish in time"
        case InvalidToolOutput(text=text):
            why = f": it has run, but its result does not match its schema{f'; it says: {text}' if text else ''}"
        case ProtocolError():
            why = f": its answer cannot be read; {MAY_HAVE_RUN}"
        case McpError() if not isinstance(
            exc, EndsLoop | ToolError | BadArguments | ServerError | CallDenied | NotDeclared
        ):
            why = ""
        case _:
            return error_result(name, exc)
    warnings.log(logger, (name, type(exc).__name__), f"the tool {name} failed", str(exc))
    return text_result(f"the tool {name} failed{why}", is_error=True)
