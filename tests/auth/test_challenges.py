"""WWW-Authenticate, as servers write it."""

from __future__ import annotations

from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_host.auth.requests.challenges import Challenge, challenges, token_challenge


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([], []),
        ([""], []),
        (["Bearer"], [Challenge("bearer")]),
        (["bearer , "], [Challenge("bearer")]),
        (
            ['Bearer realm="a, b", error="invalid_token"'],
            [Challenge("bearer", {"realm": "a, b", "error": "invalid_token"})],
        ),
        (['Bearer  scope = "a b" ,ERROR=x'], [Challenge("bearer", {"scope": "a b", "error": "x"})]),
        ([r'Bearer realm="say \"hi\" \\o/"'], [Challenge("bearer", {"realm": r'say "hi" \o/'})]),
        (
            ['Basic realm="x", Bearer error=y, DPoP algs="ES256 RS256"'],
            [
                Challenge("basic", {"realm": "x"}),
                Challenge("bearer", {"error": "y"}),
                Challenge("dpop", {"algs": "ES256 RS256"}),
            ],
        ),
        (["Negotiate YWJj==", "Bearer a=b"], [Challenge("negotiate"), Challenge("bearer", {"a": "b"})]),
        (["Bearer scope=first, scope=second"], [Challenge("bearer", {"scope": "first"})]),
        (  # a URL without quotes is no token of RFC 9110
            ['Bearer resource_metadata=https://a/b?c=d, error="x"'],
            [Challenge("bearer", {"resource_metadata": "https://a/b?c=d", "error": "x"})],
        ),
        (['realm="no scheme"'], []),
        (['Bearer realm="never ends'], [Challenge("bearer", {"realm": "never ends"})]),
    ],
)
def test_challenges_are_read_as_rfc_9110_writes_them(headers: list[str], expected: list[Challenge]) -> None:
    assert list(challenges(headers)) == expected


def test_the_challenge_for_tokens_is_found_among_others() -> None:
    challenge = token_challenge(['Basic realm="x"', 'Bearer scope="a b a", resource_metadata="https://x/y"'])

    assert challenge.scopes == ("a", "b")
    assert challenge.resource_metadata == "https://x/y"
    assert challenge.error is None


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        (["Basic realm=x"], "Basic"),
        (["Negotiate", 'Basic realm="x"'], "Negotiate"),
        (["NTLM"], "NTLM"),
        (["Basic realm=x, Bearer"], "a token"),
        (["Basic realm=x, OAuth"], "a token"),
        (["realm=x"], "a token"),
        ([], "a token"),
    ],
    ids=str,
)
def test_a_server_that_wants_something_else_than_a_token_is_known(headers: list[str], wanted: str) -> None:
    assert token_challenge(headers).wanted == wanted


def test_a_server_that_takes_both_kinds_of_tokens_says_it_twice() -> None:
    challenge = token_challenge(['DPoP error="use_dpop_nonce"', 'Bearer error="invalid_token", scope="a"'])

    assert challenge.error == "use_dpop_nonce"
    assert challenge.scopes == ("a",)


@pytest.mark.parametrize("header", ["Bearer", 'Bearer scope=""', 'Bearer scope=" "'])
def test_no_scope_is_none(header: str) -> None:
    assert token_challenge([header]).scopes is None


@given(st.lists(st.text(max_size=200), max_size=5))
def test_no_header_fails(headers: list[str]) -> None:
    for challenge in challenges(headers):
        assert challenge.scheme == challenge.scheme.lower()


@pytest.mark.parametrize(
    "text",
    [
        'Bearer a="' + "\\" * 100_000,
        "Bearer " + "a" * 100_000,
        "Bearer " + "a=" * 50_000,
        "Bearer " + "," * 100_000,
        "Bearer " + ", " * 50_000,
        "Bearer a" + " " * 100_000,
        "Bearer a=" + " " * 100_000,
    ],
)
def test_hostile_headers_take_linear_time(text: str) -> None:
    begun = process_time()

    list(challenges([text]))

    assert process_time() - begun < 2
