"""The texts and attributes of errors."""

from __future__ import annotations

import pytest

from mcp_host.errors import (
    ConnectFailed,
    ConnectionClosed,
    HttpStatusError,
    RequestTimeout,
    RoundsExceeded,
    ServerError,
    SessionLost,
    escaped,
    excerpt,
    quoted,
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("grüße", "grüße"),
        ("a b", "a b"),
        ("\x1b[2J", r"\x1b[2J"),
        ("a\r\nb\tc", r"a\r\nb\tc"),
        ("\u202eabc", r"\u202eabc"),
        ("\ud800", r"\ud800"),
        ("\x7f\x9b\u2028", r"\x7f\x9b\u2028"),
    ],
    ids=["letters", "a space", "escape", "line breaks", "right to left", "half a pair", "more controls"],
)
def test_control_characters_in_a_peers_text_are_escaped(text: str, shown: str) -> None:
    assert escaped(text) == shown


def test_a_long_text_is_cut_and_its_length_is_shown() -> None:
    assert excerpt("x" * 300) == "x" * 300
    assert excerpt("x" * 301) == "x" * 300 + "… (301 characters)"
    assert excerpt("xyz", 2) == "xy… (3 characters)"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("word", "'word'"),
        ("x" * 80, f"'{'x' * 80}'"),
        ("x" * 81, f"'{'x' * 80}… (81 characters)'"),
        ({"a": None}, "{'a': None}"),
        ([1] * 40, f"{'[1, ' + '1, ' * 25 + '1'}… (120 characters)"),
    ],
    ids=["a word", "80 letters", "81 letters", "an object", "a long list"],
)
def test_a_peers_value_is_quoted_and_cut_at_80_characters(value: object, shown: str) -> None:
    assert quoted(value) == shown


@pytest.mark.parametrize(
    ("status", "transient"),
    [
        *((status, False) for status in (300, 400, 401, 403, 404, 407, 409, 424, 426, 428, 430, 499)),
        *((status, True) for status in (408, 425, 429, 500, 502, 503, 504, 599)),
    ],
)
def test_an_http_error_is_transient_by_its_status(status: int, transient: bool) -> None:
    assert HttpStatusError(status, "m").transient is transient


@pytest.mark.parametrize("kind", [ConnectionClosed, ConnectFailed, SessionLost])
@pytest.mark.parametrize("may_have_run", [True, False])
def test_a_copy_of_an_error_is_equal_to_the_first(kind: type[ConnectionClosed], may_have_run: bool) -> None:
    error = kind("it is gone", may_have_run=may_have_run, exit_code=3, stderr="last words")
    again = error.again()

    assert again is not error
    assert type(again) is kind
    assert (str(again), again.may_have_run, again.exit_code, again.stderr) == (
        "it is gone",
        may_have_run,
        3,
        "last words",
    )


def test_a_request_may_have_run_by_default() -> None:
    assert ConnectionClosed("gone").may_have_run
    assert RequestTimeout("late").may_have_run
    assert not RequestTimeout("late", may_have_run=False).may_have_run


def test_a_server_error_shows_a_part_of_its_text_and_keeps_all_of_it() -> None:
    text = "no such tool\n" * 100
    error = ServerError(-32602, text, {"tool": "x"})
    without_code = ServerError(None, "refused")

    assert (error.code, error.message, error.data) == (-32602, text, {"tool": "x"})
    assert str(error) == r"no such tool\n" * 23 + "n… (1300 characters) (-32602)"
    assert (str(without_code), without_code.code) == ("refused", None)


def test_an_http_error_keeps_the_response() -> None:
    error = HttpStatusError(429, "HTTP 429", retry_after=3.0, body="slow down", code=-1, data=[1], rpc_message="later")

    assert (error.status, error.retry_after, error.body, error.code, error.data, error.rpc_message) == (
        429,
        3.0,
        "slow down",
        -1,
        [1],
        "later",
    )
    assert str(error) == "HTTP 429 (-1)"


def test_rounds_exceeded_names_the_limit() -> None:
    error = RoundsExceeded("the server asked too often", "max_rounds")

    assert (str(error), error.limit) == ("the server asked too often (Limits.max_rounds)", "max_rounds")
