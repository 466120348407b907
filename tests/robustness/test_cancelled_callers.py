"""The caller of a client is cancelled after every step that any task takes in a dialogue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TypeAlias

import pytest
from anyio import CancelScope, create_task_group, fail_after

from mcp_host.testing import ScriptedPeer
from mcp_host.transports.base import Transport
from tests.extent import on_both
from tests.faults.fault import leaving_nothing
from tests.robustness import lean
from tests.robustness.dialogue import Dialogue, lean_server, points
from tests.robustness.steps import Steps

BOUND = 25.0  # seconds for one dialogue, the cancelled or the one after it
FEW = {"in process": 16, "stdio": 2, "http": 4}  # cancellations for each era and backend, unless all of them are tried

Run: TypeAlias = Callable[[Dialogue, Steps], Awaitable[None]]
"""Runs a dialogue whose caller is cancelled at the given step, if it comes to that."""


async def by_a_scope(dialogue: Dialogue, steps: Steps) -> None:
    """What `move_on_after` and task groups do."""
    scope = CancelScope()
    steps.action = scope.cancel

    async def run() -> None:
        with scope:
            await dialogue.run()

    with steps.counted():
        async with create_task_group() as tasks:
            tasks.start_soon(run)
    assert scope.cancelled_caught == (dialogue.stage != "closed")


async def natively(dialogue: Dialogue, steps: Steps) -> None:
    """What `asyncio.timeout`, `wait_for` and web frameworks do: once, so that a cancellation can be lost."""
    with steps.counted():
        task = asyncio.create_task(dialogue.run())
        steps.action = task.cancel
        await asyncio.wait([task])
    if not task.cancelled():
        task.result()
    assert task.cancelled() == (task.cancelling() > 0)


@asynccontextmanager
async def in_process(era: str) -> AsyncIterator[Transport]:
    async def script(peer: ScriptedPeer) -> None:
        dialogue = lean.Dialogue(era)
        while True:
            for _, said in dialogue.hear(await peer.receive()):
                await peer.send({"jsonrpc": "2.0", **said})

    yield ScriptedPeer(script)


SERVERS: dict[str, Callable[[str], AbstractAsyncContextManager[Transport]]] = {
    "in process": in_process,
    "stdio": partial(lean_server, "stdio"),
    "http": partial(lean_server, "http"),
}


async def cancel_at(step: int, transport: Transport, run: Run) -> None:
    """Cancel one dialogue, and have another with the same client."""
    steps = Steps()
    steps.at = step
    dialogue = Dialogue(transport)
    async with leaving_nothing():
        with fail_after(BOUND):
            await run(dialogue, steps)
        assert dialogue.client.connected == (dialogue.stage == "call"), (step, dialogue.stage)
        if dialogue.client.connected:
            await works(dialogue)
    async with leaving_nothing():
        await works(dialogue)


async def works(dialogue: Dialogue) -> None:
    with fail_after(BOUND):
        await dialogue.works()


async def check_every_step(over: str, era: str, run: Run) -> None:
    async with SERVERS[over](era) as transport:
        steps = Steps()
        await run(Dialogue(transport), steps)  # whole, for the number of its steps
        assert steps.count > FEW[over]
        for step in points(steps.count, FEW[over]):
            await cancel_at(step, transport, run)


@on_both
@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("over", SERVERS)
async def test_a_caller_may_be_cancelled_at_any_step_and_the_client_keeps_working(over: str, era: str) -> None:
    """Cancelled in connect, it can connect; in a call, it is connected; in aclose, it closes; and nothing is left."""
    await check_every_step(over, era, by_a_scope)


@pytest.mark.backends("asyncio")
@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("over", SERVERS)
async def test_an_asyncio_task_may_be_cancelled_at_any_step_and_the_client_keeps_working(
    over: str, era: str, anyio_backend: str
) -> None:
    await check_every_step(over, era, natively)
