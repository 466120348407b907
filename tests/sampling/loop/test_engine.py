"""The loop that servers and hosts share: what the model is asked, what is run, and why it ends."""

from __future__ import annotations

import asyncio
import json
import math
from functools import partial
from typing import Any

import pytest
import trio
from anyio import Event, create_task_group, fail_after, move_on_after, sleep, sleep_forever, wait_all_tasks_blocked
from anyio.lowlevel import checkpoint

from mcp_host.errors import (
    CallDenied,
    ConnectFailed,
    ConnectionClosed,
    HttpStatusError,
    InputNotGiven,
    InvalidToolOutput,
    McpError,
    NotConnected,
    NotDeclared,
    ProtocolError,
    RequestTimeout,
    SamplingError,
    ServerError,
    ToolChanged,
    UnusableCalls,
)
from mcp_host.functions import BadArguments, FunctionTool, ToolError
from mcp_host.protocol import conversation
from mcp_host.sampling.loop.engine import (
    FinishedCall,
    LoopResult,
    RunTool,
    Step,
    function_runner,
    read_answer,
    run_loop,
)
from mcp_host.types import (
    AssistantMessage,
    CallToolResult,
    CreateMessageRequestParams,
    CreateMessageResult,
    SamplingMessage,
    TextContent,
    Tool,
    ToolChoice,
    ToolResultContent,
    ToolUseContent,
    UserMessage,
)
from mcp_host.types.base import given
from mcp_host.types.tool_changes import ToolChange
from tests.extent import on_both

ADD = Tool(name="add", input_schema={"type": "object"})
DIVIDE = Tool(name="divide", input_schema={"type": "object"})
ONLY_DIVIDE = ToolChoice.from_wire({"mode": "required", "name": "divide"})
QUESTION = UserMessage("What is 1 + 2?")


def use(id: str = "1", name: str = "add", **arguments: object) -> ToolUseContent:
    return ToolUseContent(id=id, name=name, input=arguments)


def says(*content: str | ToolUseContent, stop: str | None = None, **more: Any) -> CreateMessageResult:
    blocks = [TextContent(text=block) if isinstance(block, str) else block for block in content]
    return CreateMessageResult(content=blocks, model="m", stop_reason=stop, **more)


def text(words: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=words)])


def failed(words: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=words)], is_error=True)


class Model:
    """Gives *answers* in order, and checks that each conversation is legal."""

    def __init__(self, *answers: CreateMessageResult | UnusableCalls) -> None:
        self.answers = list(answers)
        self.asked: list[CreateMessageRequestParams] = []

    async def __call__(self, params: CreateMessageRequestParams) -> CreateMessageResult:
        conversation.check(params.messages)
        conversation.check_tools(params.tools or [], params.tool_choice)
        self.asked.append(params)
        await checkpoint()
        answer = self.answers.pop(0)
        if isinstance(answer, UnusableCalls):
            raise answer
        return answer

    @property
    def choices(self) -> list[str | None]:
        """The tool choices, and the tools in them."""
        choices = [params.tool_choice for params in self.asked]
        return [None if choice is None else choice.tool or choice.mode for choice in choices]


def runs(result: CallToolResult | Exception) -> RunTool:
    async def run(use: ToolUseContent) -> CallToolResult:
        await checkpoint()
        if isinstance(result, Exception):
            raise result
        return result

    return run


NOT_CALLED = runs(AssertionError("not called"))


def params(*tools: Tool, choice: ToolChoice | None = None) -> CreateMessageRequestParams:
    chosen = given(tool_choice=choice)
    return CreateMessageRequestParams(messages=[QUESTION], max_tokens=100, tools=list(tools), **chosen)


async def loop(model: Model, *, choice: ToolChoice | None = None, **options: Any) -> LoopResult:
    """A loop with the tools ``add``, which returns 3, and ``divide``, which fails."""
    options.setdefault("tools", {"add": runs(text("3")), "divide": runs(ToolError("by zero"))})
    with fail_after(10_000):  # some have a clock that jumps
        done = await run_loop(model, params(ADD, DIVIDE, choice=choice), **options)
    conversation.check(done.messages)
    steps = done.steps if done.unfinished is None else (*done.steps, done.unfinished)
    assert done.messages == [QUESTION, *[message for step in steps for message in step.messages]]
    return done


def results(step: Step) -> list[CallToolResult]:
    return [call.result for call in step.calls]


async def test_the_model_is_asked_until_it_answers_without_a_call() -> None:
    model = Model(says("I add.", use("1", a=1, b=2), stop="toolUse"), says("It is 3.", stop="endTurn"))

    done = await loop(model)

    answer = SamplingMessage(role="assistant", content=[TextContent(text="I add."), use("1", a=1, b=2)])
    result = SamplingMessage(role="user", content=ToolResultContent.of(use("1"), "3"))
    assert (done.ended, done.text, done.model, done.stop_reason) == ("answered", "It is 3.", "m", "endTurn")
    assert done.messages == [
        QUESTION,
        answer,
        result,
        SamplingMessage(role="assistant", content=TextContent(text="It is 3.")),
    ]
    assert [asked.messages for asked in model.asked] == [[QUESTION], [QUESTION, answer, result]]
    assert [asked.tools for asked in model.asked] == [[ADD, DIVIDE], [ADD, DIVIDE]]
    assert [(step.answer.text, [call.use.name for call in step.calls]) for step in done.steps] == [
        ("I add.", ["add"]),
        ("It is 3.", []),
    ]


@on_both
async def test_a_call_that_cannot_be_read_gets_an_error_result_and_the_others_of_its_answer_run() -> None:
    answer = says("So:", use("1", a=1), use("2", "divide"), stop="toolUse")
    model = Model(UnusableCalls("broken", answer, {"2": "The arguments are not JSON: cut"}), says("It is 3."))

    done = await loop(model)

    assert (done.ended, done.text) == ("answered", "It is 3.")
    assert results(done.steps[0]) == [text("3"), failed("The arguments are not JSON: cut")]


async def test_calls_that_the_provider_keeps_to_itself_are_one_turn_in_which_the_model_is_told() -> None:
    lost = UnusableCalls("the model called a tool in a way that cannot be read", says(""), {})
    half = UnusableCalls("it called none of these", says("So:"), {})

    done = await loop(Model(lost, half, says("3")))
    assert (done.ended, done.text) == ("answered", "3")
    assert [message.text for message in done.messages[1:]] == [
        "Your last answer was lost: the model called a tool in a way that cannot be read. Answer again.",
        "So:",
        "Your last answer was lost: it called none of these. Answer again.",
        "3",
    ]

    done = await loop(Model(lost, half), max_turns=2)
    assert (done.ended, done.text, done.messages[-1].role) == ("max_turns", "So:", "assistant")


@pytest.mark.fake_clock
async def test_the_calls_of_one_answer_run_at_once_and_their_results_are_in_order() -> None:
    begun: list[str] = []
    all_begun = Event()

    async def run(use: ToolUseContent) -> CallToolResult:
        begun.append(use.id)
        if len(begun) == 3:
            all_begun.set()
        await all_begun.wait()
        return text(use.id)

    model = Model(says(use("c"), use("a"), use("b")), says("done"))

    done = await loop(model, tools={"add": run})

    [_, _, message] = model.asked[1].messages
    assert message == UserMessage([ToolResultContent.of(use(id), id) for id in "cab"])
    assert [call.use.id for call in done.steps[0].calls] == ["c", "a", "b"]


@pytest.mark.parametrize(
    ("called", "words"),
    [
        ("divide", "by zero"),
        ("subtract", "There is no tool 'subtract'. The tools are: add, divide"),
        ("broken", "There is no tool 'broken'. The tools are: add, divide"),
    ],
    ids=["a tool that fails", "a tool that does not exist", "another"],
)
async def test_the_model_learns_that_a_tool_failed_and_the_loop_goes_on(called: str, words: str) -> None:
    model = Model(says(use("1", called), use("2")), says("done"))

    done = await loop(model)

    assert (done.ended, results(done.steps[0])) == ("answered", [failed(words), text("3")])


async def test_the_text_of_an_exception_that_is_not_for_the_model_is_only_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    done = await loop(Model(says(use("1")), says("done")), tools={"add": runs(ValueError("secret"))})

    assert results(done.steps[0]) == [failed("the tool add failed")]
    assert "secret" in caplog.text


ERRORS_OF_OURS: list[tuple[McpError, str]] = [
    (
        ConnectionClosed("python: has ended; its stderr:\n    hunter2"),
        "failed: its server is not available; it may have run",
    ),
    (ConnectFailed("python: no such command", may_have_run=False), "failed: its server is not available"),
    (NotConnected("use `async with`"), "failed: its server is not available"),
    (
        HttpStatusError(504, "https://db.internal: 504", body="nginx"),
        "failed: its server is not available; it may have run",
    ),
    (HttpStatusError(503, "https://db.internal: 503"), "failed: its server is not available"),
    (HttpStatusError(422, "https://db.internal: 422"), "failed: its server refused the call (HTTP 422)"),
    (HttpStatusError(500, "https://db.internal: 500", code=-32000, rpc_message="no index"), "failed: no index"),
    (RequestTimeout("tools/call: took longer than 30 s (timeout)"), "failed: it did not finish in time"),
    (
        InvalidToolOutput("$.key: 'hunter2' is too short", text("")),
        "failed: it has run, but its result does not match its schema",
    ),
    (
        InvalidToolOutput("$.key: 'hunter2' is too short", text("connection\nrefused" + "!" * 1_000)),
        "failed: it has run, but its result does not match its schema; it says: "
        f"connection\\nrefused{'!' * 982}… (1018 characters)",
    ),
    (ProtocolError("not JSON: hunter2"), "failed: its answer cannot be read; it may have run"),
    (InputNotGiven("KeyError: hunter2", key="a", method="roots/list"), "failed"),
    (ToolChanged("run pins.accept()", ToolChange("shop", "add", None, ADD)), "failed"),
    (SamplingError("the key hunter2 is invalid"), "failed"),
]


@pytest.mark.parametrize(("error", "words"), ERRORS_OF_OURS, ids=lambda each: type(each).__name__)
async def test_the_text_of_an_error_of_ours_is_only_logged(
    error: McpError, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    done = await loop(Model(says(use("1")), says("done")), tools={"add": runs(error)})

    assert results(done.steps[0]) == [failed(f"the tool add {words}")]
    assert caplog.messages == [f"the tool add failed: {error}"]


@pytest.mark.parametrize(
    "error",
    [
        ServerError(-32000, "no index", {"password": "hunter2"}),
        CallDenied("the call of 'add' was denied: not on Sundays", "not on Sundays"),
        BadArguments("Invalid arguments: a: Input should be a valid integer"),
        ToolError("by zero"),
        NotDeclared("sampling", "tools"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_the_text_of_an_error_of_the_server_the_approver_or_the_tool_reaches_the_model(error: McpError) -> None:
    done = await loop(Model(says(use("1")), says("done")), tools={"add": runs(error)})

    assert results(done.steps[0]) == [failed(str(error))]


@on_both
@pytest.mark.fake_clock
async def test_a_late_function_is_a_result_for_the_model() -> None:
    run = function_runner(FunctionTool(sleep_forever, name="add"), timeout=30)

    done = await loop(Model(says(use("1")), says("done")), tools={"add": run})

    assert results(done.steps[0]) == [failed("'add' did not finish within 30 seconds")]
    assert done.steps[0].calls[0].seconds == 30


@pytest.mark.parametrize("name", ["add", "divide"])
async def test_a_call_of_a_tool_that_is_not_run_here_ends_the_loop_and_no_call_of_that_answer_runs(name: str) -> None:
    ran: list[str] = []

    async def run(use: ToolUseContent) -> CallToolResult:
        ran.append(use.name)
        return text("3")

    last = says("Both.", use("2"), use("3", "divide"), use("4", "unknown"), stop="toolUse")
    model = Model(says(use("1", name)), last)

    done = await loop(model, tools={name: run})

    assert (done.ended, done.answer, done.tool_uses) == (
        "tool_calls",
        last,
        [use("2"), use("3", "divide"), use("4", "unknown")],
    )
    assert ran == [name]
    assert done.steps[-1] == Step(last, (), ())


async def test_the_last_turn_is_asked_without_tool_use_but_with_the_tools() -> None:
    model = Model(says(use("1")), says(use("2")), says("It is 3."))

    done = await loop(model, max_turns=3)

    assert (done.ended, done.text) == ("max_turns", "It is 3.")
    assert model.choices == [None, None, "none"]
    assert model.asked[2].tools == [ADD, DIVIDE]


@pytest.mark.parametrize(
    ("content", "words"), [((use("9"),), ""), (("It is 3.", use("9")), "It is 3.")], ids=["only a call", "with text"]
)
async def test_calls_in_an_answer_that_may_not_call_are_dropped(
    content: tuple[str | ToolUseContent, ...], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    done = await loop(Model(says(*content, stop="toolUse")), max_turns=1)

    assert (done.ended, done.answer) == ("max_turns", says(words, stop="endTurn"))
    assert (done.tool_uses, done.steps[0].calls, done.steps[0].dropped) == ([], (), (use("9"),))
    assert caplog.messages == ["calls of 'add' are dropped: the tool choice is 'none'"]


async def test_without_tools_the_first_answer_ends_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    model = Model(says("hello", use("1")))

    done = await run_loop(model, CreateMessageRequestParams(messages=[QUESTION], max_tokens=1), tools={}, max_turns=1)

    assert (done.ended, done.text, done.tool_uses, model.choices) == ("answered", "hello", [], [None])
    assert done.steps[0].dropped == (use("1"),)
    assert caplog.messages == ["calls of 'add' are dropped: no tools are on offer"]


REQUIRED = ToolChoice(mode="required")
CHOICES: dict[str, tuple[ToolChoice | None, list[str], list[str | None]]] = {
    "required": (REQUIRED, ["add", "add"], ["required", "auto", "auto"]),
    "required, and an unknown one called": (REQUIRED, ["unknown", "divide"], ["required", "required", "auto"]),
    "one tool": (ONLY_DIVIDE, ["add", "divide"], ["divide", "divide", "auto"]),
    "required, and not obeyed": (REQUIRED, [], ["required"]),
    "one tool, and not obeyed": (ONLY_DIVIDE, ["add"], ["divide", "divide"]),
    "auto": (ToolChoice(mode="auto"), ["add", "add"], ["auto", "auto", "auto"]),
    "none given": (None, ["add", "add"], [None, None, None]),
}


async def test_a_tool_choice_holds_until_the_model_has_obeyed(subtests: pytest.Subtests) -> None:
    for case, (choice, names, choices) in CHOICES.items():
        with subtests.test(case):
            model = Model(*[says(use(str(index), name)) for index, name in enumerate(names)], says("done"))

            done = await loop(model, choice=choice)

            assert (done.ended, done.text, model.choices) == ("answered", "done", choices)


@pytest.mark.parametrize(
    ("content", "words"), [((use("1"),), ""), (("Let me", use("1")), "Let me"), (("Let me",), "Let me")]
)
async def test_calls_of_an_answer_that_max_tokens_cut_off_are_not_run(
    content: tuple[str | ToolUseContent, ...], words: str
) -> None:
    for stop in ("maxTokens", "max_tokens", "length"):
        done = await loop(Model(says(*content, stop=stop)), tools={"add": NOT_CALLED})

        written = "maxTokens" if use("1") in content else stop
        assert (done.ended, done.answer) == ("max_tokens", says(words, stop=written))


@pytest.mark.parametrize("stop", ["refusal", "content_filter", "stopSequence"])
async def test_calls_of_an_answer_that_stopped_for_another_reason_are_not_run(
    stop: str, caplog: pytest.LogCaptureFixture
) -> None:
    done = await loop(Model(says("I", use("1"), stop=stop)), tools={"add": NOT_CALLED})

    assert (done.ended, done.answer, done.steps[0].dropped) == ("answered", says("I", stop=stop), (use("1"),))
    assert caplog.messages == [f"calls of 'add' are dropped: the answer stopped with {stop!r}"]


async def test_calls_are_run_under_any_other_stop_reason(subtests: pytest.Subtests) -> None:
    """Some hosts pass on what their provider calls it."""
    for stop in (None, "endTurn", "toolUse", "tool_use", "tool_calls", "end_turn", "stop", "odd"):
        with subtests.test(stop=stop):
            done = await loop(Model(says(use("1"), stop=stop), says("It is 3.")))

            assert (done.ended, done.text) == ("answered", "It is 3.")
            assert done.steps[0].answer == says(use("1"), stop="toolUse")


async def test_ids_that_the_model_repeats_are_made_fresh() -> None:
    """A loop that is run again makes the same."""
    model = Model(
        says(use("1"), use("1"), use("")), says(use("1"), use("2"), use("call_2"), use("call_2")), says("done")
    )

    done = await loop(model)

    ids = [[call.use.id for call in step.calls] for step in done.steps]
    assert ids == [["1", "call_2", "call_3"], ["call_4", "2", "call_6", "call_7"], []]
    assert [[block.id for block in step.answer.tool_uses] for step in done.steps] == ids


async def test_a_whole_float_is_sent_as_the_integer_that_the_tool_takes() -> None:
    """Servers in Go and Rust take no 30.0 for an integer."""
    count = Tool(name="count", input_schema={"properties": {"n": {"type": "integer"}, "x": {"type": "number"}}})
    model = Model(says(use("1", "count", n=30.0, x=30.0), use("2", "other", n=1.0)), says("done"))

    done = await run_loop(model, params(count), tools={"count": runs(text("3")), "other": NOT_CALLED})

    sent = [json.dumps(call.use.input) for call in done.steps[0].calls]
    assert sent == ['{"n": 30, "x": 30.0}', '{"n": 1.0}']
    assert [json.dumps(block.input) for block in done.messages[1].tool_uses] == sent


@on_both
@pytest.mark.fake_clock
async def test_a_timeout_is_an_outcome_and_the_unfinished_step_is_none_of_its_steps() -> None:
    async def hang(use: ToolUseContent) -> CallToolResult:
        await sleep(20)
        return text("3")

    model = Model(*[says(use(str(turn)), use(f"{turn}b")) for turn in range(9)])

    done = await loop(model, tools={"add": hang}, timeout=50)

    assert (done.ended, done.answer, done.text, done.model, done.stop_reason) == ("timeout", None, "", "m", None)
    assert [[call.seconds for call in step.calls] for step in done.steps] == [[20, 20], [20, 20]]
    assert len(done.messages) == 7
    assert done.unfinished == Step(says(use("2"), use("2b"), stop="toolUse"), (), (*done.messages[5:],))


@on_both
@pytest.mark.fake_clock
async def test_after_a_timeout_the_conversation_says_which_calls_of_the_unfinished_step_had_finished() -> None:
    """Otherwise the model would book again."""

    async def run(use: ToolUseContent) -> CallToolResult:
        await sleep({"a": 100, "b": 20, "c": 10}[use.id])
        return text("booked")

    answer = says(use("a"), use("b"), use("c"), stop="toolUse", meta={"usage": {"outputTokens": 3}})

    done = await loop(Model(answer), tools={"add": run}, timeout=50)

    finished = (FinishedCall(use("b"), text("booked"), 20), FinishedCall(use("c"), text("booked"), 10))
    stopped = failed("Stopped, because the time was up: it may have run")
    told = [
        ToolResultContent.of(use(id), result)
        for id, result in (("a", stopped), *((c.use.id, c.result) for c in finished))
    ]
    assert (done.ended, done.steps) == ("timeout", ())
    assert done.messages == [QUESTION, AssistantMessage(answer.content), UserMessage(told)]
    conversation.check(done.messages)
    assert done.unfinished == Step(answer, finished, (*done.messages[1:],))
    assert done.usage == {"outputTokens": 3}


@on_both
@pytest.mark.fake_clock
async def test_a_model_that_is_late_leaves_no_step() -> None:
    async def hang(params: CreateMessageRequestParams) -> CreateMessageResult:
        await sleep_forever()
        return says("")

    done = await run_loop(hang, params(ADD), tools={}, timeout=5)

    assert done == LoopResult(ended="timeout", answer=None, messages=[QUESTION], steps=())


@on_both
@pytest.mark.fake_clock
async def test_an_answer_is_not_lost_if_the_time_is_up_in_on_turn() -> None:
    async def on_turn(step: Step) -> None:
        await sleep(10)

    done = await loop(Model(says("It is 3.")), on_turn=on_turn, timeout=5)

    assert (done.ended, done.text) == ("answered", "It is 3.")


@on_both
@pytest.mark.fake_clock
async def test_the_time_in_which_calls_are_permitted_does_not_count() -> None:
    async def permit(use: ToolUseContent) -> CallToolResult | None:
        await sleep(1000 if use.id == "1" else 2000)
        return failed("no") if use.id == "2" else None

    model = Model(says(use("1"), use("2")), says(use("3")), says("done"))

    done = await loop(model, permit=permit, timeout=1)

    assert (done.ended, results(done.steps[0])) == ("answered", [text("3"), failed("no")])


@on_both
@pytest.mark.fake_clock
@pytest.mark.parametrize("calls", [1, 2])
async def test_the_time_goes_on_after_the_last_decision(calls: int) -> None:
    async def permit(use: ToolUseContent) -> CallToolResult | None:
        await sleep(1000 if use.id == "1" else 500)
        return None

    async def hang(use: ToolUseContent) -> CallToolResult:
        await sleep_forever()
        return text("")

    with move_on_after(1506) as scope:
        model = Model(says(*[use(str(index)) for index in range(2 - calls, 2)]))
        done = await loop(model, permit=permit, tools={"add": hang}, timeout=5)

    assert (done.ended, done.steps, scope.cancelled_caught) == ("timeout", (), False)


@on_both
@pytest.mark.fake_clock
async def test_calls_are_decided_on_in_their_order_and_run_meanwhile() -> None:
    happened: list[str] = []

    async def permit(use: ToolUseContent) -> CallToolResult | None:
        happened.append(f"asked about {use.id}")
        await sleep(10)
        return None

    async def run(use: ToolUseContent) -> CallToolResult:
        await sleep(5)
        happened.append(f"ran {use.id}")
        return text("")

    await loop(Model(says(use("a"), use("b"), use("c")), says("done")), permit=permit, tools={"add": run})

    assert happened == ["asked about a", "asked about b", "ran a", "asked about c", "ran b", "ran c"]


@on_both
@pytest.mark.parametrize("calls", [1, 2])
async def test_what_permit_raises_is_raised_as_it_is_and_nothing_runs(calls: int) -> None:
    async def permit(use: ToolUseContent) -> CallToolResult | None:
        raise TypeError("a mistake of the host")

    model = Model(says(*[use(str(index)) for index in range(calls)]))

    with pytest.raises(TypeError, match="a mistake of the host"):
        await loop(model, permit=permit, tools={"add": NOT_CALLED})


async def test_what_the_model_raises_is_raised_as_it_is_and_on_turn_has_the_steps_before() -> None:
    steps: list[Step] = []

    async def on_turn(step: Step) -> None:
        steps.append(step)

    with pytest.raises(IndexError):
        await loop(Model(says(use("1"))), on_turn=on_turn)

    assert [step.answer for step in steps] == [says(use("1"), stop="toolUse")]
    conversation.check([QUESTION, *steps[0].messages])


@pytest.mark.parametrize("content", [(), ("",)], ids=["no block", "an empty text"])
async def test_an_empty_answer_ends_the_loop_and_is_not_in_the_conversation(content: tuple[str, ...]) -> None:
    done = await loop(Model(says(*content, stop="endTurn")))

    assert (done.ended, done.answer, done.messages) == ("answered", says("", stop="endTurn"), [QUESTION])


async def test_empty_texts_beside_calls_are_not_in_the_conversation() -> None:
    done = await loop(Model(says("", use("1"), "so", ""), says("done")))

    assert done.messages[1].content == [use("1"), TextContent(text="so")]


@on_both
async def test_a_tool_that_awaits_a_cancelled_task_has_failed_and_the_loop_is_not_cancelled(
    anyio_backend_name: str,
) -> None:
    async def run(use: ToolUseContent) -> CallToolResult:
        if anyio_backend_name == "asyncio":
            task = asyncio.create_task(asyncio.sleep(100))
            task.cancel()
            await task
        raise SystemExit(1)

    done = await loop(Model(says(use("1")), says(use("2"), use("3")), says("done")), tools={"add": run})

    assert (done.ended, [results(step) for step in done.steps]) == (
        "answered",
        [[failed("the tool add failed")], [failed("the tool add failed")] * 2, []],
    )


async def test_a_legal_answer_is_not_copied() -> None:
    answer = says("hello", stop="endTurn")

    assert read_answer(answer, params(ADD)) is answer


async def test_one_answer_may_make_64_calls_and_the_rest_is_not_run() -> None:
    model = Model(says(*[use(str(index)) for index in range(66)]), says("done"))

    done = await loop(model)

    not_run = failed("Not run: one answer may call at most 64 tools")
    assert results(done.steps[0]) == [*[text("3")] * 64, not_run, not_run]


@pytest.mark.parametrize(
    ("usages", "total"),
    [
        ([None, None], None),
        ([{"inputTokens": 5, "outputTokens": 2}, None], {"inputTokens": 5, "outputTokens": 2}),
        ([{"inputTokens": 5}, {"inputTokens": 7, "cost": 0.5}], {"inputTokens": 12, "cost": 0.5}),
        ([{"inputTokens": "5", "cached": True, "other": float("nan")}, 7], None),
    ],
    ids=["none", "some", "all", "no numbers"],
)
async def test_the_usage_is_summed_over_the_answers_that_carry_it(usages: list[object], total: object) -> None:
    first, second = [None if usage is None else {"usage": usage} for usage in usages]
    model = Model(says(use("1"), meta=first), says("done", meta=second))

    assert (await loop(model)).usage == total


@pytest.mark.backends("trio")
@pytest.mark.fake_clock
async def test_a_tool_that_fails_on_the_way_out_of_a_timeout_does_not_hold_it_up() -> None:
    """One of trio's task groups raises the failure and the cancellation together."""

    async def fail_at_the_end() -> None:
        try:
            await sleep_forever()
        finally:
            raise ValueError("lost")

    async def run(use: ToolUseContent) -> CallToolResult:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail_at_the_end)
            await sleep_forever()
        return text("")

    done = await loop(Model(says(use("1"))), tools={"add": run}, timeout=5)

    assert (done.ended, done.steps) == ("timeout", ())


@on_both
@pytest.mark.parametrize("calls", [1, 2])
async def test_a_cancelled_loop_leaves_no_call_behind(calls: int) -> None:
    running: set[str] = set()

    async def hang(use: ToolUseContent) -> CallToolResult:
        running.add(use.id)
        try:
            await sleep_forever()
        finally:
            running.remove(use.id)
        return text("")

    model = Model(says(*[use(str(index)) for index in range(calls)]))
    with fail_after(25):
        async with create_task_group() as tasks:
            tasks.start_soon(partial(loop, model, tools={"add": hang}))
            await wait_all_tasks_blocked()
            assert len(running) == calls
            tasks.cancel_scope.cancel()

    assert running == set()


@pytest.mark.parametrize(
    ("bounds", "error", "problem"),
    [
        ({"max_turns": 0}, ValueError, "max_turns"),
        ({"timeout": 0}, ValueError, "timeout"),
        ({"timeout": -1}, ValueError, "timeout"),
        ({"max_turns": 2.5}, TypeError, "max_turns must be a whole number, not 2.5"),
        ({"max_turns": math.inf}, TypeError, "max_turns must be a whole number, not inf"),
    ],
    ids=str,
)
async def test_bounds_that_make_no_sense_are_refused(
    bounds: dict[str, Any], error: type[Exception], problem: str
) -> None:
    with pytest.raises(error, match=problem):
        await loop(Model(), **bounds)
