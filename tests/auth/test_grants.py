"""Authorization requests, and what counts as their answer; answers of token endpoints."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from mcp_host.auth.errors import DiscoveryFailed, LoginFailed, TokenRequestFailed
from mcp_host.auth.grants import AuthorizationRequest, Token, authenticated, read_token
from mcp_host.auth.registration import OAuthClient
from mcp_host.auth.requests.client import Answer
from mcp_host.auth.requests.discovery import AuthorizationServer
from tests.auth.world import CALLBACK

ISSUER = "https://as.test"
BASIC = b64encode(b"the%20client:s%3Ae%2Fc").decode()
CLIENT = OAuthClient("the client", "s:e/c", "client_secret_basic")


def request(*, sends_issuer: bool = False, **changed: Any) -> AuthorizationRequest:
    server = AuthorizationServer(
        **{
            "issuer": ISSUER,
            "authorization_endpoint": f"{ISSUER}/authorize?tenant=1#top",
            "token_endpoint": f"{ISSUER}/token",
            "code_challenge_methods": ("S256",),
            "sends_issuer": sends_issuer,
            **changed,
        }
    )
    return AuthorizationRequest.to(server, CLIENT, CALLBACK, "https://mcp.test/mcp", ["a", "b"])


def test_a_request_keeps_the_query_of_its_endpoint_and_has_no_fragment() -> None:
    asked = request()
    query = parse_qs(urlsplit(asked.url).query)

    assert asked.url.startswith("https://as.test/authorize?tenant=1&")
    assert (query.pop("state"), len(query.pop("code_challenge")[0])) == ([asked.state], 43)
    assert query == {
        "tenant": ["1"],
        "response_type": ["code"],
        "client_id": ["the client"],
        "redirect_uri": [CALLBACK],
        "code_challenge_method": ["S256"],
        "resource": ["https://mcp.test/mcp"],
        "scope": ["a b"],
    }
    assert "#" not in asked.url


def test_no_two_requests_share_a_state_or_a_verifier() -> None:
    requests = [request() for _ in range(100)]

    assert len({each.state for each in requests} | {each.verifier for each in requests}) == 200


def test_the_repr_of_a_request_has_no_secret() -> None:
    asked = request()

    assert [secret for secret in (asked.state, asked.verifier, asked.url) if secret in repr(asked)] == []


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"code_challenge_methods": ()}, "does not offer PKCE with S256"),
        ({"code_challenge_methods": ("plain",)}, "does not offer PKCE with S256"),
        ({"code_challenge_methods": ("s256",)}, "does not offer PKCE with S256"),
        ({"authorization_endpoint": None}, "no person can log in there"),
    ],
    ids=["no PKCE", "plain", "lower case", "no endpoint"],
)
def test_a_server_that_does_not_offer_what_is_needed_is_refused(changed: dict[str, Any], problem: str) -> None:
    with pytest.raises(DiscoveryFailed, match=problem):
        request(**changed)


@pytest.mark.parametrize(
    ("promised", "given", "problem"),
    [
        (True, ISSUER, None),
        (True, None, "has no iss"),
        (True, "https://other.test", "another issuer"),
        (False, ISSUER, None),
        (False, None, None),
        (False, "https://other.test", "another issuer"),
        (False, f"{ISSUER}/", "another issuer"),
        (False, "https://AS.test", "another issuer"),
        (False, "", "another issuer"),
    ],
)
def test_iss_is_what_the_metadata_say_and_promise(promised: bool, given: str | None, problem: str | None) -> None:
    """RFC 9207, section 2.4."""
    asked = request(sends_issuer=promised)
    answer = {"code": "the code", "state": asked.state} | ({} if given is None else {"iss": given})

    if problem is None:
        assert asked.code_in(f"{CALLBACK}?{urlencode(answer)}") == "the code"
    else:
        with pytest.raises(LoginFailed, match=problem):
            asked.code_in(f"{CALLBACK}?{urlencode(answer)}")


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("state=@&code=1&code=2", "has a parameter twice"),
        ("state=@&state=@&code=1", "has a parameter twice"),
        ("code=1", "another state"),
        ("state=&code=1", "another state"),
        ("state=@x&code=1", "another state"),
        ("state=%FF%00&code=1", "another state"),
        ("state=x&error=access_denied", "another state"),
        ("state=@", "has no code"),
        ("state=@&code=", "has no code"),
        ("state=@&error=access_denied&code=1", "the login was denied"),
        ("state=@&error=invalid_scope", "is an error: invalid_scope"),
        ("state=@&error=canary&error_description=canary", "is an error$"),
        ("", "another state"),
    ],
)
def test_what_is_no_answer_to_the_request_has_no_code(query: str, problem: str) -> None:
    asked = request()

    with pytest.raises(LoginFailed, match=problem) as raised:
        asked.code_in(f"{CALLBACK}?{query.replace('@', asked.state)}")
    assert asked.state not in str(raised.value)
    assert "canary" not in str(raised.value)


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


@pytest.mark.parametrize("kind", ["Bearer", "bearer", "BEARER"])
def test_the_case_of_a_token_type_does_not_matter(kind: str) -> None:
    assert read_token(answer({"access_token": "a", "token_type": kind}), []) == Token("a")


@pytest.mark.parametrize(
    ("document", "status", "problem", "code", "refused"),
    [
        ({"error": "invalid_grant"}, 400, "HTTP 400 (invalid_grant)", "invalid_grant", True),
        ({"error": "invalid_grant"}, 200, "HTTP 200 with an error (invalid_grant)", "invalid_grant", True),
        ({"error": "canary", "access_token": "a"}, 200, "HTTP 200 with an error", None, True),
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
        ({"access_token": "a", "token_type": None}, 200, "its token_type is not Bearer", None, False),
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
