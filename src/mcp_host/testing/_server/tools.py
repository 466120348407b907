"""The tools of a test server, and those that it offers in sampling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from anyio import create_task_group

from mcp_host.errors import NotDeclared
from mcp_host.functions import AnyFunction, BadArguments, FunctionTool, Injected, error_result, text_result
from mcp_host.testing.errors import RequestError
from mcp_host.types import CallToolResult, JSONObject, SamplingMessage, ToolResultContent, ToolUseContent

Tools: TypeAlias = Mapping[str, AnyFunction] | Sequence[AnyFunction]
"""The functions that a model may call: under their own names, or under the names given here."""


async def run_tool(tool: FunctionTool, arguments: JSONObject, context: Injected) -> CallToolResult:
    """Run a tool. A failure is a result, too, with *is_error* set.

    Raises:
        RequestError: The function raised it.
        BadArguments: The arguments do not fit; the function was not called.
        NotDeclared: The function needs a capability that the client lacks.
    """
    try:
        return await tool.call(arguments, context)
    except (RequestError, BadArguments, NotDeclared):
        raise
    except Exception as exc:
        return error_result(tool.name, exc)


def tools_by_name(tools: Tools) -> dict[str, FunctionTool]:
    """Make the tools of a sampling request."""
    if isinstance(tools, Mapping):
        return {name: FunctionTool(function, name=name) for name, function in tools.items()}
    return {tool.name: tool for tool in map(FunctionTool, tools)}


async def run_tools(
    uses: Sequence[ToolUseContent], tools: Mapping[str, FunctionTool], context: Injected
) -> SamplingMessage:
    """Run the tools that the model asked for, all at once; the results are in the order of the calls.

    "Every assistant message containing ToolUseContent blocks MUST be followed by a user
    message that consists entirely of ToolResultContent blocks" (client/sampling).
    """
    results: dict[int, ToolResultContent] = {}

    async def run(index: int, use: ToolUseContent) -> None:
        try:
            if use.name in tools:
                result = await run_tool(tools[use.name], use.input, context)
            else:
                result = text_result(f"There is no tool {use.name}", is_error=True)
        except (BadArguments, NotDeclared) as exc:  # a result, which the model can react to
            result = text_result(str(exc), is_error=True)
        results[index] = ToolResultContent.of(use, result)

    try:
        async with create_task_group() as tasks:
            for index, use in enumerate(uses):
                tasks.start_soon(run, index, use)
    except ExceptionGroup as group:  # only `RequestError`s get here
        raise group.exceptions[0] from None
    return SamplingMessage(role="user", content=[results[index] for index in range(len(uses))])
