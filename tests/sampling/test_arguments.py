"""The arguments of the model's tool calls, checked with the tools' input schemas before they leave."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import anyio
import pytest
from anyio import fail_after

from mcp_host.errors import UnusableCalls
from mcp_host.sampling import Allow, Sampling, SamplingLimits, SamplingRequest, SamplingSession, ToolCall, always
from mcp_host.sampling.arguments import ArgumentChecker
from mcp_host.sampling.sampling import CheckArguments
from mcp_host.testing.model import ScriptedModel
from mcp_host.types import CreateMessageResult, TextContent, Tool, ToolResultContent, ToolUseContent, UserMessage
from tests.extent import on_both
from tests.sampling import asking
from tests.sampling.asking import Approver, Wire, refused, result, said, text, user, wire

ADD: Wire = {
    "name": "add",
    "inputSchema": {
        "type": "object",
        "properties": {"a": {"type": "integer", "minimum": 0}, "b": {"type": "integer"}},
        "required": ["a"],
    },
}
TEXT: Wire = {"name": "text", "inputSchema": {"type": "object"}}
REFUSAL = (-32603, "this client's model gave an answer that the request does not allow")
SECRET = "hunter2"
WRONG = ToolCall("add", {"a": SECRET})
MISSPELT = CreateMessageResult(content=ToolUseContent(id="1", name="ad", input={}), model="m")


def session(
    model: ScriptedModel, check_arguments: CheckArguments = "retry", *, limits: SamplingLimits | None = None
) -> SamplingSession:
    sampling = Sampling(with_tools=model, approve=always, check_arguments=check_arguments, limits=limits)
    return sampling.session(server="calculator", knows_tools=True)


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records if record.name.startswith("mcp_host")]


def calls(answer: CreateMessageResult) -> list[tuple[str, dict[str, Any]]]:
    return [(use.name, use.input) for use in answer.tool_uses]


MISMATCH = (
    "WARNING",
    "sampling for calculator: the model's arguments for the tool 'add' do not match its inputSchema:"
    " $.a: not of type 'integer'",
)
NOT_LEGAL = (
    "ERROR",
    "sampling for calculator: the handler's answer is not legal:"
    " it calls tools with arguments that do not match their inputSchema",
)


async def test_by_default_wrong_arguments_leave_with_a_warning_that_has_no_values(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answer = await asking.session(ScriptedModel(WRONG)).answer(wire(tools=[ADD]))

    assert calls(answer) == [("add", {"a": SECRET})]
    assert lines(caplog) == [MISMATCH]


async def test_wrong_arguments_can_be_refused(caplog: pytest.LogCaptureFixture) -> None:
    refusal = await refused(session(ScriptedModel(WRONG), "refuse"), wire(tools=[ADD]))

    assert said(refusal) == REFUSAL
    assert repr(refusal.__cause__) == (
        "SamplingError('it calls tools with arguments that do not match their inputSchema')"
    )
    assert lines(caplog) == [MISMATCH, NOT_LEGAL]


@pytest.mark.parametrize("check_arguments", ["warn", "refuse", "retry"])
async def test_right_arguments_leave_at_once(check_arguments: CheckArguments, caplog: pytest.LogCaptureFixture) -> None:
    model = ScriptedModel([ToolCall("add", {"a": 1}), ToolCall("add", {"a": 2, "b": 3}), ToolCall("text")])

    answer = await session(model, check_arguments).answer(wire(tools=[ADD, TEXT]))

    assert calls(answer) == [("add", {"a": 1}), ("add", {"a": 2, "b": 3}), ("text", {})]
    assert len(model.requests) == 1
    assert lines(caplog) == []


async def test_the_model_is_told_once_what_is_wrong_and_every_call_has_a_result(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = ScriptedModel([WRONG, ToolCall("text"), ToolCall("add", {"a": -1})], ToolCall("add", {"a": 1}))
    question = user(text("What is 1 + 2?"))

    answer = await session(model).answer(wire(question, tools=[ADD, TEXT]))

    assert calls(answer) == [("add", {"a": 1})]
    first, second = model.requests
    assert len(first.messages) == 1
    [asked, said_first, told] = second.messages
    assert asked == first.messages[0]
    assert [(block.name, block.input) for block in said_first.tool_uses] == [
        ("add", {"a": SECRET}),
        ("text", {}),
        ("add", {"a": -1}),
    ]
    ids = [use.id for use in said_first.tool_uses]
    not_run = "This call was not run, because another call of the same answer was not valid. Call the tool again."
    wrong = "The arguments do not match the tool's inputSchema: $.a: "
    assert told.to_wire()["content"] == [
        result(ids[0], text(f"{wrong}not of type 'integer'"), isError=True),
        result(ids[1], text(not_run), isError=True),
        result(ids[2], text(f"{wrong}less than the minimum of 0"), isError=True),
    ]
    assert (second.tools, second.server, second.mode) == (first.tools, first.server, first.mode)


async def test_middleware_around_the_model_is_around_the_second_answer_too_which_may_be_a_text() -> None:
    seen: list[int] = []

    async def around(request: SamplingRequest, call_model: Any) -> Any:
        seen.append(len(request.messages))
        return await call_model()

    model = ScriptedModel(WRONG, "I cannot add that.")
    answer = await session(model).answer(wire(tools=[ADD]), around_model=[around])

    assert answer.content == [TextContent(text="I cannot add that.")]
    assert seen == [1, 3]


async def test_a_second_wrong_answer_is_refused_and_the_model_is_not_asked_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = ScriptedModel(WRONG, WRONG)

    refusal = await refused(session(model), wire(tools=[ADD]))

    assert said(refusal) == REFUSAL
    assert len(model.requests) == 2
    assert lines(caplog) == [MISMATCH, MISMATCH, NOT_LEGAL]
    assert SECRET not in caplog.text


async def test_the_second_answer_may_repeat_the_ids_of_the_first_because_the_server_sees_only_one() -> None:
    def called(a: object) -> CreateMessageResult:
        return CreateMessageResult(
            content=ToolUseContent(id="call_0", name="add", input={"a": a}), model="m", stop_reason="toolUse"
        )

    answer = await session(ScriptedModel(called("1"), called(1))).answer(wire(tools=[ADD]))

    assert answer == called(1)


async def test_the_second_answer_owes_what_the_first_did(caplog: pytest.LogCaptureFixture) -> None:
    asked = wire(tools=[ADD, TEXT], toolChoice={"mode": "required", "name": "add"})

    refusal = await refused(session(ScriptedModel(WRONG, ToolCall("text"))), asked)
    answer = await session(ScriptedModel(WRONG, "no")).answer(asked)  # as if it were the first

    assert answer.text == "no"
    problem = "it calls 'text', but toolChoice requires 'add' and nothing else"
    illegal = f"sampling for calculator: the handler's answer is not legal: {problem}"
    assert said(refusal) == REFUSAL
    assert lines(caplog)[:2] == [MISMATCH, ("ERROR", illegal)]


async def test_the_second_request_obeys_the_limits_of_the_first() -> None:
    """The answer itself fits. What the model is told about it does not."""
    model = ScriptedModel(ToolCall("add", {"a": "x"}), "never asked")

    refusal = await refused(session(model, limits=SamplingLimits(text=80)), wire(tools=[ADD]))

    limit = "this client's limit text is 80, and a request with this answer in it would have 91: its host can raise it with SamplingLimits(text=...)"
    assert said(refusal) == (-32603, limit)
    assert len(model.requests) == 1


async def test_the_second_answer_is_a_part_of_the_same_request_for_the_approver_and_the_limits() -> None:
    approve = Approver(Allow())
    slots: list[float] = []

    async def model(request: SamplingRequest) -> CreateMessageResult:
        slots.append(sampling._semaphore.free)
        return request.call("add", {"a": "x"} if len(slots) == 1 else {"a": 1})

    sampling = Sampling(with_tools=model, approve=approve, check_arguments="retry", limits=SamplingLimits(at_once=1))
    answer = await sampling.session(server="calculator", knows_tools=True).answer(wire(tools=[ADD]))

    assert calls(answer) == [("add", {"a": 1})]
    assert len(approve.asked) == 1
    assert slots == [0, 0]
    assert sampling._semaphore.free == 1


def unreadable(request: SamplingRequest) -> Any:
    answer = request.calls(ToolCall("add"), ToolCall("add", {"a": 1}))
    problems = {answer.tool_uses[0].id: "The arguments are not JSON: cut"}
    raise UnusableCalls("the model called 'add' with arguments that are not JSON: cut", answer, problems)


def lost(request: SamplingRequest) -> Any:
    raise UnusableCalls("the model called no tool of yours", request.reply(""), {})


async def test_a_model_whose_calls_cannot_be_read_is_asked_again_once_by_choice(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = ScriptedModel(unreadable, ToolCall("add", {"a": 1}))

    answer = await session(model).answer(wire(tools=[ADD]))

    assert calls(answer) == [("add", {"a": 1})]
    assert [(len(asked.messages), asked.server_messages) for asked in model.requests] == [(1, None), (3, 1)]
    told = model.requests[1].messages[-1].content
    assert [block.text for block in told if isinstance(block, ToolResultContent)] == [
        "The arguments are not JSON: cut",
        "This call was not run, because another call of the same answer was not valid. Call the tool again.",
    ]
    problem = "sampling for calculator: the model called 'add' with arguments that are not JSON: cut"
    assert lines(caplog) == [("WARNING", problem)]

    model = ScriptedModel(lost, "no")
    assert (await session(model).answer(wire(tools=[ADD]))).text == "no"
    [note] = model.requests[1].messages[1:]
    assert note == UserMessage("Your last answer was lost: the model called no tool of yours. Answer again.")


async def test_a_model_that_calls_a_tool_that_it_may_not_call_is_told_so_and_asked_again(
    subtests: pytest.Subtests, caplog: pytest.LogCaptureFixture
) -> None:
    table: list[tuple[str, Wire, str, str]] = [
        (
            "heigth",
            {},
            "it calls 'heigth', which the request does not offer",
            "There is no tool 'heigth'. The tools are: add, text",
        ),
        (
            "text",
            {"toolChoice": {"type": "tool", "name": "add"}},
            "it calls 'text', but toolChoice requires 'add' and nothing else",
            "Call 'add' and nothing else.",
        ),
    ]
    for name, choice, problem, said_of_it in table:
        with subtests.test(name):
            caplog.clear()
            both = [ToolUseContent(id=id, name=called, input={}) for id, called in (("1", name), ("2", "add"))]
            model = ScriptedModel(CreateMessageResult(content=both, model="m"), ToolCall("add", {"a": 2}))

            answer = await session(model).answer(wire(tools=[ADD, TEXT], **choice))

            assert calls(answer) == [("add", {"a": 2})]
            told = model.requests[1].messages[-1].content
            assert [block.text for block in told if isinstance(block, ToolResultContent)] == [
                said_of_it,
                "This call was not run, because another call of the same answer was not valid. Call the tool again.",
            ]
            assert lines(caplog) == [("WARNING", f"sampling for calculator: {problem}")]


@pytest.mark.parametrize("second", [unreadable, lost, WRONG, MISSPELT])
async def test_a_model_is_not_asked_a_third_time(second: Any) -> None:
    model = ScriptedModel(unreadable, second)

    assert said(await refused(session(model), wire(tools=[ADD]))) == REFUSAL
    assert len(model.requests) == 2


@pytest.mark.parametrize("check_arguments", ["warn", "refuse"])
async def test_calls_that_cannot_be_read_are_refused_otherwise(check_arguments: CheckArguments) -> None:
    model = ScriptedModel(unreadable)

    refusal = await refused(session(model, check_arguments), wire(tools=[ADD]))

    assert said(refusal) == (-32603, "this client's model failed")
    assert len(model.requests) == 1


@on_both
@pytest.mark.fake_clock
async def test_the_time_of_both_answers_is_bounded_together() -> None:
    async def hangs(request: SamplingRequest) -> str:
        await anyio.sleep_forever()
        return ""

    refusal = await refused(session(ScriptedModel(WRONG, hangs), limits=SamplingLimits(seconds=3)), wire(tools=[ADD]))

    assert said(refusal) == (-32011, "this client's limit for one answer is 3 seconds")


UNCHECKABLE: list[tuple[Wire, str]] = [
    ({"$ref": "https://evil.example/schema"}, "Unresolvable"),
    ({"type": "nonsense"}, "it is not a valid JSON Schema"),
    ({"properties": {"a": {"pattern": "x(?=y)"}}}, "the pattern 'x(?=y)' cannot be matched"),
    ({"$schema": "https://example.com/dialect"}, "the dialect 'https://example.com/dialect' is not supported"),
]


@pytest.mark.parametrize("check_arguments", ["warn", "refuse", "retry"])
@pytest.mark.parametrize(("schema", "why"), UNCHECKABLE, ids=["network", "invalid", "pattern", "dialect"])
async def test_a_schema_that_cannot_be_checked_allows_everything_and_the_log_says_so_once(
    schema: Wire, why: str, check_arguments: CheckArguments, caplog: pytest.LogCaptureFixture
) -> None:
    asked = session(ScriptedModel(*[ToolCall("odd", {"a": SECRET})] * 2), check_arguments)
    for _ in range(2):
        answer = await asked.answer(wire(tools=[{"name": "odd", "inputSchema": schema}]))
        assert calls(answer) == [("odd", {"a": SECRET})]

    [(level, line)] = lines(caplog)
    start = "sampling for calculator: arguments of the tool 'odd' go out unchecked: its inputSchema cannot be checked: "
    assert (level, line.startswith(start), why in line) == ("WARNING", True, True)
    assert SECRET not in line


async def test_a_schema_that_would_take_hours_is_given_up_soon(caplog: pytest.LogCaptureFixture) -> None:
    """26 levels of "anyOf" have 2^26 branches."""
    levels: dict[str, Any] = {f"l{n}": {"anyOf": [{"$ref": f"#/$defs/l{n + 1}"}] * 2} for n in range(26)}
    schema = {"$defs": {**levels, "l26": {"type": "null"}}, "$ref": "#/$defs/l0"}
    model = ScriptedModel(ToolCall("odd", {"a": 1}))

    with fail_after(60):
        answer = await session(model, "refuse").answer(wire(tools=[{"name": "odd", "inputSchema": schema}]))

    assert calls(answer) == [("odd", {"a": 1})]
    [(_, line)] = lines(caplog)
    assert line.endswith("its inputSchema cannot be checked: it takes more than 200000 steps")


async def test_a_checker_keeps_the_schemas_that_were_used_last() -> None:
    checker = ArgumentChecker(subject="test")
    tools = [Tool(name=f"t{n}", input_schema={"type": "object", "minProperties": n}) for n in range(1, 67)]
    for tool in tools:
        assert await checker.problem(tool, {}) is not None
        assert await checker.problem(tools[0].model_copy(), {}) is not None

    kept = [each.schema.source["minProperties"] for each in checker._kept.values()]
    assert kept == [*range(4, 66), 66, 1]


@pytest.mark.parametrize("check_arguments", [None, True, "drop"])
def test_another_way_to_check_arguments_is_an_error(check_arguments: Any) -> None:
    with pytest.raises(ValueError, match=r'^check_arguments is "warn", "refuse" or "retry", not '):
        Sampling(with_tools=ScriptedModel(), approve=always, check_arguments=check_arguments)


def test_usual_arguments_are_checked_without_the_schema_library() -> None:
    code = f"""
import sys, anyio
from mcp_host.sampling import Sampling, ToolCall, always
from mcp_host.testing.model import ScriptedModel
asked = Sampling(with_tools=ScriptedModel(ToolCall("f", {{"a": 1}}), "no"), approve=always, check_arguments="refuse")
params = {{"messages": [], "maxTokens": 9, "tools": [{{"name": "f", "inputSchema": {{
    "type": "object", "properties": {{"a": {{"type": "integer"}}}}, "required": ["a"]}}}}]}}
params["messages"] = [{{"role": "user", "content": {text()!r}}}]
answer = asked.session(server="s", knows_tools=True).answer
print(anyio.run(answer, params).stop_reason, anyio.run(answer, params).text, "jsonschema" in sys.modules)
"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert (printed.stderr, printed.stdout) == ("", "toolUse no False\n")
