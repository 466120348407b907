"""The tool loop that a server runs when it samples with tools: the model asks, the server's functions answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from anyio import create_task_group

from mcp_host.testing._server.functions import AnyFunction, BadArguments, Injected
from mcp_host.testing._server.tools import FunctionTool, function_tool, text_result
from mcp_host.testing.errors import NotDeclared
from mcp_host.types import (
    CallToolResult,
    SamplingMessage,
    TextContent,
    ToolResultContent,
    ToolUseContent,
)

Prompt: TypeAlias = str | SamplingMessage | Sequence[SamplingMessage]
"""What to ask the model: a text, one message, or the conversation so far."""

Tools: TypeAlias = Mapping[str, AnyFunction] | Sequence[AnyFunction]
"""The functions a model may call: typed functions under their own names, or under the names given here."""


def as_messages(prompt: Prompt) -> list[SamplingMessage]:
    """The prompt as the conversation it stands for."""
    match prompt:
        case str():
            return [SamplingMessage(role="user", content=TextContent(text=prompt))]
        case SamplingMessage():
            return [prompt]
    return list(prompt)


def tools_by_name(tools: Tools) -> dict[str, FunctionTool]:
    """The tools to offer, by the name the model knows them under."""
    if isinstance(tools, Mapping):
        made = [function_tool(function, name=name) for name, function in tools.items()]
    else:
        made = [function_tool(function) for function in tools]
    return {tool.definition.name: tool for tool in made}


async def run_tools(
    uses: Sequence[ToolUseContent], tools: Mapping[str, FunctionTool], context: Injected
) -> SamplingMessage:
    """Run what the model asked for, all at once, and answer in the order it asked.

    "Every assistant message containing ToolUseContent blocks MUST be followed by a user
    message that consists entirely of ToolResultContent blocks" (client/sampling).
    """
    results: dict[int, ToolResultContent] = {}

    async def run(index: int, use: ToolUseContent) -> None:
        results[index] = ToolResultContent.of(use, await _run(use, tools.get(use.name), context))

    try:
        async with create_task_group() as tasks:
            for index, use in enumerate(uses):
                tasks.start_soon(run, index, use)
    except ExceptionGroup as group:  # holds nothing but a `RequestError` of a tool's own, or several
        raise group.exceptions[0] from None
    return SamplingMessage(role="user", content=[results[index] for index in range(len(uses))])


async def _run(use: ToolUseContent, tool: FunctionTool | None, context: Injected) -> CallToolResult:
    if tool is None:
        return text_result(f"There is no tool {use.name}", is_error=True)
    try:
        return await tool.run(use.input, context)
    except BadArguments as exc:  # the model's mistake, and the model may mend it
        return text_result(f"Invalid arguments: {exc}", is_error=True)
    except NotDeclared as exc:
        return text_result(str(exc), is_error=True)
