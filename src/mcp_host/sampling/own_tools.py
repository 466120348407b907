"""The tools of the server that asks, run by the host inside its sampling requests.

A server offers the model `a` and `b`, which it lists, and `c`, which it does not list:

the model calls          what happens
=======================  ==================================================================================
`a`, or `a` and `b`      the client calls them with ``tools/call``; the model gets the results and goes on
`c`, or `a` and `c`      no call is run, and the answer goes to the server as it is
`a`, beyond `max_calls`  no call is run, and the answer goes to the server as it is
a tool not on offer      the answer is refused, as always
no tool                  the answer goes to the server
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from anyio import current_time, move_on_after
from anyio.lowlevel import checkpoint
from pydantic import BaseModel

from mcp_host.concurrency.tasks import awaited
from mcp_host.errors import (
    InputRefused,
    McpError,
    RequestTimeout,
)
from mcp_host.handlers import InputCount, as_async, current_handler
from mcp_host.protocol.jsonrpc import ASKED_TOO_MUCH, TOOK_TOO_LONG
from mcp_host.sampling.limits import OwnTools
from mcp_host.sampling.request import CallModel, SamplingRequest, log_subject
from mcp_host.sampling.stop_reasons import CUT_OFF
from mcp_host.slots import Slot
from mcp_host.types import CallToolResult, CreateMessageRequestParams, CreateMessageResult, TextContent, ToolUseContent

if TYPE_CHECKING:
    from mcp_host.sampling.loop.engine import AskModel, RunTool

logger = logging.getLogger(__name__)

T = TypeVar("T")

MAX_LOOPS = 8  # within each other, as far as another client can tell; as `Limits.max_nesting`

ListTools: TypeAlias = "Callable[[SamplingRequest, float], Awaitable[Mapping[str, str]]]"
"""The tools that may be run for a request: the name to call each by, by the name that the server gives it. It has so many seconds."""

CallTool: TypeAlias = "Callable[[SamplingRequest, str, dict[str, object], float], Awaitable[CallToolResult]]"
"""Calls one of them, by the name to call it by."""

CallToolFunction: TypeAlias = (
    "Callable[[str, dict[str, Any]], Awaitable[CallToolResult | Mapping[str, Any] | BaseModel]]"
)
"""Calls a tool with another client, by its name and arguments: see `Sampling.callback`."""

ListToolsFunction: TypeAlias = "Callable[[], Awaitable[Iterable[object] | BaseModel]]"
"""Lists the names or the tools of a server with another client, or returns a result that has them as its ``tools``."""


class ServerTools:
    """One server's tools, as a client reaches them, and how far to run them: not at all without *limits*.

    *most* tool loops may wait for their tools at the same time, because one may be within the other.
    """

    def __init__(
        self, list_tools: ListTools, call_tool: CallTool, limits: OwnTools | None, *, most: float = math.inf
    ) -> None:
        self.list_tools = list_tools
        self.call_tool = call_tool
        self.limits = limits
        """May change, for later requests."""
        self.most = most
        self.waiting = 0
        """Loops that wait for their tools."""
        self._inputs = InputCount()  # where no client of ours counts what is asked within one call

    def admit(self, request: SamplingRequest, limits: OwnTools) -> OwnTools | None:
        """The *limits* for *request*; None if it lets the model call no tools.

        Raises:
            InputRefused: It may be nested too deeply.
        """
        if not request.may_use_tools:
            return None
        if self.waiting >= self.most:
            raise InputRefused(ASKED_TOO_MUCH, f"this client's limit is {self.most} tool loops within each other")
        return limits

    def count(self, limits: OwnTools) -> InputCount:
        """Counts the calls for a request that is answered now."""
        scope = current_handler.get()
        if scope is not None and scope.inputs is not None:
            return scope.inputs
        self._inputs.forget_until(current_time() - limits.timeout)  # no loop that still runs has made these calls
        return self._inputs


async def run_own_tools(
    ask: AskModel, request: SamplingRequest, tools: ServerTools, limits: OwnTools
) -> CreateMessageResult:
    """Ask the model, run the tools that it calls, and so on: its last answer, which may have calls for the server.

    Raises:
        InputRefused: It took too long, or *ask* refused an answer.
    """
    from mcp_host.sampling.loop.engine import run_loop  # few clients run tools for a server
    from mcp_host.sampling.loop.results import for_model, head_and_tail

    loop = _Loop(ask, request, tools, limits)
    result = await run_loop(
        loop.next_answer,
        request.params,
        tools=loop.runners,
        write_result=partial(for_model, max_bytes=limits.max_result_bytes, cut=head_and_tail),
        max_turns=limits.max_turns,
        timeout=limits.timeout,
        warnings=loop.count.warnings,
    )
    if result.answer is None:
        logger.warning("%s: running its tools took longer than %s s", log_subject(request.server), limits.timeout)
        raise InputRefused(TOOK_TOO_LONG, f"this client's limit for running tools is {limits.timeout:g} seconds")
    return result.answer


async def fresh_ids(request: SamplingRequest, call_model: CallModel) -> CreateMessageResult | str:
    """Around a model: its calls have ids that are new in the conversation, and those that the tool choice forbids are dropped.

    The server cannot see the ids of earlier answers, and models repeat them. An answer that has only forbidden calls
    stays as it is, to be refused: nothing of it is left.
    """
    from mcp_host.sampling.loop.engine import read_answer

    answer = await call_model()
    if not isinstance(answer, CreateMessageResult):
        return answer
    only_calls = not answer.text and all(isinstance(block, TextContent | ToolUseContent) for block in answer.content)
    if only_calls and answer.tool_uses and not request.may_use_tools and answer.stop_reason not in CUT_OFF:
        return answer
    return read_answer(answer, request.params)


class _Loop:
    """One loop: the tools that it may run, once they are listed, and the number of calls that run."""

    def __init__(self, ask: AskModel, request: SamplingRequest, tools: ServerTools, limits: OwnTools) -> None:
        self.runners: dict[str, RunTool] = {}
        """By the name that the server offers each tool under. Empty until the model calls one."""
        self.count = tools.count(limits)
        self._ask = ask
        self._request = request
        self._tools = tools
        self._limits = limits
        self._listed = False
        self._running = 0

    async def next_answer(self, params: CreateMessageRequestParams) -> CreateMessageResult:
        answer = await self._ask(params)
        if answer.tool_uses and not self._listed:
            self._listed = True
            await self._list()
        calls = len(answer.tool_uses) if all(use.name in self.runners for use in answer.tool_uses) else 0
        most = self._limits.max_calls
        if not self.count.take_own_calls(calls, most, current_time()):
            self.runners.clear()  # so the calls go to the server
            subject = log_subject(self._request.server)
            text = f"{subject}: it has to run its tools itself, after {most} calls (OwnTools.max_calls)"
            self.count.warnings.log(logger, (subject, "max_calls"), text)
        return answer

    async def _list(self) -> None:
        try:
            names = await awaited(self._tools.list_tools(self._request, self._limits.tool_timeout), "list_tools")
        except Exception as exc:
            text = "%s: its tools cannot be listed, so it has to run them: %s"
            logger.warning(text, log_subject(self._request.server), exc)
            return
        self.runners |= {
            tool.name: partial(self._run, names[tool.name]) for tool in self._request.tools if tool.name in names
        }

    async def _run(self, name: str, use: ToolUseContent) -> CallToolResult:
        """Call the tool that the client calls *name*."""
        self._running += 1
        if self._running == 1:
            self._tools.waiting += 1
        try:
            return await self._tools.call_tool(self._request, name, use.input, self._limits.tool_timeout)
        except McpError:
            await checkpoint()  # if the server has ended, so does this request: the model is not asked again
            raise
        finally:
            self._running -= 1
            if self._running == 0:
                self._tools.waiting -= 1


def other_clients_tools(
    call_tool: CallToolFunction, list_tools: ListToolsFunction | None, own_tools: bool | OwnTools
) -> ServerTools:
    """The tools of a server that another client is connected to: see `Sampling.callback`.

    Raises:
        TypeError: A function cannot be called, or *own_tools* is something else.
    """
    limits = OwnTools.chosen(own_tools, argument="own_tools")
    call = as_async(call_tool, argument="call_tool")
    listing = None if list_tools is None else as_async(list_tools, argument="list_tools")

    async def names(request: SamplingRequest, timeout: float) -> dict[str, str]:
        if listing is None:
            return {tool.name: tool.name for tool in request.tools}
        return {name: name for name in _names(await _lend(listing, timeout))}

    async def run(request: SamplingRequest, name: str, arguments: dict[str, object], timeout: float) -> CallToolResult:
        return _read_result(await _lend(partial(call, name, arguments), timeout))

    return ServerTools(names, run, limits, most=MAX_LOOPS)


async def _lend(call: Callable[[], Awaitable[T]], timeout: float) -> T:
    """Await *call* for so many seconds, without the slot of this request: the server may sample within the call.

    Raises:
        RequestTimeout: It took longer.
    """

    async def bounded() -> T:
        with move_on_after(timeout):
            return await call()
        raise RequestTimeout(f"it took longer than {timeout:g} s")

    scope = current_handler.get()
    slot = None if scope is None else scope.slot
    assert isinstance(slot, Slot), "a sampling request runs in a slot"
    return await slot.lend(bounded, within=partial(move_on_after, timeout))


def _names(listing: object) -> list[str]:
    """The names in what *list_tools* returned: names, tools, or a result of ``tools/list``."""
    tools = listing.get("tools") if isinstance(listing, Mapping) else getattr(listing, "tools", listing)
    if isinstance(tools, str | bytes | BaseModel | Mapping) or not isinstance(tools, Iterable):
        raise TypeError(
            f"list_tools has to return names, tools or a result of tools/list, not {type(listing).__name__}"
        )
    return [_name(tool) for tool in tools]


def _name(tool: object) -> str:
    """The name of *tool*, which is one already, or a tool of ours, of the SDK, or as on the wire."""
    name = tool.get("name") if isinstance(tool, Mapping) else getattr(tool, "name", tool)
    if not isinstance(name, str):
        raise TypeError(f"list_tools has to return names or tools, not {type(tool).__name__}")
    return name


def _read_result(result: object) -> CallToolResult:
    if isinstance(result, CallToolResult):
        return result
    if isinstance(result, BaseModel):
        from mcp_host.sampling.other_clients import to_wire

        result = to_wire(result)
    if not isinstance(result, Mapping):
        raise TypeError(f"call_tool has to return a CallToolResult, or a dict, not {type(result).__name__}")
    return CallToolResult.from_wire(dict(result))
