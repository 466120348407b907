"""The spellings of SEP-1577's drafts are understood, and never written."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_host.errors import ProtocolError
from mcp_host.types import CreateMessageRequestParams, CreateMessageResult, TextContent, ToolChoice, ToolResultContent
from mcp_host.types.base import Model

REQUEST = {"messages": [], "maxTokens": 5}
RESULT = {"type": "tool_result", "toolUseId": "1"}
TEXT = {"type": "text", "text": "hi"}


DRAFT_REQUESTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "snake": ({"tool_choice": {"mode": "required"}}, {"toolChoice": {"mode": "required"}}),
    "both": ({"tool_choice": {"mode": "required"}, "toolChoice": {"mode": "none"}}, {"toolChoice": {"mode": "none"}}),
    "both, one null": ({"tool_choice": {"mode": "required"}, "toolChoice": None}, {"toolChoice": None}),
    "null": ({"tool_choice": None}, {"toolChoice": None}),
    "parallel inside": (
        {"tool_choice": {"mode": "auto", "disable_parallel_tool_use": True}},
        {"toolChoice": {"mode": "auto", "disable_parallel_tool_use": True}},
    ),
    "parallel beside": ({"disable_parallel_tool_use": True}, {"disable_parallel_tool_use": True}),
    "type auto": ({"toolChoice": {"type": "auto"}}, {"toolChoice": {"mode": "auto"}}),
    "type required": ({"toolChoice": {"type": "required"}}, {"toolChoice": {"mode": "required"}}),
    "snake, type none": ({"tool_choice": {"type": "none"}}, {"toolChoice": {"mode": "none"}}),
    "type tool": ({"toolChoice": {"type": "tool", "name": "add"}}, {"toolChoice": {"mode": "required", "name": "add"}}),
    "mode tool": ({"toolChoice": {"mode": "tool", "name": "add"}}, {"toolChoice": {"mode": "required", "name": "add"}}),
    "mode and type": (
        {"toolChoice": {"mode": "none", "type": "required"}},
        {"toolChoice": {"mode": "none", "type": "required"}},
    ),
    "mode null and type": ({"toolChoice": {"mode": None, "type": "required"}}, {"toolChoice": {"mode": "required"}}),
    "a whole float": ({"maxTokens": 1000.0}, {"maxTokens": 1000}),
}


def test_a_draft_request_is_read_and_written_as_settled(subtests: pytest.Subtests) -> None:
    for case, (draft, settled) in DRAFT_REQUESTS.items():
        with subtests.test(case):
            assert CreateMessageRequestParams.from_wire({**REQUEST, **draft}).to_wire() == {**REQUEST, **settled}


def test_a_tool_choice_is_the_same_in_either_spelling() -> None:
    params = CreateMessageRequestParams.from_wire({**REQUEST, "tool_choice": {"mode": "required"}})

    assert params == CreateMessageRequestParams(messages=[], max_tokens=5, tool_choice=ToolChoice(mode="required"))


@pytest.mark.parametrize(
    ("choice", "tool"),
    [
        (ToolChoice(mode="required"), None),
        (ToolChoice.from_wire({"type": "tool", "name": "add"}), "add"),
        (ToolChoice.from_wire({"mode": "required", "name": "add"}), "add"),
        (ToolChoice.from_wire({"mode": "auto", "name": "add"}), None),
        (ToolChoice.from_wire({"mode": "required", "name": 5}), None),
    ],
    ids=["none", "a draft's", "as we write it", "not required", "no name"],
)
def test_a_tool_choice_names_the_single_tool_that_is_required(choice: ToolChoice, tool: str | None) -> None:
    assert choice.tool == tool


@pytest.mark.parametrize(
    ("choice", "problem"),
    [
        ({"type": "any"}, "toolChoice: type is 'any', and must be auto, required, none or tool"),
        ({"type": ["auto"]}, "toolChoice: type is ['auto'], and must be auto, required, none or tool"),
        ({"type": "tool"}, "toolChoice: a single tool is required, and the name is missing"),
        ({"type": "tool", "name": 5}, "toolChoice: a single tool is required, and the name is missing"),
        ({"mode": "tool"}, "toolChoice: a single tool is required, and the name is missing"),
    ],
)
def test_an_unknown_tool_choice_is_rejected_and_not_read_as_auto(choice: dict[str, Any], problem: str) -> None:
    with pytest.raises(ProtocolError) as refusal:
        CreateMessageRequestParams.from_wire({**REQUEST, "toolChoice": choice})

    assert str(refusal.value) == f"malformed CreateMessageRequestParams: {problem}"


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (ToolChoice, "malformed ToolChoice: Input should be a valid dictionary or instance of ToolChoice"),
        (
            ToolResultContent,
            "malformed ToolResultContent: Input should be a valid dictionary or instance of ToolResultContent",
        ),
    ],
    ids=["tool choice", "tool result"],
)
def test_a_value_that_is_not_an_object_is_rejected(model: type[Model], problem: str) -> None:
    with pytest.raises(ProtocolError) as refusal:
        model.from_wire("auto")

    assert str(refusal.value) == problem


@pytest.mark.parametrize("tokens", [1000.5, "1000", True, float("inf")])
def test_a_fractional_number_of_tokens_is_rejected(tokens: object) -> None:
    with pytest.raises(ProtocolError, match="malformed CreateMessageRequestParams: maxTokens: Input should be"):
        CreateMessageRequestParams.from_wire({**REQUEST, "maxTokens": tokens})


def test_a_malformed_tool_choice_is_rejected_in_either_spelling() -> None:
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


DRAFT_RESULTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "object": (
        {"content": {"celsius": 18.5, "sky": "☁"}},
        {
            "content": [{"type": "text", "text": '{"celsius":18.5,"sky":"☁"}'}],
            "structuredContent": {"celsius": 18.5, "sky": "☁"},
        },
    ),
    "empty object": ({"content": {}}, {"content": [{"type": "text", "text": "{}"}], "structuredContent": {}}),
    "both": ({"content": {"a": 1}, "structuredContent": {"b": 2}}, {"content": [{"type": "text", "text": '{"a":1}'}], "structuredContent": {"b": 2}}),
    "object with a type": ({"content": {"type": "sunny"}}, {"content": [{"type": "text", "text": '{"type":"sunny"}'}], "structuredContent": {"type": "sunny"}}),
    "error": (
        {"content": {"error": "API_ERROR"}, "isError": True},
        {
            "content": [{"type": "text", "text": '{"error":"API_ERROR"}'}],
            "structuredContent": {"error": "API_ERROR"},
            "isError": True,
        },
    ),
    "object typed text": (
        {"content": {"type": "text", "words": 2}},
        {
            "content": [{"type": "text", "text": '{"type":"text","words":2}'}],
            "structuredContent": {"type": "text", "words": 2},
        },
    ),
    "object typed resource": (
        {"content": {"type": "resource", "id": 7}},
        {
            "content": [{"type": "text", "text": '{"type":"resource","id":7}'}],
            "structuredContent": {"type": "resource", "id": 7},
        },
    ),
    "bare text": ({"content": "18 degrees"}, {"content": [{"type": "text", "text": "18 degrees"}]}),
    "no content": ({}, {"content": []}),
    "null": ({"content": None, "isError": True}, {"content": [], "isError": True}),
    "lone block": ({"content": TEXT}, {"content": [TEXT]}),
    "settled": ({"content": [TEXT]}, {"content": [TEXT]}),
    "settled, empty": ({"content": []}, {"content": []}),
}  # fmt: skip


def test_a_draft_tool_result_is_read_and_written_as_settled(subtests: pytest.Subtests) -> None:
    for case, (draft, settled) in DRAFT_RESULTS.items():
        with subtests.test(case):
            assert ToolResultContent.from_wire({**RESULT, **draft}).to_wire() == {**RESULT, **settled}


@pytest.mark.parametrize("content", [5, [{"type": "text"}]], ids=["number", "half a block in a list"])
def test_a_tool_result_of_unknown_shape_is_rejected(content: object) -> None:
    with pytest.raises(ProtocolError, match="malformed ToolResultContent: content"):
        ToolResultContent.from_wire({**RESULT, "content": content})


@pytest.mark.parametrize("reason", ["endTurn", "stopSequence", "maxTokens", "toolUse", "refusal", "other", "brand new"])
def test_a_stop_reason_is_any_string(reason: str) -> None:
    wire = {"role": "assistant", "content": TEXT, "model": "m", "stopReason": reason}
    result = CreateMessageResult.from_wire(wire)

    assert result == CreateMessageResult(content=TextContent(text="hi"), model="m", stop_reason=reason)
    assert result.to_wire() == wire
