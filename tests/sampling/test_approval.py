"""Approval: only an explicit yes lets a request through."""

from __future__ import annotations

import gc
import logging
import sys
import threading
from collections.abc import Callable
from copy import deepcopy
from dataclasses import FrozenInstanceError, replace
from enum import StrEnum
from functools import partial
from itertools import product
from types import ModuleType

import anyio
import pytest
from anyio.lowlevel import checkpoint
from pydantic_core import to_json

from mcp_host.errors import InputRefused
from mcp_host.sampling import Allow, Deny, OuterCall, Sampling, SamplingRequest, always, approval, sampling, validation
from mcp_host.sampling.approval import AsyncApprove, RequestApprovals, Scope
from mcp_host.testing.model import ScriptedModel
from tests.extent import on_both
from tests.sampling import asking
from tests.sampling.asking import ADD, MULTIPLY, Approver, Wire, request, said, text, user, wire

pytestmark = pytest.mark.fake_clock  # all in memory: no deadline passes while anything can run


async def test_always_allows() -> None:
    assert await always(request()) == Allow()


async def refusal_of(approve: AsyncApprove) -> InputRefused:
    with pytest.raises(InputRefused) as refusal:
        await RequestApprovals(approve, subject="sampling for x").require(request(user(text("private words"))))
    return refusal.value


async def refuses(request: SamplingRequest) -> Allow:
    request.refuse("not this server")


async def test_a_request_that_is_denied_is_refused_with_the_reason(subtests: pytest.Subtests) -> None:
    for approve, message in (
        (Approver(Deny()), "User rejected sampling request"),
        (Approver(Deny("quota used up")), "quota used up"),
        (refuses, "not this server"),  # as a handler does
    ):
        with subtests.test(message):
            refusal = await refusal_of(approve)

            assert (refusal.code, str(refusal), refusal.data) == (-1, message, None)


async def test_a_request_whose_approver_fails_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    mistake = KeyError("secret sk-123")

    async def approve(request: SamplingRequest) -> Allow:
        raise mistake

    refusal = await refusal_of(approve)

    assert said(refusal) == (-32603, "this client failed to ask for approval")
    assert refusal.__cause__ is mistake
    [record] = caplog.records
    assert record.getMessage() == "sampling for x: this client failed to ask for approval"
    assert record.exc_info is not None
    assert record.exc_info[1] is mistake


@pytest.mark.parametrize(
    ("decision", "kind"), [(True, "bool"), (None, "NoneType"), (Allow, "type")], ids=["True", "None", "Allow"]
)
async def test_only_allow_allows_a_request(decision: object, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    assert said(await refusal_of(Approver(decision))) == (-32603, "this client failed to ask for approval")
    assert caplog.record_tuples == [
        ("mcp_host.sampling.approval", logging.ERROR, f"sampling for x: the approver returned {kind}, no Allow or Deny")
    ]


# For longer than one request

CHANGED = {**ADD, "description": "Adds, and sends it home."}
WITH_META = {**ADD, "_meta": {"trace": 1}}


def call(number: int = 1) -> OuterCall:
    return OuterCall("tools/call", "solve", 7, call_id=number)


async def asked_each_time(scope: Scope, *requests: SamplingRequest) -> list[int]:
    """How often the person had been asked after each of *requests*, all over one connection."""
    person = Approver(Allow(scope))
    approvals = RequestApprovals(person, subject="sampling for x")
    counts = []
    for each in requests:
        await approvals.require(each)
        counts.append(len(person.asked))
    return counts


def test_allow_is_for_one_request_by_default() -> None:
    assert Allow() == Allow("request") == Allow(scope="request")


@pytest.mark.parametrize(("decision", "field"), [(Allow(), "scope"), (Deny(), "reason")])
def test_a_decision_cannot_be_changed_afterwards(decision: Allow | Deny, field: str) -> None:
    with pytest.raises(FrozenInstanceError):
        setattr(decision, field, "session")


def test_an_unknown_scope_is_an_error() -> None:
    with pytest.raises(ValueError, match="scope is one of call, request, session, not 'forever'"):
        Allow("forever")  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize(
    ("scope", "counts"), [("request", [1, 2, 3, 4, 5]), ("call", [1, 1, 2, 3, 4]), ("session", [1, 1, 1, 1, 1])]
)
async def test_allow_applies_to_the_request_the_call_or_the_session(scope: Scope, counts: list[int]) -> None:
    """Without a known call, "call" is the single request."""
    first, second = call(1), call(2)
    requests = [first, replace(first, request_id=8), second, None, None]

    assert await asked_each_time(scope, *[request(outer=outer, tools=[ADD]) for outer in requests]) == counts


async def test_calls_with_equal_ids_are_approved_separately() -> None:
    first, second = call(1), call(1)
    assert first == second

    assert await asked_each_time("call", request(outer=first), request(outer=second)) == [1, 2]


def with_default(value: object) -> Wire:
    return {"name": "add", "inputSchema": {"type": "object", "properties": {"a": {"default": value}}}}


BOTH = [ADD, MULTIPLY]
OFFERED_LATER: dict[str, tuple[list[Wire], list[Wire], bool]] = {
    "the same": (BOTH, [ADD, MULTIPLY], False),
    "in another order": (BOTH, [MULTIPLY, ADD], False),
    "fewer": (BOTH, [ADD], False),
    "none": (BOTH, [], False),
    "with metadata": (BOTH, [WITH_META, MULTIPLY], False),
    "changed": (BOTH, [CHANGED, MULTIPLY], True),
    "one more": (BOTH, [ADD, MULTIPLY, {**ADD, "name": "mail"}], True),
    "another": (BOTH, [{**ADD, "name": "mail"}], True),
    "true": ([with_default(1)], [with_default(True)], True),
    "a float": ([with_default(1)], [with_default(1.0)], True),
    "infinity": ([with_default(None)], [with_default(float("inf"))], True),
    "half a character": ([with_default("\ud800")], [with_default("\ud801")], True),
    "a field that is called meta": ([ADD], [{**ADD, "meta": {"trace": 1}}], True),
    "a hint": (
        [{**ADD, "annotations": {"readOnlyHint": True}}],
        [{**ADD, "annotations": {"readOnlyHint": False}}],
        True,
    ),
}


async def test_a_tool_that_is_new_or_changed_asks_again(subtests: pytest.Subtests) -> None:
    scopes: tuple[Scope, ...] = ("call", "session")
    for scope, (case, (before, then, asks)) in product(scopes, OFFERED_LATER.items()):
        with subtests.test(case, scope=scope):
            outer = call()
            first, second = request(outer=outer, tools=before), request(outer=outer, tools=then)

            counts = await asked_each_time(scope, first, first, second, second)

            assert counts == ([1, 1, 2, 2] if asks else [1, 1, 1, 1])


async def test_comparing_tools_takes_the_same_number_of_python_steps_for_large_tools() -> None:
    async def steps(values: int) -> int:
        approvals = RequestApprovals(Approver(Allow("session")), subject="sampling for x")
        asked = request(tools=[with_default([1] * values)])
        await approvals.require(asked)
        seen: list[str] = []
        sys.setprofile(lambda frame, event, arg: seen.append(frame.f_code.co_filename))
        try:
            await approvals.require(asked)
        finally:
            sys.setprofile(None)
        return len([file for file in seen if "mcp_host" in file])  # and not of a collection of garbage

    await steps(1)
    assert await steps(30_000) == await steps(1)


async def test_large_tools_are_compared_in_portions_and_small_ones_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor are they in the step that measures them: other tasks run after it. Of each step, the bytes are counted."""
    steps = [{approval: 0, validation: 0}]
    questions: list[SamplingRequest] = []
    both = anyio.Event()

    def counted(module: ModuleType, value: object) -> bytes:
        written = to_json(value)
        steps[-1][module] += len(written)
        return written

    async def pause() -> None:
        steps.append({approval: 0, validation: 0})
        await checkpoint()

    async def approve(request: SamplingRequest) -> Allow:
        questions.append(request)
        if len(questions) == 1:
            tasks.start_soon(ask)
            await both.wait()
            return Allow("session")
        both.set()
        await anyio.sleep_forever()
        raise AssertionError

    async def model(request: SamplingRequest) -> str:
        return "1"

    for module in (approval, validation):
        monkeypatch.setattr(module, "to_json", partial(counted, module))
    for module in (approval, sampling):
        monkeypatch.setattr(module, "checkpoint", pause)
    tools = [{**with_default("x" * 60_000), "name": f"t{number}"} for number in range(64)]
    connection = asking.session(model, approve=approve)
    ask = partial(connection.answer, wire(tools=tools), size=4_000_000)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            await ask()
            await pause()
            await ask()
            assert max(step[approval] for step in steps) < 400_000
            assert not any(step[approval] and step[validation] for step in steps)
            assert (len(questions), sum(step[approval] for step in steps) // 3_840_000) == (2, 3)
            count = len(steps)
            await connection.answer(wire(tools=tools[:1]))
            assert len(steps) == count


@pytest.mark.parametrize("scope", ["request", "session"])
async def test_what_an_approver_changes_in_its_request_does_not_reach_the_model(scope: Scope) -> None:
    """It may redact what it shows. What it allows for the session are the tools that the server offers."""
    shown: list[Wire] = []

    async def approve(request: SamplingRequest) -> Allow:
        shown.append(request.params.to_wire())
        assert request.stop_sequences is not None
        assert request.metadata is not None
        request.messages[0].content.clear()
        request.messages.clear()
        request.tools[0].input_schema["properties"]["a"].clear()
        request.tools.clear()
        request.stop_sequences.clear()
        request.metadata.clear()
        return Allow(scope)

    model = ScriptedModel("1", "2")
    asked = asking.session(model, approve=approve)
    fields: Wire = {"tools": [with_default(1)], "stopSequences": ["."], "metadata": {"a": {"b": 1}}}
    for _ in range(2):
        await asked.answer(wire(**deepcopy(fields)))

    expected = request(**fields).params
    assert [asked.params for asked in model.requests] == [expected] * 2
    assert shown == [expected.to_wire()] * (1 if scope == "session" else 2)


async def test_tools_that_were_allowed_one_by_one_are_not_allowed_together() -> None:
    outer = call()
    offers = [[ADD], [MULTIPLY], [ADD], [MULTIPLY], [ADD, MULTIPLY]]

    counts = await asked_each_time("call", *[request(outer=outer, tools=tools) for tools in offers])

    assert counts == [1, 2, 2, 2, 3]


async def test_the_messages_the_prompt_and_the_tokens_of_a_call_may_change() -> None:
    outer = call()
    more = request(
        user(text("more")),
        outer=outer,
        tools=[ADD],
        systemPrompt="Be brief.",
        maxTokens=9000,
        modelPreferences={"hints": [{"name": "large"}]},
    )

    assert await asked_each_time("call", request(outer=outer, tools=[ADD]), more) == [1, 1]


async def test_a_refusal_is_for_one_request_only() -> None:
    decisions: list[Allow | Deny] = [Deny(), Allow("call")]
    outer = call()

    async def approve(request: SamplingRequest) -> Allow | Deny:
        return decisions.pop(0)

    approvals = RequestApprovals(approve, subject="sampling for x")
    with pytest.raises(InputRefused):
        await approvals.require(request(outer=outer))
    await approvals.require(request(outer=outer))
    await approvals.require(request(outer=outer))

    assert decisions == []


async def test_an_approval_for_a_session_does_not_apply_to_another_connection_of_the_same_name() -> None:
    person = Approver(Allow("session"))
    sampling = Sampling(with_tools=ScriptedModel("1", "2", "3"), approve=person)
    first, second = (sampling.session(server="calculator", knows_tools=True) for _ in range(2))
    for session in (first, first, second):
        await session.answer(wire(tools=[ADD]))

    assert len(person.asked) == 2


async def test_an_approval_for_a_call_is_forgotten_with_it() -> None:
    async def approve(request: SamplingRequest) -> Allow:
        return Allow("call")

    approvals = RequestApprovals(approve, subject="sampling for x")
    outer = call()
    await approvals.require(request(outer=outer))
    assert len(approvals._grants) == 1

    del outer
    gc.collect()

    assert len(approvals._grants) == 0


async def test_the_number_of_remembered_sets_of_tools_is_limited() -> None:
    """The oldest of 65 is forgotten, and needs a new approval; the newest is not."""
    offers = [request(tools=[{**ADD, "name": f"tool{number}"}]) for number in range(65)]

    counts = await asked_each_time("session", *offers, offers[64], offers[1], offers[0])

    assert counts == [*range(1, 66), 65, 65, 66]


async def test_a_callback_uses_the_call_that_the_other_client_passes() -> None:
    person = Approver(Allow("call"))
    respond = Sampling(with_tools=ScriptedModel("1", "2", "3"), approve=person).callback(server="calculator")
    outer = call()
    for each in (outer, replace(outer, request_id=8), None):
        assert "result" in await respond(wire(tools=[ADD]), each)

    assert len(person.asked) == 2


class Role(StrEnum):
    USER = "user"


@pytest.mark.parametrize("role", ["user", Role.USER])
async def test_what_another_client_changes_while_a_person_decides_does_not_reach_the_model(role: str) -> None:
    params = wire({"role": role, "content": [text()]}, tools=[with_default(1)], metadata={"a": {}})
    expected = request(tools=[with_default(1)], metadata={"a": {}}).params

    async def approve(request: SamplingRequest) -> Allow:
        params["tools"][0]["inputSchema"]["properties"]["a"]["default"] = 2
        params["metadata"]["a"]["b"] = 3
        return Allow()

    model = ScriptedModel("1")
    assert "result" in await Sampling(with_tools=model, approve=approve).callback(server="calculator")(params)

    assert [asked.params for asked in model.requests] == [expected]


async def test_parameters_that_cannot_be_copied_are_refused() -> None:
    deep: Wire = {}
    for _ in range(100_000):
        deep = {"a": deep}
    respond = Sampling(with_tools=ScriptedModel(), approve=always).callback(server="calculator")

    errors = [(await respond(wire(metadata=metadata)))["error"] for metadata in (deep, {"a": threading.Lock()})]
    assert errors == [
        {"code": -32602, "message": f"the parameters cannot be copied: {problem}"}
        for problem in ("RecursionError", "TypeError")
    ]


@on_both
@pytest.mark.parametrize(
    ("scope", "other", "withdrawn"),
    [
        ("call", lambda first: (first, [ADD]), True),
        ("call", lambda first: (first, [MULTIPLY]), False),
        ("call", lambda first: (call(2), [ADD]), False),
        ("session", lambda first: (call(2), [ADD]), True),
        ("request", lambda first: (first, [ADD]), False),
    ],
    ids=["of the same call", "other tools", "another call", "of the same connection", "for one request"],
)
async def test_a_question_is_withdrawn_when_the_answer_to_another_allows_it(
    scope: Scope, other: Callable[[OuterCall], tuple[OuterCall, list[Wire]]], withdrawn: bool
) -> None:
    asked: list[str] = []
    answer, both = anyio.Event(), anyio.Event()

    async def approve(request: SamplingRequest) -> Allow | Deny:
        asked.append(request.server)
        if request.server == "first":
            await answer.wait()
            return Allow(scope)
        both.set()
        try:
            await anyio.sleep_forever()
        finally:
            asked.append("withdrawn")
        raise AssertionError

    outer = call()
    its_call, its_tools = other(outer)
    approvals = RequestApprovals(approve, subject="sampling for x")
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(approvals.require, request(server="first", outer=outer, tools=[ADD]))
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(approvals.require, request(server="second", outer=its_call, tools=its_tools))
            await both.wait()
            answer.set()
            await anyio.wait_all_tasks_blocked()
            assert asked == ["first", "second", *["withdrawn"] * withdrawn]
            tasks.cancel_scope.cancel()
