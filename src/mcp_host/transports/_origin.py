"""Requests to one server: never past its origin, and without a trace of the HTTP library in what goes wrong."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from functools import cache
from urllib.request import getproxies

import httpx

from mcp_host.errors import ConnectionClosed, HttpStatusError, excerpt
from mcp_host.limits import Limits
from mcp_host.transports._reply import FAILURES, Leave, Reply, broken

MAX_REDIRECTS = 5  # curl allows 50 and browsers 20; within one origin, even two are odd
REDIRECTS = frozenset({301, 302, 303, 307, 308})
KEEPALIVE = 4.0  # seconds; uvicorn and Node close idle connections after 5, and a race with that loses requests
MAX_IDLE = 100  # kept-alive connections: more than are in flight at once in most hosts


def parse(url: str) -> httpx.URL:
    """An absolute http(s) URL, without its fragment. The error quotes nothing: a URL may hold a password.

    Raises:
        ValueError: It is none.
    """
    try:
        parsed = httpx.URL(url)
        parsed.raw_host.decode().encode("idna")  # as the resolver will: it has a label of 0 or 64 letters for a bug
    except (httpx.InvalidURL, UnicodeError):
        raise ValueError("not a URL") from None
    if parsed.scheme not in ("http", "https") or not parsed.host or not 0 < (parsed.port or 80) < 65536:
        raise ValueError("not the URL of an HTTP server: it must look like https://host/path")
    return parsed.copy_with(fragment=None)


def shown(url: httpx.URL) -> str:
    """A URL for messages: without user, password, query and fragment, which may be secrets."""
    return str(url.copy_with(userinfo=b"", query=None, fragment=None))


class Origin:
    """One URL, and the client to reach it with.

    A kept-alive connection that the server closes just as it is used again fails
    that request with `may_have_run=True`: nothing tells an unread request from one
    that was carried out before the connection broke, so none is sent twice.
    """

    def __init__(self, client: httpx.AsyncClient, url: httpx.URL, leave: Leave, *, own: bool) -> None:
        self.name = shown(url)
        self._client = client
        self._url = url
        self._leave = leave
        # How long a call may take is for its caller to say, not for the HTTP library.
        given = client.timeout
        self._timeout = given if own else httpx.Timeout(None, connect=given.connect, write=given.write, pool=given.pool)

    async def send(self, method: str, headers: Mapping[str, str], content: bytes | None = None) -> Reply:
        """Send a request and return its response as soon as its headers are there, whatever its status.

        Redirects that keep the method (307, 308) are followed within the origin.

        Raises:
            ConnectionClosed: The server could not be reached, or the connection broke.
            HttpStatusError: A redirect that is not followed.
        """
        url = self._url
        for _ in range(MAX_REDIRECTS + 1):
            reply = await self._send(method, url, headers, content)
            if reply.status not in REDIRECTS:
                return reply
            async with reply:
                url = self._redirected(url, reply)
        raise HttpStatusError(reply.status, f"HTTP {reply.reason}: gave up after {MAX_REDIRECTS} redirects")

    async def _send(self, method: str, url: httpx.URL, headers: Mapping[str, str], content: bytes | None) -> Reply:
        if self._client.is_closed:
            raise ConnectionClosed(f"{self.name}: the httpx.AsyncClient was closed", may_have_run=False)
        request = self._client.build_request(method, url, headers=headers, content=content, timeout=self._timeout)
        try:
            response = await self._client.send(request, stream=True, follow_redirects=False)
            return Reply(response, self.name, self._leave)
        except FAILURES as exc:
            raise broken(exc, self.name) from exc

    def _redirected(self, url: httpx.URL, reply: Reply) -> httpx.URL:
        target = reply.location
        if target is None:
            raise self._refused(reply, "nowhere")
        if reply.status not in (307, 308):
            raise self._refused(reply, f"{shown(target)}, which would change the method")
        if _origin(target) != _origin(url):
            raise self._refused(reply, f"{shown(target)}, another origin")
        return url.copy_with(raw_path=target.raw_path)  # the user and password stay ours

    def _refused(self, reply: Reply, to: str) -> HttpStatusError:
        return HttpStatusError(reply.status, f"HTTP {reply.reason}: refused to follow a redirect to {excerpt(to)}")


def own_client(url: httpx.URL, limits: Limits) -> httpx.AsyncClient:
    """The client to use where the caller gave none. Proxies and SSL_CERT_FILE of the environment apply.

    It keeps cookies, as long as it lives: load balancers pin a session to a
    machine by them, and they never leave the origin.
    """
    timeout = httpx.Timeout(None, connect=limits.connect_timeout, write=limits.stall_timeout)
    # Streams stay open for hours: a bound on connections would be a deadlock in waiting.
    bounds = httpx.Limits(max_connections=None, max_keepalive_connections=MAX_IDLE, keepalive_expiry=KEEPALIVE)
    return httpx.AsyncClient(verify=_tls(url), timeout=timeout, limits=bounds)


def _tls(url: httpx.URL) -> ssl.SSLContext:
    secure = url.scheme == "https" or any(proxy.startswith("https:") for proxy in getproxies().values())
    return _trusting() if secure else _unused()


@cache
def _trusting() -> ssl.SSLContext:
    """One for the process: reading the certificates takes 12 ms or more."""
    return httpx.create_ssl_context()


@cache
def _unused() -> ssl.SSLContext:
    """For http:// alone; should it ever be used, it trusts nobody."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port  # httpx leaves out a scheme's default port, and lowers the case
