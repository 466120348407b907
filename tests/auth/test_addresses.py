"""Which addresses are public, and what a server may send a client to."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from mcp_host.auth.requests.addresses import Kind, kinds_allowed_by, kinds_of_address, kinds_of_host

PUBLIC, PRIVATE, LOOPBACK = Kind.PUBLIC, Kind.PRIVATE, Kind.LOOPBACK
LINK_LOCAL, RESERVED = Kind.LINK_LOCAL, Kind.RESERVED


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("1.1.1.1", PUBLIC),
        ("9.255.255.255", PUBLIC),
        ("10.0.0.0", PRIVATE),
        ("10.255.255.255", PRIVATE),
        ("11.0.0.0", PUBLIC),
        ("100.63.255.255", PUBLIC),
        ("100.64.0.0", PRIVATE),
        ("100.100.100.200", PRIVATE),  # the metadata of one cloud
        ("100.127.255.255", PRIVATE),
        ("100.128.0.0", PUBLIC),
        ("172.15.255.255", PUBLIC),
        ("172.16.0.0", PRIVATE),
        ("172.31.255.255", PRIVATE),
        ("172.32.0.0", PUBLIC),
        ("192.167.255.255", PUBLIC),
        ("192.168.0.0", PRIVATE),
        ("192.168.255.255", PRIVATE),
        ("192.169.0.0", PUBLIC),
        ("198.17.255.255", PUBLIC),
        ("198.18.0.0", PRIVATE),
        ("198.19.255.255", PRIVATE),
        ("198.20.0.0", PUBLIC),
        ("0.0.0.0", LOOPBACK),
        ("0.255.255.255", LOOPBACK),
        ("1.0.0.0", PUBLIC),
        ("126.255.255.255", PUBLIC),
        ("127.0.0.0", LOOPBACK),
        ("127.255.255.255", LOOPBACK),
        ("128.0.0.0", PUBLIC),
        ("169.253.255.255", PUBLIC),
        ("169.254.169.254", LINK_LOCAL),
        ("169.255.0.0", PUBLIC),
        ("192.0.0.192", RESERVED),
        ("192.0.1.0", PUBLIC),
        ("192.0.2.1", RESERVED),
        ("192.88.99.1", RESERVED),
        ("198.51.100.1", RESERVED),
        ("203.0.113.1", RESERVED),
        ("223.255.255.255", PUBLIC),
        ("224.0.0.1", RESERVED),
        ("239.255.255.255", RESERVED),
        ("240.0.0.1", RESERVED),
        ("255.255.255.255", RESERVED),
    ],
)
def test_an_ipv4_address_is_of_one_kind(address: str, kind: Kind) -> None:
    assert kinds_of_address(ip_address(address)) == {kind}


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("2606:4700:4700::1111", PUBLIC),
        ("2000::", PUBLIC),
        ("3ffe:ffff::", PUBLIC),
        ("3fff::1", RESERVED),
        ("4000::1", RESERVED),
        ("8000::1", RESERVED),
        ("2001:200::1", PUBLIC),
        ("2001:1::1", RESERVED),
        ("2001:db8::1", RESERVED),
        ("::", LOOPBACK),
        ("::1", LOOPBACK),
        ("::2", RESERVED),
        ("::127.0.0.1", RESERVED),  # "IPv4-compatible", deprecated by RFC 4291
        ("::ffff:0:127.0.0.1", RESERVED),  # "IPv4-translated", RFC 2765
        ("100::1", RESERVED),
        ("64:ff9b:1::a00:1", RESERVED),
        ("64:ff9b:1:a9fe:a9:fe00::", RESERVED),
        ("64:ff9b:2::1", RESERVED),
        ("fbff::1", RESERVED),
        ("fc00::1", PRIVATE),
        ("fd00:ec2::254", PRIVATE),  # the metadata of another cloud
        ("fdff:ffff::1", PRIVATE),
        ("fe00::1", RESERVED),
        ("fe80::1", LINK_LOCAL),
        ("fe80::1%eth0", LINK_LOCAL),
        ("febf:ffff::1", LINK_LOCAL),
        ("fec0::1", PRIVATE),
        ("feff:ffff::1", PRIVATE),
        ("ff02::1", RESERVED),
    ],
)
def test_an_ipv6_address_is_of_one_kind(address: str, kind: Kind) -> None:
    assert kinds_of_address(ip_address(address)) == {kind}


@pytest.mark.parametrize(
    ("address", "kinds"),
    [
        ("::ffff:1.1.1.1", {PUBLIC}),
        ("::ffff:127.0.0.1", {LOOPBACK}),
        ("::ffff:a9fe:a9fe", {LINK_LOCAL}),
        ("64:ff9b::1.1.1.1", {PUBLIC}),
        ("64:ff9b::a9fe:a9fe", {LINK_LOCAL}),
        ("64:ff9b::7f00:1", {LOOPBACK}),
        ("64:ff9b::10.0.0.1", {PRIVATE}),
        ("64:ff9b::224.0.0.1", {RESERVED}),
        ("2002:101:101::1", {PUBLIC}),
        ("2002:7f00:1::1", {LOOPBACK}),
        ("2002:a9fe:a9fe::", {LINK_LOCAL}),
        ("2002:c0a8:1::", {PRIVATE}),
        ("2001:0:101:101::fefe:fefe", {PUBLIC}),  # Teredo has a server, and a client whose bits are inverted
        ("2001:0:101:101::80ff:fffe", {PUBLIC, LOOPBACK}),
        ("2001:0:a00:1::5601:5601", {PRIVATE, LINK_LOCAL}),
    ],
)
def test_what_is_embedded_in_an_ipv6_address_decides(address: str, kinds: set[Kind]) -> None:
    assert kinds_of_address(ip_address(address)) == kinds


@pytest.mark.parametrize(
    ("host", "kind"),
    [
        ("mcp.example", PUBLIC),
        ("localhost.example", PUBLIC),
        ("127.0.0.1.example", PUBLIC),
        ("bücher.example", PUBLIC),
        ("1.1.1.1", PUBLIC),
        ("localhost", LOOPBACK),
        ("LocalHost.", LOOPBACK),
        ("app.localhost", LOOPBACK),
        ("127.0.0.1", LOOPBACK),
        ("127.0.0.1.", LOOPBACK),
        ("127.1", LOOPBACK),
        ("0x7f.1", LOOPBACK),
        ("0x7f000001", LOOPBACK),
        ("2130706433", LOOPBACK),
        ("017700000001", LOOPBACK),
        ("0", LOOPBACK),
        ("::1", LOOPBACK),
        ("::ffff:127.0.0.1", LOOPBACK),
        ("10.1", PRIVATE),
        ("fd00::1", PRIVATE),
        ("mcp", PRIVATE),
        ("printer.local", PRIVATE),
        ("sso.corp.internal", PRIVATE),
        ("nas.home.arpa", PRIVATE),
        ("169.254.169.254", LINK_LOCAL),
        ("192.0.2.1", RESERVED),
    ],
)
def test_a_host_shows_its_kind_without_the_network(host: str, kind: Kind) -> None:
    assert kinds_of_host(host) == {kind}


@pytest.mark.parametrize(
    ("host", "kinds"),
    [
        ("mcp.example", {PUBLIC}),
        ("1.1.1.1", {PUBLIC}),
        ("10.0.0.1", {PUBLIC, PRIVATE}),
        ("mcp.internal", {PUBLIC, PRIVATE}),
        ("localhost", {PUBLIC, PRIVATE, LOOPBACK}),
        ("169.254.1.1", {PUBLIC, PRIVATE, LINK_LOCAL}),
    ],
)
def test_a_server_leads_to_nothing_more_private_than_itself(host: str, kinds: set[Kind]) -> None:
    assert kinds_allowed_by(host) == kinds
