"""The request state of a suspended call: unguessable, valid once, for one request, and for a while."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from mcp_host.protocol.jsonrpc import Params, Request
from mcp_host.testing import RequestError
from mcp_host.testing._server.revision import RevisionWriter
from mcp_host.testing._server.stateless import SuspendedCall, SuspendedCalls
from mcp_host.testing.context import Call, RemoteClient
from mcp_host.types import ClientCapabilities, Implementation

ASKED: Params = {"name": "ask", "arguments": {"a": 1, "b": 2}}
REQUEST = Request(1, "tools/call", ASKED)


def no_tasks(run: Callable[[], Coroutine[Any, Any, None]]) -> None:
    raise AssertionError("nothing runs here")


def calls(timeout: float = 60.0) -> SuspendedCalls:
    return SuspendedCalls(no_tasks, 10, timeout)


def suspended() -> SuspendedCall:
    client = RemoteClient(Implementation(name="c", version="1"), ClientCapabilities(), RevisionWriter("2026-07-28"))
    return SuspendedCall(Call(REQUEST, client, lambda method, params: None))


def retry(state: str, method: str = "tools/call", params: Params = ASKED) -> Request:
    return Request(2, method, {**params, "requestState": state})


@pytest.mark.parametrize(
    "params",
    [
        ASKED,
        {"arguments": {"b": 2, "a": 1}, "name": "ask"},
        {**ASKED, "inputResponses": {"a": {}}, "_meta": {"progressToken": 1}},
    ],
    ids=["the same", "in another order", "with the answers"],
)
async def test_a_retry_of_the_same_request_resumes_the_call(params: Params) -> None:
    all_calls, call = calls(), suspended()
    state = all_calls.suspend(call, REQUEST)

    assert all_calls.resume(retry(state, params=params)) is call


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
async def test_another_request_does_not_resume_the_call(method: str, params: Params) -> None:
    all_calls, call = calls(), suspended()
    state = all_calls.suspend(call, REQUEST)

    with pytest.raises(RequestError, match=r"^requestState belongs to another request \(-32602\)$"):
        all_calls.resume(retry(state, method, params))
    assert all_calls.resume(retry(state)) is call


async def test_no_arguments_are_the_same_as_none_given() -> None:
    all_calls, call = calls(), suspended()
    state = all_calls.suspend(call, Request(1, "tools/call", {"name": "ask"}))

    assert all_calls.resume(retry(state, params={"name": "ask", "arguments": {}})) is call


async def test_a_state_expires() -> None:
    all_calls = calls(timeout=0)
    state = all_calls.suspend(suspended(), REQUEST)

    with pytest.raises(RequestError, match=r"^requestState has expired \(-32602\)$"):
        all_calls.resume(retry(state))


async def test_a_state_may_never_expire() -> None:
    all_calls, call = calls(timeout=math.inf), suspended()

    assert all_calls.resume(retry(all_calls.suspend(call, REQUEST))) is call


async def test_a_state_is_long_and_no_two_are_alike() -> None:
    all_calls = calls()
    states = {all_calls.suspend(suspended(), REQUEST) for _ in range(10)}

    assert (len(states), {len(state) for state in states}) == (10, {43})  # 32 random bytes in base64


async def test_what_was_changed_on_its_way_or_made_by_another_server_is_refused() -> None:
    all_calls = calls()
    state = all_calls.suspend(suspended(), REQUEST)

    for made_up in (state[:-1], state + "x", calls().suspend(suspended(), REQUEST)):
        with pytest.raises(RequestError, match=r"^requestState is unknown, or has been used already \(-32602\)$"):
            all_calls.resume(retry(made_up))
