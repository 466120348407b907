"""A group's tools for agents of pydantic-ai: https://ai.pydantic.dev/toolsets/."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic_core import SchemaValidator, core_schema

from mcp_host.frameworks.calls import Group, GroupTools
from mcp_host.frameworks.contents import File, error_text, parts_of, repeats_structured
from mcp_host.sampling.loop.tools import OfferedTool
from mcp_host.types import CallToolResult, TextContent

try:
    from pydantic_ai.exceptions import ModelRetry, ToolFailed
    from pydantic_ai.messages import BinaryContent
    from pydantic_ai.tools import RunContext, ToolDefinition
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
except ImportError as exc:  # also of a version that is too old
    raise ImportError("for_pydantic_ai needs pydantic-ai: pip install 'pydantic-ai-slim>=2.68'") from exc

ANY_ARGUMENTS = SchemaValidator(core_schema.any_schema())  # `GroupTools.call` checks them


@dataclass(kw_only=True)
class GroupTool(ToolsetTool[Any]):
    """A tool of a group in one step of a run."""

    offered: OfferedTool


class GroupToolset(AbstractToolset[Any]):
    """The tools of all servers of a group. They are listed again in each step of a run."""

    def __init__(self, group: Group, *, caller: object) -> None:
        self._tools = GroupTools(group, caller=caller)

    @property
    def id(self) -> str | None:
        """None: it cannot be used in durable executions, which run in several processes."""
        return None

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """The tools of the servers that are ready, under their names in the group."""
        return {
            name: GroupTool(
                toolset=self,
                tool_def=_definition(tool),
                max_retries=ctx.max_retries,
                args_validator=ANY_ARGUMENTS,
                offered=tool,
            )
            for name, tool in (await self._tools.list()).items()
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Call a tool, for its result in pydantic-ai's form.

        Raises:
            ModelRetry: The tool ran and failed, as for pydantic-ai's own `MCPToolset`.
            ToolFailed: It was not run, or there is no result. This uses up no retries.
        """
        assert isinstance(tool, GroupTool), "it comes from `get_tools`"
        outcome = await self._tools.call(tool.offered, tool_args)
        if not outcome.result.is_error:
            return _value(outcome.result)
        error = ModelRetry if outcome.returned else ToolFailed
        raise error(error_text(outcome.result))


def _definition(tool: OfferedTool) -> ToolDefinition:
    definition = tool.definition
    annotations = definition.annotations
    return ToolDefinition(
        name=definition.name,
        description=definition.description,
        parameters_json_schema=definition.input_schema,
        return_schema=definition.output_schema,
        metadata={"meta": definition.meta, "annotations": annotations and annotations.to_wire()},
    )


def _value(result: CallToolResult) -> Any:
    """The one part of a result, or a list of its parts. Structured content replaces texts that repeat it."""
    repeated = repeats_structured(result)
    content = [block for block in result.content if not (repeated and isinstance(block, TextContent))]
    values = list(map(_part, parts_of(content)))
    if result.structured_content is not None:
        values.append(_unwrapped(result.structured_content))
    return values[0] if len(values) == 1 else values


def _part(part: str | File) -> object:
    if isinstance(part, str):
        return part
    return BinaryContent.narrow_type(BinaryContent(part.data, media_type=part.mime_type))


def _unwrapped(structured: object) -> object:
    """What SDKs of servers write as ``{"result": ...}``, because it is no object."""
    if isinstance(structured, dict) and structured.keys() == {"result"}:
        return structured["result"]
    return structured
