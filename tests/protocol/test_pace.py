"""How long the pauses are before what broke off is tried again, and when it is given up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mcp_host.protocol.backoff import Backoff, listening, restarting, resuming


def pauses(pace: Backoff, attempts: int, retry: float | None = None) -> list[float]:
    """The pauses before so many attempts, each of which brings nothing."""
    taken = []
    for _ in range(attempts):
        pace.miss()
        taken.append(round(pace.pause(retry), 3))
    return taken


@pytest.mark.parametrize(
    ("made", "retry", "expected"),
    [
        (listening, None, [1.5, 2.25, 3.375, 5.062, 7.594, 11.391, 17.086, 25.629, 30.0, 30.0]),
        (listening, 60.0, [60.0, 60.0]),
        (restarting, 0.5, [0.75, 1.125, 1.688, 2.531, 3.797, 5.695, 8.543, 12.814, 19.222, 28.833, 30.0]),
        (resuming, None, [1.0, 1.0, 1.0, 1.5, 2.25, 3.375, 5.0, 5.0]),
        (resuming, 0.0, [0.1, 0.1, 0.1, 0.15, 0.225, 0.338, 0.506, 0.759, 1.139, 1.709, 2.563, 3.844, 5.0]),
        (resuming, 1e9, [3600.0, 3600.0, 3600.0, 3600.0]),
    ],
)
def test_pauses_grow_to_a_bound_but_are_no_shorter_than_the_server_asked_for(
    made: Callable[[], Backoff], retry: float | None, expected: list[float]
) -> None:
    assert pauses(made(), len(expected), retry) == expected


def test_after_thousands_of_attempts_the_pause_is_still_a_number() -> None:
    assert pauses(listening(), 5000)[-1] == 30.0


@pytest.mark.parametrize(("made", "attempts"), [(listening, 10), (restarting, 8), (resuming, 1000)])
def test_it_is_given_up_after_so_many_attempts_in_a_row(made: Callable[[], Backoff], attempts: int) -> None:
    pace = made()
    pauses(pace, attempts - 1)
    before = pace.exhausted
    pace.miss()

    assert not before
    assert pace.exhausted


def test_a_message_begins_the_count_anew() -> None:
    pace = listening()
    pauses(pace, 9)
    pace.hit()

    assert pace.pause(None) == 1.0
    assert pauses(pace, 2) == [1.5, 2.25]


@pytest.mark.parametrize(
    ("seconds", "heard", "missed"),
    [(29.9, False, 6), (30.0, False, 1), (0.0, True, 1)],
    ids=["short", "steady", "heard"],
)
def test_a_stream_that_lasted_or_brought_something_was_a_good_one(seconds: float, heard: bool, missed: int) -> None:
    pace = listening()
    pauses(pace, 5)
    pace.lasted(seconds, heard=heard)

    assert pace.missed == missed
