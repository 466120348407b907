"""Printing a conversation, in the cases that the demo's own does not show."""

from __future__ import annotations

from io import StringIO

import pytest

from mcp_host import SamplingRequest
from mcp_host.cli.demo import HANDSHAKE, PrintingModel
from mcp_host.cli.output import Printer
from mcp_host.testing import ScriptedModel
from mcp_host.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ImageContent,
    SamplingMessage,
    TextContent,
    Tool,
    ToolResultContent,
    ToolUseContent,
)


@pytest.fixture(autouse=True)
def width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


async def printed(model: ScriptedModel, *requests: CreateMessageRequestParams) -> list[str]:
    stream = StringIO()
    printing = PrintingModel(model, Printer(stream), HANDSHAKE)
    for params in requests:
        await printing(SamplingRequest(params=params, server="test"))
    return [line for line in stream.getvalue().splitlines() if line]


def user(*content: TextContent | ImageContent | ToolResultContent) -> SamplingMessage:
    return SamplingMessage(role="user", content=content)


async def test_a_request_without_tools_is_printed_with_all_content() -> None:
    model = ScriptedModel(CreateMessageResult(content=TextContent(text="Yes.\x1b[2J"), model="m"))
    image = ImageContent(data="AAAA", mime_type="image/png")
    asked = [user(TextContent(text="Is this\nthe truth?"), image)]

    lines = await printed(model, CreateMessageRequestParams(messages=asked, max_tokens=9))

    assert lines == [
        "server -> host: sampling/createMessage, a request for our model",
        "    user          Is this",
        "                  the truth?",
        "    user          [image/png, 4 characters of base64]",
        "    tools         none",
        "host -> server: our model's answer",
        "    assistant     Yes.\\x1b[2J",
        "    model         m",
        "    stopReason    none",
    ]


async def test_the_result_of_a_failed_tool_is_marked() -> None:
    use = ToolUseContent(id="1", name="look", input={})
    failed = ToolResultContent(tool_use_id="1", content=[TextContent(text="too dark")], is_error=True)
    asked = [user(TextContent(text="?")), SamplingMessage(role="assistant", content=use), user(failed)]
    tool = Tool(name="look", input_schema={})

    lines = await printed(ScriptedModel("ok"), CreateMessageRequestParams(messages=asked, max_tokens=9, tools=[tool]))

    assert lines[1:5] == [
        "    user          ?",
        "    tool_use      look {} (1)",
        "    tool_result   error: too dark (1)",
        "    tools         look",
    ]
