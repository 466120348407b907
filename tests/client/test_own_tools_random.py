"""Random sampling requests in which the client runs the server's tools: each ends in its bounds and leaves nothing behind."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from anyio import CancelScope, current_time, sleep
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_host import Client, OwnTools, Sampling, SamplingLimits, always
from mcp_host.errors import InputNotGiven
from mcp_host.sampling.sampling import CheckArguments
from mcp_host.testing import ClientError, Context, Server
from tests.clock import with_fake_clock
from tests.extent import THOROUGH
from tests.sampling.loop.test_random_loops import FUNCTIONS, PLANS, TOOLS, WORLD, Plan, World, tasks

TIMEOUT, TOOL_TIMEOUT = 100.0, 30.0  # seconds of a clock that jumps
RECURSIVE = "much"  # in place of the tool of that name
OUTCOMES = {"answered", "refused -32603", "refused -32011", "refused -32013"}

SERVER = Server("random")
for function in TOOLS:
    if function.__name__ != RECURSIVE:
        SERVER.tool(function)


async def ask(ctx: Context) -> str:
    """Sample with every tool, of which those named "my_…" are not listed."""
    plan = WORLD.get().plan
    private = [tool.definition.to_wire() for tool in FUNCTIONS]
    listed = [{**tool, "name": str(tool["name"]).removeprefix("my_")} for tool in private]
    params: dict[str, Any] = {
        "messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}],
        "maxTokens": 9,
        "tools": listed + private,
    }
    if plan.choice is not None:
        named = plan.choice not in ("required", "none")
        params["toolChoice"] = {"mode": "required", "name": plan.choice} if named else {"mode": plan.choice}
    try:
        answer = await ctx.request("sampling/createMessage", params)
    except ClientError as exc:
        return f"refused {exc.code}"
    content = answer["content"] if isinstance(answer["content"], list) else [answer["content"]]
    uses = [block["name"] for block in content if block["type"] == "tool_use"]
    assert not uses or any(name.startswith("my_") for name in uses)
    return "answered"


SERVER.tool(ask)
SERVER.tool(name=RECURSIVE)(ask)


async def run(plan: Plan, at_once: int, check_arguments: CheckArguments) -> None:
    world = World(plan)
    WORLD.set(world)
    sampling = Sampling(
        with_tools=world.model, approve=always, check_arguments=check_arguments, limits=SamplingLimits(at_once=at_once)
    )
    limits = OwnTools(max_turns=max(plan.max_turns, 2), timeout=TIMEOUT, tool_timeout=TOOL_TIMEOUT)
    async with Client(SERVER, era=plan.era, sampling=sampling, run_own_tools=limits) as client:
        await client.list_tools()
        await sleep(1)  # until all else waits
        before, began = tasks(), current_time()
        with CancelScope(deadline=began + plan.cancelled_after) as scope:
            try:
                result = await client.call_tool("ask")
                assert result.text in OUTCOMES
            except InputNotGiven:
                assert plan.era == "2026-07-28"
        seconds = current_time() - began
        await sleep(3600)  # the server has ended what was cancelled, and what it waited for in vain

        tools = client._state.features.server_tools
        assert tools is not None
        assert (world.running, tasks(), tools.waiting, sampling._semaphore.free) == (0, before, 0, at_once)
    longest = 600.0 if plan.choice == "none" else TIMEOUT  # without tools, `SamplingLimits.seconds` is the bound
    assert seconds <= min(longest, plan.cancelled_after) + 0.001
    assert not scope.cancelled_caught or plan.cancelled_after <= longest


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_any_request_ends_in_its_bounds_and_leaves_nothing_behind(
    backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL")  # thousands of lines
    name, options = with_fake_clock(backend)

    @settings(max_examples=250 if THOROUGH else 40)
    @given(plan=PLANS, at_once=st.integers(1, 2), check_arguments=st.sampled_from(["warn", "refuse", "retry"]))
    def check(plan: Plan, at_once: int, check_arguments: CheckArguments) -> None:
        anyio.run(run, plan, at_once, check_arguments, backend=name, backend_options=options)

    check()
