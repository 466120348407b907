"""No connections while a cassette is replayed."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache

from mcp_host.testing.errors import CassetteError

HERE = frozenset({"localhost", "127.0.0.1", "::1", ""})

ADDRESSES: Mapping[str, int] = {"socket.connect": 1, "socket.sendto": 1, "socket.sendmsg": 1, "socket.getnameinfo": 0}
HOSTS: Mapping[str, int] = {"socket.getaddrinfo": 0, "socket.gethostbyname": 0, "socket.gethostbyaddr": 0}
"""The audit events of Python's sockets, and which of the arguments is the address, or the host."""

EVENTS = {**ADDRESSES, **HOSTS}
LOOKUPS = frozenset({*HOSTS, "socket.getnameinfo"})
"""Asking for an address is traffic, too. One of this machine is none."""

Refuse = Callable[[str], CassetteError]
_blocks: list[tuple[frozenset[str], Refuse]] = []


@contextmanager
def blocked(allowed_hosts: frozenset[str], refuse: Refuse) -> Iterator[None]:
    """Let no socket of this process connect or send to a host but *allowed_hosts*: that is refused, and *refuse* is told.

    Unix sockets are no network. What Python's `socket` does not do is not seen: child processes, libraries with
    sockets of their own (uvloop, gRPC), asyncio's connections on Windows, and what was connected before.
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
    """Add the hook, which cannot be removed: it does nothing while nothing is blocked."""
    sys.addaudithook(_check)


def _check(event: str, arguments: tuple[object, ...]) -> None:
    if not _blocks or event not in EVENTS:
        return
    asked = arguments[EVENTS[event]]
    if event in ADDRESSES:
        asked = asked[0] if isinstance(asked, tuple) else None
    host = asked.decode(errors="replace") if isinstance(asked, bytes | bytearray) else asked
    if not isinstance(host, str) or (event in LOOKUPS and host in HERE):
        return
    for allowed_hosts, refuse in _blocks:
        if host not in allowed_hosts and not (event in ADDRESSES and _is_address_of(allowed_hosts, host)):
            error = refuse(host)
            raise ConnectionRefusedError(str(error)) from error  # which all that connect sockets expect


def _is_address_of(hosts: Iterable[str], address: str) -> bool:
    """Whether one of *hosts* has this address: a socket connects to an address that was looked up before."""
    for host in hosts:
        with suppress(OSError):  # it has none
            if any(found[0] == address for *_, found in socket.getaddrinfo(host, None)):
                return True
    return False
