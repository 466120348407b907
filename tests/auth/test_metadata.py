"""Where metadata are."""

from __future__ import annotations

import pytest

from mcp_host.auth.requests.challenges import NO_CHALLENGE, Challenge
from mcp_host.auth.requests.metadata import metadata_urls, resource_urls


@pytest.mark.parametrize(
    ("url", "urls"),
    [
        ("https://h/mcp", ["https://h/.well-known/oauth-protected-resource/mcp", "@"]),
        ("https://h/a/b/?q=1#f", ["https://h/.well-known/oauth-protected-resource/a/b", "@"]),
        ("https://h", ["@"]),
        ("https://h/", ["@"]),
    ],
)
def test_metadata_of_a_resource_are_at_its_path_and_at_the_root(url: str, urls: list[str]) -> None:
    assert resource_urls(url, NO_CHALLENGE) == [
        each.replace("@", "https://h/.well-known/oauth-protected-resource") for each in urls
    ]


def test_the_url_of_the_challenge_is_the_first_and_tried_once() -> None:
    named = Challenge("bearer", {"resource_metadata": "https://h/.well-known/oauth-protected-resource"})

    assert resource_urls("https://h/mcp", named) == [
        "https://h/.well-known/oauth-protected-resource",
        "https://h/.well-known/oauth-protected-resource/mcp",
    ]


def test_an_empty_url_in_the_challenge_is_none() -> None:
    assert resource_urls("https://h", Challenge("bearer", {"resource_metadata": ""})) == [
        "https://h/.well-known/oauth-protected-resource"
    ]


@pytest.mark.parametrize(
    ("issuer", "urls"),
    [
        ("https://h", ["https://h/@oauth-authorization-server", "https://h/@openid-configuration"]),
        ("https://h/", ["https://h/@oauth-authorization-server", "https://h/@openid-configuration"]),
        (
            "https://h/t/1",
            [
                "https://h/@oauth-authorization-server/t/1",
                "https://h/@openid-configuration/t/1",
                "https://h/t/1/@openid-configuration",
            ],
        ),
        (
            "https://h/t/",
            [
                "https://h/@oauth-authorization-server/t",
                "https://h/@openid-configuration/t",
                "https://h/t/@openid-configuration",
            ],
        ),
    ],
)
def test_metadata_of_an_authorization_server_have_the_order_of_the_specification(issuer: str, urls: list[str]) -> None:
    assert metadata_urls(issuer) == [url.replace("@", ".well-known/") for url in urls]
