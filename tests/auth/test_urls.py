"""URLs of resources: what they cover, and what is shown of them."""

from __future__ import annotations

from mcp_host.auth.requests.urls import canonical, covers, shown


def test_a_resource_covers_its_path_and_what_is_below() -> None:
    covering = ["https://h/mcp", "https://h/mcp/", "https://h", "https://h:443/", "https://H/mcp"]
    others = ["https://h/m", "https://h/mcp/x", "https://h/MCP", "https://h:8443/mcp", "https://h.other/mcp"]
    others += ["http://h/mcp", "https://h/mcp#f", "https://h:x/mcp", "https://[h/mcp", ""]

    assert [each for each in (*covering, *others) if covers(each, "https://h/mcp")] == covering


def test_the_identifier_of_a_server_without_one_is_its_url() -> None:
    identifiers = {
        "HTTPS://Host.Test/MCP?q=1#f": "https://host.test/MCP",
        "https://h/": "https://h",
        "https://h/mcp/": "https://h/mcp/",
        "https://user:pass@h:8443/mcp": "https://h:8443/mcp",
    }

    assert {url: canonical(url) for url in identifiers} == identifiers


def test_a_url_in_a_text_has_no_secrets() -> None:
    assert shown("https://user:secret@h/mcp?secret#secret") == "https://h/mcp"
    assert shown("https://[secret") == "a URL that cannot be read"
