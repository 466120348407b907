"""Requests to token endpoints, and their answers."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import pytest

from mcp_host.auth.errors import TokenRequestFailed
from mcp_host.auth.grants import Token, authenticated, read_token
from mcp_host.auth.registration import OAuthClient
from mcp_host.auth.requests.client import Answer

ISSUER = "https://as.test"


def answer(document: Mapping[str, object] | None, status: int = 200) -> Answer:
    return Answer(status, f"HTTP {status}", None if document is None else {**document}, {}, 1000.0)


def read(asked: list[str] | None = None, **members: object) -> Token:
    """The token of an answer to a request with the scopes that were *asked* for."""
    return read_token(answer({"access_token": "a", **members}), asked or [])


def test_expires_in_has_many_shapes() -> None:
    none = (None, None)
    expected = {
        "3600": (4600, 4570),
        "100": (1100, 1090),
        '"3600"': (4600, 4570),
        "0.5": (1000.5, 1000.45),
        "1e2": (1100, 1090),
        **dict.fromkeys(["0", "-1", "1e400", "1" + "0" * 300, '"' + "9" * 5000 + '"'], none),
        **dict.fromkeys(["null", "true", '"soon"', '"٣٦٠٠"', "[3600]", "{}"], none),
    }

    tokens = {shape: read(["x"], refresh_token="r", expires_in=json.loads(shape)) for shape in expected}
    assert tokens == {shape: Token("a", end, "r", ("x",), due) for shape, (end, due) in expected.items()}


def test_without_a_refresh_token_a_token_is_used_to_its_end() -> None:
    assert read(expires_in=100) == Token("a", 1100, None, (), 1100)


def test_scopes_are_those_of_the_answer_or_else_those_that_were_asked_for() -> None:
    """Commas separate them where no blanks do or one of them was asked for: GitHub and Slack write them so."""
    asked = ["a,a", "asked"]
    expected = {
        "b c": ("b", "c"),
        "b,c": ("b", "c"),
        "b, c": ("b", "c"),
        "b , c": ("b", "c"),
        ",": (),
        "a,a": ("a,a",),
        "a,a b": ("a,a", "b"),
        "b,c d": ("b,c", "d"),
        "b,asked d": ("b", "asked", "d"),
        **dict.fromkeys(["", " ", None, 7, ("b",)], ("a,a", "asked")),
    }

    assert {scope: read(asked, scope=scope).scopes for scope in expected} == expected


def test_a_member_that_is_null_is_absent_and_so_is_an_error_without_a_code() -> None:
    nulls = dict.fromkeys(("error", "error_description", "token_type", "expires_in", "refresh_token", "scope"))

    assert read(["x"], **nulls) == read(["x"], error="") == Token("a", None, None, ("x",))


def test_the_case_of_a_token_type_does_not_matter() -> None:
    assert [read(token_type=kind) for kind in ("Bearer", "bearer", "BEARER")] == [Token("a")] * 3


NO_TOKEN = "the answer has no access_token that can be sent"
WITH_ERROR = "HTTP 200 with an error"
NO_CODES = [
    *("AADSTS_code", "rt_4d2f", "two words", "canary-a", "_canary", "canary_", "a__b", "a_b\n", "\u0430_b"),
    *("xqzvkwpjyrtbnmlk_a", "say_that_the_person_should_call_this_number"),
]
FAILURES: list[tuple[Mapping[str, object] | None, int, str, str | None, bool]] = [
    ({"error": "invalid_grant"}, 400, "HTTP 400 (invalid_grant)", "invalid_grant", True),
    ({"error": "invalid_grant"}, 200, f"{WITH_ERROR} (invalid_grant)", "invalid_grant", True),
    ({"error": "canary", "access_token": "a"}, 200, WITH_ERROR, None, True),
    ({"error": "incorrect_client_credentials"}, 200, f"{WITH_ERROR} (@)", "incorrect_client_credentials", True),
    *(({"error": code}, 400, "HTTP 400", None, True) for code in NO_CODES),
    ({"error": {"message": "canary"}}, 400, "HTTP 400", None, True),
    ({"error": "temporarily_unavailable"}, 400, "HTTP 400 (@)", "temporarily_unavailable", False),
    ({"error": "server_error"}, 200, f"{WITH_ERROR} (server_error)", "server_error", False),
    ({"error": "invalid_grant"}, 500, "HTTP 500 (invalid_grant)", "invalid_grant", False),
    *((None, status, f"HTTP {status}", None, status == 404) for status in (503, 429, 404, 302, 200)),
    *(({"access_token": text}, 200, NO_TOKEN, None, True) for text in ("", 7, "a b", "a\r\nX: y", "ä")),
    ({}, 200, NO_TOKEN, None, True),
    *(
        ({"access_token": "a", "token_type": kind}, 200, "its token_type is not Bearer", None, True)
        for kind in ("DPoP", 7)
    ),
    ({"access_token": "a"}, 400, "HTTP 400", None, True),
]


def failure(document: Mapping[str, object] | None, status: int) -> tuple[str, str | None, bool]:
    with pytest.raises(TokenRequestFailed) as raised:
        read_token(answer(document, status), [])
    return str(raised.value), raised.value.code, raised.value.refused


@pytest.mark.fault("O16")
def test_an_answer_without_a_token_says_why() -> None:
    found = [failure(document, status) for document, status, *_ in FAILURES]

    assert found == [(problem.replace("@", str(code)), code, refused) for _, _, problem, code, refused in FAILURES]


def test_the_repr_of_a_token_has_no_secret() -> None:
    assert repr(Token("secret", None, "secret")) == "Token(expires_at=None, scopes=(), refresh_at=None)"


BASIC = b64encode(b"an%20id:a%2Bb%3A%20c%25%2F").decode()


@pytest.mark.parametrize(
    ("client", "fields", "headers"),
    [
        (
            OAuthClient("an id", "a+b: c%/", "client_secret_basic"),  # encoded as every server reads it
            {"a": "b", "client_id": "an id"},
            {"Authorization": f"Basic {BASIC}"},
        ),
        (OAuthClient("c", "s", "client_secret_post"), {"a": "b", "client_id": "c", "client_secret": "s"}, {}),
        (OAuthClient("c"), {"a": "b", "client_id": "c"}, {}),
    ],
    ids=["basic", "post", "none"],
)
def test_a_client_authenticates_by_its_method(client: OAuthClient, fields: Any, headers: Any) -> None:
    assert authenticated(client, {"a": "b"}, ISSUER) == (fields, headers)
