"""What holds for every transport of HTTP: ours is tried beside httpx's own, and where they differ, one is wrong."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache

import anyio
import httpx
import pytest
import trustme

from mcp_host.transports._http.pool import Pool

SECONDS = 5.0


@dataclass(frozen=True)
class Kind:
    """One of the two transports."""

    name: str

    @property
    def ours(self) -> bool:
        return self.name == "ours"

    def transport(
        self, *, tls: ssl.SSLContext | None = None, max_idle: int = 100, keepalive: float = 4.0
    ) -> httpx.AsyncBaseTransport:
        context = tls or nobody()
        if self.ours:
            return Pool(lambda: context, max_idle=max_idle, keepalive=keepalive)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=max_idle, keepalive_expiry=keepalive)
        return httpx.AsyncHTTPTransport(verify=context, limits=limits)

    @asynccontextmanager
    async def client(
        self,
        *,
        tls: ssl.SSLContext | None = None,
        max_idle: int = 100,
        keepalive: float = 4.0,
        timeout: httpx.Timeout | None = None,
    ) -> AsyncIterator[httpx.AsyncClient]:
        """A client on top of it, which nothing can keep for long."""
        transport = self.transport(tls=tls, max_idle=max_idle, keepalive=keepalive)
        with anyio.fail_after(SECONDS):
            async with httpx.AsyncClient(transport=transport, timeout=timeout) as client:
                yield client


both = pytest.mark.parametrize("kind", [Kind("ours"), Kind("httpx")], ids=lambda kind: kind.name)
"""A test that holds for either transport."""


@pytest.fixture(autouse=True, params=[False, True], ids=["our pool", "httpx"])
def by_httpx(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """For modules that import it: what holds for our own connections holds for those that a proxy in the environment would need."""
    if request.param:
        monkeypatch.setattr("mcp_host.transports._http.backends.proxied", lambda url: True)


def not_with_httpx(kind: Kind, reason: str) -> None:
    """Skip where httpx is wrong, or does less than we do; *reason* says which."""
    if not kind.ours:
        pytest.skip(f"httpx: {reason}")


@cache
def authority() -> trustme.CA:
    return trustme.CA()


@cache
def nobody() -> ssl.SSLContext:
    """A client's context that trusts nobody."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@cache
def trusting() -> ssl.SSLContext:
    """A client's context that trusts `authority`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority().configure_trust(context)
    return context


@cache
def certified(*names: str) -> ssl.SSLContext:
    """The context of a server whose certificate is good for *names*."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority().issue_cert(*names).configure_cert(context)
    return context
