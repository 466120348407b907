"""Authorization requests, and what counts as their answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from mcp_host.auth.errors import DiscoveryFailed, LoginFailed
from mcp_host.auth.login.authorization_request import AuthorizationRequest
from mcp_host.auth.login.redirects import MAX_FIELDS, read_redirect
from mcp_host.auth.registration import OAuthClient
from mcp_host.auth.requests.metadata import AuthorizationServer
from tests.auth.authorization_server import parameters
from tests.auth.verifying import verify_code, verify_login
from tests.auth.world import CALLBACK

ISSUER = "https://as.test"
CLIENT = OAuthClient("the client", "s:e/c", "client_secret_basic")


def request(
    *, sends_issuer: bool = False, scopes: Sequence[str] = ("a", "b"), params: Mapping[str, str] = {}, **changed: Any
) -> AuthorizationRequest:
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
    return AuthorizationRequest.to(server, CLIENT, CALLBACK, "https://mcp.test/mcp", scopes, params)


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


def test_a_parameter_of_the_application_is_in_the_url_once() -> None:
    """It replaces one of the endpoint, and our prompt."""
    params = {"tenant": "2", "prompt": "login", "audience": "https://api.test/?a=b&c"}
    asked = request(scopes=["offline_access"], params=params)
    query = parse_qs(urlsplit(asked.url).query)

    assert {name: query[name] for name in params} == {name: [value] for name, value in params.items()}


def test_a_parameter_of_the_request_replaces_one_of_the_endpoint() -> None:
    """RFC 6749, section 3.1: "parameters MUST NOT be included more than once"."""
    query = "client_id=other&state=1&scope=all&prompt=login&tenant=1"
    asked = request(scopes=["offline_access"], authorization_endpoint=f"{ISSUER}/authorize?{query}")

    sent = parse_qs(urlsplit(asked.url).query)
    assert {name: sent[name] for name in parse_qs(query)} == {
        "client_id": [CLIENT.id],
        "state": [asked.state],
        "scope": ["offline_access"],
        "prompt": ["consent"],
        "tenant": ["1"],
    }


def test_no_two_requests_share_a_state_or_a_verifier() -> None:
    requests = [request() for _ in range(100)]
    for each in requests:
        query = parameters(each.url)
        verify_login(query)
        verify_code(each.verifier, query["code_challenge"])

    assert len({each.state for each in requests} | {each.verifier for each in requests}) == 200


def test_the_repr_of_a_request_has_no_secret() -> None:
    asked = request()

    assert [secret for secret in (asked.state, asked.verifier, asked.url) if secret in repr(asked)] == []


@pytest.mark.fault("O09")
def test_a_server_that_does_not_offer_what_is_needed_is_refused() -> None:
    for methods in ((), ("plain",), ("s256",)):
        with pytest.raises(DiscoveryFailed, match="does not offer PKCE with S256"):
            request(code_challenge_methods=methods)
    with pytest.raises(DiscoveryFailed, match="no person can log in there"):
        request(authorization_endpoint=None)


def code_in(asked: AuthorizationRequest, query: str) -> str:
    """The code in the answer *query*, or why there is none. `@` stands for the state."""
    try:
        return asked.code_in(f"{CALLBACK}?{query.replace('@', asked.state)}")
    except LoginFailed as exc:
        return str(exc)


@pytest.mark.fault("O07")
@pytest.mark.parametrize("promised", [True, False])
def test_iss_is_what_the_metadata_say_and_promise(promised: bool) -> None:
    """RFC 9207, section 2.4."""
    asked, answer = request(sends_issuer=promised), "code=the code&state=@"
    others = ["https://other.test", f"{ISSUER}/", "https://AS.test", ""]

    found = {code_in(asked, f"{answer}&iss={issuer}") for issuer in others}
    assert found == {f"the authorization response of {ISSUER} comes from another issuer: refused"}
    assert code_in(asked, f"{answer}&iss={ISSUER}") == "the code"
    assert ("has no iss" in code_in(asked, answer)) is promised


@pytest.mark.fault("O07", "O08")
def test_what_is_no_answer_to_the_request_has_no_code() -> None:
    where = f"the authorization response of {ISSUER}"
    another = f"{where} has another state: it is no answer to this login"
    queries = ["", "code=1", "state=&code=1", "state=@x&code=1", "state=%FF%00&code=1", "state=x&error=access_denied"]
    expected = {
        **dict.fromkeys(queries, another),
        "state=@&code=1&code=2": f"{where} has a parameter twice",
        "state=@&state=@&code=1": f"{where} has a parameter twice",
        "state=@": f"{where} has no code",
        "state=@&code=": f"{where} has no code",
        "state=@&error=access_denied&code=1": f"{ISSUER}: the login was denied",
        "state=@&error=invalid_scope": f"{where} is an error: invalid_scope",
        "state=@&error=redirect_uri_mismatch": f"{where} is an error: redirect_uri_mismatch",
        "state=@&error=canary&error_description=canary": f"{where} is an error",
    }

    assert {query: code_in(request(), query) for query in expected} == expected


def test_a_login_that_failed_has_the_code_of_the_authorization_response() -> None:
    asked = request()

    for code in ("access_denied", "invalid_scope"):
        with pytest.raises(LoginFailed) as failed:
            asked.code_in(f"{CALLBACK}?error={code}&state={asked.state}")
        assert failed.value.code == code


def test_the_parameters_of_a_redirect_are_read_if_it_has_the_state() -> None:
    expected = {
        "https://a.example/?state=s&x=": {"state": ["s"], "x": [""]},
        "app://callback?state=%73#_=_": {"state": ["s"]},
        "/callback?code=1&state=s&code=2": {"code": ["1", "2"], "state": ["s"]},
    }

    assert {url: read_redirect(url, "s") for url in expected} == expected


def problem(url: str) -> str:
    with pytest.raises(ValueError) as refused:  # noqa: PT011  # the whole text is compared below
        read_redirect(url, "s")
    assert refused.value.__cause__ is None
    return str(refused.value)


def test_another_url_is_refused_and_not_quoted() -> None:
    another = "has another state: it is no answer to this login"
    expected = {
        "/?state=s%ed%b3%bf&code=secret": another,
        "/?state=s\udcff&code=secret": another,
        "/?code=secret#state=s": another,
        "": another,
        "/?state=s&state=s&code=secret": "has a parameter twice",
        "http://[?state=s&code=secret": "is no URL",
        "https://\u2100.example/?state=s&code=secret": "is no URL",
    }

    assert {url: problem(url) for url in expected} == expected


def test_the_number_of_parameters_is_bounded_unless_another_limit_was_applied() -> None:
    url = "/callback?state=s" + "&x=" * MAX_FIELDS

    with pytest.raises(ValueError):  # noqa: PT011  # any text
        read_redirect(url, "s")
    assert read_redirect(url, "s", max_fields=None)["x"] == [""] * MAX_FIELDS
