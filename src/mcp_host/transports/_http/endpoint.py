"""Requests to one server: never past its origin, and without a trace of the HTTP library in what goes wrong."""

from __future__ import annotations

from collections.abc import Mapping

import httpx

from mcp_host.errors import ConnectionClosed, HttpStatusError, excerpt
from mcp_host.transports._http.backends import HttpBackend
from mcp_host.transports._http.response import FAILURES, HttpResponse, Leave, broken, cause

MAX_REDIRECTS = 5  # curl allows 50 and browsers 20; within one origin, even two are odd
REDIRECTS = frozenset({301, 302, 303, 307, 308})


def parse(url: str) -> httpx.URL:
    """An absolute http(s) URL, without its fragment. The error quotes nothing: a URL may hold a password.

    Raises:
        ValueError: It is none.
    """
    if url != url.strip():
        raise ValueError("the URL has space around it: url.strip() removes it")
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


class Endpoint:
    """One URL, and the client to reach it with.

    A kept-alive connection that the server closes just as it is used again fails
    that POST with `may_have_run=True`: nothing tells an unread request from one
    that was carried out before the connection broke. Only what is *repeatable* is sent twice.
    """

    def __init__(self, client: HttpBackend, url: httpx.URL, name: str, leave: Leave) -> None:
        self.name = name
        self._client = client
        self._url = url
        self._leave = leave

    async def send(
        self, method: str, headers: Mapping[str, str], content: bytes | None = None, *, repeatable: bool = False
    ) -> HttpResponse:
        """Send a request and return its response as soon as its headers are there, whatever its status.

        Redirects that keep the method (307, 308) are followed within the origin.

        Raises:
            ConnectionClosed: The server could not be reached, or the connection broke.
            HttpStatusError: A redirect that is not followed.
        """
        url = self._url
        for _ in range(MAX_REDIRECTS + 1):
            reply = await self._send(method, url, headers, content, repeatable)
            if reply.status not in REDIRECTS:
                return reply
            async with reply:
                url = self._redirected(url, reply)
        raise HttpStatusError(reply.status, f"{reply.failure}: gave up after {MAX_REDIRECTS} redirects")

    async def _send(
        self, method: str, url: httpx.URL, headers: Mapping[str, str], content: bytes | None, repeatable: bool
    ) -> HttpResponse:
        if self._client.is_closed:
            raise ConnectionClosed(f"{self.name}: the httpx.AsyncClient was closed", may_have_run=False)
        try:
            response = await self._client.send(method, url, headers, content, repeatable=repeatable)
            return HttpResponse(response, self.name, self._leave)
        except FAILURES as exc:
            raise broken(exc, self.name) from cause(exc)

    def _redirected(self, url: httpx.URL, reply: HttpResponse) -> httpx.URL:
        location = reply.headers.get("location")
        if location is None:
            raise self._refused(reply, "nowhere")
        try:
            target = url.join(location)
        except FAILURES as exc:
            raise broken(exc, self.name) from cause(exc)
        if reply.status not in (307, 308):
            raise self._refused(reply, f"{shown(target)}, which would change the method")
        if _origin(target) != _origin(url):
            raise self._refused(reply, f"{shown(target)}, another origin")
        return url.copy_with(raw_path=target.raw_path)  # the user and password stay ours

    def _refused(self, reply: HttpResponse, to: str) -> HttpStatusError:
        return HttpStatusError(reply.status, f"{reply.failure}: refused to follow a redirect to {excerpt(to)}")


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port  # httpx leaves out a scheme's default port, and lowers the case
