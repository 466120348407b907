"""Printing a conversation, in the cases that the demo's own does not show."""

from __future__ import annotations

from io import StringIO

import pytest
from anyio import fail_after

from mcp_host import Client, Sampling, SamplingRequest, always
from mcp_host.cli.demo import HANDSHAKE, PrintingModel, print_connection, print_result
from mcp_host.cli.output import Printer
from mcp_host.testing import ScriptedModel, Server
from mcp_host.types import (
    CallToolResult,
    CreateMessageRequestParams,
    CreateMessageResult,
    ImageContent,
    SamplingMessage,
    TextContent,
    Tool,
    ToolResultContent,
    ToolUseContent,
)
from mcp_host.types.content import ReceivedContent


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


async def test_a_request_without_tools_is_printed_with_its_system_prompt_and_all_content() -> None:
    model = ScriptedModel(CreateMessageResult(content=TextContent(text="Yes.\x1b[2J"), model="m"))
    image = ImageContent(data="AAAA", mime_type="image/png")
    asked = [user(TextContent(text="Is this\nthe truth?"), image)]

    lines = await printed(model, CreateMessageRequestParams(messages=asked, max_tokens=9, system_prompt="Be brief."))

    assert lines == [
        "server -> host: sampling/createMessage, a question for our model",
        "    system        Be brief.",
        "    user          Is this",
        "                  the truth?",
        "    user          [image/png, 4 characters of base64]",
        "    tools         none",
        "host -> server: our model's answer",
        "    model         m",
        "    text          Yes.\\x1b[2J",
        "    stopReason    none",
    ]


async def test_a_failed_tool_and_a_tool_with_an_invalid_schema_are_printed() -> None:
    use = ToolUseContent(id="1", name="look", input={})
    failed = ToolResultContent(tool_use_id="1", content=[TextContent(text="too dark")], is_error=True)
    asked = [user(TextContent(text="?")), SamplingMessage(role="assistant", content=use), user(failed)]
    tool = Tool(name="look", input_schema={"properties": True})

    lines = await printed(ScriptedModel("ok"), CreateMessageRequestParams(messages=asked, max_tokens=9, tools=[tool]))

    assert lines[1:5] == [
        "    user          ?",
        "    tool_use      look {} (1)",
        "    tool_result   error: too dark (1)",
        "    tools         look()",
    ]


def test_a_result_that_is_an_error_is_marked() -> None:
    stream = StringIO()
    blocks: list[ReceivedContent] = [TextContent(text="no"), ImageContent(data="AAAA", mime_type="image/png")]

    print_result(Printer(stream), CallToolResult(content=blocks, is_error=True))

    assert stream.getvalue().splitlines() == [
        "",
        "server -> host: the tool's result",
        "    text          no",
        "    content       [image/png, 4 characters of base64]",
        "    isError       true",
    ]


async def test_for_a_server_without_instructions_none_are_printed() -> None:
    stream = StringIO()
    sampling = Sampling(with_tools=ScriptedModel(), approve=always)

    with fail_after(5):
        async with Client(Server("s").in_process(), era="legacy", sampling=sampling) as client:
            print_connection(Printer(stream), client, sampling, HANDSHAKE)

    assert stream.getvalue().splitlines()[-3:] == [
        "    server        s 1.0.0",
        "    revision      2025-11-25",
        '    advertises    {"logging": {}}',
    ]
