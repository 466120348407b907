"""The request state of a suspended call: unguessable, and valid once, for one request and for a limited time."""

from __future__ import annotations

import math
from typing import Any

import pytest

from mcp_host.protocol.jsonrpc import Request
from mcp_host.serving.request_state import RequestStates
from mcp_host.testing import Context, RequestError, Server
from tests.extent import on_both
from tests.testing.raw import Raw, Wire, answer, modern, text

pytestmark = [on_both, pytest.mark.fake_clock]  # all in memory: no deadline passes while anything can run

ASKED: Wire = {"name": "ask", "arguments": {"a": 1, "b": 2}}
ANSWERED: Wire = {"sampling-1": answer("So.")}
SO = text("So.")
UNKNOWN: Wire = {"code": -32602, "message": "requestState is unknown, or has been used already"}


def asking(**options: Any) -> Server:
    server = Server("s", **options)

    @server.tool
    @server.tool(name="other")
    @server.prompt
    async def ask(ctx: Context, a: int = 0, b: int = 0) -> str:
        return (await ctx.sample("Why?")).text

    return server


async def state_of(raw: Raw, params: Wire = ASKED) -> str:
    """The state of a call that has been suspended."""
    state: str = (await raw.result("tools/call", params))["requestState"]
    return state


@pytest.mark.parametrize(
    ("options", "first", "retry"),
    [
        ({}, ASKED, ASKED),
        ({}, ASKED, {"arguments": {"b": 2, "a": 1}, "name": "ask"}),
        ({}, ASKED, {**ASKED, "_meta": {"progressToken": 1}}),
        ({}, {"name": "ask"}, {"name": "ask", "arguments": {}}),
        ({"resume_timeout": math.inf}, ASKED, ASKED),
    ],
    ids=["the same", "in another order", "with another token", "no arguments and empty ones", "never expires"],
)
async def test_a_retry_of_the_same_request_resumes_the_call(options: Wire, first: Wire, retry: Wire) -> None:
    async with modern(asking(**options)) as raw:
        answered = {**retry, "requestState": await state_of(raw, first), "inputResponses": ANSWERED}

        assert await raw.complete("tools/call", answered) == SO


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("prompts/get", ASKED),
        ("tools/call", {**ASKED, "name": "other"}),
        ("tools/call", {**ASKED, "arguments": {"a": 1, "b": 3}}),
        ("tools/call", {"name": "ask"}),
        ("tools/call", {**ASKED, "uri": "r://a"}),
    ],
    ids=["another method", "another name", "another argument", "no arguments", "another resource"],
)
async def test_another_request_does_not_resume_the_call(method: str, params: Wire) -> None:
    async with modern(asking()) as raw:
        answers = {"requestState": await state_of(raw), "inputResponses": ANSWERED}
        error = await raw.error(method, {**params, **answers})

        assert await raw.complete("tools/call", {**ASKED, **answers}) == SO
    assert error == {"code": -32602, "message": "requestState belongs to another request"}


async def test_a_state_is_valid_once() -> None:
    async with modern(asking()) as raw:
        answered = {**ASKED, "requestState": await state_of(raw), "inputResponses": ANSWERED}
        await raw.complete("tools/call", answered)

        assert await raw.error("tools/call", answered) == UNKNOWN


async def test_no_two_states_are_alike() -> None:
    async with modern(asking()) as raw:
        states = {await state_of(raw) for _ in range(10)}

    assert len(states) == 10


async def test_a_changed_state_and_one_of_another_server_are_unknown() -> None:
    async with modern(asking()) as raw, modern(asking()) as other:
        state, foreign = await state_of(raw), await state_of(other)
        unknown: list[object] = [None, 7, [], "", "made up", state[:-1], state + "x", foreign]
        for made_up in unknown:
            assert await raw.error("tools/call", {**ASKED, "requestState": made_up}) == UNKNOWN, made_up


KEY = b"k" * 32


def retry(state: str, name: str = "ask") -> Request:
    return Request(1, "tools/call", {"name": name, "requestState": state})


def test_a_state_of_another_process_is_good_for_the_same_request_and_owner_once_and_for_a_limited_time() -> None:
    now = 100.0
    one, other, of_ada, of_another_key = (
        RequestStates(key, owner, 60.0, clock=lambda: now)
        for key, owner in ((KEY, ""), (KEY, ""), (KEY, "ada"), (None, ""))
    )
    state, late, next_one = (one.write_inner(retry(""), inner) for inner in ("in\ud800ner", None, None))

    assert refusal(of_another_key, retry(state)) == UNKNOWN["message"]
    assert refusal(one, retry("\ud800" + state)) == UNKNOWN["message"]
    assert refusal(of_ada, retry(state)) == "requestState belongs to another request"
    assert refusal(other, retry(state, "other")) == "requestState belongs to another request"
    assert other.read(retry(state))[1:3] == (None, "in\ud800ner")
    assert refusal(other, retry(state)) == UNKNOWN["message"]
    now += 59
    fresh = one.write_inner(retry(""), None)
    assert other.read(retry(next_one)).inner is None
    now += 1
    assert refusal(other, retry(late)) == "requestState has expired"
    other.read(retry(fresh))
    assert len(other._used) == 1


def test_so_many_states_are_remembered_as_used() -> None:
    states = RequestStates(KEY, "", 60.0, max_used=2)
    first, *more = (states.write_inner(retry(""), None) for _ in range(3))
    for state in (first, *more):
        states.read(retry(state))

    assert refusal(states, retry(more[0])) == UNKNOWN["message"]
    states.read(retry(first))


def refusal(states: RequestStates, request: Request) -> str:
    with pytest.raises(RequestError) as refused:
        states.read(request)
    return refused.value.message
