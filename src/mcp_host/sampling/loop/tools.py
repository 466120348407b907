"""The tools of a host's loop: those of connected clients, and functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeAlias, runtime_checkable

from mcp_host.errors import quoted
from mcp_host.functions import AnyFunction, FunctionTool
from mcp_host.handlers import as_async, check_callable
from mcp_host.sampling.loop.engine import RunTool, function_runner
from mcp_host.types import CallToolResult, Tool, ToolUseContent

THIS_PROGRAM = "this program"  # in place of a server's name, for functions


@runtime_checkable
class ToolClient(Protocol):
    """What a loop needs of a `mcp_host.Client`."""

    @property
    def name(self) -> str:
        """The name of its server."""

    async def list_tools(self, *, timeout: float | None = None) -> list[Tool]:
        """The tools of the server. It has *timeout* seconds for each request."""

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        caller: object = None,
    ) -> CallToolResult:
        """Call one, for *timeout* seconds."""


LoopTool: TypeAlias = ToolClient | AnyFunction | FunctionTool
"""A connected client, with all its tools, or a typed function."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class OfferedTool:
    """A tool that a loop offers to its model."""

    definition: Tool
    server: str
    run: RunTool


async def read_tools(tools: Sequence[LoopTool], *, timeout: float, caller: object) -> dict[str, OfferedTool]:
    """The tools by their names. Clients are asked for theirs. Listing and each call may take *timeout* seconds.

    Raises:
        TypeError: One is something else, or a function that cannot be called with JSON.
        ValueError: Two tools have the same name.
        McpError: A client could not list its tools.
    """
    if callable(tools) or isinstance(tools, ToolClient) or not isinstance(tools, Sequence):
        raise TypeError("tools is a list of clients and functions: tools=[client, function]")
    offered: dict[str, OfferedTool] = {}
    for tool in tools:
        for new in await _read(tool, timeout=timeout, caller=caller):
            name = new.definition.name
            if name in offered:
                raise ValueError(
                    f"two tools have the name {quoted(name)}, one of {quoted(offered[name].server)} and one of"
                    f" {quoted(new.server)}: rename one, with Client(..., tools=ToolPolicy(rename=...)) or"
                    " FunctionTool(function, name=...)"
                )
            offered[name] = new
    return offered


async def _read(tool: LoopTool, *, timeout: float, caller: object) -> list[OfferedTool]:
    if isinstance(tool, ToolClient) and not isinstance(tool, type):
        call = partial(_call, tool, timeout, caller)
        return [OfferedTool(listed, tool.name, call) for listed in await tool.list_tools(timeout=timeout)]
    if not isinstance(tool, FunctionTool):
        if not callable(tool):
            raise TypeError(f"tools: {tool!r} is neither a client nor a function")
        check_callable(tool, argument="tools", shape=None)
        tool = FunctionTool(tool)
    run = function_runner(tool.calling(partial(as_async, argument="tools")), timeout=timeout)
    return [OfferedTool(tool.definition, THIS_PROGRAM, run)]


async def _call(client: ToolClient, timeout: float, caller: object, use: ToolUseContent) -> CallToolResult:
    """Call a tool of a server. The client bounds it: the time in which it answers the server does not count."""
    return await client.call_tool(use.name, use.input, timeout=timeout, caller=caller)
