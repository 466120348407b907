"""The request state of a suspended call: unguessable, and valid once, for one request and for a limited time."""

from __future__ import annotations

import math
from typing import Any

import pytest

from mcp_host.testing import Context, Server
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


async def test_a_state_is_long_and_no_two_are_alike() -> None:
    async with modern(asking()) as raw:
        states = {await state_of(raw) for _ in range(10)}

    assert (len(states), {len(state) for state in states}) == (10, {43})  # 32 random bytes in base64


async def test_a_changed_state_and_one_of_another_server_are_unknown() -> None:
    async with modern(asking()) as raw, modern(asking()) as other:
        state, foreign = await state_of(raw), await state_of(other)
        unknown: list[object] = [None, 7, [], "", "made up", state[:-1], state + "x", foreign]
        for made_up in unknown:
            assert await raw.error("tools/call", {**ASKED, "requestState": made_up}) == UNKNOWN, made_up
