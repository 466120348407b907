"""A group's tools for agents of the OpenAI Agents SDK: https://openai.github.io/openai-agents-python/mcp/."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp_host.frameworks.calls import Group, GroupTools
from mcp_host.frameworks.contents import File, all_parts_of
from mcp_host.functions import text_result
from mcp_host.sampling.loop.tools import OfferedTool
from mcp_host.types import CallToolResult, Tool

try:
    import mcp.types as sdk
    from agents.mcp import MCPServer
except ImportError as exc:  # also of a version that is too old
    raise ImportError("for_openai_agents needs the OpenAI Agents SDK: pip install 'openai-agents>=0.24'") from exc


class GroupServer(MCPServer):
    """A group as one server, which is always connected. Its tools are listed in each turn."""

    def __init__(self, group: Group, *, caller: object, require_approval: Any) -> None:
        super().__init__(require_approval=require_approval)
        self._tools = GroupTools(group, caller=caller)
        self._offered: Mapping[str, OfferedTool] = {}

    @property
    def name(self) -> str:
        """How the SDK calls it in logs and traces."""
        return self._tools.group.name

    async def connect(self) -> None:
        """Nothing: the group is opened by `async with`."""

    async def cleanup(self) -> None:
        """Nothing, as for `connect`."""

    async def list_tools(self, run_context: object = None, agent: object = None) -> list[sdk.Tool]:
        """The tools of the servers that are ready, under their names in the group."""
        self._offered = await self._tools.list()
        return [_sdk_tool(tool.definition) for tool in self._offered.values()]

    async def call_tool(
        self, tool_name: str, arguments: dict[str, Any] | None, meta: dict[str, Any] | None = None
    ) -> sdk.CallToolResult:
        """Call a tool. What fails is a result, which the SDK passes to the model."""
        if (tool := self._offered.get(tool_name)) is None:  # an agent that runs beside has listed since
            return _sdk_result(text_result(f"the tool {tool_name} is no longer available", is_error=True))
        outcome = await self._tools.call(tool, arguments or {}, meta=meta)
        return _sdk_result(outcome.result)

    async def list_prompts(self) -> sdk.ListPromptsResult:
        """The prompts of the servers that are ready, under their names in the group."""
        prompts = [sdk.Prompt.model_validate(prompt.to_wire()) for prompt in await self._tools.group.list_prompts()]
        return sdk.ListPromptsResult(prompts=prompts)

    async def get_prompt(self, name: str, arguments: dict[str, Any] | None = None) -> sdk.GetPromptResult:
        """A prompt by its name in the group."""
        result = await self._tools.group.get_prompt(name, arguments)
        return sdk.GetPromptResult.model_validate(result.to_wire())


def _sdk_tool(tool: Tool) -> sdk.Tool:
    """The tool in the SDK's type, without ``_meta``, which the SDK would send to the server in each call."""
    return sdk.Tool.model_validate(tool.model_copy(update={"meta": None}).to_wire())


def _sdk_result(result: CallToolResult) -> sdk.CallToolResult:
    """The result as the SDK reads it: texts and images. Of other files it would pass the base64 to the model, as text."""
    wire: dict[str, Any] = {"content": list(map(_block, all_parts_of(result))), "isError": bool(result.is_error)}
    if isinstance(result.structured_content, dict):
        wire["structuredContent"] = result.structured_content
    return sdk.CallToolResult.model_validate(wire)


def _block(part: str | File) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if part.kind == "image":
        return {"type": "image", "data": part.base64, "mimeType": part.mime_type}
    return {"type": "text", "text": part.description}
