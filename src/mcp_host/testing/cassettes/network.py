"""No connections while a cassette is replayed."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache

from mcp_host.testing.errors import CassetteError

THIS_MACHINE = frozenset({"localhost", "127.0.0.1", "::1", ""})

ADDRESSES: Mapping[str, int] = {"socket.connect": 1, "socket.sendto": 1, "socket.sendmsg": 1, "socket.getnameinfo": 0}
HOSTS: Mapping[str, int] = {"socket.getaddrinfo": 0, "socket.gethostbyname": 0, "socket.gethostbyaddr": 0}
"""The audit events of Python's sockets, with the index of the argument that is the address or the host."""

EVENTS = {**ADDRESSES, **HOSTS}
LOOKUPS = frozenset({*HOSTS, "socket.getnameinfo"})
"""These reach the network, too: they ask a name server, except about this machine."""

Refuse = Callable[[str], CassetteError]
_blocks: list[tuple[frozenset[str], Refuse]] = []


@contextmanager
def blocked(allowed_hosts: frozenset[str], refuse: Refuse) -> Iterator[None]:
    """Refuse connections of this process to other hosts than *allowed_hosts*, with the error that *refuse* makes.

    Unix sockets are allowed. Only Python's `socket` is watched: not child processes, libraries with sockets of their own
    (uvloop, gRPC), asyncio's connections on Windows, or connections that were open before.
    """
    _install()
    block = (allowed_hosts, refuse)
    _blocks.append(block)
    try:
        yield
    finally:
        _blocks.remove(block)


@cache
def _install() -> None:
    """Add the hook once. Python cannot remove it, so it does nothing while nothing is blocked."""
    sys.addaudithook(_check)


def _check(event: str, arguments: tuple[object, ...]) -> None:
    if not _blocks or event not in EVENTS:
        return
    asked = arguments[EVENTS[event]]
    if event in ADDRESSES:
        asked = asked[0] if isinstance(asked, tuple) else None
    host = asked.decode(errors="replace") if isinstance(asked, bytes | bytearray) else asked
    if not isinstance(host, str) or (event in LOOKUPS and host in THIS_MACHINE):
        return
    for allowed_hosts, refuse in _blocks:
        if host not in allowed_hosts and not (event in ADDRESSES and is_address_of(allowed_hosts, host)):
            error = refuse(host)
            raise ConnectionRefusedError(str(error)) from error  # callers of a socket expect an OSError


def is_address_of(hosts: Iterable[str], address: str) -> bool:
    """Whether one of *hosts* has this address: sockets connect to the addresses that were looked up for a name."""
    return any(address in _addresses(host) for host in hosts)


def _addresses(host: str) -> set[object]:
    with suppress(OSError):  # the host has no address
        return {found[0] for *_, found in socket.getaddrinfo(host, None)}
    return set()
