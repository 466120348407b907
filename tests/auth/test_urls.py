"""URLs of resources: what they cover, and what is shown of them."""

from __future__ import annotations

import pytest

from mcp_host.auth.requests.urls import canonical, covers, shown


@pytest.mark.parametrize(
    ("identifier", "url", "is_covered"),
    [
        ("https://h/mcp", "https://h/mcp", True),
        ("https://h/mcp/", "https://h/mcp", True),
        ("https://h", "https://h/mcp", True),
        ("https://h:443/", "https://h/mcp", True),
        ("https://H/mcp", "https://h/mcp", True),
        ("https://h/m", "https://h/mcp", False),
        ("https://h/mcp/x", "https://h/mcp", False),
        ("https://h/MCP", "https://h/mcp", False),
        ("http://h/mcp", "https://h/mcp", False),
        ("https://h:8443/mcp", "https://h/mcp", False),
        ("https://h.other/mcp", "https://h/mcp", False),
        ("https://h/mcp#f", "https://h/mcp", False),
        ("https://h:x/mcp", "https://h/mcp", False),
        ("https://[h/mcp", "https://h/mcp", False),
        ("", "https://h/mcp", False),
    ],
)
def test_a_resource_covers_its_path_and_what_is_below(identifier: str, url: str, is_covered: bool) -> None:
    assert covers(identifier, url) is is_covered


@pytest.mark.parametrize(
    ("url", "identifier"),
    [
        ("HTTPS://Host.Test/MCP?q=1#f", "https://host.test/MCP"),
        ("https://h/", "https://h"),
        ("https://h/mcp/", "https://h/mcp/"),
        ("https://user:pass@h:8443/mcp", "https://h:8443/mcp"),
    ],
)
def test_the_identifier_of_a_server_without_one_is_its_url(url: str, identifier: str) -> None:
    assert canonical(url) == identifier


def test_a_url_in_a_text_has_no_secrets() -> None:
    assert shown("https://user:secret@h/mcp?secret#secret") == "https://h/mcp"
    assert shown("https://[secret") == "a URL that cannot be read"
