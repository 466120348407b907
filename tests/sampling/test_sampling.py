"""One sampling request from the wire's parameters to the answer, and everything that can refuse it."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import threading
from typing import Any

import anyio
import pytest
from anyio import Event, create_task_group, fail_after, to_thread, wait_all_tasks_blocked

from mcp_host.errors import InputRefused, ProtocolError, SamplingError
from mcp_host.providers import Model, Models
from mcp_host.sampling import (
    Allow,
    Deny,
    OuterCall,
    Sampling,
    SamplingLimits,
    SamplingMode,
    SamplingRequest,
    SamplingSession,
    ToolCall,
    always,
)
from mcp_host.sampling.limits import LimitExceeded
from mcp_host.sampling.sampling import ILLEGAL_ANSWER
from mcp_host.testing.model import ScriptedModel
from mcp_host.types import CreateMessageResult, ImageContent, TextContent, ToolUseContent
from tests.clock import advance
from tests.extent import on_both
from tests.sampling import asking
from tests.sampling.asking import ADD, MULTIPLY, Wire, assistant, refused, result, said, session, text, use, user, wire
from tests.spec import assert_valid, example, example_names, needs_spec

PICTURE = ImageContent(data="aGk=", mime_type="image/png")

# The whole dialogue


async def test_a_loop_with_tools_from_the_question_to_the_text() -> None:
    model = ScriptedModel([ToolCall("add", {"a": 1, "b": 2}), ToolCall("multiply", {"a": 3, "b": 4})], "3 and 12.")
    asked = session(model)
    question = user(text("What is 1+2, and 3*4?"))

    calls = await asked.answer(wire(question, tools=[ADD, MULTIPLY]))
    first, second = [block for block in calls.content if isinstance(block, ToolUseContent)]
    turn = {"role": "assistant", "content": calls.to_wire()["content"]}
    results = user(result(first.id, text("3")), result(second.id, text("12")))
    final = await asked.answer(wire(question, turn, results, tools=[ADD, MULTIPLY]))

    assert (calls.stop_reason, first.name, second.name) == ("toolUse", "add", "multiply")
    assert final == CreateMessageResult(content=TextContent(text="3 and 12."), model="scripted", stop_reason="endTurn")
    assert [len(request.messages) for request in model.requests] == [1, 3]
    assert [tool.name for tool in model.requests[0].tools] == ["add", "multiply"]


async def test_the_requests_of_one_connection_have_one_session_that_no_other_connection_has() -> None:
    model = ScriptedModel("a", "b", "c")
    sampling = Sampling(with_tools=model, approve=always)
    connections = [sampling.session(server="calculator", knows_tools=True) for _ in range(2)]

    for asked in (connections[0], connections[0], connections[1]):
        await asked.answer(wire())

    first, second, other = [request.session for request in model.requests]
    assert first is second is not None
    assert other not in (None, first)


@pytest.mark.fault("S14")
async def test_approver_and_handler_see_equal_requests_in_this_order() -> None:
    seen: list[tuple[str, SamplingRequest]] = []
    outer = OuterCall("tools/call", "research", 7, call_id=1, inferred=True)

    async def approve(request: SamplingRequest) -> Allow:
        seen.append(("approver", request))
        return Allow()

    async def model(request: SamplingRequest) -> CreateMessageResult:
        seen.append(("handler", request))
        return request.reply("yes")

    await session(model, approve=approve, limits=SamplingLimits(max_tokens=10)).answer(wire(), outer)

    assert [who for who, _ in seen] == ["approver", "handler"]
    request = seen[0][1]
    assert seen[1][1] == request
    assert seen[1][1].session is request.session
    assert (request.server, request.outer, request.mode, request.max_tokens) == ("calculator", outer, "with_tools", 10)


async def test_parallel_calls_in_several_messages_reach_the_model_as_one_turn() -> None:
    model = ScriptedModel("both done")
    flattened = [assistant(use("1")), assistant(use("2")), user(result("1")), user(result("2")), user(text("And now?"))]

    await session(model).answer(wire(user(text()), *flattened, tools=[ADD]))

    [request] = model.requests
    assert [message.to_wire() for message in request.messages] == [
        {"role": "user", "content": text()},
        assistant(use("1"), use("2")),
        user(result("1"), result("2")),
        {"role": "user", "content": text("And now?")},
    ]


async def test_a_server_of_the_first_draft_gets_one_block(
    subtests: pytest.Subtests, caplog: pytest.LogCaptureFixture
) -> None:
    """Until October 2025 SEP-1577 had ``tool_choice``, results that are objects, and no lists of blocks."""
    called = {"content": [use("1", a=1), text("Well."), use("2", a=2)], "model": "m", "role": "assistant"}
    texts = {"content": [text("a"), text("b")], "model": "m", "role": "assistant"}
    choice = {"tool_choice": {"mode": "auto"}}
    turn = {"role": "assistant", "content": use("0")}
    of_object = {"type": "tool_result", "toolUseId": "0", "content": {"sum": 3}}
    history = [user(text()), turn, {"role": "user", "content": of_object}]
    table: list[tuple[str, list[Wire], Wire, Wire, object]] = [
        ("tool_choice", [], choice, called, use("1", a=1)),
        ("an object", history, {}, called, use("1", a=1)),
        ("texts", [], choice, texts, text("a\n\nb")),
        ("as settled", [], {"toolChoice": {"mode": "auto"}, **choice}, called, called["content"]),
        ("a list", [*history[:2], user(result("0", text("3")))], {}, called, called["content"]),
    ]
    for case, messages, fields, answered, content in table:
        with subtests.test(case):
            model = ScriptedModel(CreateMessageResult.from_wire(answered))
            answer = await session(model).answer(wire(*messages, tools=[ADD], **fields))

            assert answer.to_wire()["content"] == content
    dropped = "sampling for calculator: the server expects one block, and of the answer gets its first tool call"
    assert caplog.messages == [dropped] * 2

    picture = CreateMessageResult(content=[TextContent(text="a"), PICTURE], model="m")
    assert said(await refused(session(ScriptedModel(picture)), wire(tools=[ADD], **choice))) == (-32603, ILLEGAL_ANSWER)
    assert caplog.messages[-1] == (
        "sampling for calculator: the handler's answer is not legal: it holds several blocks, and the server expects one"
    )


@needs_spec
@pytest.mark.parametrize("name", [name for name in example_names() if name.startswith("CreateMessageRequestParams/")])
async def test_the_specifications_own_examples_are_answered(name: str) -> None:
    params = example(name)
    assert isinstance(params, dict)

    answer = await session(ScriptedModel("yes")).answer(params)

    assert_valid("2025-11-25", "CreateMessageResult", answer.to_wire())


# Which handler


async def with_tools(request: SamplingRequest) -> CreateMessageResult:
    return request.reply(f"with_tools in mode {request.mode}")


async def basic(request: SamplingRequest) -> CreateMessageResult:
    return request.reply(f"basic in mode {request.mode}")


@pytest.mark.parametrize(
    ("handlers", "knows_tools", "mode", "answer"),
    [
        ({"with_tools": with_tools, "basic": basic}, True, "with_tools", "with_tools in mode with_tools"),
        ({"with_tools": with_tools, "basic": basic}, False, "basic", "basic in mode basic"),
        ({"basic": basic}, True, "basic", "basic in mode basic"),
        ({"with_tools": with_tools}, False, "basic", "with_tools in mode basic"),
    ],
    ids=["both, tools known", "both, tools unknown", "basic only", "with tools only, tools unknown"],
)
async def test_the_handler_of_a_session_is_chosen_once(
    handlers: dict[str, Any], knows_tools: bool, mode: SamplingMode, answer: str
) -> None:
    chosen = Sampling(**handlers, approve=always).session(server="calculator", knows_tools=knows_tools)

    assert chosen.mode == mode
    assert (await chosen.answer(wire())).content == [TextContent(text=answer)]


def test_tools_and_context_are_advertised_exactly_if_the_host_takes_them() -> None:
    assert Sampling(with_tools=with_tools, approve=always).capability() == {"tools": {}}
    assert Sampling(with_tools=with_tools, basic=basic, approve=always).capability() == {"tools": {}}
    assert Sampling(basic=basic, approve=always).capability() == {}
    assert Sampling(with_tools=with_tools, approve=always, context=True).capability() == {"tools": {}, "context": {}}
    assert Sampling(basic=basic, approve=always, context=True).capability() == {"context": {}}


@pytest.mark.parametrize(
    ("declared", "knows_tools", "is_taken"),
    [(False, True, False), (True, True, True), (False, False, True)],
    ids=["not declared", "declared", "perhaps in an older revision"],
)
async def test_a_callback_refuses_a_request_for_context_if_context_could_have_been_declared(
    declared: bool, knows_tools: bool, is_taken: bool
) -> None:
    sampling = Sampling(basic=basic, approve=always, context=declared)
    respond = sampling.callback(server="calculator", knows_tools=knows_tools)

    answer = await respond(wire(includeContext="thisServer"))

    assert ("result" in answer) is is_taken


def test_sampling_without_a_handler_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"^Sampling needs a handler: with_tools=..., basic=... or both$"):
        Sampling(approve=always)


def basic_session(model: ScriptedModel) -> SamplingSession:
    """Of a host that did not declare ``sampling.tools``."""
    return Sampling(basic=model, approve=always).session(server="calculator", knows_tools=True)


LOOP_LEFT_BEHIND = wire(user(text()), assistant(text(), use("1")), user(result("1")))


@pytest.mark.fault("S01")
@pytest.mark.parametrize(
    ("params", "mentioned"),
    [
        (wire(tools=[ADD]), "tools"),
        (wire(tools=[]), "tools"),
        (wire(toolChoice={"mode": "none"}), "toolChoice"),
        (wire(tool_choice={"mode": "none"}), "tool_choice"),
        (wire(toolChoice=None, tool_choice={"mode": "auto"}), "tool_choice"),
        (LOOP_LEFT_BEHIND, "messages[1]: tool_use"),
    ],
    ids=["tools", "no tools", "toolChoice", "tool_choice", "behind a null", "what a loop left behind"],
)
async def test_basic_mode_refuses_requests_that_mention_tools(params: Wire, mentioned: str) -> None:
    model = ScriptedModel()

    refusal = await refused(basic_session(model), params)

    assert said(refusal) == (-32602, f"{mentioned}: this client did not declare sampling.tools")
    assert model.requests == []


async def test_basic_mode_treats_null_as_absent() -> None:
    model = ScriptedModel("yes")

    await basic_session(model).answer(wire(tools=None, toolChoice=None))

    assert model.requests[0].tools == []


# Refusals before approval


UNREADABLE = "malformed CreateMessageRequestParams: "
BROKEN: dict[str, tuple[Wire, str]] = {
    "malformed": ({"messages": []}, f"{UNREADABLE}maxTokens: Field required"),
    "unknown content": (wire(user({"type": "video"})), f"{UNREADABLE}messages.0.content.0: "),
    "unbalanced": (wire(assistant(use("1"))), "messages[0]: tool_use '1' has no tool_result in a message after it"),
    "doubled tool": (wire(tools=[ADD, ADD]), "tools[1]: tools[0] has the name 'add' already"),
    "draft choice": (wire(tool_choice={"mode": "required"}), "toolChoice: a tool is required, and the request offers none"),
    "a call of the user": (wire(user(text(), use("1"))), f"{UNREADABLE}messages.0.content.1: it is a tool_use in a user message"),
    "mixed results": (wire(assistant(use("1")), user(result("1"), text())), f"{UNREADABLE}messages.1.content: tool results are mixed"),
    "no tokens": (wire(maxTokens=0), "maxTokens: must be from 1 to 9007199254740991"),
    "fewer tokens": (wire(maxTokens=-1), "maxTokens: must be from 1 to 9007199254740991"),
    "too many tokens": (wire(maxTokens=10**300), "maxTokens: must be from 1 to 9007199254740991"),
    "count": (wire(*[user(text())] * 3), "this client's limit messages is 2, and the request has 3"),
    "size": (wire(user(text("12345678901"))), "this client's limit text is 10, and the request has 11"),
}  # fmt: skip


@pytest.mark.fault("S02", "S03", "S04", "S05", "S06", "S14", "S15")
async def test_a_broken_or_oversized_request_reaches_neither_approver_nor_model(subtests: pytest.Subtests) -> None:
    for case, (params, problem) in BROKEN.items():
        with subtests.test(case):
            model, approve = ScriptedModel(), asking.Approver(Allow())
            limited = session(model, approve=approve, limits=SamplingLimits(messages=2, text=10))

            refusal = await refused(limited, params)

            assert refusal.code == -32602
            assert str(refusal).startswith(problem)
            is_limit = problem.startswith("this client's limit")
            assert type(refusal.__cause__) is (LimitExceeded if is_limit else ProtocolError)
            assert (approve.asked, model.requests) == ([], [])


async def test_a_denied_request_does_not_reach_the_model() -> None:
    model = ScriptedModel()

    refusal = await refused(session(model, approve=asking.Approver(Deny("not today"))), wire())

    assert said(refusal) == (-1, "not today")
    assert model.requests == []


# What the model's side can do wrong


MISTAKES = [
    RuntimeError("secret sk-123"),
    TimeoutError("secret sk-123"),
    json.JSONDecodeError("secret sk-123", '{"a":', 5),
    SystemExit("secret sk-123"),
    BaseExceptionGroup("secret sk-123", [KeyError("secret sk-123")]),
]


@pytest.mark.fault("S08", "S16", "S17", "S18")
async def test_a_handlers_exception_is_logged_and_not_sent(
    caplog: pytest.LogCaptureFixture, subtests: pytest.Subtests
) -> None:
    """Also one for malformed arguments of a tool."""

    async def model(request: SamplingRequest) -> CreateMessageResult:
        raise mistake

    evil = Sampling(with_tools=model, approve=always).session(server="evil\nserver", knows_tools=True)
    for mistake in MISTAKES:
        caplog.clear()
        with subtests.test(type(mistake).__name__):
            refusal = await refused(evil, wire(user(text("private words"))))

            assert said(refusal) == (-32603, "this client's model failed")
            assert refusal.__cause__ is mistake
            [record] = caplog.records
            assert (record.name, record.levelno) == ("mcp_host.handlers", logging.ERROR)
            assert record.getMessage() == "sampling for evil\\nserver: this client's model failed"
            assert record.exc_info is not None
            assert record.exc_info[1] is mistake


@pytest.mark.fault("S17", "S18")
async def test_a_refusal_by_the_handler_is_passed_on_unchanged() -> None:
    async def model(request: SamplingRequest) -> CreateMessageResult:
        raise InputRefused(-32005, "come back tomorrow", {"retryAfter": 86400})

    with pytest.raises(InputRefused) as refusal:
        await session(model).answer(wire())

    error = {"code": -32005, "message": "come back tomorrow", "data": {"retryAfter": 86400}}
    assert said(refusal.value) == (-32005, "come back tomorrow")
    assert refusal.value.data == {"retryAfter": 86400}
    assert refusal.value.__cause__ is None
    assert await session(model).respond(wire()) == {"error": error}


@pytest.mark.fault("S08")
async def test_an_illegal_answer_is_not_sent(caplog: pytest.LogCaptureFixture) -> None:
    call = ToolUseContent(id="1", name="format_disk", input={"what": "private words"})
    model = ScriptedModel(CreateMessageResult(content=call, model="m"))

    refusal = await refused(session(model), wire(tools=[ADD]))

    assert said(refusal) == (-32603, "this client's model gave an answer that the request does not allow")
    assert isinstance(refusal.__cause__, SamplingError)
    assert caplog.record_tuples == [
        (
            "mcp_host.sampling.sampling",
            logging.ERROR,
            "sampling for calculator: the handler's answer is not legal: "
            "it calls 'format_disk', which the request does not offer",
        )
    ]


async def test_an_answer_too_large_as_history_is_not_sent_and_the_limit_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = ScriptedModel(ToolCall("add", {"a": "x" * 100}))

    refusal = await refused(session(model, limits=SamplingLimits(text=100)), wire(tools=[ADD]))

    problem = "this client's limit text is 100, and a request with this answer in it would have 113: its host can raise it with SamplingLimits(text=...)"
    assert said(refusal) == (-32603, problem)
    assert caplog.messages == [f"sampling for calculator: {problem}"]


@on_both
async def test_handler_and_approver_may_be_plain_functions() -> None:
    threads = []

    def approve(request: SamplingRequest) -> Allow:
        threads.append(threading.current_thread())
        return Allow()

    def model(request: SamplingRequest) -> str:
        threads.append(threading.current_thread())
        return "It is 3."

    with fail_after(25):
        answer = await session(model, approve=approve).answer(wire())

    assert answer == CreateMessageResult(content=TextContent(text="It is 3."), model="unknown", stop_reason="endTurn")
    assert len(threads) == 2
    assert threading.current_thread() not in threads


@on_both
@pytest.mark.adjustable_clock
async def test_a_plain_handler_that_takes_too_long_is_left_behind() -> None:
    released = threading.Event()

    def model(request: SamplingRequest) -> str:
        anyio.from_thread.run_sync(advance, 2)
        released.wait()
        return "too late"

    refusal = await refused(session(model, limits=SamplingLimits(seconds=2)), wire())
    released.set()

    assert refusal.code == -32011


class Gate:
    """A plain function that returns once the gate is open, and counts its calls."""

    def __init__(self) -> None:
        self.calls = self.inside = self.most = 0
        self.open = threading.Event()
        self._lock = threading.Lock()
        self._began = threading.Semaphore(0)

    def pass_through(self) -> None:
        with self._lock:
            self.calls += 1
            self.inside += 1
            self.most = max(self.most, self.inside)
        self._began.release()
        self.open.wait()
        with self._lock:
            self.inside -= 1

    def model(self, request: SamplingRequest) -> str:
        self.pass_through()
        return "It is 3."

    async def called(self) -> None:
        await to_thread.run_sync(self._began.acquire, abandon_on_cancel=True)

    async def ask_and_cancel_once_called(self, asked: SamplingSession) -> None:
        async with create_task_group() as tasks:
            tasks.start_soon(asked.answer, wire())
            await self.called()
            tasks.cancel_scope.cancel()

    async def ask_and_cancel_in_line(self, asked: SamplingSession) -> None:
        """Several times."""
        for _ in range(3):
            async with create_task_group() as tasks:
                tasks.start_soon(asked.answer, wire())
                await wait_all_tasks_blocked()
                tasks.cancel_scope.cancel()


ONE_AT_ONCE = SamplingLimits(at_once=1, at_once_per_server=1)


@on_both
@pytest.mark.parametrize("blocks", ["handler", "one of several models", "approver"])
async def test_a_plain_function_that_was_left_behind_keeps_its_slot_until_it_returns(blocks: str) -> None:
    gate = Gate()

    def approve(request: SamplingRequest) -> Allow:
        gate.pass_through()
        return Allow()

    match blocks:
        case "handler":
            asked = session(gate.model, limits=ONE_AT_ONCE)
        case "one of several models":
            asked = session(Models([Model(gate.model, name="m")]), limits=ONE_AT_ONCE)
        case _:
            asked = session(ScriptedModel("It is 3."), approve=approve, limits=ONE_AT_ONCE)
    answers: list[str] = []

    async def ask() -> None:
        answers.append((await asked.answer(wire())).text)

    try:
        with fail_after(25):
            await gate.ask_and_cancel_once_called(asked)
            await gate.ask_and_cancel_in_line(asked)
            async with create_task_group() as tasks:
                tasks.start_soon(ask)
                await wait_all_tasks_blocked()
                assert (answers, gate.calls) == ([], 1)
                gate.open.set()
    finally:
        gate.open.set()

    assert (answers, gate.calls, gate.most, gate.inside) == (["It is 3."], 2, 1, 0)


@on_both
def test_a_plain_handler_that_outlives_its_event_loop_keeps_its_slot_in_the_next(anyio_backend_name: str) -> None:
    gate = Gate()
    asked = session(gate.model, limits=ONE_AT_ONCE)

    async def ask_and_cancel() -> None:
        with fail_after(25):
            await gate.ask_and_cancel_once_called(asked)

    async def ask() -> None:
        with fail_after(25):
            await gate.ask_and_cancel_in_line(asked)
            async with create_task_group() as tasks:
                tasks.start_soon(asked.answer, wire())
                await wait_all_tasks_blocked()
                assert gate.calls == 1
                gate.open.set()

    try:
        anyio.run(ask_and_cancel, backend=anyio_backend_name)
        anyio.run(ask, backend=anyio_backend_name)
    finally:
        gate.open.set()

    assert (gate.calls, gate.most, gate.inside) == (2, 1, 0)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"with_tools": 3, "approve": always}, "with_tools"),
        ({"basic": "model", "approve": always}, "basic"),
        ({"basic": basic, "approve": True}, "approve"),
    ],
)
def test_a_handler_that_is_not_callable_is_refused_when_it_is_registered(arguments: dict[str, Any], name: str) -> None:
    kind = type(arguments[name]).__name__

    with pytest.raises(TypeError, match=rf"^{name} has to be a function, async or plain, not {kind}$"):
        Sampling(**arguments)


@pytest.mark.backends("asyncio")
async def test_a_cancelled_task_inside_the_handler_is_a_failure_of_the_handler() -> None:
    """On asyncio it looks like our own cancellation, which would leave the server without an answer."""

    async def model(request: SamplingRequest) -> CreateMessageResult:
        inner = asyncio.ensure_future(asyncio.Event().wait())
        inner.cancel()
        await inner
        return request.reply("never")

    refusal = await refused(session(model), wire())

    assert said(refusal) == (-32603, "this client's model failed")


@on_both
async def test_a_handlers_own_timeout_is_not_taken_for_ours() -> None:
    async def model(request: SamplingRequest) -> CreateMessageResult:
        with fail_after(0):
            await Event().wait()
        return request.reply("never")

    refusal = await refused(session(model), wire())

    assert said(refusal) == (-32603, "this client's model failed")
    assert isinstance(refusal.__cause__, TimeoutError)


# Alone, as a sampling callback of another client


@pytest.mark.parametrize(
    ("fields", "content"),
    [
        ({}, {"type": "text", "text": "3.\n\nOr so."}),
        ({"tools": [ADD]}, [{"type": "text", "text": "3."}, {"type": "text", "text": "Or so."}]),
    ],
    ids=["plain", "with tools"],
)
async def test_a_callback_joins_the_texts_that_answer_a_plain_request(fields: Wire, content: object) -> None:
    answer = CreateMessageResult(content=[TextContent(text="3."), TextContent(text="Or so.")], model="m")
    callback = Sampling(with_tools=ScriptedModel(answer), approve=always).callback(server="calculator")

    assert await callback(wire(**fields)) == {"result": {"role": "assistant", "content": content, "model": "m"}}


@pytest.mark.parametrize("what", ["\ud800", math.nan], ids=["half of a surrogate pair", "NaN"])
async def test_a_callback_returns_an_error_for_an_answer_that_is_not_json(what: object) -> None:
    """Another client would fail to write it, or would write what no server can read."""
    model = ScriptedModel(ToolCall("add", {"a": what}))

    assert await session(model).respond(wire(tools=[ADD])) == {
        "error": {"code": -32603, "message": "this client's model gave an answer that the request does not allow"}
    }
