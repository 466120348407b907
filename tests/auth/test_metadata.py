"""Where metadata are."""

from __future__ import annotations

from mcp_host.auth.requests.challenges import NO_CHALLENGE, Challenge
from mcp_host.auth.requests.metadata import metadata_urls, resource_urls

ROOT = "https://h/.well-known/oauth-protected-resource"


def test_metadata_of_a_resource_are_at_its_path_and_at_the_root() -> None:
    expected = {
        "https://h/mcp": [f"{ROOT}/mcp", ROOT],
        "https://h/a/b/?q=1#f": [f"{ROOT}/a/b", ROOT],
        "https://h": [ROOT],
        "https://h/": [ROOT],
    }

    assert {url: resource_urls(url, NO_CHALLENGE) for url in expected} == expected


def test_the_url_of_the_challenge_is_the_first_and_tried_once() -> None:
    named, empty = (Challenge("bearer", {"resource_metadata": url}) for url in (ROOT, ""))

    assert resource_urls("https://h/mcp", named) == [ROOT, f"{ROOT}/mcp"]
    assert resource_urls("https://h", empty) == [ROOT]


def test_metadata_of_an_authorization_server_have_the_order_of_the_specification() -> None:
    expected = {
        "https://h": ["https://h/@oauth-authorization-server", "https://h/@openid-configuration"],
        "https://h/": ["https://h/@oauth-authorization-server", "https://h/@openid-configuration"],
        "https://h/t/1": [
            "https://h/@oauth-authorization-server/t/1",
            "https://h/@openid-configuration/t/1",
            "https://h/t/1/@openid-configuration",
        ],
        "https://h/t/": [
            "https://h/@oauth-authorization-server/t",
            "https://h/@openid-configuration/t",
            "https://h/t/@openid-configuration",
        ],
    }

    found = {issuer: [url.replace(".well-known/", "@") for url in metadata_urls(issuer)] for issuer in expected}
    assert found == expected
