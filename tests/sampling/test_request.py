"""The request that a handler gets, and the answers it builds from it."""

from __future__ import annotations

import pytest

from mcp_host.errors import InputRefused
from mcp_host.sampling import OuterCall, SamplingRequest, ToolCall
from mcp_host.types import CreateMessageResult, ModelHint, ModelPreferences, TextContent, ToolChoice
from tests.sampling.asking import ADD, MULTIPLY, request


def test_every_parameter_of_a_request_is_an_attribute() -> None:
    outer = OuterCall("tools/call", "research", 7, call_id=1)
    asked = request(
        systemPrompt="Be brief.",
        temperature=0.5,
        stopSequences=["END"],
        modelPreferences={"hints": [{"name": "claude"}], "speedPriority": 1},
        includeContext="thisServer",
        metadata={"user": "1"},
        tools=[ADD],
        toolChoice={"mode": "required"},
        outer=outer,
    )

    assert (asked.server, asked.mode) == ("calculator", "with_tools")
    assert asked.outer is outer
    assert asked.messages == asked.params.messages
    assert [tool.name for tool in asked.tools] == ["add"]
    assert asked.tool_choice == ToolChoice(mode="required")
    assert (asked.system_prompt, asked.max_tokens, asked.temperature) == ("Be brief.", 100, 0.5)
    assert (asked.stop_sequences, asked.include_context, asked.metadata) == (["END"], "thisServer", {"user": "1"})
    assert asked.model_preferences == ModelPreferences(hints=[ModelHint(name="claude")], speed_priority=1)


def test_a_plain_request_has_no_tools_and_no_optional_parameters() -> None:
    asked = request()

    assert asked.tools == []
    assert asked.outer is None
    wishes = (asked.tool_choice, asked.system_prompt, asked.temperature, asked.stop_sequences)
    assert wishes == (None, None, None, None)
    assert (asked.model_preferences, asked.include_context, asked.metadata) == (None, None, None)


NAMED = {"type": "tool", "name": "add"}
TOOL_USE: dict[str, tuple[SamplingRequest, tuple[bool, bool, str | None]]] = {
    "plain": (request(), (False, False, None)),
    "no tools": (request(tools=[]), (False, False, None)),
    "tools": (request(tools=[ADD]), (True, False, None)),
    "a choice without a mode": (request(tools=[ADD], toolChoice={}), (True, False, None)),
    "auto": (request(tools=[ADD], toolChoice={"mode": "auto"}), (True, False, None)),
    "required": (request(tools=[ADD], toolChoice={"mode": "required"}), (True, True, None)),
    "none": (request(tools=[ADD], toolChoice={"mode": "none"}), (False, False, None)),
    "one tool": (request(tools=[ADD, MULTIPLY], toolChoice=NAMED), (True, True, "add")),
}


def test_a_request_tells_whether_its_answer_may_or_must_use_tools_and_which(subtests: pytest.Subtests) -> None:
    for case, (asked, expected) in TOOL_USE.items():
        with subtests.test(case):
            assert (asked.may_use_tools, asked.must_use_tools, asked.required_tool) == expected


def test_a_reply_is_text_with_the_stop_reason_end_turn_unless_another_is_given() -> None:
    assert request().reply("It is 3.").to_wire() == {
        "role": "assistant",
        "content": {"type": "text", "text": "It is 3."},
        "model": "unknown",
        "stopReason": "endTurn",
    }
    assert request().reply("It is", model="m-1", stop_reason="maxTokens") == CreateMessageResult(
        content=TextContent(text="It is"), model="m-1", stop_reason="maxTokens"
    )


def test_a_call_asks_the_server_to_run_its_tool() -> None:
    """An argument may have any name."""
    arguments = {"a": 1, "self": 1, "tool": 2, "model": 3, "arguments": 4}
    answer = request(tools=[ADD]).call("add", arguments, model="m-1")

    [call] = answer.tool_uses
    assert answer.to_wire() == {
        "role": "assistant",
        "content": {"type": "tool_use", "id": call.id, "name": "add", "input": arguments},
        "model": "m-1",
        "stopReason": "toolUse",
    }


def test_several_tools_are_called_in_order_each_with_a_unique_id() -> None:
    """A call needs no arguments, and the answer no model."""
    answer = request(tools=[ADD, MULTIPLY]).calls(
        ToolCall("add", {"a": 1}), ToolCall("multiply"), ToolCall("add", {"a": 1})
    )

    calls = answer.tool_uses
    assert [(call.name, call.input) for call in calls] == [("add", {"a": 1}), ("multiply", {}), ("add", {"a": 1})]
    assert len({call.id for call in calls}) == 3
    assert (answer.model, answer.stop_reason) == ("unknown", "toolUse")


def test_only_tools_on_offer_can_be_called_and_at_least_one() -> None:
    with pytest.raises(ValueError, match=r"^no tool 'ad' among those on offer: add, multiply$"):
        request(tools=[ADD, MULTIPLY]).call("ad")
    with pytest.raises(ValueError, match=r"^no tool 'ad' among those on offer: none$"):
        request().call("ad")
    with pytest.raises(ValueError, match=r"^no tool calls given$"):
        request(tools=[ADD]).calls()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((), "User rejected sampling request"), (("not before noon",), "not before noon")],
    ids=["without a reason", "with a reason"],
)
def test_refusing_has_the_code_for_a_rejection_by_the_user(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputRefused) as refusal:
        request().refuse(*arguments)

    assert (refusal.value.code, str(refusal.value), refusal.value.data) == (-1, message, None)


def test_the_caller_of_a_call_is_not_shown() -> None:
    outer = OuterCall("tools/call", "research", 7, call_id=3, caller="ann")

    assert outer.caller == "ann"
    assert repr(outer) == "OuterCall(method='tools/call', name='research', request_id=7, call_id=3, inferred=False)"


def test_the_two_ids_of_a_call_cannot_be_mixed_up() -> None:
    with pytest.raises(TypeError):
        OuterCall("tools/call", "research", 7, 3)  # type: ignore[call-arg]  # that is the point
