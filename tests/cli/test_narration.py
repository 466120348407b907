"""Telling a dialogue, where it differs from the demo's own."""

from __future__ import annotations

from io import StringIO

import pytest
from anyio import fail_after

from mcp_host import Client, Sampling, SamplingRequest, always
from mcp_host.cli.demo import HANDSHAKE, Narrated, tell_opening, tell_result
from mcp_host.cli.output import Page
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


async def told(model: ScriptedModel, *requests: CreateMessageRequestParams) -> list[str]:
    stream = StringIO()
    narrated = Narrated(model, Page(stream), HANDSHAKE)
    for params in requests:
        await narrated(SamplingRequest(params=params, server="test"))
    return [line for line in stream.getvalue().splitlines() if line]


def user(*content: TextContent | ImageContent | ToolResultContent) -> SamplingMessage:
    return SamplingMessage(role="user", content=content)


async def test_a_plain_request_shows_its_system_prompt_every_kind_of_content_and_no_tools() -> None:
    model = ScriptedModel(CreateMessageResult(content=TextContent(text="Yes.\x1b[2J"), model="m"))
    image = ImageContent(data="AAAA", mime_type="image/png")
    asked = [user(TextContent(text="Is this\nthe truth?"), image)]

    lines = await told(model, CreateMessageRequestParams(messages=asked, max_tokens=9, system_prompt="Be brief."))

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


async def test_a_failed_tool_and_a_tool_of_a_strange_schema_are_told_as_they_are() -> None:
    use = ToolUseContent(id="1", name="look", input={})
    failed = ToolResultContent(tool_use_id="1", content=[TextContent(text="too dark")], is_error=True)
    asked = [user(TextContent(text="?")), SamplingMessage(role="assistant", content=use), user(failed)]
    tool = Tool(name="look", input_schema={"properties": True})

    lines = await told(ScriptedModel("ok"), CreateMessageRequestParams(messages=asked, max_tokens=9, tools=[tool]))

    assert lines[1:5] == [
        "    user          ?",
        "    tool_use      look {} (1)",
        "    tool_result   error: too dark (1)",
        "    tools         look()",
    ]


def test_a_result_that_is_an_error_says_so() -> None:
    stream = StringIO()
    blocks: list[ReceivedContent] = [TextContent(text="no"), ImageContent(data="AAAA", mime_type="image/png")]

    tell_result(Page(stream), CallToolResult(content=blocks, is_error=True))

    assert stream.getvalue().splitlines() == [
        "",
        "server -> host: the tool's result",
        "    text          no",
        "    content       [image/png, 4 characters of base64]",
        "    isError       true",
    ]


async def test_a_server_without_instructions_has_none_shown() -> None:
    stream = StringIO()
    sampling = Sampling(with_tools=ScriptedModel(), approve=always)

    with fail_after(5):
        async with Client(Server("s").in_process(), era="legacy", sampling=sampling) as client:
            tell_opening(Page(stream), client, sampling, HANDSHAKE)

    assert stream.getvalue().splitlines()[-3:] == [
        "    server        s 1.0.0",
        "    revision      2025-11-25",
        '    advertises    {"logging": {}}',
    ]
