"""The tools of a host's loop: those of connected clients, and functions."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeAlias, runtime_checkable

from anyio import create_task_group
from pydantic_core import to_json

from mcp_host.concurrency.tasks import awaited, first, reraise
from mcp_host.errors import McpError, excerpt, quoted
from mcp_host.functions import AnyFunction, FunctionTool
from mcp_host.handlers import check_callable
from mcp_host.protocol import conversation
from mcp_host.protocol.jsonrpc import says_there_is_none
from mcp_host.protocol.server_names import THIS_PROGRAM
from mcp_host.sampling.loop.approvals import Approvals
from mcp_host.sampling.loop.engine import RunTool, function_runner
from mcp_host.types import CallToolResult, Implementation, Tool, ToolUseContent

logger = logging.getLogger(__name__)

MAX_TOOLS = 128  # as many as OpenAI takes; each costs some hundred tokens in every turn
NAMES_SHOWN = 2_000  # characters of names in an error
BYTES_PER_TOKEN = 4


class TooManyTools(ValueError):
    """The tools, which *counted* describes with their servers, are more than the *most* that a loop may offer."""

    def __init__(self, counted: str, most: float) -> None:
        super().__init__(
            f"{counted}, and max_tools is {most}: choose those that the model needs, with"
            " Client(..., tools=ToolPolicy(allow={...})), or raise max_tools, if the model takes more (OpenAI's take 128)"
        )
        self.counted = counted
        self.most = most


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


@runtime_checkable
class ToolGroup(ToolClient, Protocol):
    """What a loop needs of a `mcp_host.ClientGroup`."""

    @property
    def clients(self) -> Mapping[str, ToolClient]:
        """The client of each server, by its name in the group."""

    @property
    def approvals(self) -> Approvals | None:
        """What decides on the calls of a loop that has no *approve*."""

    def server_of(self, name: str) -> str:
        """The server of the tool *name*."""


LoopTool: TypeAlias = ToolClient | AnyFunction | FunctionTool
"""A connected client, or a group of them, with all its tools, or a typed function."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class OfferedTool:
    """A tool that a loop offers to its model."""

    definition: Tool
    server: str
    run: RunTool
    server_info: Implementation | None = None
    server_key: str | None = None
    approvals: Approvals | None = None
    """What decides on its calls in a loop that has no *approve*."""


async def read_tools(
    tools: Sequence[LoopTool], *, timeout: float, caller: object, most: float
) -> dict[str, OfferedTool]:
    """The tools by their names, *most* at most. Clients are asked for theirs, all at once. Listing and each call may take *timeout* seconds.

    A server without tools adds none. A tool of a server that no model could call is left out, with a warning:
    because of its name, or because it runs only as a task.

    Raises:
        TypeError: One is something else, or a function that cannot be called with JSON.
        TooManyTools: They are more than *most*.
        ValueError: Two tools have the same name; the text has all such names.
        McpError: A client could not list its tools; the text names it.
    """
    if callable(tools) or isinstance(tools, ToolClient) or not isinstance(tools, Sequence):
        raise TypeError("tools is a list of clients and functions: tools=[client, function]")
    offered: dict[str, OfferedTool] = {}
    places: dict[str, int] = {}
    clashes: dict[tuple[int, int], list[OfferedTool]] = {}  # by the places of both
    for place, read in enumerate(await _read_all(tools, timeout=timeout, caller=caller)):
        for new in read:
            name = new.definition.name
            if name in offered:
                clashes.setdefault((places[name], place), []).append(new)
            else:
                offered[name], places[name] = new, place
    if clashes:
        described = [_clash(tools, offered[new[0].definition.name], new, *both) for both, new in clashes.items()]
        raise ValueError("; ".join(described))
    if len(offered) > most:
        raise TooManyTools(_counted(offered), most)
    if logger.isEnabledFor(logging.INFO):
        terms = [
            (tool.definition.name, tool.definition.description, tool.definition.input_schema)
            for tool in offered.values()
        ]
        size = len(to_json(terms))
        text = "tool loop: %d tools are offered, in %d bytes of JSON: about %d tokens in each turn"
        logger.info(text, len(offered), size, size // BYTES_PER_TOKEN)
    return offered


def _counted(offered: Mapping[str, OfferedTool]) -> str:
    counted = Counter(tool.server for tool in offered.values()).most_common()
    of_servers = excerpt(", ".join([f"{number} of {quoted(server)}" for server, number in counted]), NAMES_SHOWN)
    return f"there are {len(offered)} tools, {of_servers}"


async def _read_all(tools: Sequence[LoopTool], *, timeout: float, caller: object) -> list[list[OfferedTool]]:
    """The tools of each of *tools*. What the first one raises that fails is raised."""
    read: list[list[OfferedTool]] = [[] for _ in tools]

    async def fill(place: int, tool: LoopTool) -> None:
        read[place] = await _read(tool, place, timeout=timeout, caller=caller)

    try:
        async with create_task_group() as tasks:
            for place, tool in enumerate(tools):
                tasks.start_soon(fill, place, tool)
    except BaseExceptionGroup as group:
        reraise(first(group))
    return read


async def _read(tool: LoopTool, place: int, *, timeout: float, caller: object) -> list[OfferedTool]:
    if isinstance(tool, ToolClient) and not isinstance(tool, type):
        return offered_by(tool, await _list(tool, place, timeout), partial(_call, tool, timeout, caller))
    if not isinstance(tool, FunctionTool):
        if not callable(tool):
            raise TypeError(
                f"tools[{place}] is an object of {type(tool).__name__}, neither a client nor a function;"
                " a server is reached with a client: async with Client(server) as client"
            )
        check_callable(tool, argument="tools", shape=None)
        tool = FunctionTool(tool)
    run = function_runner(tool, timeout=timeout)
    return [OfferedTool(tool.definition, THIS_PROGRAM, run)]


def offered_by(client: ToolClient, tools: Sequence[Tool], run: RunTool) -> list[OfferedTool]:
    """The *tools* that a client, or a group, has listed. *run* calls them."""
    if not isinstance(client, ToolGroup):
        return [_offered(tool, client, run) for tool in tools]
    clients, approvals = client.clients, client.approvals
    return [_offered(tool, clients[client.server_of(tool.name)], run, approvals) for tool in tools]


def _offered(tool: Tool, client: ToolClient, run: RunTool, approvals: Approvals | None = None) -> OfferedTool:
    info, key = getattr(client, "server_info", None), getattr(client, "key", None)  # `ToolClient` need not have them
    return OfferedTool(tool, client.name, run, info, key, approvals)


async def _list(client: ToolClient, place: int, timeout: float) -> list[Tool]:
    """The tools of *client* that can be offered."""
    try:
        listed = await awaited(client.list_tools(timeout=timeout), "list_tools")
    except McpError as exc:
        if says_there_is_none(exc):
            logger.info("%s has no tools: %s", client.name, exc)
            return []
        exc.args = (f"the tools of {_where(client.name, place)} cannot be listed: {exc}",)
        raise
    valid: dict[str, Tool] = {}
    for tool in listed:
        problem = conversation.name_problem(tool.name)
        if problem is None and tool.name in valid:
            problem = "another tool of that name stands before it"
        if problem is None and conversation.runs_only_as_task(tool):
            problem = "it runs only as a task, and this client has none"
        if problem is None:
            valid[tool.name] = tool
        else:
            logger.warning("%s: the tool %s is left out: %s", client.name, quoted(tool.name), problem)
    return list(valid.values())


def _clash(tools: Sequence[LoopTool], old: OfferedTool, new: Sequence[OfferedTool], old_place: int, place: int) -> str:
    """What to do about *new* tools at *place* that have the names of others at *old_place*, one of which is *old*."""
    if tools[old_place] is tools[place]:
        return f"tools[{old_place}] and tools[{place}] are the same: leave one out"
    servers = (old.server, new[0].server)
    hints = []
    if servers != (THIS_PROGRAM, THIS_PROGRAM):
        hints.append("Client(..., tools=ToolPolicy(rename=...))")
    if THIS_PROGRAM in servers:
        hints.append("FunctionTool(function, name=...)")
    names = excerpt(", ".join([quoted(tool.definition.name) for tool in new]), NAMES_SHOWN)
    what, which = ("name", "one") if len(new) == 1 else ("same names", "one of each")
    return (
        f"two tools have the {what} {names}, of {_where(old.server, old_place)}"
        f" and of {_where(new[0].server, place)}: rename {which}, with {' or '.join(hints)}"
    )


def _where(server: str, place: int) -> str:
    return f"{quoted(server)} (tools[{place}])"


async def _call(client: ToolClient, timeout: float, caller: object, use: ToolUseContent) -> CallToolResult:
    """Call a tool of a server. The client bounds it: the time in which it answers the server does not count."""
    return await client.call_tool(use.name, use.input, timeout=timeout, caller=caller)
