"""Requests to token endpoints, and their answers."""

from __future__ import annotations

import json
from base64 import b64encode

import pytest

from mcp_host.auth.errors import TokenRequestFailed
from mcp_host.auth.grants import Token, authenticated, read_token
from mcp_host.auth.registration import OAuthClient
from mcp_host.auth.requests.client import Answer

ISSUER = "https://as.test"
BASIC = b64encode(b"the%20client:s%3Ae%2Fc").decode()
CLIENT = OAuthClient("the client", "s:e/c", "client_secret_basic")


def answer(document: dict[str, object] | None, status: int = 200) -> Answer:
    return Answer(status, f"HTTP {status}", document, {}, 1000.0)


@pytest.mark.parametrize(
    ("expires_in", "expires_at", "refresh_at"),
    [
        ("3600", 4600, 4570),
        ("100", 1100, 1090),
        ('"3600"', 4600, 4570),
        ("0", None, None),
        ("0.5", 1000.5, 1000.45),
        ("1e2", 1100, 1090),
        ("1e400", None, None),
        ("-1", None, None),
        ("null", None, None),
        ("true", None, None),
        ('"soon"', None, None),
        ('"٣٦٠٠"', None, None),
        ("[3600]", None, None),
        ("{}", None, None),
        ("1" + "0" * 300, None, None),
        ('"' + "9" * 5000 + '"', None, None),
    ],
)
def test_expires_in_has_many_shapes(expires_in: str, expires_at: float | None, refresh_at: float | None) -> None:
    document = json.loads(f'{{"access_token": "a", "refresh_token": "r", "expires_in": {expires_in}}}')

    token = read_token(answer(document), ["x"])

    assert token == Token("a", expires_at, "r", ("x",), refresh_at)


def test_without_a_refresh_token_a_token_is_used_to_its_end() -> None:
    token = read_token(answer({"access_token": "a", "expires_in": 100}), [])

    assert token == Token("a", 1100, None, (), 1100)


@pytest.mark.parametrize(
    ("scope", "scopes"),
    [("b c", ("b", "c")), ("", ("a",)), (" ", ("a",)), (None, ("a",)), (["b"], ("a",)), (7, ("a",))],
)
def test_scopes_are_those_of_the_answer_or_else_those_that_were_asked_for(
    scope: object, scopes: tuple[str, ...]
) -> None:
    assert read_token(answer({"access_token": "a", "scope": scope}), ["a"]).scopes == scopes


@pytest.mark.parametrize(
    ("scope", "scopes"),
    [
        ("b,c", ("b", "c")),
        ("b, c", ("b", "c")),
        ("b , c", ("b", "c")),
        (",", ()),
        ("a,a", ("a,a",)),
        ("a,a b", ("a,a", "b")),
        ("b,c d", ("b,c", "d")),
        ("b,asked d", ("b", "asked", "d")),
    ],
)
def test_scopes_may_be_separated_by_commas_where_no_blanks_separate_them_or_one_of_them_was_asked_for(
    scope: str, scopes: tuple[str, ...]
) -> None:
    """GitHub and Slack separate them so."""
    assert read_token(answer({"access_token": "a", "scope": scope}), ["a,a", "asked"]).scopes == scopes


def test_a_member_that_is_null_is_absent() -> None:
    nulls = dict.fromkeys(("error", "error_description", "token_type", "expires_in", "refresh_token", "scope"))

    assert read_token(answer({"access_token": "a", **nulls}), ["x"]) == Token("a", None, None, ("x",))


@pytest.mark.parametrize("kind", ["Bearer", "bearer", "BEARER"])
def test_the_case_of_a_token_type_does_not_matter(kind: str) -> None:
    assert read_token(answer({"access_token": "a", "token_type": kind}), []) == Token("a")


@pytest.mark.parametrize(
    ("document", "status", "problem", "code", "refused"),
    [
        ({"error": "invalid_grant"}, 400, "HTTP 400 (invalid_grant)", "invalid_grant", True),
        ({"error": "invalid_grant"}, 200, "HTTP 200 with an error (invalid_grant)", "invalid_grant", True),
        ({"error": "canary", "access_token": "a"}, 200, "HTTP 200 with an error", None, True),
        (
            {"error": "incorrect_client_credentials"},
            200,
            "HTTP 200 with an error (incorrect_client_credentials)",
            "incorrect_client_credentials",
            True,
        ),
        *(
            ({"error": code}, 400, "HTTP 400", None, True)
            for code in (
                *("AADSTS_code", "rt_4d2f", "two words", "canary-a", "_canary", "canary_", "a__b", "a_b\n", "\u0430_b"),
                *("xqzvkwpjyrtbnmlk_a", "say_that_the_person_should_call_this_number"),
            )
        ),
        ({"error": {"message": "canary"}}, 400, "HTTP 400", None, True),
        ({"error": "temporarily_unavailable"}, 400, "HTTP 400 (temporarily_unavailable)", "temporarily_unavailable", 0),
        ({"error": "server_error"}, 200, "HTTP 200 with an error (server_error)", "server_error", False),
        ({"error": "invalid_grant"}, 500, "HTTP 500 (invalid_grant)", "invalid_grant", False),
        (None, 503, "HTTP 503", None, False),
        (None, 429, "HTTP 429", None, False),
        (None, 404, "HTTP 404", None, True),
        (None, 302, "HTTP 302", None, False),
        (None, 200, "HTTP 200", None, False),
        ({}, 200, "the answer has no access_token that can be sent", None, False),
        ({"access_token": ""}, 200, "the answer has no access_token that can be sent", None, False),
        ({"access_token": 7}, 200, "the answer has no access_token that can be sent", None, False),
        ({"access_token": "a b"}, 200, "the answer has no access_token that can be sent", None, False),
        ({"access_token": "a\r\nX: y"}, 200, "the answer has no access_token that can be sent", None, False),
        ({"access_token": "ä"}, 200, "the answer has no access_token that can be sent", None, False),
        ({"access_token": "a", "token_type": "DPoP"}, 200, "its token_type is not Bearer", None, False),
        ({"access_token": "a", "token_type": 7}, 200, "its token_type is not Bearer", None, False),
        ({"access_token": "a"}, 400, "HTTP 400", None, True),
    ],
)
def test_an_answer_without_a_token_says_why(
    document: dict[str, object] | None, status: int, problem: str, code: str | None, refused: bool
) -> None:
    with pytest.raises(TokenRequestFailed) as raised:
        read_token(answer(document, status), [])

    assert (str(raised.value), raised.value.code, raised.value.refused) == (problem, code, refused)


def test_the_repr_of_a_token_has_no_secret() -> None:
    assert repr(Token("secret", None, "secret")) == "Token(expires_at=None, scopes=(), refresh_at=None)"


@pytest.mark.parametrize(
    ("client", "fields", "headers"),
    [
        (CLIENT, {"a": "b", "client_id": "the client"}, {"Authorization": f"Basic {BASIC}"}),
        (OAuthClient("c", "s", "client_secret_post"), {"a": "b", "client_id": "c", "client_secret": "s"}, {}),
        (OAuthClient("c"), {"a": "b", "client_id": "c"}, {}),
    ],
    ids=["basic", "post", "none"],
)
def test_a_client_authenticates_by_its_method(
    client: OAuthClient, fields: dict[str, str], headers: dict[str, str]
) -> None:
    assert authenticated(client, {"a": "b"}, ISSUER) == (fields, headers)
