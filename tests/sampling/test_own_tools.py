"""A server's own tools, run inside its sampling requests with the functions of another client."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest
from anyio import Event, create_task_group, fail_after, sleep, sleep_forever, wait_all_tasks_blocked
from pydantic import BaseModel

from mcp_host.errors import RequestTimeout
from mcp_host.sampling import OwnTools, Sampling, SamplingLimits, SamplingRequest, ToolCall, always
from mcp_host.testing.model import ScriptedModel
from mcp_host.types import (
    CallToolResult,
    CreateMessageResult,
    ImageContent,
    TextContent,
    Tool,
    ToolResultContent,
    ToolUseContent,
)
from tests.extent import on_both
from tests.sampling.asking import ADD, MULTIPLY, Wire, text, wire

ILLEGAL_ANSWER = "this client's model gave an answer that the request does not allow"
OFFERED = wire(tools=[ADD, MULTIPLY])


def results(request: SamplingRequest) -> str:
    """The results of tools at the end of a request."""
    blocks = [block for block in request.messages[-1].content if isinstance(block, ToolResultContent)]
    return str([(block.text, bool(block.is_error)) for block in blocks])


def sampling(model: ScriptedModel, **limits: Any) -> Sampling:
    return Sampling(with_tools=model, approve=always, limits=SamplingLimits(**limits))


async def plus(name: str, arguments: Mapping[str, Any]) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=f"{name}{dict(arguments)}")])


def content(answer: Wire) -> object:
    return answer["result"]["content"]


async def test_a_callback_runs_every_tool_on_offer_with_call_tool() -> None:
    model = ScriptedModel([ToolCall("add", {"a": 1}), ToolCall("multiply")], results)

    answer = await sampling(model).callback(server="s", call_tool=plus)(OFFERED)

    assert content(answer) == text(str([("add{'a': 1}", False), ("multiply{}", False)]))


async def test_a_model_may_answer_with_a_text() -> None:
    async def handler(request: SamplingRequest) -> str:
        return "3"

    callback = Sampling(with_tools=handler, approve=always).callback(server="s", call_tool=plus, own_tools=True)

    assert content(await callback(OFFERED)) == text("3")


class SdkTool(BaseModel):
    name: str


def gives(value: object) -> Any:
    """A function that returns *value*, or raises it."""

    async def function(*arguments: object) -> object:
        if isinstance(value, Exception):
            raise value
        return value

    return function


class SdkListing(BaseModel):
    tools: list[SdkTool]


LISTINGS: dict[str, Any] = {
    "names": gives(["add"]),
    "tools": gives([Tool(name="add", input_schema={})]),
    "dicts": gives([ADD]),
    "models": gives([SdkTool(name="add")]),
    "a result of the SDK": gives(SdkListing(tools=[SdkTool(name="add")])),
    "a result": gives({"tools": [ADD]}),
    "a plain function": lambda: ["add"],
}


async def test_with_list_tools_a_callback_runs_those_and_leaves_others_to_the_server(subtests: pytest.Subtests) -> None:
    for case, list_tools in LISTINGS.items():
        with subtests.test(case):
            model = ScriptedModel(ToolCall("add"), [ToolCall("add"), ToolCall("multiply")])

            answer = await sampling(model).callback(server="s", call_tool=plus, list_tools=list_tools)(OFFERED)

            assert [block["name"] for block in answer["result"]["content"]] == ["add", "multiply"]
            assert len(model.requests[1].messages) == 3


class SdkResult(BaseModel):
    content: list[dict[str, str]]
    isError: bool  # as the SDK writes it


def in_a_thread(name: str, arguments: object) -> CallToolResult:
    assert threading.current_thread() is not threading.main_thread()
    return CallToolResult(content=[TextContent(text="from a thread")])


RESULTS: dict[str, tuple[Any, object]] = {
    "a dict": (gives({"content": [text("from a dict")], "isError": True}), ("from a dict", True)),
    "a model": (gives(SdkResult(content=[text("from a model")], isError=False)), ("from a model", False)),
    "ours, of a plain function": (in_a_thread, ("from a thread", False)),
    "no result": (gives("no result"), ("the tool add failed", True)),
    "malformed": (gives({"content": 5}), ("the tool add failed: its answer cannot be read; it may have run", True)),
    "cut": (gives({"content": [text("x" * 99)]}), (f"{'x' * 15}\n[69 of 99 bytes are left out here]\n{'x' * 15}", False)),
    "an exception": (gives(RuntimeError("the password is hunter2")), ("the tool add failed", True)),
}  # fmt: skip


async def test_a_result_may_be_ours_the_wires_or_the_sdks_and_anything_else_is_an_error_for_the_model(
    subtests: pytest.Subtests,
) -> None:
    for case, (call_tool, result) in RESULTS.items():
        with subtests.test(case):
            model = ScriptedModel(ToolCall("add"), results)

            answer = await sampling(model).callback(
                server="s", call_tool=call_tool, own_tools=OwnTools(max_result_bytes=66)
            )(OFFERED)

            assert content(answer) == text(str([result]))


WHOLE = "list_tools has to return names, tools or a result of tools/list, not"


@pytest.mark.parametrize(
    ("listed", "why"),
    [
        pytest.param(RuntimeError("no list"), "no list", id="raises"),
        pytest.param([1], "list_tools has to return names or tools, not int", id="numbers"),
        pytest.param("add", f"{WHOLE} str", id="one name"),
        pytest.param(None, f"{WHOLE} NoneType", id="nothing"),
        pytest.param(SdkTool(name="add"), f"{WHOLE} SdkTool", id="one tool"),
        pytest.param({"add": 1}, f"{WHOLE} dict", id="a dict without tools"),
        pytest.param({"tools": "add"}, f"{WHOLE} dict", id="a dict with one name"),
    ],
)
async def test_if_list_tools_fails_the_answer_goes_to_the_server(
    listed: object, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    asked = sampling(ScriptedModel(ToolCall("add")))

    answer = await asked.callback(server="s", call_tool=plus, list_tools=gives(listed))(OFFERED)

    assert answer["result"]["stopReason"] == "toolUse"
    assert caplog.messages == [f"sampling for s: its tools cannot be listed, so it has to run them: {why}"]


@on_both
@pytest.mark.fake_clock
async def test_a_call_that_takes_longer_than_its_timeout_is_an_error_for_the_model() -> None:
    async def slow(name: str, arguments: Mapping[str, Any]) -> CallToolResult:
        await sleep(arguments["a"])
        return CallToolResult(content=[TextContent(text="done")])

    model = ScriptedModel([ToolCall("add", {"a": seconds}) for seconds in (29.9, 30.1)], results)
    callback = sampling(model).callback(server="s", call_tool=slow)

    with fail_after(100):
        answer = await callback(OFFERED)

    late = "the tool add failed: it did not finish in time"
    assert content(answer) == text(str([("done", False), (late, True)]))


@on_both
async def test_a_tool_may_sample_although_one_request_at_once_is_allowed() -> None:
    async def call_tool(name: str, arguments: object) -> dict[str, Any]:
        answer = await callback(wire())
        return {"content": [answer["result"]["content"]]}

    model = ScriptedModel(ToolCall("add"), "the inner answer", results)
    callback = sampling(model, at_once=1, at_once_per_server=1, waiting=0).callback(server="s", call_tool=call_tool)

    with fail_after(25):
        answer = await callback(OFFERED)

    assert content(answer) == text(str([("the inner answer", False)]))


async def test_tools_that_sample_with_tools_again_and_again_are_refused_at_the_ninth() -> None:
    """Another client does not say which call a request belongs to, so those that wait are counted."""

    async def call_tool(name: str, arguments: object) -> dict[str, Any]:
        answers.append(await callback(OFFERED))
        return {"content": []}

    answers: list[Wire] = []
    model = ScriptedModel(*[ToolCall("add")] * 8, *["done"] * 8)
    callback = sampling(model, at_once=1).callback(server="s", call_tool=call_tool)

    with fail_after(25):
        answer = await callback(OFFERED)

    refused, *others = answers
    assert refused == {"error": {"code": -32013, "message": "this client's limit is 8 tool loops within each other"}}
    assert [content(each) for each in [*others, answer]] == [text("done")] * 8
    assert len(model.requests) == 16


@on_both
async def test_many_calls_of_one_answer_are_one_loop() -> None:
    """So another request is answered while nine calls run."""

    async def call_tool(name: str, arguments: object) -> CallToolResult:
        running.append(name)
        if len(running) == 9:
            inner.append(content(await callback(OFFERED)))
            everyone.set()
        await everyone.wait()
        return await plus(name, {})

    running: list[str] = []
    inner: list[object] = []
    everyone = Event()
    model = ScriptedModel([ToolCall("add")] * 9, "the inner answer", "done")
    callback = sampling(model).callback(server="s", call_tool=call_tool)

    with fail_after(25):
        answer = await callback(OFFERED)

    assert (inner, content(answer)) == ([text("the inner answer")], text("done"))


@pytest.mark.fake_clock
async def test_calls_for_another_client_are_counted_within_the_time_of_one_loop() -> None:
    """It does not say which call a request belongs to. Beyond the limit the server gets the calls."""
    call = ToolCall("add")
    model = ScriptedModel(call, "done", call, "done", call, call, "done")
    callback = sampling(model).callback(server="s", call_tool=plus, own_tools=OwnTools(max_calls=2, timeout=60))
    answers: list[str] = []
    for seconds in (0, 30, 29, 2):
        await sleep(seconds)
        answers.append((await callback(OFFERED))["result"]["stopReason"])

    assert answers == ["endTurn", "endTurn", "toolUse", "endTurn"]


async def test_equal_failures_of_tools_are_logged_the_first_second_fourth_time_over_all_loops(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls = [ToolCall("add")] * 3
    model = ScriptedModel(calls, "done", calls, "done", calls, "done")
    callback = sampling(model).callback(server="s", call_tool=gives(RequestTimeout("late")))
    for _ in range(3):
        await callback(OFFERED)

    counts = ["", *[f" ({times} times so far)" for times in (2, 4, 8)]]
    assert caplog.messages == [f"the tool add failed{count}: late" for count in counts]  # one crash fails several calls


@on_both
async def test_cancelling_the_callback_cancels_its_calls() -> None:
    async def call_tool(name: str, arguments: object) -> CallToolResult:
        try:
            await sleep_forever()
        finally:
            ended.append(name)
        raise AssertionError

    async def ask() -> None:
        await callback(OFFERED)

    ended: list[str] = []
    asked = sampling(ScriptedModel([ToolCall("add"), ToolCall("multiply")]), at_once=1)
    callback = asked.callback(server="s", call_tool=call_tool)
    with fail_after(25):
        async with create_task_group() as tasks:
            tasks.start_soon(ask)
            await wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()

    assert sorted(ended) == ["add", "multiply"]
    assert asked._semaphore.free == 1


async def test_a_request_that_allows_no_tools_is_answered_as_without_call_tool() -> None:
    async def call_tool(name: str, arguments: object) -> CallToolResult:
        raise AssertionError("called")

    model = ScriptedModel("plain", "none")
    callback = sampling(model).callback(server="s", call_tool=call_tool)

    answers = [await callback(wire()), await callback(wire(tools=[ADD], toolChoice={"mode": "none"}))]

    assert list(map(content, answers)) == [text("plain"), text("none")]


@pytest.mark.parametrize("reason", ["toolUse", "endTurn", None, "tool_calls"])
async def test_a_last_answer_with_nothing_but_forbidden_calls_is_illegal(
    reason: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """As in answer to a request with the tool choice "none"."""
    call = [ToolUseContent(id="1", name="add", input={})]
    answer = CreateMessageResult(content=call, model="m", stop_reason=reason)
    model = ScriptedModel(answer, answer)

    refused = await sampling(model).callback(server="s", call_tool=plus, own_tools=OwnTools(max_turns=2))(OFFERED)

    assert refused == {"error": {"code": -32603, "message": ILLEGAL_ANSWER}}
    why = "the handler's answer is not legal: it calls 'add', but the request allows no tools"
    assert caplog.messages[-1] == f"sampling for s: {why}"


@pytest.mark.parametrize("beside", [TextContent(text="words"), ImageContent(data="AAAA", mime_type="image/png")])
async def test_forbidden_calls_beside_something_else_are_dropped_from_the_last_answer(
    beside: TextContent | ImageContent,
) -> None:
    call = ToolUseContent(id="1", name="add", input={})
    answer = CreateMessageResult(content=[beside, call], model="m", stop_reason="toolUse")
    model = ScriptedModel(answer, answer)

    sent = await sampling(model).callback(server="s", call_tool=plus, own_tools=OwnTools(max_turns=2))(OFFERED)

    assert (content(sent), sent["result"]["stopReason"]) == (beside.to_wire(), "endTurn")


NEED_CALL_TOOL = r"^the server's tools are run only with call_tool=\.\.\.$"
WRONG_ARGUMENTS: list[tuple[Any, type[Exception], str]] = [
    ({"list_tools": gives(["add"])}, ValueError, NEED_CALL_TOOL),
    ({"own_tools": OwnTools()}, ValueError, NEED_CALL_TOOL),
    ({"call_tool": 5}, TypeError, r"^call_tool has to be a function, async or plain, not int$"),
    ({"call_tool": plus, "list_tools": 5}, TypeError, r"^list_tools has to be a function, async or plain, not int$"),
    (
        {"call_tool": plus, "own_tools": {"max_turns": 2}},
        TypeError,
        r"^own_tools is True, False, or OwnTools\(max_turns=\.\.\., timeout=\.\.\.\)$",
    ),
]


def test_wrong_arguments_of_a_callback_are_refused(subtests: pytest.Subtests) -> None:
    for arguments, error, problem in WRONG_ARGUMENTS:
        with subtests.test(arguments=str(arguments)), pytest.raises(error, match=problem):
            sampling(ScriptedModel()).callback(server="s", **arguments)


async def test_own_tools_are_a_choice_or_limits_as_for_a_client() -> None:
    runs = sampling(ScriptedModel(ToolCall("add"), results)).callback(server="s", call_tool=plus, own_tools=True)
    runs_none = sampling(ScriptedModel(ToolCall("add"))).callback(server="s", call_tool=plus, own_tools=False)

    assert content(await runs(OFFERED)) == text(str([("add{}", False)]))
    assert (await runs_none(OFFERED))["result"]["stopReason"] == "toolUse"
