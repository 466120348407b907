"""WWW-Authenticate, as servers write it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_host.auth.requests.challenges import Challenge, challenges, token_challenge
from tests.extent import THOROUGH
from tests.faults.measure import grows_linearly

CHALLENGES: list[tuple[list[str], list[Challenge]]] = [
    ([], []),
    ([""], []),
    (["Bearer"], [Challenge("bearer")]),
    (["bearer , "], [Challenge("bearer")]),
    (['Bearer realm="a, b", error="x_y"'], [Challenge("bearer", {"realm": "a, b", "error": "x_y"})]),
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
]


def test_challenges_are_read_as_rfc_9110_writes_them() -> None:
    assert [list(challenges(headers)) for headers, _ in CHALLENGES] == [expected for _, expected in CHALLENGES]


def test_the_challenge_for_tokens_is_found_among_others() -> None:
    expected: dict[tuple[str, ...], tuple[object, object, object]] = {
        ('Basic realm="x"', 'Bearer scope="a b a", resource_metadata="https://x/y"'): (("a", "b"), "https://x/y", None),
        ('DPoP error="use_dpop_nonce"', 'Bearer error="invalid_token", scope="a"'): (("a",), None, "use_dpop_nonce"),
        **dict.fromkeys([("Bearer",), ('Bearer scope=""',), ('Bearer scope=" "',)], (None, None, None)),
    }

    found = {headers: token_challenge(headers) for headers in expected}
    assert {headers: (each.scopes, each.resource_metadata, each.error) for headers, each in found.items()} == expected


def test_a_server_that_wants_something_else_than_a_token_is_known() -> None:
    wanted = {
        ("Basic realm=x",): "Basic",
        ("Negotiate", 'Basic realm="x"'): "Negotiate",
        ("NTLM",): "NTLM",
        **dict.fromkeys([("Basic realm=x, Bearer",), ("Basic realm=x, OAuth",), ("realm=x",), ()], "a token"),
    }

    assert {headers: token_challenge(headers).wanted for headers in wanted} == wanted


@given(st.lists(st.text(max_size=200), max_size=5))
@settings(max_examples=1000 if THOROUGH else 30)
def test_no_header_fails(headers: list[str]) -> None:
    for challenge in challenges(headers):
        assert challenge.scheme == challenge.scheme.lower()


def test_hostile_headers_take_linear_time(subtests: pytest.Subtests) -> None:
    for beginning, repeated in (
        ('Bearer a="', "\\"),
        *(("Bearer ", text) for text in ("a", "a=", ",", ", ")),
        ("Bearer a", " "),
        ("Bearer a=", " "),
    ):

        def read(length: int, beginning: str = beginning, repeated: str = repeated) -> None:
            for _ in range(10):
                list(challenges([beginning + repeated * (length // len(repeated))]))

        with subtests.test(beginning + repeated):
            assert grows_linearly(read, 2_000)
