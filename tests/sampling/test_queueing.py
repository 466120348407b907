"""How many requests are answered at once, how many wait, and for how long."""

from __future__ import annotations

import logging

import pytest
from anyio import Event, create_task_group, fail_after, wait_all_tasks_blocked

from mcp_host.sampling import Allow, Sampling, SamplingLimits, SamplingRequest, SamplingSession, always
from mcp_host.sampling.approval import AsyncApprove
from mcp_host.slots import Slot
from mcp_host.types import CreateMessageResult
from tests.extent import on_both
from tests.sampling.asking import refused, said, session, wire

pytestmark = [on_both, pytest.mark.fake_clock]  # all in memory: no deadline passes while anything can run


class Turnstile:
    """A handler that does not return until it is opened."""

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0
        self.opened = Event()

    async def __call__(self, request: SamplingRequest) -> CreateMessageResult:
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            await self.opened.wait()
        finally:
            self.inside -= 1
        return request.reply("through")


@pytest.mark.fault("S12")
async def test_many_requests_are_answered_a_few_at_a_time() -> None:
    turnstile = Turnstile()
    sampling = Sampling(with_tools=turnstile, approve=always)
    servers = [sampling.session(server=f"server {n}", knows_tools=True) for n in range(6)]
    answers: list[CreateMessageResult] = []

    async def ask(server: SamplingSession) -> None:
        answers.append(await server.answer(wire()))

    with fail_after(10):
        async with create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(ask, servers[0])
            await wait_all_tasks_blocked()
            assert turnstile.inside == 4
            for server in servers[1:]:
                for _ in range(10):
                    tasks.start_soon(ask, server)
            await wait_all_tasks_blocked()
            assert turnstile.inside == 16
            turnstile.opened.set()

    assert len(answers) == 60
    assert turnstile.most == 16


@pytest.mark.fault("S12")
async def test_requests_beyond_the_queue_are_refused_at_once_with_the_limit() -> None:
    turnstile = Turnstile()
    asked = session(turnstile, limits=SamplingLimits(at_once_per_server=1, waiting=1))

    with fail_after(5):
        async with create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(asked.answer, wire())
                await wait_all_tasks_blocked()
            refusal = await refused(asked, wire())
            turnstile.opened.set()

    assert said(refusal) == (-32010, "this client's limit waiting is 1 requests")


async def never(request: SamplingRequest) -> Allow:
    await Event().wait()
    return Allow()


@pytest.mark.fault("S27")
@pytest.mark.parametrize(
    ("approve", "queued"),
    [(always, False), (never, False), (always, True)],
    ids=["in the handler", "in the approver", "waiting for a slot"],
)
async def test_an_answer_that_takes_too_long_is_cancelled_and_refused(
    approve: AsyncApprove, queued: bool, caplog: pytest.LogCaptureFixture
) -> None:
    turnstile = Turnstile()
    limits = SamplingLimits(seconds=0, at_once=1)
    asked = session(turnstile, approve=approve, limits=limits)
    other = Slot(asked._share)
    if queued:
        await other.acquire()

    refusal = await refused(asked, wire())

    other.release()
    assert said(refusal) == (-32011, "this client's limit for one answer is 0 seconds")
    assert turnstile.inside == 0
    assert (asked._share.free, asked._share.queue_space) == (4, 64)
    assert caplog.record_tuples == [
        ("mcp_host.sampling.sampling", logging.WARNING, "sampling for calculator took longer than 0 s")
    ]


async def test_cancelling_the_caller_cancels_the_handler() -> None:
    turnstile = Turnstile()
    asked = session(turnstile, limits=SamplingLimits(at_once_per_server=1, waiting=0))

    with fail_after(5):
        async with create_task_group() as tasks:
            tasks.start_soon(asked.answer, wire())
            await wait_all_tasks_blocked()
            assert turnstile.inside == 1
            tasks.cancel_scope.cancel()
        assert turnstile.inside == 0
        turnstile.opened.set()
        await asked.answer(wire())  # the slot was released
