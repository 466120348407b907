"""A server that dies at every point of a dialogue, over stdio and over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from anyio import fail_after

from mcp_host.errors import ConnectFailed, ConnectionClosed
from tests.clock import Pauses
from tests.extent import on_both
from tests.faults.fault import leaving_nothing
from tests.robustness.dialogue import Dialogue, Fate, few_ways, http_at, lean_http, lean_stdio, points
from tests.transports.http_peers import timed

pytestmark = on_both

BOUND = 25.0  # seconds for a dialogue and its end, on a machine with better things to do; most take 0.1

LINES = {"legacy": {"reading": 8, "writing": 9, "amid": 9}, "modern": {"reading": 6, "writing": 8, "amid": 8}}
"""How many lines a server reads before the dialogue is over, and how many it writes."""

PIECES = {"legacy": {"reading": 9, "writing": 16, "amid": 16}, "modern": {"reading": 6, "writing": 10, "amid": 10}}
"""The same over HTTP: requests, and pieces of answers: a head and a body, or one event."""

EXITS = {"kill": -9, "exit": 3}


@pytest.fixture
def mortal(tmp_path: Path) -> Path:
    """The file for as long as which servers meet their end."""
    (path := tmp_path / "mortal").touch()
    return path


def moments(counts: dict[str, dict[str, int]], ends: Sequence[str], few: int) -> list[tuple[str, str, int, str]]:
    """Era, what the server is at, for which time, and how it ends there: all combinations, or a *few* for each era."""
    found = [
        [(era, at, nth, end) for at, count in by.items() for nth in range(1, count + 1) for end in ends]
        for era, by in counts.items()
    ]
    return [moments[number - 1] for moments in found for number in points(len(moments), few)]


@pytest.mark.parametrize(("era", "at", "nth", "end"), moments(LINES, list(EXITS), 3))
async def test_a_child_that_dies_at_any_point_is_an_error_and_the_client_can_connect_again(
    era: str, at: str, nth: int, end: str, mortal: Path
) -> None:
    """The error is `ConnectionClosed` with the exit code, at every stage of the dialogue."""
    async with leaving_nothing():
        dialogue = Dialogue(lean_stdio(era, Fate(end, at, nth, mortal)))
        with fail_after(BOUND), pytest.raises(ConnectionClosed) as caught:
            await dialogue.run()

        assert caught.value.exit_code == EXITS[end]
        assert isinstance(caught.value, ConnectFailed) == (dialogue.stage == "connect")
        assert not dialogue.client.connected
        assert dialogue.model.busy == 0

        spare(mortal)
        with fail_after(BOUND):
            await dialogue.works()


@pytest.mark.parametrize(("over", "era"), few_ways())
async def test_these_are_all_the_points_of_a_dialogue(over: str, era: str, mortal: Path) -> None:
    """A server that would die one line later than the last outlives the dialogue: so nothing above is left out."""
    async with leaving_nothing():
        for at, count in (LINES if over == "stdio" else PIECES)[era].items():
            fate = Fate("kill", at, count + 1, mortal)
            with fail_after(BOUND):
                if over == "stdio":
                    await Dialogue(lean_stdio(era, fate)).works()
                    continue
                async with lean_http(era, fate) as port:
                    await Dialogue(http_at(port)).works()


@pytest.mark.parametrize(("era", "at", "nth", "end"), moments(PIECES, ["kill"], 3))
async def test_an_http_server_that_dies_at_any_point_is_an_error_and_the_client_works_with_the_next(
    era: str, at: str, nth: int, end: str, mortal: Path
) -> None:
    async with leaving_nothing():
        async with lean_http(era, Fate(end, at, nth, mortal)) as port:
            dialogue = Dialogue(timed(http_at(port).url, sleep_unsent=Pauses()))
            with fail_after(BOUND), pytest.raises(ConnectionClosed) as caught:
                await dialogue.run()

            assert caught.value.exit_code is None
            assert dialogue.client.connected == (dialogue.stage == "call")
            assert dialogue.model.busy == 0

        async with lean_http(era, port=port):
            with fail_after(BOUND):
                await dialogue.works()


@pytest.mark.parametrize(("era", "at", "nth", "end"), moments(PIECES, ["close", "reset"], 3))
async def test_a_connection_that_ends_at_any_point_fails_one_request_at_most(
    era: str, at: str, nth: int, end: str, mortal: Path
) -> None:
    """The server lives. What may be repeated is; what may not, fails; the next request has another connection."""
    async with leaving_nothing(), lean_http(era, Fate(end, at, nth, mortal)) as port:
        dialogue = Dialogue(http_at(port))
        with fail_after(BOUND):
            broken = await failure_of(dialogue)

        assert dialogue.stage == "closed" if broken is None else dialogue.stage in ("connect", "call")
        assert dialogue.client.connected == (dialogue.stage == "call")
        with fail_after(BOUND):
            await dialogue.works()


@pytest.mark.parametrize("end", ["close", "reset"])
@pytest.mark.parametrize("nth", [8, 9])
async def test_an_answer_to_the_server_that_is_lost_on_its_way_is_sent_again(nth: int, end: str, mortal: Path) -> None:
    """The eighth and the ninth request of the dialogue are the answers: a server that never gets one waits without end."""
    async with leaving_nothing(), lean_http("legacy", Fate(end, "reading", nth, mortal)) as port:
        with fail_after(BOUND):
            await Dialogue(http_at(port)).works()


async def failure_of(dialogue: Dialogue) -> ConnectionClosed | None:
    try:
        await dialogue.run()
    except ConnectionClosed as exc:
        return exc
    return None


def spare(mortal: Path) -> None:
    """From now on no server meets its end."""
    mortal.unlink()
