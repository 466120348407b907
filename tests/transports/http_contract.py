"""What holds for both HTTP backends: ours is tested beside httpx, and where they differ, one is wrong."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import Self

import anyio
import h11
import httpx
import httpx2
import pytest
import trustme

from mcp_host.errors import ConnectFailed, ConnectionClosed
from mcp_host.limits import Limits
from mcp_host.transports._http.authorization import Auth
from mcp_host.transports._http.backend import BoundedCookieJar, HttpxBackend
from mcp_host.transports._http.pool import Pool, PoolResponse, PoolState
from mcp_host.transports._http.tls import ClientCertificate, Verify, make_context
from mcp_host.transports._http.tls import untrusting as plain

SECONDS = 60.0  # in which a test ends, on a busy machine
REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})  # RFC 9110, section 9.2.2


class PoolTransport(httpx.AsyncBaseTransport):
    """Our pool with the interface and the exceptions of httpx's transports; for one origin."""

    def __init__(self, tls: ssl.SSLContext, *, max_idle: int = 100, keepalive: float = 4.0) -> None:
        self._tls = tls
        self._max_idle = max_idle
        self._keepalive = keepalive
        self._pool: Pool | None = None
        self._closed = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self._closed:
            raise httpx.ConnectError("the pool is closed")
        if self._pool is None:
            timeouts = request.extensions.get("timeout", {})
            self._pool = Pool(
                request.url,
                "the server",
                self._tls,
                connect_timeout=timeouts.get("connect"),
                write_timeout=timeouts.get("write"),
                max_idle=self._max_idle,
                keepalive=self._keepalive,
            )
        try:
            sent = h11.Request(method=request.method, target=request.url.raw_path, headers=request.headers.raw)
        except h11.LocalProtocolError as exc:
            raise httpx.LocalProtocolError(str(exc)) from exc
        try:
            response = await self._pool.request(sent, request.content, repeatable=request.method in REPEATABLE)
        except ConnectionClosed as exc:
            raise as_httpx(exc) from exc
        return httpx.Response(
            response.status,
            headers=response.head.headers.raw_items(),
            stream=PoolStream(response),
            extensions={"http_version": b"HTTP/" + response.head.http_version, "reason_phrase": response.head.reason},
        )

    async def aclose(self) -> None:
        if self._pool is None:
            self._closed = True
        else:
            await self._pool.aclose()


class PoolStream(httpx.AsyncByteStream):
    """A response of our pool as a stream of httpx's."""

    def __init__(self, response: PoolResponse) -> None:
        self._response = response

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        try:
            piece = await self._response.read_raw()
        except ConnectionClosed as exc:
            raise as_httpx(exc) from exc
        if not piece:
            raise StopAsyncIteration
        return piece

    async def aclose(self) -> None:
        await self._response.close()


def as_httpx(exc: ConnectionClosed) -> httpx.TransportError:
    """What httpx raises for the same failure."""
    timed_out = isinstance(exc.__cause__, TimeoutError)
    if isinstance(exc, ConnectFailed):
        return httpx.ConnectTimeout(str(exc)) if timed_out else httpx.ConnectError(str(exc))
    if timed_out:
        return httpx.WriteTimeout(str(exc))
    if exc.__cause__ is None or isinstance(exc.__cause__, h11.RemoteProtocolError):
        return httpx.RemoteProtocolError(str(exc))
    return httpx.ReadError(str(exc))


@dataclass(frozen=True)
class Kind:
    """One of the two transports."""

    name: str

    @property
    def ours(self) -> bool:
        return self.name == "ours"

    @asynccontextmanager
    async def client(
        self,
        *,
        tls: ssl.SSLContext | None = None,
        max_idle: int = 100,
        keepalive: float = 600.0,
        timeout: httpx.Timeout | None = None,
    ) -> AsyncIterator[httpx.AsyncClient]:
        """A client on top of it, which nothing can keep for long."""
        context = tls or untrusting()
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=max_idle, keepalive_expiry=keepalive)
        transport = (
            PoolTransport(context, max_idle=max_idle, keepalive=keepalive)
            if self.ours
            else httpx.AsyncHTTPTransport(verify=context, limits=limits)
        )
        with anyio.fail_after(SECONDS):
            async with httpx.AsyncClient(transport=transport, timeout=timeout) as client:
                yield client


both = pytest.mark.parametrize("kind", [Kind("ours"), Kind("httpx")], ids=lambda kind: kind.name)
"""A test that holds for either transport."""


libraries = pytest.mark.parametrize("library", [httpx, httpx2], ids=["httpx", "httpx2"])
"""A test with a client of the caller's, by either library."""


@pytest.fixture(autouse=True, params=["our pool", "httpx", "httpx2"])
def by_httpx(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """For modules that import it: what holds for our own connections holds for those that a proxy in the environment
    would need, and for those of a client of httpx2 with the same options."""
    if request.param == "httpx":
        monkeypatch.setattr("mcp_host.transports._http.backend.proxied", lambda url: True)
    elif request.param == "httpx2":
        monkeypatch.setattr("mcp_host.transports._http.backend.own_backend", over_httpx2)


callers_own = pytest.mark.parametrize("by_httpx", ["our pool"], indirect=True, ids=[""])
"""A test in such a module whose client is always the caller's, or none: what would take the pool's place has no say in it."""


def over_httpx2(
    url: httpx.URL,
    headers: dict[str, str],
    name: str,
    limits: Limits,
    *,
    verify: Verify,
    cert: ClientCertificate | None,
    uds: str | None,
    auth: Auth | None,
    state: PoolState | None,
) -> HttpxBackend:
    """What `own_backend` does for a proxy, with httpx2."""
    client = httpx2.AsyncClient(
        verify=make_context(name, verify, cert) if url.scheme == "https" else plain(),
        timeout=httpx2.Timeout(None, connect=limits.connect_timeout, write=limits.stall_timeout),
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=1000, keepalive_expiry=4.0),
        cookies=BoundedCookieJar(),
    )
    return HttpxBackend(url, headers, name, client, auth)


def ours(instead: str) -> pytest.MarkDecorator:
    """A test of our pool alone, for httpx is wrong there, or does less; what it does *instead*."""
    assert instead
    return pytest.mark.parametrize("kind", [Kind("ours")], ids=["ours"])


@cache
def authority() -> trustme.CA:
    return trustme.CA()


@cache
def untrusting() -> ssl.SSLContext:
    """A client's context that trusts no certificate."""
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
