"""The demo's model: no language model at all, but a planner of arithmetic that never calculates itself.

It finds the calculation in what it is asked, has the server's tools carry out every
step that waits for no other, reads their results, and so on to the last one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from mcp_host.cli.expressions import Expression, NoArithmetic, Operation, Problem, find, settle, steps, tidy
from mcp_host.errors import excerpt
from mcp_host.sampling import SamplingRequest, ToolCall
from mcp_host.types import (
    CreateMessageResult,
    SamplingMessage,
    Tool,
    ToolResultContent,
    ToolUseContent,
)

NAME = "arithmetic planner (no language model)"

TOOLS: Mapping[str, str] = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide"}

AT_ONCE = 16  # tool calls in one answer; hosts have limits (ours is 32), and the rest can wait a turn
QUOTED = 200  # characters of a tool's own words that are passed on


async def arithmetic(request: SamplingRequest) -> CreateMessageResult:
    """Answer a sampling request that asks for one calculation; say so if it is anything else."""
    return answer(request)


def answer(request: SamplingRequest) -> CreateMessageResult:
    """The next turn of the conversation, which is the only memory there is.

    Each request is planned anew, and the results in it are put where they belong.
    """
    try:
        problem, rest = _progress(request)
        if isinstance(rest, Operation):
            return request.calls(*_calls(rest, request), model=NAME)
    except NoArithmetic as exc:
        return _say(f"{exc}.", request)
    return _say(f"{problem.source} = {rest}", request)


def _say(text: str, request: SamplingRequest) -> CreateMessageResult:
    if request.must_use_tools:
        request.refuse(text)
    return request.reply(text, model=NAME)


def _progress(request: SamplingRequest) -> tuple[Problem, Expression]:
    """What was asked, and what is left of it after the results so far."""
    question, later = _last_question(request.messages)
    problem = find(question)
    rest: Expression = problem.expression
    for asked, answered in pairwise(later):
        uses = asked.tool_uses
        if uses:
            rest = settle(rest, _results(uses, answered, _calls(rest, request), steps(rest)))
    return problem, rest


def _last_question(messages: Sequence[SamplingMessage]) -> tuple[str, Sequence[SamplingMessage]]:
    """The last thing that the user said, and the messages after it."""
    for index in reversed(range(len(messages))):
        text = messages[index].text
        if text and messages[index].role == "user":
            return text, messages[index + 1 :]
    raise NoArithmetic("I can only do arithmetic, and there is no question")


def _calls(expression: Expression, request: SamplingRequest) -> list[ToolCall]:
    at_once = 1 if request.params.disable_parallel_tool_use else AT_ONCE
    return [_call(step, request) for step in steps(expression)[:at_once]]


def _call(step: Operation, request: SamplingRequest) -> ToolCall:
    name = TOOLS[step.sign]
    tool = next((tool for tool in request.tools if tool.name == name), None)
    if tool is None or not request.may_use_tools:
        raise NoArithmetic(f"I only plan arithmetic, and need a tool named {name} to carry it out")
    return ToolCall(name, dict(zip(_operands(tool), (step.left, step.right), strict=True)))


def _operands(tool: Tool) -> Sequence[str]:
    """What the tool calls its two operands."""
    properties = tool.input_schema.get("properties")
    if not isinstance(properties, dict) or len(properties) != 2:
        raise NoArithmetic(f"I cannot use the tool {tool.name}: it does not take two numbers")
    return list(properties)


def _results(
    uses: Sequence[ToolUseContent], answered: SamplingMessage, planned: Sequence[ToolCall], waiting: Sequence[Operation]
) -> dict[Operation, float]:
    """The results of one turn by the step they belong to."""
    if [(use.name, use.input) for use in uses] != [(call.name, call.arguments) for call in planned]:
        raise NoArithmetic("I can only follow a conversation that I have planned, and did not ask for these tools")
    results = {block.tool_use_id: block for block in answered.content if isinstance(block, ToolResultContent)}
    return {step: _number(use, results[use.id]) for step, use in zip(waiting, uses, strict=False)}


def _number(use: ToolUseContent, result: ToolResultContent) -> float:
    if result.is_error:
        raise NoArithmetic(f"I cannot finish this: {use.name} says {excerpt(result.text, QUOTED)}")
    try:
        number = float(result.text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise NoArithmetic(f"I cannot finish this: {use.name} answered no number but {excerpt(result.text, QUOTED)}")
    return tidy(number)
