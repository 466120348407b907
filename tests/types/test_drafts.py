"""What SEP-1577's drafts spelled differently is understood, and never written."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_host.errors import ProtocolError
from mcp_host.types import CreateMessageRequestParams, CreateMessageResult, TextContent, ToolChoice, ToolResultContent

REQUEST = {"messages": [], "maxTokens": 5}
RESULT = {"type": "tool_result", "toolUseId": "1"}
TEXT = {"type": "text", "text": "hi"}


@pytest.mark.parametrize(
    ("draft", "settled"),
    [
        ({"tool_choice": {"mode": "required"}}, {"toolChoice": {"mode": "required"}}),
        ({"tool_choice": {"mode": "required"}, "toolChoice": {"mode": "none"}}, {"toolChoice": {"mode": "none"}}),
        ({"tool_choice": {"mode": "required"}, "toolChoice": None}, {"toolChoice": None}),
        ({"tool_choice": None}, {"toolChoice": None}),
        (
            {"tool_choice": {"mode": "auto", "disable_parallel_tool_use": True}},
            {"toolChoice": {"mode": "auto", "disable_parallel_tool_use": True}},
        ),
        ({"disable_parallel_tool_use": True}, {"disable_parallel_tool_use": True}),
    ],
    ids=["snake", "both", "both, one null", "null", "parallel inside", "parallel beside"],
)
def test_a_draft_request_is_read_and_written_as_settled(draft: dict[str, Any], settled: dict[str, Any]) -> None:
    assert CreateMessageRequestParams.from_wire({**REQUEST, **draft}).to_wire() == {**REQUEST, **settled}


def test_a_tool_choice_is_the_same_in_either_spelling() -> None:
    params = CreateMessageRequestParams.from_wire({**REQUEST, "tool_choice": {"mode": "required"}})

    assert params == CreateMessageRequestParams(messages=[], max_tokens=5, tool_choice=ToolChoice(mode="required"))


def test_a_malformed_tool_choice_is_refused_in_either_spelling() -> None:
    with pytest.raises(ProtocolError, match=r"malformed CreateMessageRequestParams: toolChoice\.mode: Input should be"):
        CreateMessageRequestParams.from_wire({**REQUEST, "toolChoice": {"mode": "any"}})
    with pytest.raises(ProtocolError, match="malformed CreateMessageRequestParams: Input should be 'auto'"):
        CreateMessageRequestParams.from_wire({**REQUEST, "tool_choice": {"mode": "any"}})


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, False),
        ({"toolChoice": {}}, False),
        ({"toolChoice": {"disable_parallel_tool_use": True}}, True),
        ({"toolChoice": {"disable_parallel_tool_use": False}}, False),
        ({"toolChoice": {"disable_parallel_tool_use": "yes"}}, False),
        ({"disable_parallel_tool_use": True}, True),
        ({"disable_parallel_tool_use": True, "toolChoice": {}}, True),
    ],
)
def test_one_tool_at_a_time_can_be_asked_for_in_two_places(fields: dict[str, Any], wanted: bool) -> None:
    assert CreateMessageRequestParams.from_wire({**REQUEST, **fields}).disable_parallel_tool_use is wanted


@pytest.mark.parametrize(
    ("draft", "settled"),
    [
        (
            {"content": {"celsius": 18.5, "sky": "☁"}},
            {
                "content": [{"type": "text", "text": '{"celsius":18.5,"sky":"☁"}'}],
                "structuredContent": {"celsius": 18.5, "sky": "☁"},
            },
        ),
        ({"content": {}}, {"content": [{"type": "text", "text": "{}"}], "structuredContent": {}}),
        (
            {"content": {"a": 1}, "structuredContent": {"b": 2}},
            {"content": [{"type": "text", "text": '{"a":1}'}], "structuredContent": {"b": 2}},
        ),
        (
            {"content": {"type": "sunny"}},
            {"content": [{"type": "text", "text": '{"type":"sunny"}'}], "structuredContent": {"type": "sunny"}},
        ),
        (
            {"content": {"error": "API_ERROR"}, "isError": True},
            {
                "content": [{"type": "text", "text": '{"error":"API_ERROR"}'}],
                "structuredContent": {"error": "API_ERROR"},
                "isError": True,
            },
        ),
        ({"content": TEXT}, {"content": [TEXT]}),
        ({"content": [TEXT]}, {"content": [TEXT]}),
        ({"content": []}, {"content": []}),
    ],
    ids=["object", "empty object", "both", "object with a type", "error", "lone block", "settled", "settled, empty"],
)
def test_a_draft_tool_result_is_read_and_written_as_settled(draft: dict[str, Any], settled: dict[str, Any]) -> None:
    assert ToolResultContent.from_wire({**RESULT, **draft}).to_wire() == {**RESULT, **settled}


@pytest.mark.parametrize("content", ["hi", None, 5, {"type": "text"}], ids=["text", "null", "number", "half a block"])
def test_a_tool_result_of_no_known_shape_is_refused(content: object) -> None:
    """No draft had a bare string, and a block without its text is a mistake, not data."""
    with pytest.raises(ProtocolError, match="malformed ToolResultContent: content"):
        ToolResultContent.from_wire({**RESULT, "content": content})


@pytest.mark.parametrize("reason", ["endTurn", "stopSequence", "maxTokens", "toolUse", "refusal", "other", "brand new"])
def test_a_stop_reason_is_any_string(reason: str) -> None:
    wire = {"role": "assistant", "content": TEXT, "model": "m", "stopReason": reason}
    result = CreateMessageResult.from_wire(wire)

    assert result == CreateMessageResult(content=TextContent(text="hi"), model="m", stop_reason=reason)
    assert result.to_wire() == wire
