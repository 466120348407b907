"""What sends a request: our own pool where that is equivalent, httpx for all else."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from functools import cache
from typing import Protocol
from urllib.request import getproxies

import httpx

from mcp_host.limits import Limits
from mcp_host.transports._http.cookies import Jar
from mcp_host.transports._http.pool import BROKE_OFF, KEEPALIVE, MAX_IDLE, PORTS, Place, Pool, written
from mcp_host.version import __version__

USER_AGENT = f"mcp-host/{__version__}"


class HttpBackend(Protocol):
    """Sends requests, and is closed in the end."""

    @property
    def is_closed(self) -> bool: ...

    async def send(
        self, method: str, url: httpx.URL, headers: Mapping[str, str], content: bytes | None, *, repeatable: bool
    ) -> httpx.Response:
        """The response as soon as its head is there; no redirect is followed.

        What is *repeatable* is sent once more where a connection breaks before any of the response has come.

        Raises:
            httpx.HTTPError: As httpx documents.
        """

    async def aclose(self) -> None: ...


class HttpxBackend:
    """A client of httpx's, used as it is: its hooks, its authentication, its cookies."""

    def __init__(self, client: httpx.AsyncClient, timeout: httpx.Timeout) -> None:
        self._client = client
        self._timeout = timeout

    @property
    def is_closed(self) -> bool:
        return self._client.is_closed

    async def send(
        self, method: str, url: httpx.URL, headers: Mapping[str, str], content: bytes | None, *, repeatable: bool
    ) -> httpx.Response:
        auth = self._client.auth
        if url.userinfo:  # httpx would log it with the URL, at INFO; in the header it is as good
            auth = auth or _basic(url)
            url = url.copy_with(userinfo=b"")
        request = self._client.build_request(method, url, headers=headers, content=content, timeout=self._timeout)
        broken: httpx.RequestError | None = None
        while True:
            try:
                return await self._client.send(request, stream=True, auth=auth, follow_redirects=False)
            except httpx.RequestError as exc:
                if not _is_about(exc, request):
                    # What a hook or an Auth asked elsewhere failed, before ours was sent or after it was carried out.
                    raise httpx.TransportError(str(exc)) from exc
                if broken is not None:
                    raise broken from None  # the request may have been read, which that one might deny
                if not repeatable or not isinstance(exc, BROKE_OFF):
                    raise
                broken = exc  # whether the connection was one that had been kept, httpx does not say

    async def aclose(self) -> None:
        await self._client.aclose()


class PoolBackend:
    """Our own pool, without httpx's client around it, which costs more than the request itself.

    It speaks to one origin. Of what httpx's client does, it does what a server could
    tell: the user and password of the URL, and cookies, as long as it lives, because
    load balancers pin a session to a machine by them.
    """

    def __init__(self, url: httpx.URL, limits: Limits) -> None:
        self._pool = Pool(trusting)
        host = url.raw_host.decode("ascii")
        self._place = Place(url.scheme, host, url.port or PORTS[url.scheme], host)
        self._timeouts = {"connect": limits.connect_timeout, "write": limits.stall_timeout}
        self._cookies: httpx.Cookies | None = None
        self._defaults = {"host": url.netloc.decode("ascii"), "user-agent": USER_AGENT}
        self._forced = _credentials(url)

    @property
    def is_closed(self) -> bool:
        return self._pool.closed

    async def send(
        self, method: str, url: httpx.URL, headers: Mapping[str, str], content: bytes | None, *, repeatable: bool
    ) -> httpx.Response:
        head = written(method.encode(), url.raw_path, self._headers(url, headers, content))
        response = await self._pool.exchange(self._place, head, content or b"", self._timeouts, repeatable=repeatable)
        if "set-cookie" in response.headers:
            self._cookies = self._cookies or httpx.Cookies(Jar())
            response.request = httpx.Request(method, url)
            self._cookies.extract_cookies(response)
        return response

    async def aclose(self) -> None:
        await self._pool.aclose()

    def _headers(self, url: httpx.URL, headers: Mapping[str, str], content: bytes | None) -> list[tuple[bytes, bytes]]:
        if self._cookies is not None or self._forced:
            headers = self._dressed(url, headers)
        given = {name.lower() for name in headers}
        raw = [(name.encode(), value.encode()) for name, value in self._defaults.items() if name not in given]
        raw.extend((name.encode("ascii"), value.encode("ascii")) for name, value in headers.items())
        if content is not None:
            raw.append((b"content-length", b"%d" % len(content)))
        return raw

    def _dressed(self, url: httpx.URL, headers: Mapping[str, str]) -> Mapping[str, str]:
        request = httpx.Request("GET", url, headers=headers)
        request.headers.update(self._forced)
        if self._cookies is not None:
            self._cookies.set_cookie_header(request)
        return request.headers


def _is_about(error: httpx.RequestError, request: httpx.Request) -> bool:
    """Whether it is this request that failed: httpx writes down which, where it sends one."""
    try:
        return error.request is request
    except RuntimeError:  # raised by other code, which has sent nothing
        return False


def own_client(url: httpx.URL, limits: Limits) -> HttpBackend:
    """The client to use where the caller gave none. Proxies and SSL_CERT_FILE of the environment apply."""
    if not proxied(url):
        return PoolBackend(url, limits)
    timeout = httpx.Timeout(None, connect=limits.connect_timeout, write=limits.stall_timeout)
    # Streams stay open for hours: a bound on connections would be a deadlock in waiting.
    bounds = httpx.Limits(max_connections=None, max_keepalive_connections=MAX_IDLE, keepalive_expiry=KEEPALIVE)
    client = httpx.AsyncClient(verify=_tls(url), timeout=timeout, limits=bounds, cookies=Jar())
    return HttpxBackend(client, timeout)


def proxied(url: httpx.URL) -> bool:
    """Whether the environment may have a proxy for *url*. How far a pattern in NO_PROXY reaches is httpx's to say."""
    proxies = getproxies()
    if not (proxies.get(url.scheme) or proxies.get("all")):
        return False
    excepted = {host.strip() for host in proxies.get("no", "").split(",")}
    return "*" not in excepted and url.host not in excepted


def _tls(url: httpx.URL) -> ssl.SSLContext:
    secure = url.scheme == "https" or any(proxy.startswith("https:") for proxy in getproxies().values())
    return trusting() if secure else _unused()


@cache
def trusting() -> ssl.SSLContext:
    """One for the process: reading the certificates takes 12 ms or more."""
    context = httpx.create_ssl_context()
    # OpenSSL's own default depends on the machine; one that asks for more is obeyed.
    context.minimum_version = max(context.minimum_version, ssl.TLSVersion.TLSv1_2)
    context.set_alpn_protocols(["http/1.1"])  # as httpx does: nobody need guess
    return context


@cache
def _unused() -> ssl.SSLContext:
    """For http:// alone; should it ever be used, it trusts nobody."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _credentials(url: httpx.URL) -> dict[str, str]:
    if (basic := _basic(url)) is None:
        return {}
    request = next(basic.auth_flow(httpx.Request("GET", url)))
    return {"Authorization": request.headers["Authorization"]}


def _basic(url: httpx.URL) -> httpx.BasicAuth | None:
    return httpx.BasicAuth(url.username, url.password) if url.username or url.password else None
