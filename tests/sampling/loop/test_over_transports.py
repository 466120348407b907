"""A host's loop over every transport: calls at once, and no call left behind when it is cancelled."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
from anyio import Event, create_task_group, fail_after, sleep_forever

from mcp_host import Client, Stdio, StreamableHttp, ToolCall, run_tool_loop
from mcp_host.testing import ScriptedModel, Server
from mcp_host.transports.base import Transport
from tests.extent import on_both

server = Server("pairs")


@dataclass
class Pair:
    """Two calls: how many run, and whether both have begun and ended."""

    running: int = 0
    begun: Event = field(default_factory=Event)
    ended: Event = field(default_factory=Event)


pairs: dict[str, Pair] = defaultdict(Pair)


@server.tool
async def meet(key: str, name: str) -> str:
    """Wait for the other one."""
    pairs[key].running += 1
    if pairs[key].running == 2:
        pairs[key].begun.set()
    await pairs[key].begun.wait()
    return name


@server.tool
async def hang(key: str) -> None:
    try:
        await meet(key, "")
        await sleep_forever()
    finally:
        pairs[key].running -= 1
        if not pairs[key].running:
            pairs[key].ended.set()


@server.tool
async def both_begun(key: str) -> None:
    await pairs[key].begun.wait()


@server.tool
async def both_ended(key: str) -> None:
    await pairs[key].ended.wait()


@asynccontextmanager
async def reached(how: str) -> AsyncIterator[Transport]:
    if how == "stdio":
        program = "from tests.sampling.loop.test_over_transports import server; server.run_stdio()"
        yield Stdio([sys.executable, "-c", program], cwd=Path(__file__).parents[3])
    elif how == "in-process":
        yield server.in_process()
    else:
        async with server.http() as url:
            yield StreamableHttp(url)


HANDSHAKE, STATELESS = "2025-11-25", "2026-07-28"
WAYS = [("stdio", HANDSHAKE), ("http", HANDSHAKE), ("http", STATELESS), ("in-process", STATELESS)]


@on_both
@pytest.mark.parametrize(("how", "era"), WAYS)
async def test_the_calls_of_one_answer_are_in_flight_together_and_a_cancelled_loop_leaves_none(
    how: str, era: str
) -> None:
    together, key = uuid4().hex, {"key": uuid4().hex}
    model = ScriptedModel(
        [ToolCall("meet", {"key": together, "name": name}) for name in ("first", "second")],
        "done",
        [ToolCall("hang", key), ToolCall("hang", key)],
    )
    with fail_after(60):
        async with reached(how) as transport, Client(transport, era=era) as client:
            done = await run_tool_loop(model, "hello", tools=[client])
            assert done.ended == "answered"
            assert [call.result.text for call in done.steps[0].calls] == ["first", "second"]

            async with create_task_group() as tasks:
                tasks.start_soon(partial(run_tool_loop, model, "hello", tools=[client]))
                await client.call_tool("both_begun", key)
                tasks.cancel_scope.cancel()

            await client.call_tool("both_ended", key)
