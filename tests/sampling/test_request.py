"""The request that a handler gets, and the answers it builds from it."""

from __future__ import annotations

import pytest

from mcp_host.errors import InputRefused
from mcp_host.sampling import OuterCall, SamplingRequest, ToolCall
from mcp_host.types import CreateMessageResult, ModelPreferences, TextContent, ToolChoice, ToolUseContent
from tests.sampling.asking import ADD, MULTIPLY, request


def tool_uses(answer: CreateMessageResult) -> list[ToolUseContent]:
    return [block for block in answer.content if isinstance(block, ToolUseContent)]


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

    assert asked.server == "calculator"
    assert asked.outer is outer
    assert asked.mode == "with_tools"
    assert asked.messages == asked.params.messages
    assert [tool.name for tool in asked.tools] == ["add"]
    assert asked.tool_choice == ToolChoice(mode="required")
    assert asked.system_prompt == "Be brief."
    assert asked.max_tokens == 100
    assert asked.temperature == 0.5
    assert asked.stop_sequences == ["END"]
    assert asked.include_context == "thisServer"
    assert asked.metadata == {"user": "1"}
    assert asked.model_preferences is not None
    assert asked.model_preferences.to_wire() == {"hints": [{"name": "claude"}], "speedPriority": 1}
    assert isinstance(asked.model_preferences, ModelPreferences)


def test_a_plain_request_has_no_tools_and_no_optional_parameters() -> None:
    asked = request()

    assert asked.tools == []
    assert asked.outer is None
    wishes = (asked.tool_choice, asked.system_prompt, asked.temperature, asked.stop_sequences)
    assert wishes == (None, None, None, None)
    assert (asked.model_preferences, asked.include_context, asked.metadata) == (None, None, None)


@pytest.mark.parametrize(
    ("asked", "may", "must"),
    [
        pytest.param(request(), False, False, id="plain"),
        pytest.param(request(tools=[]), False, False, id="no tools"),
        pytest.param(request(tools=[ADD]), True, False, id="tools"),
        pytest.param(request(tools=[ADD], toolChoice={}), True, False, id="a choice without a mode"),
        pytest.param(request(tools=[ADD], toolChoice={"mode": "auto"}), True, False, id="auto"),
        pytest.param(request(tools=[ADD], toolChoice={"mode": "required"}), True, True, id="required"),
        pytest.param(request(tools=[ADD], toolChoice={"mode": "none"}), False, False, id="none"),
    ],
)
def test_a_request_tells_whether_its_answer_may_or_must_use_tools(
    asked: SamplingRequest, may: bool, must: bool
) -> None:
    assert (asked.may_use_tools, asked.must_use_tools) == (may, must)


def test_a_request_tells_the_one_tool_that_its_answer_must_call() -> None:
    named = request(tools=[ADD, MULTIPLY], toolChoice={"type": "tool", "name": "add"})

    assert (named.may_use_tools, named.must_use_tools, named.required_tool) == (True, True, "add")
    assert request(tools=[ADD], toolChoice={"mode": "required"}).required_tool is None
    assert request().required_tool is None


def test_a_reply_is_text_with_the_stop_reason_end_turn() -> None:
    assert request().reply("It is 3.").to_wire() == {
        "role": "assistant",
        "content": {"type": "text", "text": "It is 3."},
        "model": "unknown",
        "stopReason": "endTurn",
    }


def test_a_reply_may_have_a_model_and_a_stop_reason() -> None:
    assert request().reply("It is", model="m-1", stop_reason="maxTokens") == CreateMessageResult(
        content=TextContent(text="It is"), model="m-1", stop_reason="maxTokens"
    )


def test_a_call_asks_the_server_to_run_its_tool() -> None:
    answer = request(tools=[ADD]).call("add", {"a": 1, "b": 2}, model="m-1")

    [call] = tool_uses(answer)
    assert answer.to_wire() == {
        "role": "assistant",
        "content": {"type": "tool_use", "id": call.id, "name": "add", "input": {"a": 1, "b": 2}},
        "model": "m-1",
        "stopReason": "toolUse",
    }


def test_a_call_needs_no_arguments_and_no_model() -> None:
    answer = request(tools=[ADD]).call("add")

    assert (tool_uses(answer)[0].input, answer.model) == ({}, "unknown")


def test_an_argument_may_have_any_name() -> None:
    arguments = {"self": 1, "tool": 2, "model": 3, "arguments": 4}

    assert tool_uses(request(tools=[ADD]).call("add", arguments))[0].input == arguments


def test_several_tools_are_called_in_order_each_with_a_unique_id() -> None:
    answer = request(tools=[ADD, MULTIPLY]).calls(
        ToolCall("add", {"a": 1}), ToolCall("multiply"), ToolCall("add", {"a": 1}), model="m-1"
    )

    calls = tool_uses(answer)
    assert [(call.name, call.input) for call in calls] == [("add", {"a": 1}), ("multiply", {}), ("add", {"a": 1})]
    assert len({call.id for call in calls}) == 3
    assert (answer.model, answer.stop_reason) == ("m-1", "toolUse")


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        (request(tools=[ADD, MULTIPLY]), "no tool 'ad' among those on offer: add, multiply"),
        (request(), "no tool 'ad' among those on offer: none"),
    ],
    ids=["some tools", "no tools"],
)
def test_a_tool_that_is_not_on_offer_cannot_be_called(asked: SamplingRequest, problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{problem}$"):
        asked.call("ad")


def test_calling_no_tool_is_an_error() -> None:
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
