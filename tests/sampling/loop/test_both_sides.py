"""What a loop of a server and a loop of a host have in common, because they share the engine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from anyio import fail_after, sleep, sleep_forever

from mcp_host import LoopResult, SamplingRequest, ServerSampling, run_tool_loop
from mcp_host.types import CreateMessageResult, ToolUseContent
from tests.extent import on_both

CALLS = [ToolUseContent(id=id, name=name, input={}) for id, name in (("1", "book"), ("2", "hang"))]
ANSWER = CreateMessageResult(content=CALLS, model="m", stop_reason="toolUse")


async def book() -> str:
    await sleep(1)
    return "booked"


async def hang() -> None:
    await sleep_forever()


async def host_loop(**options: Any) -> LoopResult:
    async def model(request: SamplingRequest) -> CreateMessageResult:
        return ANSWER

    return await run_tool_loop(model, "Book a flight.", tools=[book, hang], **options)


async def server_loop(**options: Any) -> LoopResult:
    async def create_message(params: dict[str, Any]) -> dict[str, Any]:
        return ANSWER.to_wire()

    sampling = ServerSampling(create_message, with_tools=True)
    done: LoopResult = await sampling.sample_loop("Book a flight.", tools=[book, hang], **options)
    return done


async def server_loop_with_schema(**options: Any) -> LoopResult:
    return await server_loop(schema={"type": "object"}, **options)


@on_both
@pytest.mark.fake_clock
@pytest.mark.parametrize("loop", [host_loop, server_loop, server_loop_with_schema])
async def test_after_a_timeout_the_calls_that_had_finished_are_known(
    loop: Callable[..., Awaitable[LoopResult]],
) -> None:
    with fail_after(100):
        done = await loop(timeout=5)

    assert (done.ended, done.steps, len(done.messages)) == ("timeout", (), 1)
    assert done.unfinished is not None
    assert [(call.use.name, call.result.text) for call in done.unfinished.calls] == [("book", "booked")]
