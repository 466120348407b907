"""No connections while a cassette is replayed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

from mcp_host.testing.errors import CassetteError

HERE = frozenset({"localhost", "127.0.0.1", "::1", ""})

Refuse = Callable[[str], CassetteError]
_blocks: list[tuple[frozenset[str], Refuse]] = []


@contextmanager
def blocked(allowed_hosts: frozenset[str], refuse: Refuse) -> Iterator[None]:
    """Let no socket of this process connect to a host but *allowed_hosts*: that is refused, and *refuse* is told.

    Unix sockets are no network.
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
    if not _blocks:
        return
    host: object = None
    if event == "socket.connect" and isinstance(address := arguments[1], tuple):
        host = address[0]
    elif event == "socket.getaddrinfo":  # asking for an address is traffic, too; one of this machine is none
        asked = arguments[0].decode() if isinstance(arguments[0], bytes) else arguments[0]
        host = None if asked in HERE else asked
    if isinstance(host, str):
        for allowed_hosts, refuse in _blocks:
            if host not in allowed_hosts:
                error = refuse(host)
                raise ConnectionRefusedError(str(error)) from error  # which all that connect sockets expect
