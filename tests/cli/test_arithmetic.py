"""The demo's model, driven by a server's loop: simulated here, and a real one at the end."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from anyio import fail_after
from hypothesis import given

from mcp_host import Client, Sampling, SamplingLimits, SamplingRequest, ToolCall, always
from mcp_host.cli.arithmetic import answer, arithmetic
from mcp_host.errors import InputRefused
from mcp_host.protocol import conversation
from mcp_host.sampling.validation import check_answer
from mcp_host.testing import Context, Server
from mcp_host.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ImageContent,
    SamplingMessage,
    TextContent,
    Tool,
    ToolChoice,
    ToolResultContent,
    ToolUseContent,
)
from tests.cli.test_expressions import expressions, outcome, python

MODEL = "arithmetic planner (no language model)"
NUMBERS = {"a": {"type": "number"}, "b": {"type": "number"}}

FUNCTIONS: Mapping[str, Callable[[float, float], float]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
}
TOOLS = [Tool(name=name, input_schema={"type": "object", "properties": NUMBERS}) for name in FUNCTIONS]


def user(text: str) -> SamplingMessage:
    return SamplingMessage(role="user", content=TextContent(text=text))


def asking(*messages: SamplingMessage, tools: list[Tool] | None = None, **fields: Any) -> SamplingRequest:
    offered = TOOLS if tools is None else tools
    params = CreateMessageRequestParams(messages=list(messages), max_tokens=100, tools=offered, **fields)
    return SamplingRequest(params=params, server="test")


def said(result: CreateMessageResult) -> str:
    [block] = result.content
    assert isinstance(block, TextContent)
    assert (result.model, result.stop_reason) == (MODEL, "endTurn")
    return block.text


def called(result: CreateMessageResult) -> list[ToolCall]:
    uses = [block for block in result.content if isinstance(block, ToolUseContent)]
    assert (len(uses), result.model, result.stop_reason) == (len(result.content), MODEL, "toolUse")
    return [ToolCall(use.name, use.input) for use in uses]


def carry_out(use: ToolUseContent) -> ToolResultContent:
    try:
        text, is_error = str(FUNCTIONS[use.name](float(use.input["a"]), float(use.input["b"]))), False
    except ZeroDivisionError:
        text, is_error = "division by zero", True
    return ToolResultContent(tool_use_id=use.id, content=[TextContent(text=text)], is_error=is_error)


def converse(question: str, **fields: Any) -> tuple[list[list[ToolCall]], str]:
    """A server's loop to its end: the calls of each turn, and the last word. Every answer has to be a legal one."""
    messages = [user(question)]
    turns: list[list[ToolCall]] = []
    for _ in range(130):
        conversation.check(messages)
        request = asking(*messages, **fields)
        result = check_answer(answer(request), request, SamplingLimits())
        if result.stop_reason == "endTurn":
            return turns, said(result)
        turns.append(called(result))
        results = [carry_out(block) for block in result.content if isinstance(block, ToolUseContent)]
        messages += [
            SamplingMessage(role="assistant", content=result.content),
            SamplingMessage(role="user", content=results),
        ]
    raise AssertionError("it never comes to an end")


@given(expressions)
def test_any_expression_is_solved_to_the_value_that_python_gives(text: str) -> None:
    expected = outcome(lambda: python(text))

    _, last = converse(f"Please calculate {text} for me.")

    if expected is None:
        assert last == "I cannot finish this: divide says division by zero."
    else:
        assert float(last.removeprefix(f"{text} = ")) == expected


@pytest.mark.parametrize(
    ("question", "turns", "last"),
    [
        (
            "What is (3 + 4) * (10 - 4) / 2?",
            [
                [ToolCall("add", {"a": 3, "b": 4}), ToolCall("subtract", {"a": 10, "b": 4})],
                [ToolCall("multiply", {"a": 7, "b": 6})],
                [ToolCall("divide", {"a": 42, "b": 2})],
            ],
            "(3 + 4) * (10 - 4) / 2 = 21",
        ),
        (
            "(1 + 2) * (1 + 2)",
            [[ToolCall("add", {"a": 1, "b": 2})], [ToolCall("multiply", {"a": 3, "b": 3})]],
            "(1 + 2) * (1 + 2) = 9",
        ),
        ("0.1 + 0.2", [[ToolCall("add", {"a": 0.1, "b": 0.2})]], "0.1 + 0.2 = 0.30000000000000004"),
        ("Tell me a joke.", [], "I can only do arithmetic with + - * / and parentheses, and I find none in this."),
    ],
    ids=["parallel", "equal steps once", "no rounding", "no arithmetic"],
)
def test_independent_steps_go_together_and_the_last_word_is_the_result(
    question: str, turns: list[list[ToolCall]], last: str
) -> None:
    assert converse(question) == (turns, last)


def test_a_server_that_wants_one_call_at_a_time_gets_that() -> None:
    turns, last = converse("(1 + 2) * (3 + 4)", disable_parallel_tool_use=True)

    assert [len(turn) for turn in turns] == [1, 1, 1]
    assert last == "(1 + 2) * (3 + 4) = 21"


def test_more_steps_than_one_answer_may_hold_wait_for_the_next_turn() -> None:
    question = " + ".join(f"{number} * 2" for number in range(20))

    turns, last = converse(question)

    assert [len(turn) for turn in turns][:2] == [16, 5]  # the other 4, and the first sum
    assert last == f"{question} = 380"


def test_a_second_question_in_the_same_conversation_is_answered_by_itself() -> None:
    first = SamplingMessage(role="assistant", content=TextContent(text="1 + 1 = 2"))

    result = answer(asking(user("1 + 1"), first, user("2 + 2")))

    assert called(result) == [ToolCall("add", {"a": 2, "b": 2})]


def test_the_operands_go_by_the_names_that_the_tool_gives_them() -> None:
    tool = Tool(name="add", input_schema={"properties": {"left": {}, "right": {}}})

    assert called(answer(asking(user("1 + 2"), tools=[tool]))) == [ToolCall("add", {"left": 1, "right": 2})]


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (asking(user("1 + 2"), tools=[]), "I only plan arithmetic, and need a tool named add to carry it out."),
        (
            asking(user("1 + 2"), tool_choice=ToolChoice(mode="none")),
            "I only plan arithmetic, and need a tool named add to carry it out.",
        ),
        (
            asking(user("1 + 2"), tools=[Tool(name="add", input_schema={"properties": ["a", "b"]})]),
            "I cannot use the tool add: it does not take two numbers.",
        ),
        (
            asking(user("1 + 2"), tools=[Tool(name="add", input_schema={"properties": {"a": {}}})]),
            "I cannot use the tool add: it does not take two numbers.",
        ),
        (
            asking(SamplingMessage(role="user", content=ImageContent(data="", mime_type="image/png"))),
            "I can only do arithmetic, and there is no question.",
        ),
    ],
    ids=["no tools", "tools not allowed", "strange schema", "one operand", "an image"],
)
def test_what_it_cannot_do_it_says(request_: SamplingRequest, reason: str) -> None:
    assert said(answer(request_)) == reason


@pytest.mark.parametrize(
    ("use", "result", "reason"),
    [
        (
            ToolUseContent(id="1", name="add", input={"a": 1, "b": 2}),
            "three",
            "I cannot finish this: add answered no number but three.",
        ),
        (
            ToolUseContent(id="1", name="add", input={"a": 1, "b": 2}),
            "inf\x1b[2J",
            "I cannot finish this: add answered no number but inf\\x1b[2J.",
        ),
        (
            ToolUseContent(id="1", name="add", input={"a": 1, "b": 2}),
            "inf",
            "I cannot finish this: add answered no number but inf.",
        ),
        (
            ToolUseContent(id="1", name="add", input={"a": 1, "b": 3}),
            "4",
            "I can only follow a conversation that I have planned, and did not ask for these tools.",
        ),
    ],
    ids=["words", "escapes", "infinity", "not its plan"],
)
def test_results_that_make_no_sense_end_the_plan(use: ToolUseContent, result: str, reason: str) -> None:
    asked = SamplingMessage(role="assistant", content=use)
    told = SamplingMessage(role="user", content=ToolResultContent(tool_use_id="1", content=[TextContent(text=result)]))

    assert said(answer(asking(user("1 + 2"), asked, told))) == reason


def test_where_a_tool_is_required_and_none_is_left_to_call_the_request_is_refused() -> None:
    with pytest.raises(InputRefused, match="I find none in this") as caught:
        answer(asking(user("Hello!"), tool_choice=ToolChoice(mode="required")))

    assert caught.value.code == -1


async def test_a_real_server_gets_its_answer() -> None:
    server = Server("s")

    def add(a: float, b: float) -> float:
        return a + b

    @server.tool
    async def solve(context: Context) -> str:
        result = await context.sample_loop("(1 + 2) + (3 + 4)", tools=[add])
        return said(result)

    sampling = Sampling(with_tools=arithmetic, approve=always)
    with fail_after(5):
        async with Client(server.in_process(), sampling=sampling) as client:
            result = await client.call_tool("solve")

    assert result.content == [TextContent(text="(1 + 2) + (3 + 4) = 10")]
