"""Which addresses OAuth's own requests may go to: none more private than the URL of the MCP server.

"Server-Side Request Forgery (SSRF)" in the security best practices of the specification.
"""

from __future__ import annotations

import socket
from collections.abc import Set
from enum import Enum
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address


class Kind(Enum):
    """What kind of place an address is. The value is for messages."""

    PUBLIC = "public"
    LOOPBACK = "loopback"
    LINK_LOCAL = "link-local"
    PRIVATE = "private"
    RESERVED = "reserved"


# After IANA's registries of special-purpose addresses. `ipaddress` knows them too, but differently in each of its
# releases: what is_global and is_private are has changed within Python 3.11. The first network counts.
_NETWORKS = {
    ip_network(network): kind
    for kind, networks in {
        Kind.LOOPBACK: ("127.0.0.0/8", "::1/128", "0.0.0.0/8", "::/128"),  # systems take the last two for loopback
        Kind.LINK_LOCAL: ("169.254.0.0/16", "fe80::/10"),  # clouds have their metadata here
        Kind.PRIVATE: (
            *("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"),  # RFC 1918
            "100.64.0.0/10",  # shared by the customers of a provider, RFC 6598
            "198.18.0.0/15",  # benchmarks, RFC 2544; some VPNs give these addresses to all names
            *("fc00::/7", "fec0::/10"),  # unique local, RFC 4193; site-local, as it was until RFC 3879
        ),
        Kind.RESERVED: (
            *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.51.100.0/24", "203.0.113.0/24"),
            *("224.0.0.0/4", "240.0.0.0/4"),  # multicast, and the rest with broadcast
            *("::/3", "4000::/2", "8000::/1"),  # all but 2000::/3, with multicast and the NAT64 of RFC 8215
            *("2001::/23", "2001:db8::/32", "3fff::/20"),
        ),
    }.items()
    for network in networks
}
_NAT64 = ip_network("64:ff9b::/96")  # RFC 6052; a gateway sends what comes here to the IPv4 address at its end

_LOCAL_NAMES = (".local", ".internal", ".home.arpa")  # names that no stranger can register; RFC 6762, ICANN, RFC 8375


def kinds_of_address(address: Address) -> Set[Kind]:
    """What kinds of place a connection to *address* ends at: those of the addresses embedded in it, if there are any.

    A tunnel of ISATAP is within a site, so its addresses are always private, too.
    """
    kinds = {_kind(each) for each in _embedded(address)}
    return kinds | {Kind.PRIVATE} if _is_isatap(address) else kinds


def kinds_of_host(host: str) -> Set[Kind]:
    """What kinds of place the host of a URL shows itself to be, without asking the network."""
    name = host.lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):  # RFC 6761
        return {Kind.LOOPBACK}
    if (address := _literal(name)) is not None:
        return kinds_of_address(address)
    return {Kind.PRIVATE if "." not in name or name.endswith(_LOCAL_NAMES) else Kind.PUBLIC}


def kinds_allowed_by(host: str) -> Set[Kind]:
    """What kinds of place the server at *host* may send a client to.

    The name of a server that is not known to be local says nothing: its owner can have it resolved to a private
    address for just one moment.
    """
    own = kinds_of_host(host)
    return own if own == {Kind.PUBLIC} else own | {Kind.PUBLIC, Kind.PRIVATE}


def _kind(address: Address) -> Kind:
    return next((kind for network, kind in _NETWORKS.items() if address in network), Kind.PUBLIC)


def _embedded(address: Address) -> tuple[Address, ...]:
    if isinstance(address, IPv4Address):
        return (address,)
    if address in _NAT64:
        return (IPv4Address(int(address) & 0xFFFF_FFFF),)
    if address.teredo is not None:
        return address.teredo
    if _is_isatap(address):
        return (address, IPv4Address(int(address) & 0xFFFF_FFFF))
    return (address.ipv4_mapped or address.sixtofour or address,)


def _is_isatap(address: Address) -> bool:
    """Whether *address* ends with ``::0:5efe:a.b.c.d`` or ``::200:5efe:a.b.c.d`` (RFC 5214, section 6.1)."""
    return isinstance(address, IPv6Address) and int(address) >> 32 & 0xFFFF_FFFF in (0x0000_5EFE, 0x0200_5EFE)


def _literal(name: str) -> Address | None:
    """The address that *name* is; in any of the forms that systems read, such as 0x7f.1 and 2130706433."""
    try:
        found = socket.getaddrinfo(name.encode(), None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except OSError:
        return None
    return ip_address(found[0][4][0])
