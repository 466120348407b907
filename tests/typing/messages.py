"""A conversation is written with the right blocks on the right side."""

from __future__ import annotations

from typing import assert_type

from mcp_host.types import (
    AssistantMessage,
    AudioContent,
    CallToolResult,
    CreateMessageRequestParams,
    CreateMessageResult,
    ImageContent,
    SamplingMessage,
    TextContent,
    ToolResultContent,
    ToolUseContent,
    UserMessage,
)

TEXT = TextContent(text="18 degrees")
IMAGE = ImageContent(data="", mime_type="image/png")
AUDIO = AudioContent(data="", mime_type="audio/wav")
USE = ToolUseContent(id="1", name="weather", input={})
RESULT = ToolResultContent.of(USE, "18 degrees")


def what_either_side_may_say() -> list[SamplingMessage]:
    return [
        UserMessage("a text"),
        UserMessage(TEXT),
        UserMessage([TEXT, IMAGE, AUDIO], meta={"a": 1}),
        UserMessage(RESULT),
        UserMessage([RESULT, RESULT]),
        AssistantMessage("a text"),
        AssistantMessage(USE),
        AssistantMessage([TEXT, USE, USE], meta={"a": 1}),
    ]


def what_the_assistant_may_not_say() -> None:
    AssistantMessage(RESULT)  # type: ignore[arg-type]
    AssistantMessage([RESULT])  # type: ignore[list-item]
    AssistantMessage([TEXT, RESULT])  # type: ignore[list-item]


def what_the_user_may_not_say() -> None:
    UserMessage(USE)  # type: ignore[arg-type]
    UserMessage([USE])  # type: ignore[list-item]
    UserMessage([TEXT, USE])  # type: ignore[list-item]


def each_side_has_its_role() -> None:
    UserMessage("a text", role="assistant")  # type: ignore[call-arg]
    SamplingMessage(role="system", content=TEXT)  # type: ignore[call-overload]
    SamplingMessage(role="user", content=[TEXT])
    SamplingMessage(role="user", content=USE)  # type: ignore[call-overload]
    SamplingMessage(role="assistant", content=RESULT)  # type: ignore[call-overload]
    CreateMessageResult(content=RESULT, model="m")  # type: ignore[arg-type]


def a_received_message_has_the_blocks_of_its_role(received: CreateMessageRequestParams) -> None:
    for message in received.messages:
        if isinstance(message, UserMessage):
            assert_type(message.content, list[TextContent | ImageContent | AudioContent | ToolResultContent])
        elif isinstance(message, AssistantMessage):
            assert_type(message.content, list[TextContent | ImageContent | AudioContent | ToolUseContent])


def both_sides_make_a_request() -> CreateMessageRequestParams:
    return CreateMessageRequestParams(
        messages=[UserMessage("?"), AssistantMessage(USE), UserMessage(RESULT)], max_tokens=9
    )


def what_a_tool_may_have_returned(result: CallToolResult, stranger: bytes) -> None:
    assert_type(ToolResultContent.of(USE, result), ToolResultContent)
    assert_type(ToolResultContent.of(USE, [TEXT, IMAGE], is_error=True), ToolResultContent)
    assert_type(ToolResultContent.of(USE, {"celsius": 18}), ToolResultContent)
    ToolResultContent.of(USE, stranger)  # type: ignore[arg-type]
    ToolResultContent.of("1", "a text")  # type: ignore[arg-type]
