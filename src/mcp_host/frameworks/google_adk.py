"""A group's tools for agents of Google's Agent Development Kit: https://google.github.io/adk-docs/tools/."""

from __future__ import annotations

from typing import Any

from mcp_host.frameworks.calls import Group, GroupTools
from mcp_host.frameworks.contents import File, error_text, parts_of
from mcp_host.sampling.loop.tools import OfferedTool
from mcp_host.types import CallToolResult

try:
    from google.adk.agents.readonly_context import ReadonlyContext
    from google.adk.tools.base_tool import BaseTool
    from google.adk.tools.base_toolset import BaseToolset
    from google.adk.tools.tool_context import ToolContext
    from google.genai.types import Blob, FunctionDeclaration, Part
except ImportError as exc:  # also of a version that is too old
    raise ImportError("for_google_adk needs the Agent Development Kit: pip install 'google-adk>=2.13'") from exc


class GroupToolset(BaseToolset):
    """The tools of all servers of a group. They are listed again before each request to the model."""

    def __init__(self, group: Group, *, caller: object) -> None:
        super().__init__()
        self._use_invocation_cache = False  # the list is kept already, and may change from turn to turn
        self._tools = GroupTools(group, caller=caller)

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        """The tools of the servers that are ready, under their names in the group."""
        return [GroupTool(self._tools, tool) for tool in (await self._tools.list()).values()]


class GroupTool(BaseTool):
    """A tool of a group."""

    def __init__(self, tools: GroupTools, offered: OfferedTool) -> None:
        super().__init__(name=offered.definition.name, description=offered.definition.description or "")
        self._tools = tools
        self._offered = offered

    def _get_declaration(self) -> FunctionDeclaration:
        tool = self._offered.definition
        return FunctionDeclaration(
            name=self.name, description=self.description, parameters_json_schema=tool.input_schema
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> dict[str, Any]:
        """The result under the names that ADK's own ``McpTool`` uses, with files as ``Part``; or ``{"error": ...}``, if there is none."""
        outcome = await self._tools.call(self._offered, args)
        return _response(outcome.result) if outcome.returned else {"error": error_text(outcome.result)}


def _response(result: CallToolResult) -> dict[str, Any]:
    content = list(map(_content, parts_of(result.content)))
    response: dict[str, Any] = {"content": content, "isError": bool(result.is_error)}
    if result.structured_content is not None:
        response["structuredContent"] = result.structured_content
    return response


def _content(part: str | File) -> Any:
    if isinstance(part, File):  # ADK moves it to the parts of the function's response
        return Part(inline_data=Blob(data=part.data, mime_type=part.mime_type))
    return {"type": "text", "text": part}
