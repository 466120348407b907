"""A network that halts, is cut, delays, loses and repeats, at every place in the bytes of a dialogue."""

from __future__ import annotations

from dataclasses import replace

import pytest
from anyio import create_task_group, fail_after, wait_all_tasks_blocked

from mcp_host.errors import ConnectionClosed, McpError, McpTimeout
from tests.clock import advance
from tests.extent import THOROUGH, on_both
from tests.faults.fault import leaving_nothing
from tests.robustness.dialogue import PATIENT, Dialogue, http_at, lean_http, points
from tests.robustness.proxy import Direction, Manner, Proxy, running

BOUND = 125.0  # seconds for a dialogue with a network that fails: three calls that time out, and closing
STRIDE = 151  # bytes from one place to the next where all are tried: a prime, so that no structure is missed twice
BYTES = {"to the client": 2400, "to the server": 4000}  # at least as many as pass; see the test of that name

HASTY = replace(PATIENT, connect_timeout=1.5, idle_timeout=0.5)  # where it may be that only time tells what is wrong

ERRORS: dict[Manner, tuple[type[McpError], ...]] = {
    "halts": (McpTimeout,),
    "closes": (ConnectionClosed,),
    "resets": (ConnectionClosed,),
    "loses bytes": (McpError,),  # all may be wrong then: a length, a status, half a message
    "repeats bytes": (McpError,),
    "delays": (),
}
FORGERIES = ("loses bytes", "repeats bytes")  # no network does that to TCP; what is between us and the server may


def places() -> list[tuple[Manner, Direction, int]]:
    directions: list[Direction] = ["to the client", "to the server"]
    return [
        (manner, direction, place * STRIDE)
        for manner in ERRORS
        for direction in directions
        for place in points(BYTES[direction] // STRIDE, few=1)
    ]


async def let_time_pass(proxy: Proxy) -> None:
    """Nothing comes through a network that has halted: only deadlines are waited for."""
    await proxy.halted.wait()
    while True:
        await wait_all_tasks_blocked()
        advance(1)


async def failure_of(dialogue: Dialogue) -> McpError | None:
    try:
        await dialogue.run()
    except McpError as exc:
        return exc
    return None


@on_both
@pytest.mark.adjustable_clock
@pytest.mark.parametrize("era", ["legacy", "modern"] if THOROUGH else ["legacy"])
@pytest.mark.parametrize(("manner", "direction", "at"), places())
async def test_a_network_that_fails_at_any_point_is_an_error_in_time_and_the_client_recovers(
    era: str, manner: Manner, direction: Direction, at: int
) -> None:
    async with leaving_nothing(), lean_http(era) as server, running(Proxy(server, manner, direction, at)) as proxy:
        dialogue = Dialogue(http_at(proxy.port), HASTY if manner in FORGERIES else PATIENT)
        with fail_after(BOUND):
            async with create_task_group() as tasks:
                tasks.start_soon(let_time_pass, proxy)
                error = await failure_of(dialogue)
                tasks.cancel_scope.cancel()

        assert error is None or isinstance(error, ERRORS[manner])
        assert error is not None or dialogue.stage == "closed"
        assert dialogue.model.busy == 0

        proxy.mend()
        await wait_all_tasks_blocked()  # until what had halted is closed: a request that comes to it then is lost
        if manner in FORGERIES:  # it may have made the server say that it takes no sampling.tools
            await dialogue.close()
            dialogue = Dialogue(http_at(proxy.port))
        with fail_after(BOUND):
            await dialogue.works()


@pytest.mark.parametrize("era", ["legacy", "modern"] if THOROUGH else ["legacy"])
async def test_these_are_all_the_points(era: str) -> None:
    async with (
        leaving_nothing(),
        lean_http(era) as server,
        running(Proxy(server, "delays", "to the client", 0)) as proxy,
    ):
        await Dialogue(http_at(proxy.port)).works()

    assert proxy.struck
    assert {direction: count <= BYTES[direction] for direction, count in proxy.passed.items()} == dict.fromkeys(
        BYTES, True
    ), proxy.passed
