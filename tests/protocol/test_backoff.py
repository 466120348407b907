"""The delays before the next attempt, and when to give up."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from mcp_host.protocol.backoff import Backoff, listen_backoff, restart_backoff, resume_backoff


def delays(backoff: Backoff, attempts: int, retry: float | None = None) -> list[float]:
    """The delays after so many consecutive failures."""
    found = []
    for _ in range(attempts):
        backoff.fail()
        found.append(round(backoff.delay(retry), 3))
    return found


@pytest.mark.fault("E08", "E11")
@pytest.mark.parametrize(("retry", "pause"), [(None, 1.0), (0.5, 0.5), (0.0, 0.1), (60.0, 60.0), (math.inf, 3600.0)])
def test_the_first_pause_is_the_servers_within_bounds(retry: float | None, pause: float) -> None:
    assert resume_backoff().delay(retry) == pause
    assert listen_backoff().delay(retry) == pause


@pytest.mark.fault("E08")
@pytest.mark.parametrize(
    ("made", "retry", "expected"),
    [
        (listen_backoff, None, [1.5, 2.25, 3.375, 5.062, 7.594, 11.391, 17.086, 25.629, 30.0, 30.0]),
        (listen_backoff, 60.0, [60.0, 60.0]),
        (restart_backoff, 0.0, [0.75, 1.125, 1.688, 2.531, 3.797, 5.695, 8.543, 12.814, 19.222, 28.833, 30.0]),
        (resume_backoff, None, [1.0, 1.0, 1.0, 1.5, 2.25, 3.375, 5.0, 5.0]),
        (resume_backoff, 0.0, [0.1, 0.1, 0.1, 0.15, 0.225, 0.338, 0.506, 0.759, 1.139, 1.709, 2.563, 3.844, 5.0]),
        (resume_backoff, 60.0, [60.0] * 100),
        (resume_backoff, 1e9, [3600.0, 3600.0, 3600.0, 3600.0]),
    ],
)
def test_delays_grow_to_a_maximum_but_are_no_shorter_than_the_server_asked_for(
    made: Callable[[], Backoff], retry: float | None, expected: list[float]
) -> None:
    assert delays(made(), len(expected), retry) == expected


def test_after_thousands_of_failures_the_delay_is_still_a_number() -> None:
    assert delays(listen_backoff(), 5000)[-1] == 30.0


@pytest.mark.parametrize(("made", "attempts"), [(listen_backoff, 10), (restart_backoff, 8), (resume_backoff, 1000)])
def test_a_backoff_is_exhausted_after_so_many_consecutive_failures(made: Callable[[], Backoff], attempts: int) -> None:
    backoff = made()
    delays(backoff, attempts - 1)
    before = backoff.exhausted
    backoff.fail()

    assert not before
    assert backoff.exhausted


@pytest.mark.fault("E08")
@pytest.mark.parametrize(("made", "next_delays"), [(listen_backoff, [1.5, 2.25]), (resume_backoff, [1.0, 1.0])])
def test_a_message_resets_the_count(made: Callable[[], Backoff], next_delays: list[float]) -> None:
    backoff = made()
    delays(backoff, 9)
    backoff.reset()

    assert backoff.delay(None) == 1.0
    assert delays(backoff, 2) == next_delays


@pytest.mark.parametrize(
    ("seconds", "useful", "failures"),
    [(29.9, False, 6), (30.0, False, 1), (0.0, True, 1)],
    ids=["short", "stable", "useful"],
)
def test_a_stable_or_useful_connection_resets_the_count(seconds: float, useful: bool, failures: int) -> None:
    backoff = listen_backoff()
    delays(backoff, 5)
    backoff.ended(seconds, useful=useful)

    assert backoff.failures == failures
