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
    "type any": ({"toolChoice": {"type": "any"}}, {"toolChoice": {"mode": "required"}}),
    "snake, mode any": ({"tool_choice": {"mode": "any"}}, {"toolChoice": {"mode": "required"}}),
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


NAMELESS = "toolChoice: a single tool is required, and the name is missing"
REFUSED: list[tuple[type[Model], object, str]] = [
    (CreateMessageRequestParams, {"toolChoice": {"type": "all"}}, "toolChoice: type is 'all', and must be auto, required, none, any or tool"),
    (CreateMessageRequestParams, {"toolChoice": {"type": ["auto"]}}, "toolChoice: type is ['auto'], and must be auto, required, none, any or tool"),
    (CreateMessageRequestParams, {"toolChoice": {"type": "tool"}}, NAMELESS),
    (CreateMessageRequestParams, {"toolChoice": {"type": "tool", "name": 5}}, NAMELESS),
    (CreateMessageRequestParams, {"toolChoice": {"mode": "tool"}}, NAMELESS),
    (CreateMessageRequestParams, {"toolChoice": {"mode": "all"}}, "toolChoice.mode: Input should be 'auto', 'required' or 'none'"),
    (CreateMessageRequestParams, {"tool_choice": {"mode": "all"}}, "Input should be 'auto', 'required' or 'none'"),
    (CreateMessageRequestParams, {"maxTokens": 1000.5}, "maxTokens: Input should be a valid integer"),
    (CreateMessageRequestParams, {"maxTokens": float("inf")}, "maxTokens: Input should be a valid integer"),
    (ToolChoice, "auto", "Input should be a valid dictionary or instance of ToolChoice"),
    (ToolResultContent, "auto", "Input should be a valid dictionary or instance of ToolResultContent"),
    (ToolResultContent, {"content": 5}, "content: Input should be a valid list"),
    (ToolResultContent, {"content": [{"type": "text"}]}, "content.0.text: Field required"),
]  # fmt: skip


def test_a_value_of_another_shape_is_rejected(subtests: pytest.Subtests) -> None:
    """An unknown tool choice is not read as auto, and a number of tokens is whole."""
    whole: dict[type[Model], dict[str, Any]] = {CreateMessageRequestParams: REQUEST, ToolResultContent: RESULT}
    for model, value, problem in REFUSED:
        with subtests.test(model.__name__, value=value):
            with pytest.raises(ProtocolError) as refusal:
                model.from_wire({**whole[model], **value} if isinstance(value, dict) else value)

            assert str(refusal.value) == f"malformed {model.__name__}: {problem}"


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


def of_object(content: dict[str, Any], written: str) -> tuple[dict[str, Any], dict[str, Any]]:
    return {"content": content}, {"content": [{"type": "text", "text": written}], "structuredContent": content}


DRAFT_RESULTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "object": of_object({"celsius": 18.5, "sky": "☁"}, '{"celsius":18.5,"sky":"☁"}'),
    "empty object": of_object({}, "{}"),
    "object with a type": of_object({"type": "sunny"}, '{"type":"sunny"}'),
    "object typed text": of_object({"type": "text", "words": 2}, '{"type":"text","words":2}'),
    "object typed resource": of_object({"type": "resource", "id": 7}, '{"type":"resource","id":7}'),
    "error": (
        {"content": {"error": "API_ERROR"}, "isError": True},
        {
            "content": [{"type": "text", "text": '{"error":"API_ERROR"}'}],
            "structuredContent": {"error": "API_ERROR"},
            "isError": True,
        },
    ),
    "both": (
        {"content": {"a": 1}, "structuredContent": {"b": 2}},
        {"content": [{"type": "text", "text": '{"a":1}'}], "structuredContent": {"b": 2}},
    ),
    "bare text": ({"content": "18 degrees"}, {"content": [{"type": "text", "text": "18 degrees"}]}),
    "no content": ({}, {"content": []}),
    "null": ({"content": None, "isError": True}, {"content": [], "isError": True}),
    "lone block": ({"content": TEXT}, {"content": [TEXT]}),
    "settled": ({"content": [TEXT]}, {"content": [TEXT]}),
    "settled, empty": ({"content": []}, {"content": []}),
}


def test_a_draft_tool_result_is_read_and_written_as_settled(subtests: pytest.Subtests) -> None:
    for case, (draft, settled) in DRAFT_RESULTS.items():
        with subtests.test(case):
            assert ToolResultContent.from_wire({**RESULT, **draft}).to_wire() == {**RESULT, **settled}


@pytest.mark.parametrize("reason", ["endTurn", "stopSequence", "maxTokens", "toolUse", "refusal", "other", "brand new"])
def test_a_stop_reason_is_any_string(reason: str) -> None:
    wire = {"role": "assistant", "content": TEXT, "model": "m", "stopReason": reason}
    result = CreateMessageResult.from_wire(wire)

    assert result == CreateMessageResult(content=TextContent(text="hi"), model="m", stop_reason=reason)
    assert result.to_wire() == wire
