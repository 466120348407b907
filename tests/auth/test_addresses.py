"""Which addresses are public, what a server may send a client to, and which URLs a resource covers."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address

import pytest

from mcp_host.auth.requests.addresses import Kind, kinds_allowed_by, kinds_of_address, kinds_of_host
from mcp_host.auth.requests.urls import canonical, covers, shown

PUBLIC, PRIVATE, LOOPBACK = Kind.PUBLIC, Kind.PRIVATE, Kind.LOOPBACK
LINK_LOCAL, RESERVED = Kind.LINK_LOCAL, Kind.RESERVED

# The first and the last of each network, and its neighbours.
IPV4 = {
    PUBLIC: """1.0.0.0 1.1.1.1 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0 169.253.255.255
        169.255.0.0 172.15.255.255 172.32.0.0 192.0.1.0 192.167.255.255 192.169.0.0 198.17.255.255 198.20.0.0
        223.255.255.255""",
    PRIVATE: """10.0.0.0 10.255.255.255 100.64.0.0 100.100.100.200 100.127.255.255 172.16.0.0 172.31.255.255 192.168.0.0
        192.168.255.255 198.18.0.0 198.19.255.255""",  # one is of the metadata of a cloud
    LOOPBACK: "0.0.0.0 0.255.255.255 127.0.0.0 127.255.255.255",
    LINK_LOCAL: "169.254.169.254",
    RESERVED: """192.0.0.192 192.0.2.1 192.88.99.1 198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.1
        255.255.255.255""",
}
IPV6 = {
    PUBLIC: "2606:4700:4700::1111 2000:: 3ffe:ffff:: 2001:200::1",
    PRIVATE: "fc00::1 fd00:ec2::254 fdff:ffff::1 fec0::1 feff:ffff::1",  # the second, too
    LOOPBACK: ":: ::1",
    LINK_LOCAL: "fe80::1 fe80::1%eth0 febf:ffff::1",
    # among them "IPv4-compatible" (deprecated by RFC 4291), and "IPv4-translated" (RFC 2765)
    RESERVED: """::2 ::127.0.0.1 ::ffff:0:127.0.0.1 3fff::1 4000::1 8000::1 2001:1::1 2001:db8::1 100::1 64:ff9b:1::a00:1
        64:ff9b:1:a9fe:a9:fe00:: 64:ff9b:2::1 fbff::1 fe00::1 ff02::1""",
}
HOSTS = {
    PUBLIC: "mcp.example localhost.example 127.0.0.1.example bücher.example 1.1.1.1",
    PRIVATE: "10.1 fd00::1 mcp printer.local sso.corp.internal nas.home.arpa",
    LOOPBACK: """localhost LocalHost. app.localhost 127.0.0.1 127.0.0.1. 127.1 0x7f.1 0x7f000001 2130706433 017700000001 0
        ::1 ::ffff:127.0.0.1""",
    LINK_LOCAL: "169.254.169.254",
    RESERVED: "192.0.2.1",
}


def rows(table: Mapping[Kind, str]) -> dict[str, set[Kind]]:
    return {address: {kind} for kind, addresses in table.items() for address in addresses.split()}


@pytest.mark.parametrize("table", [IPV4, IPV6], ids=["IPv4", "IPv6"])
def test_an_address_is_of_one_kind(table: Mapping[Kind, str]) -> None:
    assert {address: kinds_of_address(ip_address(address)) for address in rows(table)} == rows(table)


def test_a_host_shows_its_kind_without_the_network() -> None:
    assert {host: kinds_of_host(host) for host in rows(HOSTS)} == rows(HOSTS)


@pytest.mark.fault("O02")
def test_what_is_embedded_in_an_ipv6_address_decides() -> None:
    expected = {
        "::ffff:1.1.1.1": {PUBLIC},
        "::ffff:127.0.0.1": {LOOPBACK},
        "::ffff:a9fe:a9fe": {LINK_LOCAL},
        "64:ff9b::1.1.1.1": {PUBLIC},
        "64:ff9b::a9fe:a9fe": {LINK_LOCAL},
        "64:ff9b::7f00:1": {LOOPBACK},
        "64:ff9b::10.0.0.1": {PRIVATE},
        "64:ff9b::224.0.0.1": {RESERVED},
        "2002:101:101::1": {PUBLIC},
        "2002:7f00:1::1": {LOOPBACK},
        "2002:a9fe:a9fe::": {LINK_LOCAL},
        "2002:c0a8:1::": {PRIVATE},
        "2001:0:101:101::fefe:fefe": {PUBLIC},  # Teredo has a server, and a client whose bits are inverted
        "2001:0:101:101::80ff:fffe": {PUBLIC, LOOPBACK},
        "2001:0:a00:1::5601:5601": {PRIVATE, LINK_LOCAL},
        "2606:4700::5efe:10.0.0.1": {PUBLIC, PRIVATE},  # ISATAP, by a tunnel within a site
        "2606:4700::200:5efe:1.1.1.1": {PUBLIC, PRIVATE},
        "2606:4700::5efe:127.0.0.1": {PUBLIC, PRIVATE, LOOPBACK},
        "fe80::5efe:169.254.169.254": {PRIVATE, LINK_LOCAL},
        "2606:4700::5eff:10.0.0.1": {PUBLIC},
    }

    assert {address: kinds_of_address(ip_address(address)) for address in expected} == expected


def test_a_server_leads_to_nothing_more_private_than_itself() -> None:
    expected = {
        "mcp.example": {PUBLIC},
        "1.1.1.1": {PUBLIC},
        "10.0.0.1": {PUBLIC, PRIVATE},
        "mcp.internal": {PUBLIC, PRIVATE},
        "localhost": {PUBLIC, PRIVATE, LOOPBACK},
        "169.254.1.1": {PUBLIC, PRIVATE, LINK_LOCAL},
    }

    assert {host: kinds_allowed_by(host) for host in expected} == expected


def test_a_resource_covers_its_path_and_what_is_below() -> None:
    covering = ["https://h/mcp", "https://h/mcp/", "https://h", "https://h:443/", "https://H/mcp"]
    others = ["https://h/m", "https://h/mcp/x", "https://h/MCP", "https://h:8443/mcp", "https://h.other/mcp"]
    others += ["http://h/mcp", "https://h/mcp#f", "https://h:x/mcp", "https://[h/mcp", ""]

    assert [each for each in (*covering, *others) if covers(each, "https://h/mcp")] == covering
    below = ["x", "a..b/%2e", "x;..", "x%2fy"]
    elsewhere = ["../b", "%2e%2E/b", "x/.%2e/%2e./b", "..%2f..%2fb", r"..\..\b", "..;/b", "%252e%252e/b"]
    assert [path for path in (*below, *elsewhere) if covers("https://h/mcp", f"https://h/mcp/{path}")] == below


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
