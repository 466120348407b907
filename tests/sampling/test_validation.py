"""Which answers are sent, which are repaired, and which are refused."""

from __future__ import annotations

import json
import logging
import math
from itertools import product

import pytest
from pydantic_core import to_json

from mcp_host.errors import InputRefused, SamplingError
from mcp_host.protocol import conversation
from mcp_host.sampling import SamplingLimits, SamplingRequest
from mcp_host.sampling.validation import check_and_correct
from mcp_host.types import (
    AssistantMessage,
    CreateMessageResult,
    ImageContent,
    TextContent,
    ToolResultContent,
    ToolUseContent,
    UserMessage,
)
from tests.sampling.asking import ADD, MULTIPLY, assistant, request, result, said, text, use, user

PLAIN = request()
TOOLS = request(tools=[ADD, MULTIPLY])
REQUIRED = request(tools=[ADD], toolChoice={"mode": "required"})
NAMED = request(tools=[ADD, MULTIPLY], toolChoice={"type": "tool", "name": "add"})
FORBIDDEN = request(tools=[ADD], toolChoice={"mode": "none"})
LATER = request(assistant(use("1")), user(result("1", text())), tools=[ADD])

WORDS = TextContent(text="words")


class TimedCall(ToolUseContent):
    """A block of an application that adds something of its own."""


def call(id: str = "2", name: str = "add") -> ToolUseContent:
    return ToolUseContent(id=id, name=name, input={})


def answer(
    *content: TextContent | ImageContent | ToolUseContent, stop_reason: str | None = None
) -> CreateMessageResult:
    return CreateMessageResult(content=list(content), model="m", stop_reason=stop_reason)


LEGAL: dict[str, tuple[SamplingRequest, CreateMessageResult]] = {
    "text": (PLAIN, answer(WORDS)),
    "two texts": (PLAIN, answer(WORDS, WORDS, stop_reason="endTurn")),
    "nothing to say": (PLAIN, answer(TextContent(text=""))),
    "an open stop reason": (PLAIN, answer(WORDS, stop_reason="of my own")),
    "text in spite of tools": (TOOLS, answer(WORDS, stop_reason="endTurn")),
    "a call": (TOOLS, answer(call(), stop_reason="toolUse")),
    "two calls": (TOOLS, answer(WORDS, call("1"), call("2", "multiply"), stop_reason="toolUse")),
    "a call that was required": (REQUIRED, answer(call(), stop_reason="toolUse")),
    "a call that was required by name": (NAMED, answer(call(), stop_reason="toolUse")),
    "cut short before the named call": (NAMED, answer(WORDS, stop_reason="maxTokens")),
    "cut short before the required call": (REQUIRED, answer(WORDS, stop_reason="maxTokens")),
    "a model that refused to call": (REQUIRED, answer(WORDS, stop_reason="refusal")),
    "text where tools are forbidden": (FORBIDDEN, answer(WORDS, stop_reason="endTurn")),
    "a call in a later round": (LATER, answer(call("2"), stop_reason="toolUse")),
}


def test_a_legal_answer_is_not_changed(subtests: pytest.Subtests) -> None:
    for case, (asked, given) in LEGAL.items():
        with subtests.test(case):
            assert check_and_correct(given, asked, SamplingLimits()) is given


@pytest.mark.fault("S09")
def test_an_answer_that_calls_tools_has_the_stop_reason_tool_use(subtests: pytest.Subtests) -> None:
    """Handlers pass on the stop reason of their model's API. In none of these is the answer cut off."""
    for reason in (None, "endTurn", "tool_use", "tool_calls", "end_turn", "stop", "of my own"):
        with subtests.test(reason=reason):
            checked = check_and_correct(answer(WORDS, call(), stop_reason=reason), TOOLS, SamplingLimits())

            assert checked == answer(WORDS, call(), stop_reason="toolUse")
            assert checked.to_wire()["stopReason"] == "toolUse"


def test_a_whole_float_is_sent_as_the_integer_that_the_tool_takes() -> None:
    asked = request(tools=[{"name": "add", "inputSchema": {"properties": {"a": {"type": "integer"}}}}])
    given = answer(ToolUseContent(id="1", name="add", input={"a": 30.0, "b": 30.0}), stop_reason="toolUse")

    checked = check_and_correct(given, asked, SamplingLimits())

    assert json.dumps(checked.tool_uses[0].input) == '{"a": 30, "b": 30.0}'


@pytest.mark.fault("S09")
def test_an_answer_without_the_call_that_was_wanted_is_sent_with_a_warning(
    subtests: pytest.Subtests, caplog: pytest.LogCaptureFixture
) -> None:
    """A model may write a text where it has to call a tool. Its server can read it, or ask again."""
    required, announced = "toolChoice requires one", "its stop reason is toolUse"
    table: list[tuple[SamplingRequest, str | None, str | None, str]] = [
        (REQUIRED, "endTurn", "endTurn", required),
        (REQUIRED, None, None, required),
        (NAMED, "endTurn", "endTurn", required),
        (NAMED, "toolUse", "endTurn", announced),
        (TOOLS, "toolUse", "endTurn", announced),
        (PLAIN, "toolUse", "endTurn", announced),
    ]
    for asked, reason, written, why in table:
        with subtests.test(reason=reason, why=why):
            caplog.clear()
            checked = check_and_correct(answer(WORDS, stop_reason=reason), asked, SamplingLimits())

            assert checked == answer(WORDS, stop_reason=written)
            assert caplog.messages == [
                f"sampling for calculator: the answer calls no tool, but {why}; it is sent as it is"
            ]


def test_a_text_is_an_answer() -> None:
    assert check_and_correct("words", PLAIN, SamplingLimits()) == PLAIN.reply("words")


@pytest.mark.parametrize("reason", [None, "endTurn", "maxTokens", "refusal"])
def test_an_answer_without_content_becomes_an_empty_text(reason: str | None) -> None:
    checked = check_and_correct(answer(stop_reason=reason), PLAIN, SamplingLimits())

    assert checked == answer(TextContent(text=""), stop_reason=reason)


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        pytest.param(answer(WORDS, call("1"), call("2")), [WORDS], id="beside a text"),
        pytest.param(answer(call("1"), call("2")), [TextContent(text="")], id="alone"),
    ],
)
@pytest.mark.parametrize(
    ("reason", "written"),
    [
        ("maxTokens", "maxTokens"),
        ("max_tokens", "maxTokens"),
        ("length", "maxTokens"),
        ("refusal", "refusal"),
        ("content_filter", "content_filter"),
        ("stopSequence", "stopSequence"),
        ("stop_sequence", "stop_sequence"),
    ],
)
def test_tool_calls_of_an_answer_that_is_cut_off_are_dropped_with_a_warning(
    given: CreateMessageResult, sent: list[TextContent], reason: str, written: str, caplog: pytest.LogCaptureFixture
) -> None:
    warning = f"sampling for calculator: {reason} cut the answer off; its calls of 'add', 'add' are dropped"
    for asked in (TOOLS, REQUIRED):
        checked = check_and_correct(given.model_copy(update={"stop_reason": reason}), asked, SamplingLimits())

        assert checked == answer(*sent, stop_reason=written)
    assert caplog.record_tuples == [("mcp_host.sampling.validation", logging.WARNING, warning)] * 2


SUM = ToolUseContent(id="1", name="add", input={"a": "x" * 10})
PICTURE = ImageContent(data="AAAA" * 7, mime_type="image/png")
TOO_LARGE: dict[str, tuple[SamplingRequest, CreateMessageResult, str, int, int]] = {
    "question and arguments": (TOOLS, answer(SUM), "text", 20, 23),
    "a long text": (PLAIN, answer(TextContent(text="x" * 21)), "text", 20, 21),
    "an image": (PLAIN, answer(PICTURE), "binary", 20, 21),
    "messages": (LATER, answer(call("2")), "messages", 3, 4),
    "blocks": (LATER, answer(WORDS, call("2"), call("3")), "blocks", 7, 8),
    "blocks of a plain answer": (PLAIN, answer(WORDS, WORDS), "blocks", 1, 2),
}
"""A limit, its value, and what the next request would have."""


def test_an_answer_too_large_for_the_next_request_is_refused(subtests: pytest.Subtests) -> None:
    for (case, row), is_size_known in product(TOO_LARGE.items(), (True, False)):
        with subtests.test(case, is_size_known=is_size_known):
            asked, given, name, limit, count = row
            size = len(to_json(asked.params.to_wire())) if is_size_known else math.inf

            with pytest.raises(InputRefused) as refusal:
                check_and_correct(given, asked, SamplingLimits(**{name: limit}), size)

            problem = f"limit {name} is {limit}, and a request with this answer in it would have {count}"
            problem += f": its host can raise it with SamplingLimits({name}=...)"
            assert said(refusal.value) == (-32603, f"this client's {problem}")


JUST_FITTING: dict[str, tuple[SamplingRequest, CreateMessageResult, SamplingLimits]] = {
    "question and arguments": (TOOLS, answer(SUM, stop_reason="toolUse"), SamplingLimits(text=23)),
    "messages": (LATER, answer(call("2"), stop_reason="toolUse"), SamplingLimits(messages=4)),
    "blocks": (LATER, answer(call("2"), stop_reason="toolUse"), SamplingLimits(blocks=5)),
    "the last word": (request(user(text("x" * 20))), answer(TextContent(text="y" * 20)), SamplingLimits(text=20)),
    "the last message": (LATER, answer(WORDS), SamplingLimits(messages=2, blocks=3)),
}


def test_an_answer_that_just_fits_into_the_next_request_is_sent(subtests: pytest.Subtests) -> None:
    for case, (asked, given, limits) in JUST_FITTING.items():
        with subtests.test(case):
            assert check_and_correct(given, asked, limits) is given


def test_arguments_that_are_not_json_are_illegal_rather_than_converted(subtests: pytest.Subtests) -> None:
    endless: list[object] = []
    endless.append(endless)
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    no_json = "the input of its call of 'multiply' is not JSON: "
    arguments: dict[str, tuple[object, str]] = {
        "half of a surrogate pair": ("\ud800", "it holds something that cannot be written as JSON$"),
        "bytes": (b"bytes", f"{no_json}Object of type bytes is not JSON serializable$"),
        "set": ({1, 2}, f"{no_json}Object of type set is not JSON serializable$"),
        "inside": ([{"deep": frozenset()}], f"{no_json}Object of type frozenset is not JSON serializable$"),
        "in itself": (endless, f"{no_json}Circular reference"),  # Python has another exception for this
        "very deep": (deep, f"{no_json}(maximum recursion depth exceeded|Stack overflow)"),  # the latter in 3.14
    }
    for case, (value, problem) in arguments.items():
        with subtests.test(case):
            illegal = answer(call("1"), ToolUseContent(id="2", name="multiply", input={"a": value}))

            with pytest.raises(SamplingError, match=f"^{problem}"):
                check_and_correct(illegal, TOOLS, SamplingLimits())


ILLEGAL: dict[str, tuple[SamplingRequest, object, str]] = {
    "another type": (PLAIN, b"text", "its type is bytes, not CreateMessageResult or str"),
    "nothing": (PLAIN, None, "its type is NoneType, not CreateMessageResult or str"),
    "an unknown tool in a subclass": (TOOLS, answer(TimedCall(id="1", name="rm", input={})), "it calls 'rm', which the request does not offer"),
    "no tools": (PLAIN, answer(call()), "it calls 'add', but the request allows no tools"),
    "forbidden": (FORBIDDEN, answer(call()), "it calls 'add', but the request allows no tools"),
    "an unknown tool": (TOOLS, answer(call("1"), call("2", "rm\n")), "it calls 'rm\\n', which the request does not offer"),
    "one id twice": (TOOLS, answer(call("1"), call("1", "multiply")), "the tool_use id '1' was used before; each call needs its own id"),
    "an id of an earlier round": (LATER, answer(call("1")), "the tool_use id '1' was used before; each call needs its own id"),
    "too many calls": (TOOLS, answer(call("1"), call("2"), call("3"), call("4")), "it calls 4 tools; SamplingLimits.tool_calls is 3"),
    "another than the tool required by name": (
        NAMED,
        answer(call("1"), call("2", "multiply")),
        "it calls 'multiply', but toolChoice requires 'add' and nothing else",
    ),
}  # fmt: skip


@pytest.mark.fault("S08", "S09")
def test_an_illegal_answer_raises_an_error_that_says_why(subtests: pytest.Subtests) -> None:
    for case, (asked, given, problem) in ILLEGAL.items():
        with subtests.test(case):
            with pytest.raises(SamplingError) as stopped:
                check_and_correct(given, asked, SamplingLimits(tool_calls=3))

            assert str(stopped.value) == problem


def test_an_answer_that_passes_is_legal_in_the_next_request() -> None:
    """The server can send it back: its rules and ours are the same."""
    checked = check_and_correct(answer(WORDS, call("2"), call("3")), LATER, SamplingLimits())
    results = [ToolResultContent(tool_use_id=id, content=[WORDS]) for id in ("2", "3")]

    conversation.check([*LATER.messages, AssistantMessage(checked.content), UserMessage(results)])
