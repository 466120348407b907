"""What is tried after a failure to connect: a table, one row for each way to fail."""

from __future__ import annotations

import pytest

from mcp_host.errors import (
    ConnectFailed,
    ConnectionClosed,
    ConnectTimeout,
    HttpStatusError,
    McpError,
    ProtocolError,
    ServerError,
    Unauthorized,
)
from mcp_host.protocol.negotiation import Attempt, Attempts, ConnectionBroke, NoAnswer, Offers, WrongEra

MOST: Offers = frozenset({"sampling.tools", "elicitation.url", "elicitation.form"})
LESS: Offers = frozenset({"elicitation.url", "elicitation.form"})
LEAST: Offers = frozenset({"elicitation.form"})
NONE: Offers = frozenset()


def attempts() -> Attempts:
    return Attempts([MOST, LESS, LEAST, NONE], None, 30.0)


@pytest.mark.parametrize(
    "failure",
    [
        ServerError(-32602, "unrecognized_keys"),
        *(HttpStatusError(status, "no") for status in (400, 422, 500)),
        ConnectFailed("it died of it", exit_code=1),
        ConnectFailed("it hung up over it"),
    ],
    ids=str,
)
def test_after_what_may_be_over_a_capability_less_is_offered_step_by_step_in_the_time_of_one(failure: McpError) -> None:
    tried, slowly = attempts(), attempts()

    assert tried.current == Attempt(None, MOST, 30.0)
    assert tried.next(failure) == Attempt(None, LESS, 30.0)
    assert tried.next(ServerError(-1, "another")) == Attempt(None, LEAST, 30.0)
    assert tried.next(ServerError(-1, "a third")) == Attempt(None, NONE, 30.0)
    assert tried.next(ServerError(-1, "a fourth")) is None
    assert tried.failure is failure

    assert slowly.next(failure, 12.0) == Attempt(None, LESS, 18.0)
    assert slowly.next(failure, 17.0) == Attempt(None, LEAST, 1.0)
    assert slowly.next(failure, 1.0) is None
    assert slowly.failure is failure


def test_after_a_broken_connection_the_same_is_offered_once_more() -> None:
    tried, late, failure = attempts(), attempts(), ConnectFailed("the network broke, or it hung up over a capability")
    broke = ConnectionBroke(failure)

    assert tried.next(broke, 12.0) == Attempt(None, MOST, 18.0)
    assert tried.next(broke, 6.0) == Attempt(None, LESS, 12.0)
    assert tried.next(broke, 6.0) == Attempt(None, LEAST, 6.0)
    assert tried.failure is failure
    assert late.next(broke, 30.0) is None


def test_any_other_failure_is_the_last() -> None:
    for failure in (
        *(HttpStatusError(status, "no") for status in (404, 405, 503)),
        Unauthorized(401, "who are you"),
        ConnectionClosed("the network broke"),
        ConnectFailed("the network was not there", may_have_run=False),
        ConnectFailed("it died before it heard a word", may_have_run=False, exit_code=1),
        ConnectTimeout("it never came up"),
        ProtocolError("nonsense"),
    ):
        tried = attempts()

        assert tried.next(failure) is None
        assert tried.failure is failure


def test_after_silence_there_is_one_attempt_more_with_the_least_offer_and_a_third_of_the_time() -> None:
    tried, silence = attempts(), NoAnswer("it said nothing")

    assert tried.next(silence) == Attempt(None, LEAST, 10.0)
    assert tried.next(ConnectTimeout("nor now")) is None
    assert type(tried.failure) is ConnectTimeout
    assert str(tried.failure) == "it said nothing"


def test_another_era_is_tried_once_for_each_offer_and_then_kept() -> None:
    tried = attempts()
    died = ConnectFailed("it died", exit_code=1)

    assert tried.next(WrongEra(died, "legacy")) == Attempt("legacy", MOST, 30.0, corrected=True)
    assert tried.failure is None
    assert tried.next(WrongEra(died, None)) == Attempt("legacy", LESS, 30.0)
    assert tried.failure is died
    assert tried.next(WrongEra(died, None)) == Attempt(None, LESS, 30.0, corrected=True)


def test_after_silence_forms_are_still_offered() -> None:
    urls, forms = frozenset({"elicitation.url"}), frozenset({"elicitation.form"})

    assert Attempts([urls, NONE], None, 30.0).next(NoAnswer("it said nothing")) == Attempt(None, NONE, 10.0)
    assert Attempts([forms, NONE], None, 30.0).next(NoAnswer("it said nothing")) is None


def test_an_attempt_in_another_era_has_what_is_left_of_the_time() -> None:
    tried, died = attempts(), ConnectFailed("it died", exit_code=1)

    assert tried.next(WrongEra(died, "legacy"), 12.0) == Attempt("legacy", MOST, 18.0, corrected=True)
    assert tried.next(died, 6.0) == Attempt("legacy", LESS, 12.0)
    assert tried.next(WrongEra(died, None), 12.0) is None
    assert tried.failure is died


def test_another_era_is_not_tried_when_the_time_is_up() -> None:
    tried, died = attempts(), ConnectionClosed("it died")

    assert tried.next(WrongEra(died, "legacy"), 30.0) is None
    assert type(tried.failure) is ConnectFailed
    assert str(tried.failure) == "it died"


def test_after_silence_another_third_of_the_time_is_added() -> None:
    tried = attempts()

    assert tried.next(ServerError(-1, "no"), 12.0) == Attempt(None, LESS, 18.0)
    assert tried.next(NoAnswer("it said nothing"), 18.0) == Attempt(None, LEAST, 10.0)
    assert tried.next(ServerError(-1, "no"), 1.0) is None
