"""What agents of all frameworks get of a group: its tools, and what comes of calling them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from mcp_host.handlers import CountedWarnings
from mcp_host.sampling.arguments import ArgumentChecker
from mcp_host.sampling.loop.engine import result_of
from mcp_host.sampling.loop.refusals import refusal
from mcp_host.sampling.loop.tools import OfferedTool, ToolGroup, offered_by
from mcp_host.types import CallToolResult, GetPromptResult, Prompt, ToolUseContent


class Group(ToolGroup, Protocol):
    """What a framework needs of a `mcp_host.ClientGroup`."""

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        meta: Mapping[str, Any] | None = None,
        caller: object = None,
    ) -> CallToolResult:
        """Call a tool by its name in the group."""

    async def list_prompts(self) -> list[Prompt]:
        """The prompts of all servers that are ready."""

    async def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> GetPromptResult:
        """Get a prompt by its name in the group."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call ended: the *result* that the server *returned*, or else an error for the model that says why there is none."""

    result: CallToolResult
    returned: bool


class GroupTools:
    """The tools of a group, for agents whose calls are made for *caller*."""

    def __init__(self, group: Group, *, caller: object) -> None:
        self.group = group
        self._caller = caller
        self._checker = ArgumentChecker(subject=group.name)
        self._warnings = CountedWarnings()

    async def list(self) -> dict[str, OfferedTool]:
        """The tools of the servers that are ready, by their names. It waits for nothing.

        Raises:
            NotConnected: The group is not open.
        """
        offered = offered_by(self.group, await self.group.list_tools(), self._run)
        return {tool.definition.name: tool for tool in offered}

    async def call(
        self, tool: OfferedTool, arguments: Mapping[str, Any], *, meta: dict[str, Any] | None = None
    ) -> Outcome:
        """Call *tool*, if the arguments fit its schema and the group's *approve* allows it.

        What fails becomes an error for the model, except an approver: what that raises is raised.
        """
        refused = await refusal(tool, arguments, caller=self._caller, checker=self._checker, approvals=None)
        if refused is not None:
            return Outcome(refused, returned=False)
        returned: CallToolResult | None = None

        async def run(use: ToolUseContent) -> CallToolResult:
            nonlocal returned
            returned = await tool.run(use)
            return returned

        use = ToolUseContent(id="", name=tool.definition.name, input=dict(arguments), meta=meta)
        result = await result_of(run, use, self._warnings)
        return Outcome(result, returned=returned is not None)

    async def _run(self, use: ToolUseContent) -> CallToolResult:
        return await self.group.call_tool(use.name, use.input, meta=use.meta, caller=self._caller)
