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
MAX_EXPRESSION = 200  # characters: bounds the recursion
MAX_CALLS = 16  # tool calls in one answer; hosts have limits (ours is 32), and the rest can wait a turn
SKILL = f"I do one calculation with + - * / and parentheses, of up to {MAX_EXPRESSION} characters"

TOOLS: Mapping[type[ast.operator], str] = {ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide"}

# Signs that no tool carries out are found, too, and refused later: to skip one would change the value.
EXPRESSION = re.compile(r"(?:[-+*/^%()0-9]|\.(?=[0-9]))[-+*/^%().,0-9 ]*")

NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?")


async def arithmetic(request: SamplingRequest) -> CreateMessageResult:
    """Answer a request for one calculation with the next tool calls, or with the result.

    It keeps no state: it plans the whole calculation for each request, with the results in the conversation.
    """
    questions = [message.text for message in request.messages if message.role == "user" and message.text]
    found = [part.rstrip(" .,") for part in EXPRESSION.findall(questions[-1] if questions else "")]
    found = [part for part in found if re.search("[0-9]", part) and re.search("[^0-9., ]", part)]
    sources = [part for part in found if len(part) <= MAX_EXPRESSION]
    try:
        if len(sources) != 1:
            raise ValueError(f"{SKILL}, and find {len(sources) or 'none'} in this")
        plan = Plan(request)
        value = plan.evaluate(ast.parse(sources[0], mode="eval").body)
    except (SyntaxError, ValueError) as exc:
        text = f"{SKILL}, and cannot read this." if isinstance(exc, SyntaxError) else f"{exc}."
    else:
        if value is None:
            at_once = 1 if request.params.disable_parallel_tool_use else MAX_CALLS
            return request.calls(*plan.calls[:at_once], model=NAME)
        text = f"{sources[0]} = {value}"
    if request.must_use_tools:
        request.refuse(text)
    return request.reply(text, model=NAME)


MODELS: Mapping[str, Model] = {"arithmetic": arithmetic}
"""The models that the command can offer to a server."""


class Plan:
    """The calculation, as far as the server's tools have carried it out; *calls* are the next ones."""

    def __init__(self, request: SamplingRequest) -> None:
        self.calls: list[ToolCall] = []
        tools = request.tools if request.may_use_tools else ()
        own_names = {tool.name.rpartition("__")[2]: tool for tool in tools}  # a group has calculator__add
        self._tools = own_names | {tool.name: tool for tool in tools}
        blocks = [block for message in request.messages for block in message.content]
        results = {block.tool_use_id: block for block in blocks if isinstance(block, ToolResultContent)}
        uses = [use for message in request.messages for use in message.tool_uses]
        self._done = [(ToolCall(use.name, use.input), results[use.id]) for use in uses]

    def evaluate(self, node: ast.expr) -> float | None:
        """The value of *node*; None if a tool has to be called first.

        Raises:
            ValueError: It cannot be calculated, for the reason in the text.
        """
        match node:
            case ast.Constant(value=int() | float() as number):
                return number
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                value = self.evaluate(operand)
                return None if value is None else -value
            case ast.BinOp(left=left, op=op, right=right) if type(op) in TOOLS:
                first, second = self.evaluate(left), self.evaluate(right)
                return None if first is None or second is None else self._calculate(TOOLS[type(op)], first, second)
        raise ValueError(f"{SKILL}, and cannot read {ast.unparse(node)}")

    def _calculate(self, name: str, first: float, second: float) -> float | None:
        tool = self._tools.get(name)
        properties = None if tool is None else tool.input_schema.get("properties")
        if tool is None or not isinstance(properties, dict) or len(properties) != 2:
            raise ValueError(f"I only plan arithmetic, and need a tool {name} for two numbers to carry it out")
        call = ToolCall(tool.name, dict(zip(properties, (first, second), strict=True)))
        for done, result in self._done:
            if done == call:
                number = float(result.text) if NUMBER.fullmatch(result.text) and not result.is_error else math.nan
                if not math.isfinite(number):
                    raise ValueError(f"I cannot finish this: {name} answered {excerpt(result.text, 200)}")
                return int(number) if number.is_integer() else number
        if call not in self.calls:
            self.calls.append(call)
        return None
