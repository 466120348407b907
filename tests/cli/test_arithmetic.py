"""The demo's model with a simulated server, and with a real one at the end. Python is the oracle."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

import anyio
import pytest
from anyio import fail_after
from hypothesis import given
from hypothesis import strategies as st

from mcp_host import Client, Sampling, SamplingLimits, SamplingRequest, ToolCall, always
from mcp_host.cli.arithmetic import arithmetic
from mcp_host.errors import InputRefused
from mcp_host.protocol import conversation
from mcp_host.sampling.validation import check_and_correct
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

MODEL = "arithmetic planner (no language model)"
NUMBERS = {"a": {"type": "number"}, "b": {"type": "number"}}

FUNCTIONS: Mapping[str, Callable[[float, float], float]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
}
SKILL = "I do one calculation with + - * / and parentheses, of up to 200 characters"
NONE = f"{SKILL}, and find none in this."
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


async def converse(question: str, **fields: Any) -> tuple[list[list[ToolCall]], str]:
    """A server's loop to its end: the calls of each turn, and the last word. Every answer has to be a legal one."""
    messages = [user(question)]
    turns: list[list[ToolCall]] = []
    for _ in range(130):
        conversation.check(messages)
        request = asking(*messages, **fields)
        result = check_and_correct(await arithmetic(request), request, SamplingLimits())
        if result.stop_reason == "endTurn":
            return turns, said(result)
        turns.append(called(result))
        results = [carry_out(block) for block in result.content if isinstance(block, ToolUseContent)]
        messages += [
            SamplingMessage(role="assistant", content=result.content),
            SamplingMessage(role="user", content=results),
        ]
    raise AssertionError("it never comes to an end")


numbers = st.one_of(st.integers(0, 999).map(str), st.decimals(0, 999, places=2, allow_nan=False).map(str))
operands = st.recursive(
    numbers,
    lambda inner: st.one_of(
        inner.map("({})".format),
        inner.map("-{}".format),
        st.builds("{} {} {}".format, inner, st.sampled_from("+-*/"), inner),
    ),
    max_leaves=10,
)
expressions = st.builds("{} {} {}".format, operands, st.sampled_from("+-*/"), operands).filter(
    lambda text: len(text) <= 200
)


def python(text: str) -> float | None:
    """The value in Python, all in floats; None where it divides by zero."""
    try:
        value: float = eval(re.sub(r"\d+(\.\d+)?", r"float('\g<0>')", text))
    except ZeroDivisionError:
        return None
    return value


@given(expressions)
def test_any_expression_is_solved_to_the_value_that_python_gives(text: str) -> None:
    expected = python(text)

    _, last = anyio.run(converse, f"Please calculate {text} for me.")

    if expected is None:
        assert last == "I cannot finish this: divide answered division by zero."
    else:
        assert float(last.removeprefix(f"{text} = ")) == expected


async def test_independent_steps_are_called_together_and_the_last_answer_is_the_result(
    subtests: pytest.Subtests,
) -> None:
    parallel = [
        [ToolCall("add", {"a": 3, "b": 4}), ToolCall("subtract", {"a": 10, "b": 4})],
        [ToolCall("multiply", {"a": 7, "b": 6})],
        [ToolCall("divide", {"a": 42, "b": 2})],
    ]
    once = [[ToolCall("add", {"a": 1, "b": 2})], [ToolCall("multiply", {"a": 3, "b": 3})]]
    table: list[tuple[str, str, list[list[ToolCall]], str]] = [
        ("parallel", "What is (3 + 4) * (10 - 4) / 2?", parallel, "(3 + 4) * (10 - 4) / 2 = 21"),
        ("equal steps once", "(1 + 2) * (1 + 2)", once, "(1 + 2) * (1 + 2) = 9"),
        ("no rounding", "0.1 + 0.2", [[ToolCall("add", {"a": 0.1, "b": 0.2})]], "0.1 + 0.2 = 0.30000000000000004"),
        ("no arithmetic", "Tell me a joke.", [], NONE),
    ]
    for case, question, turns, last in table:
        with subtests.test(case):
            assert await converse(question) == (turns, last)


SENTENCES: list[tuple[str, str]] = [
    ("3+4*2", "3+4*2"),
    ("10 - 4 - 3.", "10 - 4 - 3"),
    ("(1 + 2) * -3", "(1 + 2) * -3"),
    ("What is .5 * 4?", ".5 * 4"),
    ("Step-by-step, for 7 people: 1 + 1 = ?", "1 + 1"),
    ("Well, this is easy. 1 + 1", "1 + 1"),
    ("-7", "-7"),
]


async def test_a_calculation_is_found_in_a_sentence(subtests: pytest.Subtests) -> None:
    for text, source in SENTENCES:
        with subtests.test(text):
            _, last = await converse(text)

            assert last == f"{source} = {eval(source):g}"


NO_CALCULATION: list[tuple[str, str]] = [
    ("", NONE),
    ("Who are you?", NONE),
    ("What is 7?", NONE),
    ("2 ^ 3 + 1", f"{SKILL}, and cannot read 2 ^ 3 + 1."),
    ("50 % 3", f"{SKILL}, and cannot read 50 % 3."),
    ("2 ** 3", f"{SKILL}, and cannot read 2 ** 3."),
    ("1,250 / 2", f"{SKILL}, and cannot read (1, 250 / 2)."),
    ("2y + 3", f"{SKILL}, and cannot read +3."),
    ("(1)(2)", f"{SKILL}, and cannot read 1(2)."),
    ("1 + ... + 3", f"{SKILL}, and cannot read ...."),
    ("(1 + 2", f"{SKILL}, and cannot read this."),
    ("1 2 + 3", f"{SKILL}, and cannot read this."),
    ("1 + 2 or 3 + 4", f"{SKILL}, and find 2 in this."),
    ("1" + "+1" * 100, NONE),
    ("(" * 99 + "1" + "+" * 2, f"{SKILL}, and cannot read this."),
]


async def test_a_question_without_a_calculation_is_answered_with_the_reason(subtests: pytest.Subtests) -> None:
    for text, reason in NO_CALCULATION:
        with subtests.test(text):
            assert await converse(text) == ([], reason)


async def test_the_deepest_calculation_is_answered() -> None:
    """Neither the parser nor our recursion reaches its limit."""
    parentheses = "(" * 98 + "1 + 1" + ")" * 97

    assert (await converse("-" * 195 + "1 + 1"))[1] == "-" * 195 + "1 + 1 = 0"
    assert (await converse(parentheses))[1] == f"{SKILL}, and cannot read this."


async def test_an_answer_has_16_calls_at_most_and_one_without_parallel_tool_use() -> None:
    question = " + ".join(f"{number} * 2" for number in range(20))

    turns, last = await converse(question)
    assert [len(turn) for turn in turns][:2] == [16, 5]  # the other 4, and the first sum
    assert last == f"{question} = 380"

    turns, last = await converse("(1 + 2) * (3 + 4)", disable_parallel_tool_use=True)
    assert [len(turn) for turn in turns] == [1, 1, 1]
    assert last == "(1 + 2) * (3 + 4) = 21"


async def test_a_second_question_in_the_same_conversation_is_answered_by_itself() -> None:
    first = SamplingMessage(role="assistant", content=TextContent(text="1 + 1 = 2"))

    result = await arithmetic(asking(user("1 + 1"), first, user("2 + 2")))

    assert called(result) == [ToolCall("add", {"a": 2, "b": 2})]


async def test_the_tools_of_a_group_are_found_by_their_own_names() -> None:
    group = [tool.model_copy(update={"name": f"calculator__{tool.name}"}) for tool in TOOLS]

    answer = await arithmetic(asking(user("1 + 2"), tools=group))

    assert called(answer) == [ToolCall("calculator__add", {"a": 1, "b": 2})]


async def test_the_operands_have_the_names_of_the_tools_parameters() -> None:
    tool = Tool(name="add", input_schema={"properties": {"left": {}, "right": {}}})

    assert called(await arithmetic(asking(user("1 + 2"), tools=[tool]))) == [ToolCall("add", {"left": 1, "right": 2})]


NO_TOOL = "I only plan arithmetic, and need a tool add for two numbers to carry it out."


async def test_the_answer_names_the_unsupported_calculation(subtests: pytest.Subtests) -> None:
    def add(properties: object) -> list[Tool]:
        return [Tool(name="add", input_schema={"properties": properties})]

    image = SamplingMessage(role="user", content=ImageContent(data="", mime_type="image/png"))
    table: list[tuple[str, SamplingRequest, str]] = [
        ("no tools", asking(user("1 + 2"), tools=[]), NO_TOOL),
        ("tools not allowed", asking(user("1 + 2"), tool_choice=ToolChoice(mode="none")), NO_TOOL),
        ("strange schema", asking(user("1 + 2"), tools=add(["a", "b"])), NO_TOOL),
        ("one operand", asking(user("1 + 2"), tools=add({"a": {}})), NO_TOOL),
        ("an image", asking(image), NONE),
    ]
    for case, request, reason in table:
        with subtests.test(case):
            assert said(await arithmetic(request)) == reason


@pytest.mark.parametrize(
    ("result", "is_error", "quoted"),
    [
        *[(text, False, text) for text in ("three", "inf", "1e999")],
        ("inf\x1b[2J", False, "inf\\x1b[2J"),
        ("3", True, "3"),
    ],
)
async def test_a_result_that_is_not_a_number_ends_the_plan(result: str, is_error: bool, quoted: str) -> None:
    use = ToolUseContent(id="1", name="add", input={"a": 1, "b": 2})
    returned = ToolResultContent(tool_use_id="1", content=[TextContent(text=result)], is_error=is_error)
    asked = SamplingMessage(role="assistant", content=use)
    told = SamplingMessage(role="user", content=returned)

    assert said(await arithmetic(asking(user("1 + 2"), asked, told))) == f"I cannot finish this: add answered {quoted}."


async def test_a_request_that_requires_a_tool_call_is_refused_if_there_is_none_to_make() -> None:
    with pytest.raises(InputRefused, match="find none in this") as caught:
        await arithmetic(asking(user("Hello!"), tool_choice=ToolChoice(mode="required")))

    assert caught.value.code == -1


async def test_a_real_server_gets_its_answer() -> None:
    server = Server("s")

    def add(a: float, b: float) -> float:
        return a + b

    @server.tool
    async def solve(context: Context) -> str:
        result = await context.sample_loop("(1 + 2) + (3 + 4)", tools=[add])
        return result.text

    sampling = Sampling(with_tools=arithmetic, approve=always)
    with fail_after(25):
        async with Client(server.in_process(), sampling=sampling) as client:
            result = await client.call_tool("solve")

    assert result.content == [TextContent(text="(1 + 2) + (3 + 4) = 10")]
