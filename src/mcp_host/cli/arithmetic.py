"""The demo's model: no language model, but a planner of arithmetic. It plans the steps, and the server's tools calculate."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from mcp_host.errors import excerpt
from mcp_host.sampling import SamplingRequest, ToolCall
from mcp_host.types import CreateMessageResult, ToolResultContent

Model: TypeAlias = Callable[[SamplingRequest], Awaitable[CreateMessageResult]]

NAME = "arithmetic planner (no language model)"

TOOLS: Mapping[type[ast.operator], str] = {ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide"}

# Signs that no tool carries out are found, too, and refused later: to skip one would change the value.
EXPRESSION = re.compile(r"(?:[-+*/^%()0-9]|\.(?=[0-9]))[-+*/^%().,0-9 ]*")
MAX_EXPRESSION = 200  # characters: bounds the recursion
MAX_CALLS = 16  # tool calls in one answer; hosts have limits (ours is 32), and the rest can wait a turn


class CannotSolve(Exception):
    """The model cannot answer; the text says why."""


async def arithmetic(request: SamplingRequest) -> CreateMessageResult:
    """Answer a request for one calculation with the next tool calls, or with the result.

    It keeps no state: it plans the whole calculation for each request, with the results in the conversation.
    """
    try:
        source, expression = _find_expression(request)
        plan = Plan(request)
        value = plan.evaluate(expression)
    except CannotSolve as exc:
        text = f"{exc}."
    else:
        if value is None:
            at_once = 1 if request.params.disable_parallel_tool_use else MAX_CALLS
            return request.calls(*plan.calls[:at_once], model=NAME)
        text = f"{source} = {value}"
    if request.must_use_tools:
        request.refuse(text)
    return request.reply(text, model=NAME)


MODELS: Mapping[str, Model] = {"arithmetic": arithmetic}
"""The models that the command can offer to a server."""


def _find_expression(request: SamplingRequest) -> tuple[str, ast.expr]:
    """The one calculation in the user's last question."""
    questions = [message.text for message in request.messages if message.role == "user" and message.text]
    found = [part.rstrip(" .,") for part in EXPRESSION.findall(questions[-1] if questions else "")]
    sources = [part for part in found if re.search("[0-9]", part) and re.search("[^0-9., ]", part)]
    if len(sources) != 1:
        raise CannotSolve(
            f"I do one calculation with + - * / and parentheses, and find {len(sources) or 'none'} in this"
        )
    if len(sources[0]) > MAX_EXPRESSION:
        raise CannotSolve(f"I read calculations of {MAX_EXPRESSION} characters, and this has {len(sources[0])}")
    try:
        return sources[0], ast.parse(sources[0], mode="eval").body
    except SyntaxError as exc:
        raise CannotSolve(f"I cannot read {sources[0]}") from exc


class Plan:
    """The calculation, as far as the server's tools have carried it out; *calls* are the next ones."""

    def __init__(self, request: SamplingRequest) -> None:
        self.calls: list[ToolCall] = []
        self._request = request
        content = [block for message in request.messages for block in message.content]
        results = {block.tool_use_id: block for block in content if isinstance(block, ToolResultContent)}
        uses = [use for message in request.messages for use in message.tool_uses]
        self._done = [(ToolCall(use.name, use.input), results[use.id]) for use in uses]

    def evaluate(self, node: ast.expr) -> float | None:
        """The value of *node*; None if a tool has to be called first."""
        match node:
            case ast.Constant(value=int() | float() as number):
                return number
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                value = self.evaluate(operand)
                return None if value is None else -value
            case ast.BinOp(left=left, op=op, right=right) if type(op) in TOOLS:
                first, second = self.evaluate(left), self.evaluate(right)
                return None if first is None or second is None else self._calculate(TOOLS[type(op)], first, second)
        raise CannotSolve(f"I can only do arithmetic with + - * / and parentheses, and cannot read {ast.unparse(node)}")

    def _calculate(self, name: str, first: float, second: float) -> float | None:
        tool = next((tool for tool in self._request.tools if tool.name == name), None)
        if tool is None or not self._request.may_use_tools:
            raise CannotSolve(f"I only plan arithmetic, and need a tool named {name} to carry it out")
        parameters = tool.input_schema.get("properties")
        if not isinstance(parameters, dict) or len(parameters) != 2:
            raise CannotSolve(f"I cannot use the tool {name}: it does not take two numbers")
        call = ToolCall(name, dict(zip(parameters, (first, second), strict=True)))
        result = next((result for done, result in self._done if done == call), None)
        if result is not None:
            return _number(call, result)
        if call not in self.calls:
            self.calls.append(call)
        return None


def _number(call: ToolCall, result: ToolResultContent) -> float:
    try:
        number = math.nan if result.is_error else float(result.text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise CannotSolve(f"I cannot finish this: {call.name} answered {excerpt(result.text, 200)}")
    return int(number) if number.is_integer() else number
