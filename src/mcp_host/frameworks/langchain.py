"""A group's tools for agents of LangChain: https://docs.langchain.com/oss/python/langchain/tools."""

from __future__ import annotations

from typing import Any, Literal

from mcp_host.frameworks.calls import Group, GroupTools
from mcp_host.frameworks.contents import File, all_parts_of
from mcp_host.sampling.loop.tools import OfferedTool
from mcp_host.types import CallToolResult

try:
    from langchain_core.messages.content import (
        create_file_block,
        create_image_block,
        create_text_block,
    )
    from langchain_core.tools import BaseTool, ToolException
except ImportError as exc:  # also of a version that is too old
    raise ImportError("for_langchain needs LangChain: pip install 'langchain-core>=1.7'") from exc


async def group_tools(group: Group, *, caller: object) -> list[GroupTool]:
    """The tools of the servers that are ready."""
    tools = GroupTools(group, caller=caller)
    return [GroupTool(tools, tool) for tool in (await tools.list()).values()]


class CallFailed(ToolException):
    """There is no result, or the tool ran and failed: *blocks* are the content of the message that says so."""

    def __init__(self, blocks: list[Any]) -> None:
        super().__init__(blocks)
        self.blocks = blocks


def _blocks_of(error: ToolException) -> Any:
    assert isinstance(error, CallFailed), "a tool of a group raises no other one"
    return error.blocks


class GroupTool(BaseTool):
    """A tool of a group. It is called where the group is: with ``await tool.ainvoke(...)``, as agents do."""

    response_format: Literal["content", "content_and_artifact"] = "content_and_artifact"
    _tools: GroupTools
    _offered: OfferedTool

    def __init__(self, tools: GroupTools, offered: OfferedTool) -> None:
        tool = offered.definition
        hints = {} if tool.annotations is None else tool.annotations.to_wire()
        super().__init__(
            name=tool.name,
            description=tool.description or "",
            args_schema=tool.input_schema,
            metadata=(hints if tool.meta is None else {**hints, "_meta": tool.meta}) or None,
            handle_tool_error=_blocks_of,
        )
        self._tools = tools
        self._offered = offered

    def _run(self, /, *args: Any, **arguments: Any) -> Any:
        raise NotImplementedError(f"{self.name} is called with `await tool.ainvoke(...)`")

    async def _arun(self, /, *args: Any, **arguments: Any) -> tuple[list[Any], dict[str, Any] | None]:
        """The blocks of the message, and its artifact. `CallFailed` becomes a message with the status "error"."""
        outcome = await self._tools.call(self._offered, arguments)
        blocks = _blocks(outcome.result)
        if outcome.result.is_error:
            raise CallFailed(blocks)
        structured = outcome.result.structured_content
        return blocks, None if structured is None else {"structured_content": structured}


def _blocks(result: CallToolResult) -> list[Any]:
    return list(map(_block, all_parts_of(result)))


def _block(part: str | File) -> Any:
    if isinstance(part, str):
        return create_text_block(part)
    if part.kind == "audio":  # with a block of audio among them, LangChain makes one text of all blocks
        return create_text_block(part.description)
    create = create_image_block if part.kind == "image" else create_file_block
    return create(base64=part.base64, mime_type=part.mime_type)
