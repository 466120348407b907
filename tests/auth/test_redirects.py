"""What counts as the redirect of an authorization server."""

from __future__ import annotations

import pytest

from mcp_host.auth.login.redirects import MAX_FIELDS, read_redirect


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
